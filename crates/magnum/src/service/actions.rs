//! What is done to a cluster: another number of nodes.

use api::magnum::{CoeCluster, NodeGroup, State};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Answer, Asked,
    clusters::{bounded, change, own},
    templates::mandatory,
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
        let changed = change(asked, cluster, |cluster| {
            changeable(cluster)?;
            let title = cluster.title().to_owned();
            let server = cluster.spec.server_type.unwrap_or_default();
            let group = group_of(cluster, &self.group)
                .ok_or_else(|| Fault::not_found("Nodegroup", &self.group))?;
            if server.has_machines() && machines::is_scaled(group) {
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

/// Lets pass what is made here. A cluster that another Magnum made has servers that nobody here could change.
pub(super) fn made_here(cluster: &CoeCluster) -> Result<(), Fault> {
    if cluster.spec.imported.is_none() {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "Cluster {} was made by another Magnum: it is shown, and certificates are signed for it, but it is not changed or deleted here. Change it by what made it, or make a new cluster and move to it.",
        cluster.name_any()
    )))
}

/// Lets pass what can be changed now. One that failed can be changed again, or nobody would ever bring it back.
pub(super) fn changeable(cluster: &CoeCluster) -> Result<(), Fault> {
    made_here(cluster)?;
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
