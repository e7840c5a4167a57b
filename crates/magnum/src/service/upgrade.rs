//! What is done to a cluster: another version of Kubernetes, of all its nodes or of one node group.
//!
//! The version of the cluster is that of its control planes. A group that keeps another one says so itself, which it does from the
//! moment that the control planes are upgraded without it until it follows.

use api::{
    KubernetesVersion,
    magnum::{CoeCluster, CoeClusterTemplate, NodeGroup, ServerType, State},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Answer, Asked,
    actions::{group_of, made_here},
    clusters::{any, change, kubernetes_version, of_servers, renderable, version_of_image},
    templates::{mandatory, seen},
};
use crate::{
    contract::{Fault, Version},
    view,
};

/// How many minor versions a kubelet may be behind its control planes.
///
/// # Source
/// <https://kubernetes.io/releases/version-skew-policy/#kubelet>
const MOST_BEHIND: u16 = 3;

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
    let wanted = version_to_be(asked, &cluster, &template).await?;
    let changed = change(asked, cluster, |cluster| {
        upgradable(cluster)?;
        cluster.spec.max_batch_size = Some(batch);
        match &group {
            None => upgraded(cluster, &template, wanted)?,
            Some(group) => {
                let group = named(cluster, &template, group)?;
                upgraded_alone(cluster, &template, &group, wanted)?;
            }
        }
        not_left_behind(cluster)?;
        renderable(cluster, &template)
    });
    changed.await?;
    Answer::accepted(uuid)
}

/// The version that a template is for: that of its label, or else what its image says that it has. Where neither says it, none is compared
/// and the cluster's stays.
async fn version_to_be(
    asked: &Asked<'_>,
    cluster: &CoeCluster,
    template: &CoeClusterTemplate,
) -> Result<Option<KubernetesVersion>, Fault> {
    let told = kubernetes_version(&template.spec.labels)?;
    if told.is_some() {
        return Ok(told);
    }
    let Some(session) = of_servers(asked, cluster).await? else {
        return Ok(None);
    };
    match version_of_image(&template.spec.image_id, &session).await {
        // An administrator's token shows what they have, and not what the cluster's project has.
        Err(_) if cluster.spec.project_id != asked.caller.project_id => Ok(None),
        version => version,
    }
}

fn upgradable(cluster: &CoeCluster) -> Result<(), Fault> {
    made_here(cluster)?;
    let state = view::state(cluster);
    if state.is_complete() || state == State::UpdateFailed {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "Upgrading a cluster when status is \"{}\" is not supported.",
        state.word()
    )))
}

fn named(
    cluster: &mut CoeCluster,
    template: &CoeClusterTemplate,
    ident: &str,
) -> Result<NodeGroup, Fault> {
    let own = cluster.spec.cluster_template_id == template.name_any();
    let group = group_of(cluster, ident).ok_or_else(|| Fault::not_found("Nodegroup", ident))?;
    if group.is_default() || own {
        return Ok(group.clone());
    }
    Err(Fault::conflict(
        "A nodegroup that is not a default one is upgraded to the template of its cluster.",
    ))
}

/// All groups together. All that can be seen before anything changes is looked at before anything changes.
fn upgraded(
    cluster: &mut CoeCluster,
    template: &CoeClusterTemplate,
    wanted: Option<KubernetesVersion>,
) -> Result<(), Fault> {
    reachable(version_of(cluster), wanted, cluster, template)?;
    // The image has the programs of its version. A group with one of its own keeps it.
    let groups = &cluster.spec.node_groups;
    let ours: Vec<_> = groups
        .iter()
        .filter(|group| group.is_default())
        .filter_map(|group| group.image_id.clone())
        .collect();
    let server = cluster.spec.server_type.unwrap_or_default();
    for group in &mut cluster.spec.node_groups {
        group.kubernetes_version = None;
        group.updated_at = Some(view::moment(Timestamp::now()));
        let is_ours = group
            .image_id
            .as_ref()
            .is_none_or(|image| ours.contains(image));
        if is_ours && server.has_machines() {
            group.image_id = Some(template.spec.image_id.clone());
        }
    }
    of_template(cluster, template, wanted);
    Ok(())
}

/// One group; the others stay as they are.
fn upgraded_alone(
    cluster: &mut CoeCluster,
    template: &CoeClusterTemplate,
    group: &NodeGroup,
    wanted: Option<KubernetesVersion>,
) -> Result<(), Fault> {
    let control_planes = version_of(cluster);
    let has = group.kubernetes_version.or(control_planes);
    let before = control_planes.filter(|_| group.is_master());
    reachable(before, wanted, cluster, template)?;
    match cluster.spec.server_type.unwrap_or_default() {
        ServerType::Vm => {}
        ServerType::Bm if wanted.is_none() || wanted == has => return Ok(()),
        ServerType::Bm => {
            return Err(Fault::invalid(format!(
                "Node group {} can not be upgraded alone: kubespray gives all nodes of a bare-metal cluster one version. Upgrade the cluster without naming a nodegroup; max_batch_size says how many workers are taken out of service at once.",
                group.name
            )));
        }
    }
    if group.is_master() {
        for other in &mut cluster.spec.node_groups {
            if !other.is_master() {
                other.kubernetes_version =
                    other.kubernetes_version.or(cluster.spec.kubernetes_version);
            }
        }
        of_template(cluster, template, wanted);
    } else {
        followed(group, has, wanted, control_planes)?;
    }
    let of_cluster = cluster.spec.kubernetes_version;
    if let Some(group) = group_of(cluster, &group.uuid) {
        group.image_id = Some(template.spec.image_id.clone());
        group.updated_at = Some(view::moment(Timestamp::now()));
        group.kubernetes_version = if group.is_master() {
            None
        } else {
            wanted
                .or(group.kubernetes_version)
                .filter(|version| Some(*version) != of_cluster)
        };
    }
    Ok(())
}

/// Lets pass workers that come no further than their control planes, and do not go back.
fn followed(
    group: &NodeGroup,
    has: Option<KubernetesVersion>,
    wanted: Option<KubernetesVersion>,
    control_planes: Option<KubernetesVersion>,
) -> Result<(), Fault> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    match (has, control_planes) {
        (Some(has), _) if has > wanted => Err(back(&group.name, has, wanted)),
        (_, Some(control_planes)) if wanted > control_planes => Err(Fault::invalid(format!(
            "Node group {} can not be brought to Kubernetes {wanted}, for the control planes are of {control_planes}. Upgrade nodegroup default-master first, or the cluster without naming a nodegroup.",
            group.name
        ))),
        _ => Ok(()),
    }
}

/// Lets pass a version that control planes which have this one can be brought to.
fn reachable(
    has: Option<KubernetesVersion>,
    wanted: Option<KubernetesVersion>,
    cluster: &CoeCluster,
    template: &CoeClusterTemplate,
) -> Result<(), Fault> {
    if template.spec.server_type.unwrap_or_default() != cluster.spec.server_type.unwrap_or_default()
    {
        return Err(Fault::invalid("The template is of another server_type."));
    }
    match (wanted, has) {
        (Some(wanted), Some(has)) if has > wanted => Err(back("Kubernetes", has, wanted)),
        (Some(wanted), Some(has)) if !is_next(has, wanted) => Err(Fault::invalid(format!(
            "Kubernetes {has} can not be brought to {wanted} at once: go one minor version after the other."
        ))),
        _ => Ok(()),
    }
}

fn back(what: &str, has: KubernetesVersion, wanted: KubernetesVersion) -> Fault {
    Fault::invalid(format!("{what} {has} can not be brought back to {wanted}."))
}

/// Lets pass groups whose kubelets the control planes still support.
fn not_left_behind(cluster: &CoeCluster) -> Result<(), Fault> {
    let Some(version) = cluster.spec.kubernetes_version else {
        return Ok(());
    };
    let is_behind = |group: &&NodeGroup| {
        let own = group.kubernetes_version;
        own.is_some_and(|own| own.minor.saturating_add(MOST_BEHIND) < version.minor)
    };
    match cluster.spec.node_groups.iter().find(is_behind) {
        Some(group) => Err(Fault::invalid(format!(
            "Node group {} would be more than {MOST_BEHIND} minor versions behind Kubernetes {version}. Upgrade it first.",
            group.name
        ))),
        None => Ok(()),
    }
}

/// What is of the whole cluster follows its control planes.
fn of_template(
    cluster: &mut CoeCluster,
    template: &CoeClusterTemplate,
    wanted: Option<KubernetesVersion>,
) {
    cluster.spec.cluster_template_id = template.name_any();
    if let Some(wanted) = wanted {
        cluster.spec.kubernetes_version = Some(wanted);
        let tag = format!("v{wanted}");
        cluster.spec.labels.insert("kube_tag".to_owned(), tag);
    }
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
