//! Node groups of a cluster.

use std::collections::BTreeMap;

use api::magnum::{CoeCluster, NodeGroup, Role};
use jiff::Timestamp;
use serde_json::{Map, json};
use uuid::Uuid;

use super::{
    Answer, Asked,
    actions::{changeable, group_of},
    clusters::{any, bounded, change, own},
    entries,
};
use crate::{
    contract::{Fault, Fields, Version, nodes, patch::Rules},
    view,
};

/// What lists can be ordered by.
const COLUMNS: [&str; 9] = [
    "uuid",
    "name",
    "flavor_id",
    "image_id",
    "role",
    "node_count",
    "min_node_count",
    "max_node_count",
    "is_default",
];

/// What is for us to write.
const READ_ONLY: [&str; 12] = [
    "id",
    "uuid",
    "cluster_id",
    "project_id",
    "links",
    "node_addresses",
    "is_default",
    "stack_id",
    "status",
    "status_reason",
    "created_at",
    "updated_at",
];

const RULES: Rules = Rules {
    only: Some(&[
        "min_node_count",
        "max_node_count",
        "node_labels",
        "node_taints",
    ]),
    internal: &[],
    mandatory: &[],
};

pub(super) async fn list(asked: &Asked<'_>, cluster: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::NODE_GROUPS)?;
    let page = asked.paged(&COLUMNS, &["role"])?;
    let cluster = any(asked, cluster).await?;
    let role = asked.argument("role");
    let groups = cluster.spec.node_groups.iter();
    let groups = groups.filter(|group| role.is_none_or(|role| group.role.0 == role));
    let all = entries(groups.map(|group| view::group(&cluster, group)))?;
    let path = format!(
        "clusters/{}/nodegroups",
        kube::ResourceExt::name_any(&cluster)
    );
    asked.page("nodegroups", &path, &page, all)
}

pub(super) async fn show(asked: &Asked<'_>, cluster: &str, ident: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::NODE_GROUPS)?;
    let cluster = any(asked, cluster).await?;
    shown(asked, &cluster, ident).and_then(Answer::ok)
}

fn shown(
    asked: &Asked<'_>,
    cluster: &CoeCluster,
    ident: &str,
) -> Result<crate::contract::objects::NodeGroup, Fault> {
    let mut groups = cluster.spec.node_groups.iter();
    let group = groups.find(|group| group.uuid == ident || group.name == ident);
    let group = group.ok_or_else(|| Fault::not_found("Nodegroup", ident))?;
    Ok(view::group_detail(cluster, group, &asked.base))
}

pub(super) async fn create(asked: &Asked<'_>, cluster: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::NODE_GROUPS)?;
    let fields = asked.fields()?;
    fields.refuse(&READ_ONLY)?;
    let wish = Wish::read(fields, asked.version)?;
    let cluster = own(asked, cluster).await?;
    let changed = change(asked, cluster, |cluster| {
        changeable(cluster)?;
        let group = wish.resolve(cluster);
        if group_of(cluster, &group.name).is_some() {
            return Err(Fault::conflict(format!(
                "A node group with name {} already exists in the cluster.",
                group.name
            )));
        }
        cluster.spec.node_groups.push(group);
        bounded(cluster)
    });
    let changed = changed.await?;
    shown(asked, &changed, &wish.group.name).and_then(Answer::accepted)
}

pub(super) async fn update(asked: &Asked<'_>, cluster: &str, ident: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::NODE_GROUPS)?;
    let patch = asked.patch()?;
    let cluster = own(asked, cluster).await?;
    if patch.is_empty() {
        return shown(asked, &cluster, ident).and_then(Answer::accepted);
    }
    let changed = change(asked, cluster, |cluster| {
        changeable(cluster)?;
        let group = group_of(cluster, ident).ok_or_else(|| Fault::not_found("Nodegroup", ident))?;
        let before = Map::from_iter([
            (
                "min_node_count".to_owned(),
                json!(group.min_node_count.unwrap_or_default()),
            ),
            ("max_node_count".to_owned(), json!(group.max_node_count)),
            ("node_labels".to_owned(), json!(group.node_labels)),
            ("node_taints".to_owned(), json!(group.node_taints)),
        ]);
        let mut after = Fields::new(patch.apply(&before, &RULES)?);
        group.min_node_count = after.count("min_node_count", 0)?;
        group.max_node_count = after.count("max_node_count", 1)?;
        read_node_settings(&mut after, group)?;
        group.updated_at = Some(view::moment(Timestamp::now()));
        fits(group)?;
        bounded(cluster)
    });
    let changed = changed.await?;
    shown(asked, &changed, ident).and_then(Answer::accepted)
}

pub(super) async fn delete(asked: &Asked<'_>, cluster: &str, ident: &str) -> Result<Answer, Fault> {
    asked.version.from_on(Version::NODE_GROUPS)?;
    let cluster = own(asked, cluster).await?;
    let changed = asked.store().change(cluster, |cluster| {
        let group = group_of(cluster, ident).ok_or_else(|| Fault::not_found("Nodegroup", ident))?;
        if group.is_default() {
            return Err(Fault::invalid(
                "Deleting a default nodegroup is not supported.",
            ));
        }
        let uuid = group.uuid.clone();
        changeable(cluster)?;
        cluster.spec.node_groups.retain(|group| group.uuid != uuid);
        Ok(())
    });
    changed.await?;
    Ok(Answer::done())
}

/// What a body says of a new group.
struct Wish {
    group: NodeGroup,
    labels: Option<BTreeMap<String, String>>,
    merge_labels: bool,
}

impl Wish {
    fn read(mut fields: Fields, version: Version) -> Result<Self, Fault> {
        let all = &mut fields;
        let role = all.text("role", 255)?.map_or_else(Role::default, Role);
        if role.0 == Role::MASTER {
            return Err(Fault::invalid("The role master is reserved."));
        }
        let least = u32::from(version < Version::EMPTY_GROUPS);
        let mut group = NodeGroup {
            uuid: Uuid::new_v4().to_string(),
            name: all
                .text("name", 255)?
                .ok_or_else(|| super::templates::mandatory("name"))?,
            role,
            node_count: all.count("node_count", least)?.unwrap_or(1),
            min_node_count: Some(all.count("min_node_count", 0)?.unwrap_or(least)),
            max_node_count: all.count("max_node_count", 1)?,
            flavor_id: all.text("flavor_id", 255)?,
            image_id: all.text("image_id", 255)?,
            docker_volume_size: all.count("docker_volume_size", 1)?,
            created_at: Some(view::moment(Timestamp::now())),
            ..NodeGroup::default()
        };
        let labels = all.texts("labels")?;
        let merge_labels = all.flag("merge_labels")?.unwrap_or(false);
        if version >= Version::NODE_LABELS {
            read_node_settings(all, &mut group)?;
        }
        fields.finish()?;
        fits(&group)?;
        super::templates::checked(labels.as_ref().unwrap_or(&BTreeMap::new()))?;
        Ok(Self {
            group,
            labels,
            merge_labels,
        })
    }

    /// With what the cluster says.
    fn resolve(&self, cluster: &CoeCluster) -> NodeGroup {
        let spec = &cluster.spec;
        let workers = spec.node_groups.iter().find(|group| !group.is_master());
        let image = workers.and_then(|group| group.image_id.clone());
        let mut group = self.group.clone();
        if group.image_id.is_none() {
            // An image has the programs of its version.
            group.kubernetes_version = workers.and_then(|group| group.kubernetes_version);
        }
        group.flavor_id = group.flavor_id.or_else(|| spec.flavor_id.clone());
        group.image_id = group.image_id.or(image);
        group.docker_volume_size = group.docker_volume_size.or(spec.docker_volume_size);
        group.labels = match &self.labels {
            Some(own) if self.merge_labels => {
                let mut labels = spec.labels.clone();
                labels.extend(own.clone());
                labels
            }
            own => own.clone().unwrap_or_else(|| spec.labels.clone()),
        };
        group
    }
}

fn read_node_settings(fields: &mut Fields, group: &mut NodeGroup) -> Result<(), Fault> {
    group.node_labels = fields.texts("node_labels")?.unwrap_or_default();
    if let Some(wrong) = nodes::wrong_labels(&group.node_labels) {
        return Err(Fault::conflict(format!("Wrong node_labels: {wrong}.")));
    }
    let taints = fields.value("node_taints").unwrap_or_else(|| json!([]));
    let taints = match taints.as_str() {
        Some(text) => crate::contract::literal::parse(text).unwrap_or(taints),
        None => taints,
    };
    if !taints.is_array() {
        let reason = "Value should be a list of taints";
        return Err(Fault::field("node_taints", &taints, reason));
    }
    group.node_taints = nodes::taints(&taints)
        .map_err(|wrong| Fault::conflict(format!("Wrong node_taints: {wrong}.")))?;
    if group.is_master() && !(group.node_labels.is_empty() && group.node_taints.is_empty()) {
        return Err(Fault::conflict(
            "Control planes have neither node_labels nor node_taints.",
        ));
    }
    Ok(())
}

/// Bad numbers of a group are a conflict in this API, rather than a bad request.
fn fits(group: &NodeGroup) -> Result<(), Fault> {
    let least = group.min_node_count.unwrap_or_default();
    let most = group.max_node_count.unwrap_or(u32::MAX);
    if least > most || !(least..=most).contains(&group.node_count) {
        return Err(Fault::conflict(format!(
            "Wrong number of nodes: min_node_count {least}, node_count {}, max_node_count {}.",
            group.node_count,
            group
                .max_node_count
                .map_or_else(|| "none".to_owned(), |most| most.to_string())
        )));
    }
    Ok(())
}
