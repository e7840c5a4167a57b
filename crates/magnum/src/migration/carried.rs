//! From rows to objects. Pure.

use std::collections::BTreeMap;

use api::{
    magnum::{
        CREATED_ANNOTATION, CoeCluster, CoeClusterSpec, CoeClusterStatus, CoeClusterTemplate,
        CoeClusterTemplateSpec, CoeQuota, CoeQuotaSpec, GroupStatus, HealthReport, HealthStatus,
        Imported, NodeGroup, NodeTaint, QuotaResource, Role, State, UPDATED_ANNOTATION, Visibility,
        project_namespace,
    },
    text::lines,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    Authorities, Finding, Outcome,
    rows::{Reader, Row, Table, Tables, several},
};
use crate::{
    authority::{Authority, Purpose},
    contract::nodes,
    labels,
};

/// The name of a quota, as the service has it.
pub(super) const QUOTA: &str = "cluster";
/// The longest text of a column.
const COLUMN: usize = 255;
/// The longest id of a project or a user.
const ID: usize = 64;
/// The longest reason.
const REASON: usize = 4096;
/// The most groups of a cluster.
const GROUPS: usize = 64;
/// The most taints of a group.
const TAINTS: usize = 64;
/// The most addresses of a group.
const ADDRESSES: usize = 1024;
/// The states in which a cluster rests, which it has in both.
const RESTING: &str =
    "CREATE_COMPLETE, CREATE_FAILED, UPDATE_COMPLETE, UPDATE_FAILED or DELETE_FAILED";

/// What a database comes to.
#[derive(Debug, Default)]
pub struct Carried {
    /// Quotas.
    pub quotas: Vec<CoeQuota>,
    /// Templates.
    pub templates: Vec<CoeClusterTemplate>,
    /// Clusters, with how they stand.
    pub clusters: Vec<CoeCluster>,
    /// Their authorities, by the UUID of the cluster, as far as they could be read.
    pub authorities: BTreeMap<String, Vec<(Purpose, Authority)>>,
    /// What is not carried over, and what is not as it was.
    pub findings: Vec<Finding>,
}

/// Makes objects of rows.
pub fn carried(tables: &Tables, keys: &Authorities<'_>) -> Carried {
    let mut made = Carried::default();
    made.templates(tables.rows(Table::Templates));
    made.clusters(tables, keys);
    made.quotas(tables.rows(Table::Quotas));
    for row in tables.rows(Table::Federations) {
        let mut reader = Reader::new(Table::Federations, row);
        let rule = "federations are not kept: no driver makes any";
        reader.refuse("uuid", row.text("uuid").unwrap_or_default(), rule, "");
        reader.finish((), &mut made.findings);
    }
    made
}

impl Carried {
    fn templates(&mut self, rows: &[Row]) {
        for row in rows {
            let mut reader = Reader::new(Table::Templates, row);
            let template = template(&mut reader);
            self.templates
                .extend(reader.finish(template, &mut self.findings));
        }
    }

    fn clusters(&mut self, tables: &Tables, keys: &Authorities<'_>) {
        let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in tables.rows(Table::NodeGroups) {
            let cluster = row.text("cluster_id").unwrap_or_default();
            groups.entry(cluster).or_default().push(row);
        }
        for row in tables.rows(Table::Clusters) {
            let uuid = row.text("uuid").unwrap_or_default();
            let own = groups.remove(uuid).unwrap_or_default();
            if let Some(cluster) = self.cluster(row, &own) {
                let found = keys.of(row, &mut self.findings);
                if !found.is_empty() {
                    self.authorities.insert(cluster.name_any(), found);
                }
                self.clusters.push(cluster);
            }
        }
        for row in groups.into_values().flatten() {
            let mut reader = Reader::new(Table::NodeGroups, row);
            let cluster = row.text("cluster_id").unwrap_or_default();
            reader.refuse("cluster_id", cluster, "there is no such cluster", "");
            reader.finish((), &mut self.findings);
        }
    }

    fn cluster(&mut self, row: &Row, groups: &[&Row]) -> Option<CoeCluster> {
        let mut made = Vec::new();
        for row in groups {
            let mut reader = Reader::new(Table::NodeGroups, row);
            let group = group(&mut reader);
            made.extend(reader.finish(group, &mut self.findings));
        }
        let mut reader = Reader::new(Table::Clusters, row);
        if made.len() < groups.len() {
            // Without one of its groups it would have other numbers of nodes.
            let rule = "one of its node groups cannot be carried over";
            reader.refuse("uuid", row.text("uuid").unwrap_or_default(), rule, "");
        }
        let mut cluster = cluster(&mut reader, made);
        let id = &cluster.spec.cluster_template_id;
        let mut templates = self.templates.iter();
        let template = templates.find(|template| template.name_any() == *id);
        match template {
            Some(template) => {
                cluster.spec.server_type = template.spec.server_type;
                cluster.spec.network_driver = template.spec.network_driver;
            }
            None => reader.note(
                Outcome::Changed,
                "cluster_template_id",
                id.clone(),
                "its template is not there, or not carried over",
                "it is shown as it is, and its labels are compared with nothing",
            ),
        }
        reader.finish(cluster, &mut self.findings)
    }

    fn quotas(&mut self, rows: &[Row]) {
        for row in rows {
            let mut reader = Reader::new(Table::Quotas, row);
            let quota = quota(&mut reader);
            let (project, limit) = (&quota.spec.project_id, quota.spec.hard_limit);
            let clusters = self.clusters.iter();
            let used = clusters.filter(|cluster| cluster.spec.project_id == *project);
            let used = used.count();
            if used > usize::try_from(limit).unwrap_or(usize::MAX) {
                reader.note(
                    Outcome::Changed,
                    "hard_limit",
                    limit.to_string(),
                    format!("the project has {used} clusters"),
                    "it is kept, and the project makes no cluster until it has fewer",
                );
            }
            self.quotas.extend(reader.finish(quota, &mut self.findings));
        }
    }
}

fn template(row: &mut Reader<'_>) -> CoeClusterTemplate {
    let uuid = row.uuid("uuid");
    if let Some(coe) = row.text("coe", COLUMN).filter(|coe| coe != "kubernetes") {
        row.refuse("coe", coe, "it has to be kubernetes", "");
    }
    let spec = CoeClusterTemplateSpec {
        name: name(row, &uuid, COLUMN),
        project_id: project(row),
        user_id: row.needed("user_id", ID),
        image_id: row.needed("image_id", COLUMN),
        server_type: row.word("server_type", "vm or bm"),
        flavor_id: row.text("flavor_id", COLUMN),
        master_flavor_id: row.text("master_flavor_id", COLUMN),
        keypair_id: row.text("keypair_id", COLUMN),
        dns_nameserver: row.text("dns_nameserver", COLUMN),
        external_network_id: row.text("external_network_id", COLUMN),
        fixed_network: row.text("fixed_network", COLUMN),
        fixed_subnet: row.text("fixed_subnet", COLUMN),
        network_driver: row.word("network_driver", "calico, cilium or flannel"),
        apiserver_port: row
            .count("apiserver_port", 1024, 65_535)
            .and_then(|port| u16::try_from(port).ok()),
        docker_volume_size: row.count("docker_volume_size", 1, u32::MAX),
        docker_storage_driver: row.text("docker_storage_driver", COLUMN),
        cluster_distro: row.text("cluster_distro", COLUMN),
        http_proxy: row.text("http_proxy", COLUMN),
        https_proxy: row.text("https_proxy", COLUMN),
        no_proxy: row.text("no_proxy", 4096),
        volume_driver: row.word("volume_driver", "cinder"),
        insecure_registry: row.text("insecure_registry", COLUMN),
        labels: row.texts("labels"),
        tags: row.text("tags", COLUMN),
        driver: row.text("driver", COLUMN),
        registry_enabled: row.flag("registry_enabled"),
        tls_disabled: row.flag("tls_disabled"),
        master_lb_enabled: row.flag("master_lb_enabled"),
        floating_ip_enabled: row.flag("floating_ip_enabled"),
        visibility: Some(Visibility::of(
            row.flag("public").unwrap_or(false),
            row.flag("hidden").unwrap_or(false),
        )),
    };
    if let Err(wrong) = labels::check(&spec.labels) {
        // What is in labels may be anything, a password of a registry too.
        let value = format!("a map with {}", wrong.label);
        let remedy = "it is kept, and clusters need other labels";
        let rule = format!("{wrong} is what makes a cluster");
        row.note(Outcome::Changed, "labels", value, rule, remedy);
    }
    let mut template = CoeClusterTemplate::new(&uuid, spec);
    template.metadata.namespace = project_namespace(&template.spec.project_id);
    template.metadata.annotations = Some(moments(row));
    template
}

fn cluster(row: &mut Reader<'_>, node_groups: Vec<Group>) -> CoeCluster {
    let uuid = row.uuid("uuid");
    let state = state(row, "status");
    bounded(row, &node_groups);
    let stack_id = row.text("stack_id", COLUMN);
    let others = node_groups.iter().filter_map(|group| {
        let own = group
            .stack_id
            .clone()
            .filter(|own| stack_id.as_ref() != Some(own));
        Some((group.spec.uuid.clone(), own?))
    });
    let imported = Imported {
        group_stack_ids: others.collect(),
        stack_id: stack_id.clone(),
        container_version: row.text("container_version", COLUMN),
    };
    let (node_groups, groups): (Vec<_>, Vec<_>) = node_groups
        .into_iter()
        .map(|Group { spec, status, .. }| {
            let uuid = spec.uuid.clone();
            (spec, (uuid, status))
        })
        .unzip();
    let spec = CoeClusterSpec {
        name: name(row, &uuid, 242),
        project_id: project(row),
        user_id: row.needed("user_id", ID),
        cluster_template_id: row.uuid("cluster_template_id"),
        keypair: row.text("keypair", COLUMN),
        create_timeout: row.count("create_timeout", 0, u32::MAX),
        docker_volume_size: row.count("docker_volume_size", 1, u32::MAX),
        labels: row.texts("labels"),
        flavor_id: row.text("flavor_id", COLUMN),
        master_flavor_id: row.text("master_flavor_id", COLUMN),
        fixed_network: row.text("fixed_network", COLUMN),
        fixed_subnet: row.text("fixed_subnet", COLUMN),
        discovery_url: row.text("discovery_url", COLUMN),
        floating_ip_enabled: row.flag("floating_ip_enabled"),
        master_lb_enabled: row.flag("master_lb_enabled"),
        node_groups,
        imported: Some(imported),
        ..CoeClusterSpec::default()
    };
    let status = CoeClusterStatus {
        observed_generation: Some(1),
        state,
        reason: reason(row),
        health: health(row),
        api_address: row.text("api_address", COLUMN),
        coe_version: row.text("coe_version", 64),
        groups: groups.into_iter().collect(),
        addons: Vec::new(),
    };
    let mut cluster = CoeCluster::new(&uuid, spec);
    cluster.metadata.namespace = project_namespace(&cluster.spec.project_id);
    cluster.metadata.annotations = Some(moments(row));
    cluster.status = Some(status);
    cluster
}

/// A node group, and what of it stands elsewhere in its cluster.
struct Group {
    spec: NodeGroup,
    status: GroupStatus,
    stack_id: Option<String>,
}

fn group(row: &mut Reader<'_>) -> Group {
    let spec = NodeGroup {
        uuid: row.uuid("uuid"),
        name: row.needed("name", COLUMN),
        role: Role(row.needed("role", COLUMN)),
        is_default: row.flag("is_default"),
        node_count: row.count("node_count", 0, u32::MAX).unwrap_or_default(),
        min_node_count: row.count("min_node_count", 0, u32::MAX),
        max_node_count: row.count("max_node_count", 0, u32::MAX),
        flavor_id: row.text("flavor_id", COLUMN),
        image_id: row.text("image_id", COLUMN),
        docker_volume_size: row.count("docker_volume_size", 1, u32::MAX),
        labels: row.texts("labels"),
        node_labels: row.texts("node_labels"),
        node_taints: taints(row),
        created_at: row.moment("created_at"),
        updated_at: row.moment("updated_at"),
        ..NodeGroup::default()
    };
    let status = GroupStatus {
        state: state(row, "status"),
        reason: reason(row),
        version: row.text("version", 64),
        node_addresses: row.list("node_addresses", ADDRESSES),
    };
    let stack_id = row.text("stack_id", COLUMN);
    Group {
        spec,
        status,
        stack_id,
    }
}

fn bounded(row: &mut Reader<'_>, groups: &[Group]) {
    let many = groups.len();
    if !(2..=GROUPS).contains(&many) {
        let rule = format!("it has to have 2 to {GROUPS} node groups");
        row.refuse("uuid", format!("of a cluster with {many}"), rule, "");
    }
    for name in several(groups.iter().map(|group| group.spec.name.as_str())) {
        let rule = "a node group has its name once in a cluster";
        row.refuse(
            "uuid",
            format!("of a cluster with several {name}"),
            rule,
            "",
        );
    }
}

fn quota(row: &mut Reader<'_>) -> CoeQuota {
    let resource = row.needed("resource", COLUMN);
    if resource != "Cluster" && !resource.is_empty() {
        row.refuse("resource", resource, "it has to be Cluster", "");
    }
    let spec = CoeQuotaSpec {
        id: row.count("id", 0, u32::MAX).unwrap_or_default(),
        project_id: project(row),
        resource: QuotaResource::Cluster,
        hard_limit: row.count("hard_limit", 0, u32::MAX).unwrap_or_default(),
    };
    let mut quota = CoeQuota::new(QUOTA, spec);
    quota.metadata.namespace = project_namespace(&quota.spec.project_id);
    quota.metadata.annotations = Some(moments(row));
    quota
}

/// What it is called. One without a name is called by its UUID, for there are none without here.
fn name(row: &mut Reader<'_>, uuid: &str, most: usize) -> String {
    row.text("name", most).unwrap_or_else(|| {
        let rule = "it has to have a name";
        row.note(
            Outcome::Changed,
            "name",
            "empty",
            rule,
            "it is called by its UUID",
        );
        uuid.to_owned()
    })
}

fn project(row: &mut Reader<'_>) -> String {
    let project = row.needed("project_id", ID);
    if !project.is_empty() && project_namespace(&project).is_none() {
        let rule =
            "it has to be an id as of Keystone: lower-case letters, digits and hyphens, 56 at most";
        row.refuse("project_id", &project, rule, "");
    }
    project
}

fn moments(row: &mut Reader<'_>) -> BTreeMap<String, String> {
    let told = [
        (CREATED_ANNOTATION, row.moment("created_at")),
        (UPDATED_ANNOTATION, row.moment("updated_at")),
    ];
    let told = told.into_iter();
    told.filter_map(|(name, moment)| Some((name.to_owned(), moment?)))
        .collect()
}

fn state(row: &mut Reader<'_>, field: &'static str) -> Option<State> {
    let text = row.needed(field, COLUMN);
    let state = serde_json::from_value::<State>(Value::String(text.clone())).ok();
    let resting = state.filter(|state| state.is_complete() || state.is_failed());
    if resting.is_none() && !text.is_empty() {
        let remedy = if text.ends_with("_IN_PROGRESS") {
            "wait until nothing is in progress in Magnum, and migrate again"
        } else {
            "change it in Magnum, as by a resize to the number of nodes that it has, and migrate again"
        };
        row.refuse(field, text, format!("it has to be {RESTING}"), remedy);
    }
    resting
}

/// Words for people, of several lines. What would steer a terminal is taken out.
fn reason(row: &mut Reader<'_>) -> Option<String> {
    let told = row.text("status_reason", usize::MAX)?;
    let kept = lines(&told, REASON);
    if kept != told {
        let value = format!("{} characters", told.chars().count());
        let rule = format!("{REASON} bytes without control characters are kept");
        row.note(Outcome::Changed, "status_reason", value, rule, "");
    }
    Some(kept)
}

fn health(row: &mut Reader<'_>) -> Option<HealthReport> {
    let status = row.word::<HealthStatus>("health_status", "HEALTHY, UNHEALTHY or UNKNOWN")?;
    let reasons = row.passing_texts("health_status_reason");
    Some(HealthReport { status, reasons })
}

fn taints(row: &mut Reader<'_>) -> Vec<NodeTaint> {
    let Some(document) = row.json("node_taints") else {
        return Vec::new();
    };
    let taints = nodes::taints(&document).and_then(|taints| match taints.len() {
        0..=TAINTS => Ok(taints),
        many => Err(format!("{many} taints")),
    });
    taints.unwrap_or_else(|wrong| {
        let rule = format!("it has to be a list of at most {TAINTS} taints");
        row.refuse("node_taints", wrong, rule, "");
        Vec::new()
    })
}
