//! What the users of a cluster of servers made in the cloud by it: load balancers of its Services, and volumes of its claims. Its
//! servers do not take them along.
//!
//! They say themselves of which cluster they are, where the cloud controller and the driver of Cinder are told its name. In a network
//! that is the cluster's alone, load balancers are its own whatever they say.
//!
//! # Source
//! What cloud-provider-openstack 1.34 writes: descriptions of load balancers and floating addresses, metadata of volumes. Load
//! balancer API v2, Networking API v2.0, Block Storage API v3.

use api::magnum::{CoeCluster, CoeClusterSpec};
use kube::ResourceExt;
use reqwest::Url;
use serde_json::{Value, json};

use crate::{
    cloud::{CloudError, Session, below, versioned, with},
    labels, machines,
};

const OCTAVIA: &str = "Octavia";
const NEUTRON: &str = "Neutron";
const CINDER: &str = "Cinder";
/// Of which cluster a volume is.
const OF_CLUSTER: &str = "cinder.csi.openstack.org/cluster";

/// What goes with a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Choice {
    balancers: bool,
    volumes: bool,
}

impl Choice {
    /// Of its labels.
    pub(crate) fn of(cluster: &CoeClusterSpec) -> Self {
        let flag = |name| labels::flag(&cluster.labels, name);
        Self {
            balancers: flag("delete_load_balancers").unwrap_or(true),
            volumes: flag("delete_volumes").unwrap_or(false),
        }
    }

    /// Whether there is any.
    pub(crate) const fn is_none(self) -> bool {
        !self.balancers && !self.volumes
    }
}

/// By what things of a cluster are known.
pub(crate) struct Marks {
    /// What the cloud controller and the driver of Cinder may have been told as its name.
    names: [String; 2],
    /// The network that is its alone.
    network: Option<String>,
}

impl Marks {
    /// Of a cluster, with the network that was made for it.
    pub(crate) fn new(cluster: &CoeCluster, network: Option<String>) -> Self {
        let is_its_alone = cluster.spec.fixed_network.is_none();
        Self {
            names: [cluster.name_any(), machines::name(cluster)],
            network: network.filter(|_| is_its_alone),
        }
    }

    /// Whether a load balancer is of a Service or an Ingress of the cluster.
    fn has_balancer(&self, balancer: &Value) -> bool {
        let is_near = self.network.is_some()
            && balancer["vip_network_id"].as_str() == self.network.as_deref();
        let said = balancer["description"].as_str().unwrap_or_default();
        said.starts_with("Kubernetes ") && (is_near || self.are_named(said))
    }

    /// Whether a floating address was made for one of its load balancers, and not brought by somebody.
    fn has_address(address: &Value) -> bool {
        let said = address["description"].as_str().unwrap_or_default();
        said.starts_with("Floating IP for Kubernetes ")
    }

    fn has_volume(&self, volume: &Value) -> bool {
        let of = volume["metadata"][OF_CLUSTER].as_str();
        self.names.iter().any(|name| Some(name.as_str()) == of)
    }

    fn are_named(&self, said: &str) -> bool {
        let mut names = self.names.iter();
        names.any(|name| said.ends_with(&format!(" from cluster {name}")))
    }
}

impl Session {
    /// Takes away what goes with a cluster, and says what is still there: the cloud takes its time.
    pub(crate) async fn clear(
        &self,
        choice: Choice,
        marks: &Marks,
    ) -> Result<Option<String>, CloudError> {
        let mut left = Vec::new();
        if choice.balancers
            && let Some(octavia) = self.address(&["load-balancer"])
        {
            left.extend(self.clear_balancers(octavia, marks).await?);
        }
        let cinder = ["block-storage", "volumev3", "block-store"];
        if choice.volumes
            && let Some(cinder) = self.address(&cinder)
        {
            left.extend(self.clear_volumes(cinder, marks).await?);
        }
        Ok((!left.is_empty()).then(|| left.join(", ")))
    }

    async fn clear_balancers(
        &self,
        octavia: &str,
        marks: &Marks,
    ) -> Result<Vec<String>, CloudError> {
        let base = place(OCTAVIA, &versioned(octavia, "v2"))?;
        let all = below(&below(&base, "lbaas"), "loadbalancers");
        let found = self.get(OCTAVIA, all.clone()).await?;
        let mut left = Vec::new();
        for balancer in entries(&found["loadbalancers"], |one| marks.has_balancer(one)) {
            let id = balancer["id"].as_str().unwrap_or_default();
            left.push(format!("load balancer {id}"));
            let status = balancer["provisioning_status"].as_str();
            // It is going, or cannot be changed now.
            if status.is_some_and(|status| status.starts_with("PENDING_")) {
                continue;
            }
            self.clear_addresses(balancer["vip_port_id"].as_str())
                .await?;
            let whole = with(&below(&all, id), &[("cascade", "true")]);
            self.remove(OCTAVIA, whole).await?;
        }
        Ok(left)
    }

    async fn clear_addresses(&self, port: Option<&str>) -> Result<(), CloudError> {
        let (Some(port), Some(neutron)) = (port, self.address(&["network"])) else {
            return Ok(());
        };
        let all = below(&place(NEUTRON, &versioned(neutron, "v2.0"))?, "floatingips");
        let found = self.get(NEUTRON, with(&all, &[("port_id", port)])).await?;
        let is_ours = |one: &Value| one["port_id"] == port && Marks::has_address(one);
        for address in entries(&found["floatingips"], is_ours) {
            let id = address["id"].as_str().unwrap_or_default();
            self.remove(NEUTRON, below(&all, id)).await?;
        }
        Ok(())
    }

    async fn clear_volumes(&self, cinder: &str, marks: &Marks) -> Result<Vec<String>, CloudError> {
        let all = below(&place(CINDER, cinder)?, "volumes");
        let detail = below(&all, "detail");
        let mut left = Vec::new();
        for name in &marks.names {
            let of = json!({OF_CLUSTER: name}).to_string();
            let found = self
                .get(CINDER, with(&detail, &[("metadata", of.as_str())]))
                .await?;
            for volume in entries(&found["volumes"], |one| marks.has_volume(one)) {
                let id = volume["id"].as_str().unwrap_or_default();
                let status = volume["status"].as_str().unwrap_or_default();
                left.push(format!("volume {id} ({})", api::text::plain(status, 64)));
                if ["available", "error", "error_deleting"].contains(&status) {
                    self.remove(CINDER, below(&all, id)).await?;
                }
            }
        }
        left.sort_unstable();
        left.dedup();
        Ok(left)
    }
}

/// Those of a list that are meant and have an id.
fn entries(list: &Value, is_meant: impl Fn(&Value) -> bool) -> Vec<&Value> {
    let all = list.as_array().into_iter().flatten();
    let has_id = |one: &Value| one["id"].as_str().is_some_and(|id| !id.is_empty());
    all.filter(|one| has_id(one) && is_meant(one)).collect()
}

fn place(service: &'static str, address: &str) -> Result<Url, CloudError> {
    Url::parse(address).map_err(|_| CloudError::Unavailable(service))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(fixed_network: Option<&str>, labels: &[(&str, &str)]) -> CoeCluster {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let spec = CoeClusterSpec {
            fixed_network: fixed_network.map(str::to_owned),
            labels: labels.collect(),
            ..CoeClusterSpec::default()
        };
        CoeCluster::new("0123abcd-0000-4000-8000-000000000000", spec)
    }

    #[test]
    fn load_balancers_are_the_cluster_s_by_their_words_or_by_a_network_of_its_own() {
        let balancer =
            |said: &str, network: &str| json!({"description": said, "vip_network_id": network});
        let of = |name: &str| format!("Kubernetes external service a/b from cluster {name}");
        let network = || Some("own".to_owned());
        let alone = Marks::new(&cluster(None, &[]), network());
        let shared = Marks::new(&cluster(Some("own"), &[]), network());
        for (said, network, is_alone_s, is_shared_s) in [
            (of("kubernetes"), "own", true, false),
            (of("kubernetes"), "other", false, false),
            (of("k8s-0123abcd"), "other", true, true),
            (
                of("0123abcd-0000-4000-8000-000000000000"),
                "other",
                true,
                true,
            ),
            (of("not-k8s-0123abcd"), "other", false, false),
            ("of a user's own".to_owned(), "own", false, false),
        ] {
            let balancer = balancer(&said, network);
            assert_eq!(alone.has_balancer(&balancer), is_alone_s, "{balancer}");
            assert_eq!(shared.has_balancer(&balancer), is_shared_s, "{balancer}");
        }
        let unknown = Marks::new(&cluster(None, &[]), None);
        assert!(!unknown.has_balancer(&json!({"description": of("kubernetes")})));
    }

    #[test]
    fn volumes_are_the_cluster_s_that_say_so_and_nobody_else_s() {
        let marks = Marks::new(&cluster(None, &[]), None);
        let volume = |of: Value| json!({"id": "v", "metadata": {OF_CLUSTER: of}});
        assert!(marks.has_volume(&volume(json!("k8s-0123abcd"))));
        for other in [
            json!("kubernetes"),
            json!(""),
            Value::Null,
            json!("k8s-0123abcd-2"),
        ] {
            assert!(!marks.has_volume(&volume(other.clone())), "{other}");
        }
        assert!(!marks.has_volume(&json!({"id": "v"})));
    }

    #[test]
    fn data_is_kept_unless_somebody_chose_otherwise() {
        let choice = |labels| Choice::of(&cluster(None, labels).spec);
        let usual = choice(&[]);
        assert!(usual.balancers && !usual.volumes);
        assert!(choice(&[("delete_volumes", "yes")]).volumes);
        assert!(choice(&[("delete_load_balancers", "false")]).is_none());
    }
}
