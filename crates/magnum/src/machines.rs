//! From a cluster to the objects of Cluster API that build it of virtual machines of `OpenStack`. Pure.
//!
//! What cannot be changed in place is named by its content: a template of machines that is to be another one is another object, and
//! the one before it stays until nothing refers to it. So the same cluster always gives the same names, and Cluster API replaces
//! machines only where one of them would be made differently.
//!
//! A cluster is named by its UUID, for what people call it may have characters that servers cannot have in their names.
//!
//! # Source
//! The core, bootstrap and control plane kinds are those of Cluster API 1.11 to 1.14, v1beta2. The infrastructure kinds are those of
//! the `OpenStack` provider, v1beta1, which every release of it from 0.10 to 0.15 serves.

use api::magnum::{
    CLUSTER_LABEL, CoeCluster, CoeClusterSpec, CoeClusterTemplateSpec, NetworkDriver, NodeGroup,
    PROJECT_LABEL,
};
use controller::digest::digest;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    authority::Purpose,
    labels::{self, Labels},
    view::backing_namespace,
};

pub mod kind;
pub mod plan;
pub mod report;

pub use kind::Kind;

/// On a machine, and what makes it: the UUID of its node group.
pub const GROUP_LABEL: &str = "magnum.windlass.dev/node-group";
/// On a Cluster: its network plugin, for what installs more than addons to select by.
pub const NETWORK_LABEL: &str = "magnum.windlass.dev/network-driver";
/// On a `ConfigMap` or Secret with manifests: into which clusters they are put.
pub const ADDON_LABEL: &str = "magnum.windlass.dev/addon";
/// The Secret with clouds.yaml, in the namespace of a project and beside what is made for its clusters.
pub const CREDENTIALS: &str = "cloud-config";
/// Which cloud of clouds.yaml is meant.
pub const CLOUD: &str = "openstack";

/// The most nodes of a cluster, those of all its groups together, counting what the autoscaler may bring.
///
/// Each is a Machine, its server and its bootstrap data in the store of the management cluster: by estimate 30 KB, so a cluster takes
/// some 30 MB at most, of the 2 GB that etcd has by default. It is not measured.
pub const MOST_NODES: u32 = 1_000;

/// Addresses of pods where no label says others.
const PODS: &str = "10.100.0.0/16";
/// Addresses of services.
const SERVICES: &str = "10.254.0.0/16";
/// The subnet that is made where there is none.
const SUBNET: &str = "10.0.0.0/24";
/// How long a node may be unwell, or take to come, before its machine is replaced, in seconds.
const UNWELL: u32 = 300;
const STARTS: u32 = 1200;
/// Labels that are flags of the API server.
const FLAGS: [(&str, &str); 8] = [
    ("oidc_issuer_url", "oidc-issuer-url"),
    ("oidc_client_id", "oidc-client-id"),
    ("oidc_username_claim", "oidc-username-claim"),
    ("oidc_username_prefix", "oidc-username-prefix"),
    ("oidc_groups_claim", "oidc-groups-claim"),
    ("oidc_groups_prefix", "oidc-groups-prefix"),
    ("admission_control_list", "enable-admission-plugins"),
    ("api_server_tls_cipher_suites", "tls-cipher-suites"),
];

/// What builds a cluster.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The cluster; it goes last, and takes all others with it.
    pub cluster: Value,
    /// Its network and load balancer. It is written once: most of it cannot be changed.
    pub infrastructure: Value,
    /// What its control planes are.
    pub control_plane: Value,
    /// Its other node groups.
    pub deployments: Vec<Value>,
    /// What replaces machines that are not well.
    pub checks: Vec<Value>,
    /// What machines and nodes are made like. They are never changed.
    pub templates: Vec<Value>,
    /// What is put into it when it is there.
    pub addons: Option<Value>,
}

impl Objects {
    /// All of them, in the order in which they are written: what refers to another comes after it.
    pub fn all(&self) -> impl Iterator<Item = &Value> {
        let Self {
            cluster,
            infrastructure,
            control_plane,
            deployments,
            checks,
            templates,
            addons,
        } = self;
        let first = std::iter::once(infrastructure).chain(templates);
        let then = [cluster, control_plane].into_iter();
        let last = checks.iter().chain(addons);
        first.chain(then).chain(deployments).chain(last)
    }
}

/// Why no machines can be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// Nothing says which Kubernetes there is to be.
    #[error(
        "labels: kube_tag is missing: with server_type vm it has to name the version of Kubernetes that the image has, for example \
         v1.34.3; or give the image the property kube_version"
    )]
    Version,
    /// A group has no flavor.
    #[error(
        "flavor_id is missing of node group {0}: with server_type vm the template or the cluster has to name one"
    )]
    Flavor(String),
    /// A group has no image.
    #[error("image_id is missing of node group {0}: name one")]
    Image(String),
    /// There would be more nodes than a cluster may have.
    #[error(
        "node_count: {0} nodes in all node groups together, with max_node_count of those that the autoscaler changes; a cluster with \
         server_type vm has at most {MOST_NODES}"
    )]
    Nodes(u64),
    /// No number of nodes is within the bounds of a group.
    #[error(
        "min_node_count {least} of node group {group} is more than its max_node_count {most}: make it smaller, or the other one larger"
    )]
    Bounds {
        /// The name of the group.
        group: String,
        /// The lower bound.
        least: u32,
        /// The upper bound.
        most: u32,
    },
    /// Nobody could reach the API.
    #[error(
        "master_lb_enabled and the floating address of the API are both false: the API needs one of them to have an address that stays"
    )]
    Endpoint,
    /// The system of the image is not made ready by cloud-init.
    #[error(
        "cluster_distro {0} is not supported with server_type vm: use an image with cloud-init, such as Ubuntu"
    )]
    System(String),
}

/// The name of a cluster's objects.
pub fn name(cluster: &CoeCluster) -> String {
    let uuid = cluster.name_any();
    let short: String = uuid.chars().take(8).collect();
    format!("k8s-{short}")
}

/// The Secret of an authority of a cluster, as Cluster API looks for it. It makes `NAME-sa`, for service accounts, itself.
pub fn authority(name: &str, purpose: Purpose) -> String {
    let word = match purpose {
        Purpose::Kubernetes => "ca",
        Purpose::Etcd => "etcd",
        Purpose::FrontProxy => "proxy",
    };
    format!("{name}-{word}")
}

/// What is put into a cluster: an object beside it, a `ConfigMap` or a Secret, which holds manifests.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Addon<'a> {
    /// `ConfigMap` or Secret.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// What [`ADDON_LABEL`] says of what goes into a cluster: its network plugin, or this.
pub const ANY: &str = "all";

/// The word by which a network plugin is told, and the label that names its addresses.
pub const fn network(driver: NetworkDriver) -> (&'static str, &'static str) {
    match driver {
        NetworkDriver::Calico => ("calico", "calico_ipv4pool"),
        NetworkDriver::Cilium => ("cilium", "cilium_ipv4pool"),
        NetworkDriver::Flannel => ("flannel", "flannel_network_cidr"),
    }
}

/// The addresses of pods.
pub(crate) fn pods(cluster: &CoeClusterSpec) -> String {
    let (_, label) = network(cluster.network_driver.unwrap_or_default());
    text(&cluster.labels, label, PODS)
}

/// The addresses of services.
pub(crate) fn services(cluster: &CoeClusterSpec) -> String {
    text(&cluster.labels, "service_cluster_ip_range", SERVICES)
}

/// The domain of services.
pub(crate) fn domain(cluster: &CoeClusterSpec) -> String {
    text(&cluster.labels, "dns_cluster_domain", "cluster.local")
}

fn text(labels: &Labels, label: &str, default: &str) -> String {
    let text = labels.get(label).map_or(default, |text| text.trim());
    text.to_owned()
}

/// What builds a cluster.
///
/// # Errors
///
/// Something is missing that no default can be had for.
pub fn objects(
    cluster: &CoeCluster,
    template: &CoeClusterTemplateSpec,
    addons: &[Addon<'_>],
) -> Result<Objects, Unfit> {
    let wish = Wish::new(cluster, template)?;
    bounded(&cluster.spec.node_groups)?;
    let mut templates = Vec::new();
    let (mut control_plane, mut deployments, mut checks) = (Value::Null, Vec::new(), Vec::new());
    for group in &cluster.spec.node_groups {
        let made = wish.group(group)?;
        if group.is_master() {
            control_plane = wish.control_plane(group, &made);
        } else {
            let node = wish.node_template(group);
            deployments.push(wish.deployment(group, &made, &node));
            templates.push(node);
        }
        templates.push(made);
        if labels::flag(&group.labels, "auto_healing_enabled").unwrap_or(true) {
            checks.push(wish.check(group));
        }
    }
    Ok(Objects {
        cluster: wish.cluster(),
        infrastructure: wish.infrastructure(),
        control_plane,
        deployments,
        checks,
        templates,
        addons: wish.addons(addons),
    })
}

/// Lets pass groups whose nodes can be made.
///
/// # Errors
///
/// They are too many together, or a group's bounds leave no number.
pub fn bounded(groups: &[NodeGroup]) -> Result<(), Unfit> {
    let mut all: u64 = 0;
    for group in groups {
        if is_scaled(group) {
            let (least, most) = bounds(group);
            if least > most {
                let group = group.name.clone();
                return Err(Unfit::Bounds { group, least, most });
            }
        }
        all += u64::from(most(group));
    }
    if all > u64::from(MOST_NODES) {
        return Err(Unfit::Nodes(all));
    }
    Ok(())
}

/// What is asked for, with what every object needs of it.
struct Wish<'a> {
    cluster: &'a CoeCluster,
    template: &'a CoeClusterTemplateSpec,
    labels: &'a Labels,
    name: String,
    version: String,
    is_balanced: bool,
    floats: bool,
}

impl<'a> Wish<'a> {
    fn new(cluster: &'a CoeCluster, template: &'a CoeClusterTemplateSpec) -> Result<Self, Unfit> {
        let spec = &cluster.spec;
        let version = spec.kubernetes_version.ok_or(Unfit::Version)?;
        let distro = template.cluster_distro.as_deref().unwrap_or_default();
        if ["flatcar", "coreos", "fedora-coreos"].contains(&distro) {
            return Err(Unfit::System(distro.to_owned()));
        }
        let is_balanced = spec.master_lb_enabled.unwrap_or(false);
        let floats = labels::flag(&spec.labels, "master_lb_floating_ip_enabled");
        let floats = floats.unwrap_or(spec.floating_ip_enabled.unwrap_or(true));
        if !is_balanced && !floats {
            return Err(Unfit::Endpoint);
        }
        Ok(Self {
            cluster,
            template,
            labels: &spec.labels,
            name: name(cluster),
            version: format!("v{version}"),
            is_balanced,
            floats,
        })
    }

    fn cluster(&self) -> Value {
        let spec = &self.cluster.spec;
        let (driver, _) = network(spec.network_driver.unwrap_or_default());
        let mut object = self.object(Kind::Cluster, &self.name, None);
        object["metadata"]["labels"][NETWORK_LABEL] = json!(driver);
        object["spec"] = json!({
            "clusterNetwork": {
                "pods": {"cidrBlocks": [pods(spec)]},
                "services": {"cidrBlocks": [services(spec)]},
                "serviceDomain": domain(spec),
            },
            "controlPlaneRef": reference(Kind::ControlPlane, &self.control_plane_name()),
            "infrastructureRef": reference(Kind::Infrastructure, &self.name),
        });
        object
    }

    fn infrastructure(&self) -> Value {
        let mut balancer = Map::from_iter([("enabled".to_owned(), json!(self.is_balanced))]);
        if self.is_balanced {
            let allowed = labels::names(self.labels, "api_master_lb_allowed_cidrs");
            insert(&mut balancer, "allowedCIDRs", filled(allowed));
            insert(
                &mut balancer,
                "provider",
                self.labels.get("octavia_provider"),
            );
        }
        let mut spec = Map::from_iter([
            ("identityRef".to_owned(), identity()),
            ("apiServerLoadBalancer".to_owned(), balancer.into()),
            (
                "managedSecurityGroups".to_owned(),
                json!({"allowAllInClusterTraffic": true}),
            ),
        ]);
        let set = &mut spec;
        insert(set, "apiServerPort", self.template.apiserver_port);
        insert(
            set,
            "disableAPIServerFloatingIP",
            (!self.floats).then_some(true),
        );
        let outside = self.template.external_network_id.as_deref();
        insert(set, "externalNetwork", outside.map(found));
        let zone = self.labels.get("availability_zone");
        insert(
            set,
            "controlPlaneAvailabilityZones",
            zone.map(|zone| json!([zone])),
        );
        if let Some(network) = &self.cluster.spec.fixed_network {
            insert(set, "network", Some(found(network)));
            let subnet = self.cluster.spec.fixed_subnet.as_deref();
            insert(set, "subnets", subnet.map(|subnet| json!([found(subnet)])));
        } else {
            let mut subnet = json!({"cidr": text(self.labels, "fixed_subnet_cidr", SUBNET)});
            let servers = self.template.dns_nameserver.as_deref().unwrap_or_default();
            let servers: Vec<_> = servers.split(',').map(str::trim).collect();
            if servers != [""] {
                subnet["dnsNameservers"] = json!(servers);
            }
            insert(set, "managedSubnets", Some(json!([subnet])));
        }
        let mut object = self.object(Kind::Infrastructure, &self.name, None);
        object["spec"] = spec.into();
        object
    }

    /// What the machines of a group are.
    fn group(&self, group: &NodeGroup) -> Result<Value, Unfit> {
        let flavor = group.flavor_id.as_deref();
        let flavor = flavor.ok_or_else(|| Unfit::Flavor(group.name.clone()))?;
        let image = group.image_id.as_deref();
        let image = image.ok_or_else(|| Unfit::Image(group.name.clone()))?;
        let mut spec = Map::from_iter([("image".to_owned(), found(image))]);
        let key = if is_id(flavor) { "flavorID" } else { "flavor" };
        insert(&mut spec, key, Some(flavor));
        insert(&mut spec, "sshKeyName", self.cluster.spec.keypair.as_ref());
        let size = labels::count(&group.labels, "boot_volume_size");
        if let Some(size) = size.filter(|size| *size > 0) {
            let mut volume = json!({"sizeGiB": size});
            if let Some(kind) = group.labels.get("boot_volume_type") {
                volume["type"] = json!(kind);
            }
            insert(&mut spec, "rootVolume", Some(volume));
        }
        let mut networks = labels::names(&group.labels, "extra_network_name");
        networks.extend(labels::names(&group.labels, "extra_network_names"));
        networks.dedup();
        if !networks.is_empty() {
            // A port that names no network is in that of the cluster.
            let extra = networks
                .iter()
                .map(|network| json!({"network": found(network)}));
            let ports: Vec<_> = std::iter::once(json!({})).chain(extra).collect();
            insert(&mut spec, "ports", Some(ports));
        }
        let spec = json!({"template": {"spec": spec}});
        Ok(self.immutable(Kind::ServerTemplate, group, spec))
    }

    /// What the nodes of a group of workers are.
    fn node_template(&self, group: &NodeGroup) -> Value {
        let spec = json!({"template": {"spec": {
            "joinConfiguration": {"nodeRegistration": self.registration(Some(group))},
        }}});
        self.immutable(Kind::NodeTemplate, group, spec)
    }

    /// An object that is named by what it says.
    fn immutable(&self, kind: Kind, group: &NodeGroup, spec: Value) -> Value {
        let content = digest(&[&spec.to_string()], 10);
        let name = format!("{}-{content}", self.group_name(group));
        let mut object = self.object(kind, &name, Some(group));
        object["spec"] = spec;
        object
    }

    fn control_plane(&self, group: &NodeGroup, made: &Value) -> Value {
        let registration = self.registration(None);
        let mut configuration = Map::from_iter([(
            "controllerManager".to_owned(),
            json!({"extraArgs": [{"name": "cloud-provider", "value": "external"}]}),
        )]);
        let prefix = self.labels.get("container_infra_prefix");
        let prefix = prefix.map(|prefix| prefix.trim_end_matches('/'));
        insert(&mut configuration, "imageRepository", prefix);
        let mut server = Map::new();
        let names = labels::names(self.labels, "api_server_cert_sans");
        insert(&mut server, "certSANs", filled(names));
        let flags = FLAGS.iter().filter_map(|(label, flag)| {
            let value = self.labels.get(*label)?;
            Some(json!({"name": flag, "value": value}))
        });
        let flags: Vec<_> = flags.collect();
        insert(&mut server, "extraArgs", filled(flags));
        if !server.is_empty() {
            configuration.insert("apiServer".to_owned(), server.into());
        }
        let mut object = self.object(Kind::ControlPlane, &self.control_plane_name(), Some(group));
        object["spec"] = json!({
            "version": self.version,
            "replicas": group.node_count,
            "machineTemplate": {
                "metadata": {"labels": self.marks(Some(group))},
                "spec": {"infrastructureRef": reference(Kind::ServerTemplate, name_of(made))},
            },
            "kubeadmConfigSpec": {
                "clusterConfiguration": configuration,
                "initConfiguration": {"nodeRegistration": &registration},
                "joinConfiguration": {"nodeRegistration": &registration},
            },
        });
        object
    }

    fn deployment(&self, group: &NodeGroup, made: &Value, node: &Value) -> Value {
        let mut machine = json!({
            "clusterName": self.name,
            "version": group.kubernetes_version.map_or_else(|| self.version.clone(), |own| format!("v{own}")),
            "bootstrap": {"configRef": reference(Kind::NodeTemplate, name_of(node))},
            "infrastructureRef": reference(Kind::ServerTemplate, name_of(made)),
        });
        if let Some(zone) = group.labels.get("availability_zone") {
            machine["failureDomain"] = json!(zone);
        }
        let mut object = self.object(Kind::Deployment, &self.group_name(group), Some(group));
        object["spec"] = json!({
            "clusterName": self.name,
            "selector": {"matchLabels": {GROUP_LABEL: group.uuid}},
            // Healing must not take a whole group at once.
            "remediation": {"maxInFlight": 1},
            "template": {"metadata": {"labels": self.marks(Some(group))}, "spec": machine},
        });
        object["spec"]["replicas"] = json!(group.node_count);
        if let Some(batch) = self.cluster.spec.max_batch_size {
            // So many new ones come before as many old ones go.
            object["spec"]["rollout"] = json!({"strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": batch, "maxUnavailable": 0},
            }});
        }
        if is_scaled(group) {
            let (least, most) = bounds(group);
            // Where it is there already, the plan keeps the number that it has.
            object["spec"]["replicas"] = json!(group.node_count.min(most).max(least));
            object["metadata"]["annotations"] = json!({
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": least.to_string(),
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": most.to_string(),
            });
        }
        object
    }

    fn check(&self, group: &NodeGroup) -> Value {
        let mut object = self.object(Kind::HealthCheck, &self.group_name(group), Some(group));
        let unwell =
            |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": UNWELL});
        object["spec"] = json!({
            "clusterName": self.name,
            "selector": {"matchLabels": {GROUP_LABEL: group.uuid}},
            "checks": {
                "nodeStartupTimeoutSeconds": STARTS,
                "unhealthyNodeConditions": [unwell("False"), unwell("Unknown")],
            },
        });
        object
    }

    fn addons(&self, addons: &[Addon<'_>]) -> Option<Value> {
        let resources = addons.iter();
        let resources = resources.map(|Addon { kind, name }| json!({"kind": kind, "name": name}));
        let resources = filled(resources.collect::<Vec<_>>())?;
        let mut object = self.object(Kind::Addons, &self.name, None);
        object["spec"] = json!({
            "clusterSelector": {"matchLabels": {CLUSTER_LABEL: self.cluster.name_any()}},
            "resources": resources,
            "strategy": "Reconcile",
        });
        Some(object)
    }

    /// How a node makes itself known. The words in braces are cloud-init's.
    fn registration(&self, group: Option<&NodeGroup>) -> Value {
        let mut flags = vec![
            json!({"name": "cloud-provider", "value": "external"}),
            json!({"name": "provider-id", "value": "openstack:///'{{ instance_id }}'"}),
        ];
        if let Some(suites) = self.labels.get("kubelet_tls_cipher_suites") {
            flags.push(json!({"name": "tls-cipher-suites", "value": suites}));
        }
        let mut registration = json!({"name": "{{ local_hostname }}"});
        if let Some(group) = group {
            let pairs = group.node_labels.iter();
            let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
            if !pairs.is_empty() {
                flags.push(json!({"name": "node-labels", "value": pairs.join(",")}));
            }
            if !group.node_taints.is_empty() {
                registration["taints"] = json!(group.node_taints);
            }
        }
        registration["kubeletExtraArgs"] = flags.into();
        registration
    }

    fn object(&self, kind: Kind, name: &str, group: Option<&NodeGroup>) -> Value {
        json!({
            "apiVersion": kind.api_version(),
            "kind": kind.word(),
            "metadata": {
                "name": name,
                "namespace": backing_namespace(&self.cluster.name_any()),
                "labels": self.marks(group),
            },
        })
    }

    fn marks(&self, group: Option<&NodeGroup>) -> Value {
        let mut marks = json!({
            CLUSTER_LABEL: self.cluster.name_any(),
            PROJECT_LABEL: self.cluster.spec.project_id,
        });
        if let Some(group) = group {
            marks[GROUP_LABEL] = json!(group.uuid);
        }
        marks
    }

    fn control_plane_name(&self) -> String {
        format!("{}-control-plane", self.name)
    }

    /// What a group is called may be no name of an object, and two groups may be left with one.
    fn group_name(&self, group: &NodeGroup) -> String {
        if group.is_master() {
            return self.control_plane_name();
        }
        let lower = group.name.to_ascii_lowercase();
        let plain = lower
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
        let plain: String = plain.take(20).collect();
        let short: String = group.uuid.chars().take(8).collect();
        match plain.trim_matches('-') {
            "" => format!("{}-{short}", self.name),
            plain => format!("{}-{plain}-{short}", self.name),
        }
    }
}

/// Whether Cluster API's autoscaler says how many nodes a group has.
pub(crate) fn is_scaled(group: &NodeGroup) -> bool {
    !group.is_master() && labels::flag(&group.labels, "auto_scaling_enabled").unwrap_or(false)
}

/// How many nodes a group may have as it is: those that it should have, or that its autoscaler may bring.
pub(crate) fn most(group: &NodeGroup) -> u32 {
    if is_scaled(group) {
        group.node_count.max(bounds(group).1)
    } else {
        group.node_count
    }
}

/// Between which numbers the autoscaler may choose: those of the group, or else of its labels.
pub(crate) fn bounds(group: &NodeGroup) -> (u32, u32) {
    let least = group.min_node_count.filter(|least| *least > 0);
    let least = least.or_else(|| labels::count(&group.labels, "min_node_count"));
    let most = group.max_node_count;
    let most = most.or_else(|| labels::count(&group.labels, "max_node_count"));
    let least = least.unwrap_or_default();
    (least, most.unwrap_or_else(|| least.max(group.node_count)))
}

fn identity() -> Value {
    // Its type is a Secret where nothing else is said, and releases up to 0.14.2 do not know the field.
    json!({"name": CREDENTIALS, "cloudName": CLOUD})
}

fn reference(kind: Kind, name: &str) -> Value {
    json!({"apiGroup": kind.group(), "kind": kind.word(), "name": name})
}

/// What people name may be an id.
fn found(ident: &str) -> Value {
    if is_id(ident) {
        json!({"id": ident})
    } else {
        json!({"filter": {"name": ident}})
    }
}

fn is_id(ident: &str) -> bool {
    Uuid::try_parse(ident).is_ok()
}

fn filled<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn insert<T: serde::Serialize>(map: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), json!(value));
    }
}

/// The name of an object.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
