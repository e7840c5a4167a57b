//! What the users of a cluster of servers made in the cloud by it: load balancers of its Services, and volumes of its claims. Its
//! servers do not take them along.
//!
//! They say themselves of which cluster they are, where the cloud controller and the driver of Cinder are told its name. In a network
//! that is the cluster's alone, load balancers are its own whatever they say, unless Services of several clusters share them: each has a
//! tag on them.
//!
//! # Source
//! What cloud-provider-openstack 1.34 writes: descriptions and tags of load balancers, `kube_service_CLUSTER_NAMESPACE_NAME`
//! (`pkg/openstack/loadbalancer.go`), descriptions of floating addresses, metadata of volumes; of Ingresses
//! `pkg/ingress/controller/controller.go`. Load balancer API v2, Networking API v2.0, Block Storage API v3.

use std::collections::BTreeSet;

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

/// What the tag of a Service on a load balancer begins with.
const TAG: &str = "kube_service_";

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
    fn whose(&self, balancer: &Value) -> Whose {
        let is_near = self.network.is_some()
            && balancer["vip_network_id"].as_str() == self.network.as_deref();
        let said = said(balancer);
        let is_named = self.are_named(said);
        if !said.starts_with("Kubernetes ") || !(is_near || is_named) {
            return Whose::Others;
        }
        let (ours, others): (Vec<_>, Vec<_>) = tags(balancer).partition(|tag| self.have_tag(tag));
        let others: BTreeSet<_> = others.into_iter().map(|tag| parts(tag).0).collect();
        // By another name that it was given, of which its own load balancers say nothing else.
        let is_renamed = !is_named
            && ours.is_empty()
            && others.len() == 1
            && others.iter().all(|name| is_of(said, name));
        if others.is_empty() || is_renamed {
            Whose::Its
        } else {
            let others = others.into_iter().map(|name| api::text::plain(name, 64));
            Whose::Shared(others.collect())
        }
    }

    fn have_tag(&self, tag: &str) -> bool {
        // In names of Services and their namespaces there is no such line.
        let is_of = |name: &String| {
            let rest = tag.strip_prefix(TAG)?.strip_prefix(name)?;
            let (_, service) = rest.strip_prefix('_')?.split_once('_')?;
            Some(!service.contains('_'))
        };
        self.names.iter().any(|name| is_of(name) == Some(true))
    }

    fn has_volume(&self, volume: &Value) -> bool {
        let of = volume["metadata"][OF_CLUSTER].as_str();
        self.names.iter().any(|name| Some(name.as_str()) == of)
    }

    fn are_named(&self, said: &str) -> bool {
        self.names.iter().any(|name| is_of(said, name))
    }
}

/// Whose a load balancer is.
#[derive(Debug, PartialEq)]
enum Whose {
    Its,
    /// Also of these.
    Shared(Vec<String>),
    Others,
}

/// What is still there.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Left {
    /// They are going, or cannot be changed now.
    balancers: Vec<String>,
    volumes: Vec<String>,
    stays: Vec<String>,
}

impl Left {
    /// What is waited for.
    pub(crate) fn awaited(&self) -> Option<String> {
        let all: Vec<_> = [&self.balancers[..], &self.volumes[..]].concat();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// What stays, with why.
    pub(crate) fn stays(&self) -> Option<String> {
        (!self.stays.is_empty()).then(|| self.stays.join(", "))
    }

    /// No load balancer is waited for any more.
    pub(crate) fn give_up(&mut self) {
        let given_up = self.balancers.drain(..);
        let given_up = given_up.map(|one| format!("{one}, which was waited for long enough"));
        self.stays.extend(given_up);
    }
}

/// What a load balancer says of itself, without what changes.
fn said(balancer: &Value) -> &str {
    let said = balancer["description"].as_str().unwrap_or_default();
    said.rsplit_once(", version: ")
        .map_or(said, |(said, _)| said)
}

fn is_of(said: &str, cluster: &str) -> bool {
    said.ends_with(&format!(" from cluster {cluster}"))
}

/// The Services that use a load balancer.
fn tags(balancer: &Value) -> impl Iterator<Item = &str> {
    let all = balancer["tags"].as_array().into_iter().flatten();
    let all = all.filter_map(Value::as_str);
    all.filter(|tag| tag.starts_with(TAG))
}

/// Cluster, namespace and name of a tag. What is cut off is none of the cluster, whatever it is.
fn parts(tag: &str) -> (&str, &str, &str) {
    let rest = tag.strip_prefix(TAG).unwrap_or(tag);
    let mut parts = rest.rsplitn(3, '_');
    let (name, namespace) = (parts.next(), parts.next());
    let cluster = parts.next().unwrap_or(rest);
    (
        cluster,
        namespace.unwrap_or_default(),
        name.unwrap_or_default(),
    )
}

/// What floating addresses say that were made for a load balancer, and not brought by somebody.
fn words_of_addresses(balancer: &Value) -> BTreeSet<String> {
    let own = said(balancer).replacen("Kubernetes Ingress ", "Kubernetes ingress ", 1);
    let services = tags(balancer).map(|tag| {
        let (cluster, namespace, name) = parts(tag);
        format!("Kubernetes external service {namespace}/{name} from cluster {cluster}")
    });
    let all = services.chain([own]);
    all.map(|words| format!("Floating IP for {words}"))
        .collect()
}

impl Session {
    /// Takes away what goes with a cluster, and says what is still there: the cloud takes its time. What the user may not see or change
    /// stays.
    pub(crate) async fn clear(&self, choice: Choice, marks: &Marks) -> Result<Left, CloudError> {
        let mut left = Left::default();
        if choice.balancers
            && let Some(octavia) = self.address(&["load-balancer"])
        {
            let cleared = self.clear_balancers(octavia, marks, &mut left).await;
            self.unless_denied("load balancers", cleared, &mut left)?;
        }
        let cinder = ["block-storage", "volumev3", "block-store"];
        if choice.volumes
            && let Some(cinder) = self.address(&cinder)
        {
            let cleared = self.clear_volumes(cinder, marks).await;
            let cleared = cleared.map(|volumes| left.volumes = volumes);
            self.unless_denied("volumes", cleared, &mut left)?;
        }
        Ok(left)
    }

    fn unless_denied(
        &self,
        what: &str,
        done: Result<(), CloudError>,
        left: &mut Left,
    ) -> Result<(), CloudError> {
        match done {
            Err(error) if error.is_denied() => {
                let user = &self.user_id;
                left.stays
                    .push(format!("{what}, for user {user} may not: {error}"));
                Ok(())
            }
            done => done,
        }
    }

    async fn clear_balancers(
        &self,
        octavia: &str,
        marks: &Marks,
        left: &mut Left,
    ) -> Result<(), CloudError> {
        let base = place(OCTAVIA, &versioned(octavia, "v2"))?;
        let all = below(&below(&base, "lbaas"), "loadbalancers");
        let found = self.get(OCTAVIA, self.of_project(&all, &[])).await?;
        for balancer in entries(&found["loadbalancers"], |_| true) {
            let id = balancer["id"].as_str().unwrap_or_default();
            let title = format!("load balancer {id}");
            match marks.whose(balancer) {
                Whose::Others => continue,
                Whose::Shared(others) => {
                    let others = others.join(", ");
                    left.stays.push(format!(
                        "{title}, which Services of other clusters use ({others})"
                    ));
                    continue;
                }
                Whose::Its => {}
            }
            let status = balancer["provisioning_status"].as_str();
            // It is going, or cannot be changed now.
            if status.is_some_and(|status| status.starts_with("PENDING_")) {
                left.balancers.push(title);
                continue;
            }
            match self.clear_balancer(balancer, below(&all, id)).await {
                Err(error) if error.is_denied() => {
                    self.unless_denied(&title, Err(error), left)?;
                }
                // Since it was listed it began to change.
                Err(error) if error.is_conflict() => left.balancers.push(title),
                cleared => {
                    cleared?;
                    left.balancers.push(title);
                }
            }
        }
        Ok(())
    }

    async fn clear_balancer(&self, balancer: &Value, url: Url) -> Result<(), CloudError> {
        if let (Some(port), Some(neutron)) =
            (balancer["vip_port_id"].as_str(), self.address(&["network"]))
        {
            let all = below(&place(NEUTRON, &versioned(neutron, "v2.0"))?, "floatingips");
            let by_port = self.of_project(&all, &[("port_id", port)]);
            let found = self.get(NEUTRON, by_port).await?;
            let words = words_of_addresses(balancer);
            let is_ours = |one: &Value| {
                let said = one["description"].as_str();
                one["port_id"] == port && said.is_some_and(|said| words.contains(said))
            };
            for address in entries(&found["floatingips"], is_ours) {
                let id = address["id"].as_str().unwrap_or_default();
                self.remove(NEUTRON, below(&all, id)).await?;
            }
        }
        self.remove(OCTAVIA, with(&url, &[("cascade", "true")]))
            .await
    }

    /// Only of the project: some users see what is of others.
    fn of_project(&self, url: &Url, query: &[(&str, &str)]) -> Url {
        let project = self.project_id.as_deref();
        let project = project.map(|project| ("project_id", project));
        let query: Vec<_> = query.iter().copied().chain(project).collect();
        with(url, &query)
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
            let is_its = |marks: &Marks| marks.whose(&balancer) == Whose::Its;
            assert_eq!(is_its(&alone), is_alone_s, "{balancer}");
            assert_eq!(is_its(&shared), is_shared_s, "{balancer}");
        }
        let unknown = Marks::new(&cluster(None, &[]), None);
        let near = json!({"description": of("kubernetes")});
        assert_eq!(unknown.whose(&near), Whose::Others);
        let ingress = of("k8s-0123abcd, version: 9");
        let ingress = balancer(&ingress.replace("external service", "Ingress"), "other");
        assert_eq!(shared.whose(&ingress), Whose::Its);
    }

    #[test]
    fn a_load_balancer_that_services_of_another_cluster_use_stays() {
        let marks = Marks::new(&cluster(None, &[]), Some("own".to_owned()));
        let whose = |of: &str, network: &str, tags: &[&str]| {
            let said = format!("Kubernetes external service a/b from cluster {of}");
            marks.whose(&json!({"description": said, "vip_network_id": network, "tags": tags}))
        };
        let (own, other) = ("kube_service_k8s-0123abcd_a_b", "kube_service_my_own_a_b");
        let usual = ["kube_service_kubernetes_a_b", "kube_service_kubernetes_a_c"];
        let shared = |others: &[&str]| {
            let others = others.iter().map(|name| (*name).to_owned());
            Whose::Shared(others.collect())
        };
        for (of, network, tags, whose_it_is) in [
            ("k8s-0123abcd", "other", vec![own, "of a user"], Whose::Its),
            (
                "k8s-0123abcd",
                "other",
                vec![own, other],
                shared(&["my_own"]),
            ),
            // Its own Service is gone.
            ("k8s-0123abcd", "other", vec![other], shared(&["my_own"])),
            (
                "k8s-0123abcd",
                "own",
                vec![own, "kube_service_k8s-0123abcd_2_a_b"],
                shared(&["k8s-0123abcd_2"]),
            ),
            ("kubernetes", "own", usual.to_vec(), Whose::Its),
            (
                "kubernetes",
                "own",
                vec![usual[0], other],
                shared(&["kubernetes", "my_own"]),
            ),
            ("kubernetes", "own", vec![other], shared(&["my_own"])),
            // Of a user who shares it with nobody of theirs.
            (
                "kubernetes",
                "own",
                vec!["kube_service_cut"],
                shared(&["cut"]),
            ),
            ("kubernetes", "other", usual.to_vec(), Whose::Others),
        ] {
            assert_eq!(whose(of, network, &tags), whose_it_is, "{of} {tags:?}");
        }
    }

    #[test]
    fn floating_addresses_are_known_by_the_service_they_were_made_for() {
        let said = "Kubernetes Ingress web in namespace a from cluster c, version: 7";
        let balancer = json!({"description": said, "tags": ["kube_service_my_own_a_b", "other"]});
        let words = words_of_addresses(&balancer);
        let expected = [
            "Floating IP for Kubernetes external service a/b from cluster my_own",
            "Floating IP for Kubernetes ingress web in namespace a from cluster c",
        ];
        assert_eq!(words.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn load_balancers_are_given_up_and_volumes_are_not() {
        let mut left = Left {
            balancers: vec!["load balancer a".to_owned()],
            volumes: vec!["volume b".to_owned()],
            ..Left::default()
        };
        assert_eq!(left.awaited().as_deref(), Some("load balancer a, volume b"));
        left.give_up();
        assert_eq!(left.awaited().as_deref(), Some("volume b"));
        assert!(left.stays().unwrap().starts_with("load balancer a"));
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
