//! From stored objects to what clients read of them. Pure.

use std::collections::BTreeMap;

use api::magnum::{
    AddonReport, AddonState, CREATED_ANNOTATION, CoeCluster, CoeClusterStatus, CoeClusterTemplate,
    CoeQuota, GroupStatus, State, UPDATED_ANNOTATION, Visibility,
};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use crate::contract::{
    Version,
    objects::{
        Cluster, ClusterDetail, ClusterTemplate, KeptQuota, LabelDifference, Link, NodeGroup,
        NodeGroupDetail, Quota,
    },
};

/// How long making a cluster may take where nobody says it, in minutes.
pub const CREATE_TIMEOUT_MINUTES: u32 = 60;

/// A moment as clients read it.
///
/// ```
/// let moment = "2026-02-03T04:05:06.7Z".parse().unwrap();
/// assert_eq!(magnum::view::moment(moment), "2026-02-03T04:05:06+00:00");
/// ```
pub fn moment(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// The two links of an object, with an address that ends as `path` does.
pub fn links(base: &str, path: &str) -> Vec<Link> {
    let link = |rel, href| Link { rel, href };
    vec![
        link("self", format!("{base}/v1/{path}")),
        link("bookmark", format!("{base}/{path}")),
    ]
}

/// A template.
pub fn template(object: &CoeClusterTemplate, base: &str) -> ClusterTemplate {
    let uuid = object.name_any();
    let spec = object.spec.clone();
    let visibility = spec.visibility.unwrap_or_default();
    let Visible { public, hidden } = visible(visibility);
    ClusterTemplate {
        links: links(base, &format!("clustertemplates/{uuid}")),
        created_at: created_at(object),
        updated_at: updated_at(object),
        uuid,
        name: spec.name,
        coe: "kubernetes",
        image_id: spec.image_id,
        flavor_id: spec.flavor_id,
        master_flavor_id: spec.master_flavor_id,
        dns_nameserver: spec.dns_nameserver,
        keypair_id: spec.keypair_id,
        external_network_id: spec.external_network_id,
        fixed_network: spec.fixed_network,
        fixed_subnet: spec.fixed_subnet,
        network_driver: spec.network_driver.unwrap_or_default(),
        apiserver_port: spec.apiserver_port,
        docker_volume_size: spec.docker_volume_size,
        docker_storage_driver: spec.docker_storage_driver,
        cluster_distro: spec.cluster_distro,
        http_proxy: spec.http_proxy,
        https_proxy: spec.https_proxy,
        no_proxy: spec.no_proxy,
        volume_driver: spec.volume_driver,
        registry_enabled: spec.registry_enabled.unwrap_or(false),
        labels: spec.labels,
        tls_disabled: spec.tls_disabled.unwrap_or(false),
        public,
        hidden,
        server_type: spec.server_type.unwrap_or_default(),
        insecure_registry: spec.insecure_registry,
        master_lb_enabled: spec.master_lb_enabled.unwrap_or(false),
        floating_ip_enabled: spec.floating_ip_enabled.unwrap_or(true),
        project_id: spec.project_id,
        user_id: spec.user_id,
        tags: spec.tags,
        driver: spec.driver,
    }
}

struct Visible {
    public: bool,
    hidden: bool,
}

const fn visible(visibility: Visibility) -> Visible {
    Visible {
        public: visibility.is_public(),
        hidden: visibility.is_hidden(),
    }
}

/// How a cluster stands now. What was asked for and not yet looked at is in progress, so no answer is older than the question.
pub fn state(object: &CoeCluster) -> State {
    let status = object.status.as_ref();
    let Some(state) = status.and_then(|status| status.state) else {
        return if object.meta().deletion_timestamp.is_some() {
            State::DeleteInProgress
        } else {
            State::CreateInProgress
        };
    };
    if object.meta().deletion_timestamp.is_some() {
        return match state {
            State::DeleteFailed => state,
            _ => State::DeleteInProgress,
        };
    }
    if object.spec.imported.is_some() {
        // Nobody works on it.
        return state;
    }
    let seen = status.and_then(|status| status.observed_generation);
    match state {
        State::CreateInProgress | State::CreateFailed if seen != object.meta().generation => {
            State::CreateInProgress
        }
        _ if seen != object.meta().generation => State::UpdateInProgress,
        state => state,
    }
}

/// A cluster as lists show it.
pub fn cluster(object: &CoeCluster, base: &str, version: Version) -> Cluster {
    let uuid = object.name_any();
    let spec = object.spec.clone();
    let backing = backing(object);
    let (stack_id, cluster_id) = if version < Version::CLUSTER_ID {
        (backing, None)
    } else {
        (None, backing)
    };
    let health = object
        .status
        .as_ref()
        .and_then(|status| status.health.as_ref());
    Cluster {
        links: links(base, &format!("clusters/{uuid}")),
        node_count: count(object, Side::Workers),
        master_count: count(object, Side::Masters),
        status: state(object).word(),
        health_status: health.map(|health| health.status),
        merge_labels: false,
        uuid,
        name: spec.name,
        cluster_template_id: spec.cluster_template_id,
        keypair: spec.keypair,
        docker_volume_size: spec.docker_volume_size,
        labels: spec.labels,
        master_flavor_id: spec.master_flavor_id,
        flavor_id: spec.flavor_id,
        create_timeout: spec.create_timeout.unwrap_or(CREATE_TIMEOUT_MINUTES),
        stack_id,
        cluster_id,
        detail: None,
    }
}

/// A cluster with all that is told of it. Labels are compared with those of its template, where that is still there.
pub fn cluster_detail(
    object: &CoeCluster,
    template: Option<&CoeClusterTemplate>,
    base: &str,
    version: Version,
) -> Cluster {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let inherited = template.map(|template| &template.spec.labels);
    let detail = ClusterDetail {
        health_status_reason: status.health.clone().unwrap_or_default().reasons,
        node_addresses: addresses(object, &status, Side::Workers),
        master_addresses: addresses(object, &status, Side::Masters),
        faults: state(object).is_failed().then(|| faults(object, &status)),
        status_reason: reason(&status),
        discovery_url: spec.discovery_url.clone(),
        api_address: status.api_address,
        coe_version: status.coe_version,
        container_version: spec
            .imported
            .as_ref()
            .and_then(|imported| imported.container_version.clone()),
        project_id: spec.project_id.clone(),
        user_id: spec.user_id.clone(),
        fixed_network: spec.fixed_network.clone(),
        fixed_subnet: spec.fixed_subnet.clone(),
        floating_ip_enabled: spec.floating_ip_enabled.unwrap_or(true),
        master_lb_enabled: spec.master_lb_enabled.unwrap_or(false),
        labels: inherited.map_or_else(LabelDifference::default, |inherited| {
            difference(inherited, &spec.labels)
        }),
        created_at: created_at(object),
        updated_at: updated_at(object),
    };
    Cluster {
        detail: Some(detail),
        ..cluster(object, base, version)
    }
}

/// The namespace in which the objects of a cluster are that build it.
pub fn backing_namespace(uuid: &str) -> String {
    format!("coe-{uuid}")
}

/// What clients are told that a cluster is made of.
fn backing(object: &CoeCluster) -> Option<String> {
    match &object.spec.imported {
        Some(imported) => imported.stack_id.clone(),
        None => Some(backing_namespace(&object.name_any())),
    }
}

fn backing_of_group(object: &CoeCluster, group: &api::magnum::NodeGroup) -> Option<String> {
    let imported = object.spec.imported.as_ref();
    let own = imported.and_then(|imported| imported.group_stack_ids.get(&group.uuid));
    own.cloned().or_else(|| backing(object))
}

/// A node group as lists show it.
pub fn group(cluster: &CoeCluster, group: &api::magnum::NodeGroup) -> NodeGroup {
    NodeGroup {
        uuid: group.uuid.clone(),
        name: group.name.clone(),
        flavor_id: group.flavor_id.clone(),
        image_id: group.image_id.clone(),
        node_count: group.node_count,
        role: group.role.to_string(),
        min_node_count: group.min_node_count.unwrap_or_default(),
        max_node_count: group.max_node_count,
        is_default: group.is_default(),
        stack_id: backing_of_group(cluster, group),
        status: group_state(cluster, group).word(),
        merge_labels: false,
        detail: None,
    }
}

/// A node group with all that is told of it. Labels are compared with those of its cluster.
pub fn group_detail(
    cluster: &CoeCluster,
    object: &api::magnum::NodeGroup,
    base: &str,
) -> NodeGroup {
    let uuid = cluster.name_any();
    let status = group_status(cluster, &object.uuid)
        .cloned()
        .unwrap_or_default();
    let at = cluster
        .spec
        .node_groups
        .iter()
        .position(|group| group.uuid == object.uuid);
    let detail = NodeGroupDetail {
        id: at.unwrap_or_default() + 1,
        cluster_id: uuid.clone(),
        project_id: cluster.spec.project_id.clone(),
        docker_volume_size: object.docker_volume_size,
        labels: object.labels.clone(),
        links: links(base, &format!("clusters/{uuid}/nodegroups/{}", object.uuid)),
        node_addresses: status.node_addresses,
        status_reason: status.reason,
        version: status.version.or_else(|| {
            let status = cluster.status.as_ref();
            status.and_then(|status| status.coe_version.clone())
        }),
        node_labels: object.node_labels.clone(),
        node_taints: object.node_taints.clone(),
        difference: difference(&cluster.spec.labels, &object.labels),
        created_at: object.created_at.clone(),
        updated_at: object.updated_at.clone(),
    };
    NodeGroup {
        detail: Some(detail),
        ..group(cluster, object)
    }
}

/// A quota.
pub fn quota(object: &CoeQuota) -> Quota {
    Quota {
        project_id: object.spec.project_id.clone(),
        resource: "Cluster",
        hard_limit: object.spec.hard_limit,
        kept: Some(KeptQuota {
            id: object.spec.id,
            created_at: created_at(object),
            updated_at: updated_at(object),
        }),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Masters,
    Workers,
}

impl Side {
    fn has(self, group: &api::magnum::NodeGroup) -> bool {
        match self {
            Self::Masters => group.is_master(),
            Self::Workers => !group.is_master(),
        }
    }
}

fn count(object: &CoeCluster, side: Side) -> u32 {
    let groups = object
        .spec
        .node_groups
        .iter()
        .filter(|group| side.has(group));
    groups.fold(0, |sum, group| sum.saturating_add(group.node_count))
}

fn addresses(object: &CoeCluster, status: &CoeClusterStatus, side: Side) -> Vec<String> {
    let groups = object
        .spec
        .node_groups
        .iter()
        .filter(|group| side.has(group));
    let addresses = groups.filter_map(|group| status.groups.get(&group.uuid));
    addresses
        .flat_map(|group| group.node_addresses.clone())
        .collect()
}

/// Why it stands as it does, and which of its Addons do not come, and why.
fn reason(status: &CoeClusterStatus) -> Option<String> {
    let waits = status.state.is_some_and(State::is_complete);
    let is_told = |addon: &&AddonReport| match addon.state {
        AddonState::Refused | AddonState::Failed => true,
        AddonState::Waiting => waits,
        AddonState::Installing | AddonState::Installed | AddonState::Removing => false,
    };
    let addons = status.addons.iter().filter(is_told).map(|addon| {
        let why = addon.message.as_deref().unwrap_or_default();
        format!("Addon {}: {why}", addon.name)
    });
    let all: Vec<_> = status.reason.iter().cloned().chain(addons).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn faults(object: &CoeCluster, status: &CoeClusterStatus) -> BTreeMap<String, String> {
    let of_group = |group: &api::magnum::NodeGroup| {
        let status = status.groups.get(&group.uuid)?;
        let failed = status.state.is_some_and(State::is_failed);
        failed.then(|| {
            (
                group.name.clone(),
                status.reason.clone().unwrap_or_default(),
            )
        })
    };
    object
        .spec
        .node_groups
        .iter()
        .filter_map(of_group)
        .collect()
}

fn group_status<'a>(cluster: &'a CoeCluster, uuid: &str) -> Option<&'a GroupStatus> {
    cluster.status.as_ref()?.groups.get(uuid)
}

fn group_state(cluster: &CoeCluster, group: &api::magnum::NodeGroup) -> State {
    let whole = state(cluster);
    let own = group_status(cluster, &group.uuid).and_then(|status| status.state);
    match whole {
        // What was asked for concerns any of its groups.
        State::UpdateInProgress if own.is_none() => State::CreateInProgress,
        State::CreateInProgress | State::UpdateInProgress | State::DeleteInProgress => whole,
        _ => own.unwrap_or(whole),
    }
}

/// How far a group is of which the whole cluster is this far: one that was made later and not changed since is made, not changed.
pub(crate) fn state_of_group(group: &api::magnum::NodeGroup, whole: State) -> State {
    if group.is_default == Some(true) || group.updated_at.is_some() {
        return whole;
    }
    match whole {
        State::UpdateInProgress => State::CreateInProgress,
        State::UpdateComplete => State::CreateComplete,
        State::UpdateFailed => State::CreateFailed,
        whole => whole,
    }
}

/// How labels differ from inherited ones.
pub fn difference(
    inherited: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> LabelDifference {
    let mut difference = LabelDifference::default();
    for (key, value) in inherited {
        let place = match own.get(key) {
            None => &mut difference.labels_skipped,
            Some(other) if other != value => &mut difference.labels_overridden,
            Some(_) => continue,
        };
        place.insert(key.clone(), value.clone());
    }
    for (key, value) in own {
        if !inherited.contains_key(key) {
            difference.labels_added.insert(key.clone(), value.clone());
        }
    }
    difference
}

/// When it was made, by whomever.
pub(crate) fn created_at<K: Resource>(object: &K) -> Option<String> {
    if let Some(told) = object.annotations().get(CREATED_ANNOTATION) {
        return Some(told.clone());
    }
    let created = object.meta().creation_timestamp.as_ref()?;
    Some(moment(created.0))
}

fn updated_at<K: Resource>(object: &K) -> Option<String> {
    object.annotations().get(UPDATED_ANNOTATION).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(generation: i64, status: &serde_json::Value) -> CoeCluster {
        serde_json::from_value(json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster",
            "metadata": {"name": "00000000-0000-4000-8000-00000000000a", "generation": generation},
            "spec": {
                "name": "first", "projectId": "p", "userId": "u", "labels": {"a": "1", "b": "2"},
                "clusterTemplateId": "00000000-0000-4000-8000-00000000000b",
                "nodeGroups": [
                    {"uuid": "m", "name": "default-master", "role": "master", "nodeCount": 3},
                    {"uuid": "w", "name": "default-worker", "role": "worker", "nodeCount": 2},
                    {"uuid": "g", "name": "gpu", "role": "gpu", "nodeCount": 4},
                ],
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_was_asked_for_and_not_looked_at_is_in_progress() {
        let rows = [
            (json!(null), State::CreateInProgress),
            (
                json!({"state": "CREATE_COMPLETE", "observedGeneration": 2}),
                State::CreateComplete,
            ),
            (
                json!({"state": "CREATE_COMPLETE", "observedGeneration": 1}),
                State::UpdateInProgress,
            ),
            (
                json!({"state": "CREATE_IN_PROGRESS", "observedGeneration": 1}),
                State::CreateInProgress,
            ),
            (
                json!({"state": "UPDATE_FAILED", "observedGeneration": 1}),
                State::UpdateInProgress,
            ),
            (
                json!({"state": "UPDATE_FAILED", "observedGeneration": 2}),
                State::UpdateFailed,
            ),
        ];
        for (status, wanted) in rows {
            assert_eq!(state(&stored(2, &status)), wanted, "{status}");
        }
    }

    #[test]
    fn a_list_shows_sixteen_members_of_a_cluster() {
        let shown = serde_json::to_value(cluster(
            &stored(1, &json!(null)),
            "http://x",
            Version::MINIMUM,
        ))
        .unwrap();
        let keys: Vec<_> = shown
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            keys,
            [
                "uuid",
                "name",
                "cluster_template_id",
                "keypair",
                "node_count",
                "master_count",
                "docker_volume_size",
                "labels",
                "master_flavor_id",
                "flavor_id",
                "create_timeout",
                "links",
                "stack_id",
                "status",
                "health_status",
                "merge_labels",
            ]
        );
        assert_eq!(
            (&shown["node_count"], &shown["master_count"]),
            (&json!(6), &json!(3))
        );
        let newest = serde_json::to_value(cluster(
            &stored(1, &json!(null)),
            "http://x",
            Version::MAXIMUM,
        ))
        .unwrap();
        assert!(
            newest.get("stack_id").is_none() && newest["cluster_id"].is_string(),
            "{newest}"
        );
    }

    #[test]
    fn faults_are_told_of_what_failed_and_of_nothing_else() {
        let status = json!({"state": "UPDATE_FAILED", "observedGeneration": 1, "groups": {"g": {"state": "UPDATE_FAILED", "reason": "no host is free"}}});
        let failed = cluster_detail(&stored(1, &status), None, "http://x", Version::MAXIMUM);
        let failed = serde_json::to_value(failed).unwrap();
        assert_eq!(failed["faults"], json!({"gpu": "no host is free"}));
        let fine = cluster_detail(&stored(1, &json!(null)), None, "http://x", Version::MAXIMUM);
        assert!(serde_json::to_value(fine).unwrap().get("faults").is_none());
    }

    #[test]
    fn labels_differ_in_three_ways() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<_, _> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let found = difference(
            &map(&[("a", "0"), ("b", "2"), ("c", "3")]),
            &map(&[("a", "1"), ("b", "2"), ("d", "4")]),
        );
        assert_eq!(found.labels_overridden, map(&[("a", "0")]));
        assert_eq!(found.labels_added, map(&[("d", "4")]));
        assert_eq!(found.labels_skipped, map(&[("c", "3")]));
    }

    #[test]
    fn a_group_is_told_with_labels_and_taints_of_its_nodes() {
        let cluster = stored(1, &json!(null));
        let told = group_detail(&cluster, &cluster.spec.node_groups[2], "http://x");
        let told = serde_json::to_value(told).unwrap();
        assert_eq!(told["node_labels"], json!({}));
        assert_eq!(told["node_taints"], json!([]));
        assert_eq!(told["merge_labels"], false);
    }
}
