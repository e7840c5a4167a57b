//! What is done to a cluster: another number of nodes, another version.

use api::{
    KubernetesVersion,
    magnum::{CoeCluster, CoeClusterTemplate, NodeGroup, ServerType, State},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Answer, Asked,
    clusters::{any, bounded, kubernetes_version, own, renderable},
    templates::{mandatory, seen},
};
use crate::{
    contract::{Fault, Version},
    machines,
    store::Stored,
    view,
};

/// The group that workers are in where nobody names one.
const WORKERS: &str = "default-worker";

/// A group that gets another number of nodes.
pub(super) struct Resize {
    group: String,
    count: u32,
    nodes_to_remove: Vec<String>,
}

pub(super) async fn resize(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::RESIZE)?;
    let mut fields = asked.fields()?;
    let count = fields.count("node_count", 0)?;
    let resize = Resize {
        count: count.ok_or_else(|| mandatory("node_count"))?,
        nodes_to_remove: fields.list("nodes_to_remove")?,
        group: fields
            .text("nodegroup", 255)?
            .unwrap_or_else(|| WORKERS.to_owned()),
    };
    fields.finish()?;
    let cluster = own(asked, ident).await?;
    let uuid = json!({"uuid": cluster.name_any()});
    resize.carry_out(asked, cluster).await?;
    Answer::accepted(uuid)
}

impl Resize {
    /// Of the group that workers are in where nobody names one.
    pub(super) fn of_workers(count: u32) -> Self {
        Self {
            group: WORKERS.to_owned(),
            count,
            nodes_to_remove: Vec::new(),
        }
    }

    pub(super) async fn carry_out(
        &self,
        asked: &Asked<'_>,
        cluster: CoeCluster,
    ) -> Result<(), Fault> {
        let changed = asked.store().change(cluster, |cluster| {
            changeable(cluster)?;
            let title = cluster.title().to_owned();
            let is_vm = cluster.spec.server_type.unwrap_or_default() == ServerType::Vm;
            let group = group_of(cluster, &self.group)
                .ok_or_else(|| Fault::not_found("Nodegroup", &self.group))?;
            if is_vm && machines::is_scaled(group) {
                return Err(Fault::invalid(format!(
                    "Node group {} has auto_scaling_enabled, and its autoscaler says how many nodes it has. Change its min_node_count and max_node_count instead.",
                    group.name
                )));
            }
            self.fits(&title, group)?;
            group.node_count = self.count;
            group.nodes_to_remove.clone_from(&self.nodes_to_remove);
            group.updated_at = Some(view::moment(Timestamp::now()));
            bounded(cluster)
        });
        changed.await.map(drop)
    }

    fn fits(&self, cluster: &str, group: &NodeGroup) -> Result<(), Fault> {
        if group.is_master() && self.count.is_multiple_of(2) {
            return Err(Fault::invalid(
                "The number of control planes must be odd: etcd needs a majority.",
            ));
        }
        if self.count < group.min_node_count.unwrap_or_default() {
            return Err(Fault::invalid(format!(
                "Resizing {cluster} outside the allowed range: min_node_count = {}",
                group.min_node_count.unwrap_or_default()
            )));
        }
        match group.max_node_count {
            Some(most) if self.count > most => Err(Fault::invalid(format!(
                "Resizing {cluster} outside the allowed range: max_node_count = {most}"
            ))),
            _ => Ok(()),
        }
    }
}

/// A group by its UUID or name.
pub(super) fn group_of<'a>(cluster: &'a mut CoeCluster, ident: &str) -> Option<&'a mut NodeGroup> {
    let mut groups = cluster.spec.node_groups.iter_mut();
    groups.find(|group| group.uuid == ident || group.name == ident)
}

/// Lets pass what can be changed now. One that failed can be changed again, or nobody would ever bring it back.
pub(super) fn changeable(cluster: &CoeCluster) -> Result<(), Fault> {
    let state = view::state(cluster);
    let is_free =
        state.is_complete() || matches!(state, State::UpdateFailed | State::UpdateInProgress);
    if is_free {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "Updating a cluster when status is \"{}\" is not supported.",
        state.word()
    )))
}

pub(super) async fn upgrade(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    // Actions are served from the version of the first one on; of the second one the reference says so in words.
    asked.version.from_on(Version::RESIZE)?;
    if asked.version < Version::UPGRADE {
        return Err(Fault::invalid(
            "Cluster upgrade is not supported in the provided microversion.",
        ));
    }
    let mut fields = asked.fields()?;
    let wanted = fields.text("cluster_template", 255)?;
    let wanted = wanted.ok_or_else(|| mandatory("cluster_template"))?;
    let batch = fields.count("max_batch_size", 1)?.unwrap_or(1);
    let group = fields.text("nodegroup", 255)?;
    fields.finish()?;
    let cluster = any(asked, ident).await?;
    let uuid = json!({"uuid": cluster.name_any()});
    let template = seen(asked, &wanted).await?;
    let changed = asked.store().change(cluster, |cluster| {
        upgradable(cluster)?;
        if let Some(group) = &group {
            let group = group_of(cluster, group).ok_or_else(|| Fault::not_found("Nodegroup", group))?;
            let is_default = group.is_default();
            if !is_default && cluster.spec.cluster_template_id != template.name_any() {
                return Err(Fault::conflict(
                    "A nodegroup that is not a default one is upgraded to the template of its cluster.",
                ));
            }
        }
        cluster.spec.max_batch_size = Some(batch);
        upgraded(cluster, &template)
    });
    changed.await?;
    Answer::accepted(uuid)
}

fn upgradable(cluster: &CoeCluster) -> Result<(), Fault> {
    let state = view::state(cluster);
    if state.is_complete() || state == State::UpdateFailed {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "Upgrading a cluster when status is \"{}\" is not supported.",
        state.word()
    )))
}

/// All that can be seen before anything changes is looked at before anything changes.
fn upgraded(cluster: &mut CoeCluster, template: &CoeClusterTemplate) -> Result<(), Fault> {
    let wanted = kubernetes_version(&template.spec.labels)?;
    if template.spec.server_type.unwrap_or_default() != cluster.spec.server_type.unwrap_or_default()
    {
        return Err(Fault::invalid("The template is of another server_type."));
    }
    if let (Some(wanted), Some(has)) = (wanted, version_of(cluster)) {
        if has > wanted {
            return Err(Fault::invalid(format!(
                "Kubernetes {has} can not be brought back to {wanted}."
            )));
        }
        if !is_next(has, wanted) {
            return Err(Fault::invalid(format!(
                "Kubernetes {has} can not be brought to {wanted} at once: go one minor version after the other."
            )));
        }
    }
    cluster.spec.cluster_template_id = template.name_any();
    if let Some(wanted) = wanted {
        cluster.spec.kubernetes_version = Some(wanted);
        let tag = format!("v{wanted}");
        cluster.spec.labels.insert("kube_tag".to_owned(), tag);
    }
    if cluster.spec.server_type.unwrap_or_default() == ServerType::Vm {
        // The image has the programs of its version. A group with one of its own keeps it.
        let mut masters = cluster.spec.node_groups.iter();
        let old = masters.find(|group| group.is_master());
        let old = old.and_then(|group| group.image_id.clone());
        let groups = cluster.spec.node_groups.iter_mut();
        for group in groups.filter(|group| group.image_id == old) {
            group.image_id = Some(template.spec.image_id.clone());
        }
    }
    renderable(cluster, template)
}

/// What runs, or else what was asked for.
fn version_of(cluster: &CoeCluster) -> Option<KubernetesVersion> {
    let told = cluster
        .status
        .as_ref()
        .and_then(|status| status.coe_version.as_deref());
    let told = told.and_then(|told| told.strip_prefix('v').unwrap_or(told).parse().ok());
    told.or(cluster.spec.kubernetes_version)
}

fn is_next(has: KubernetesVersion, wanted: KubernetesVersion) -> bool {
    wanted.major == has.major && wanted.minor <= has.minor.saturating_add(1)
}
