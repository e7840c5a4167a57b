//! What servers are made of is looked up before anything is made: flavors and key pairs in Nova, images in Glance, networks in Neutron,
//! by the token of who asks, so that it is there for them. Of a cluster that changes these are flavors and images alone: its network is
//! there, and its key pair is that of the user of its credential, who need not be the one who asks.
//!
//! A service that the catalogue does not have is not asked; what was not looked up is told.
//!
//! # Source
//! Magnum 23.0.0, `api/attr_validator.py`: what is looked up, and the words of what is not found. Compute API 2.1, Image API v2,
//! Networking API v2.0.

use std::collections::BTreeSet;

use api::magnum::{CoeClusterSpec, CoeClusterTemplateSpec, NodeGroup};
use reqwest::Url;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    cloud::{CloudError, Session, below, versioned, with},
    contract::Fault,
    labels::{self, Labels},
    machines,
};

const NOVA: &str = "Nova";
const GLANCE: &str = "Glance";
const NEUTRON: &str = "Neutron";
/// What an image says its Kubernetes is.
const VERSION_PROPERTY: &str = "kube_version";

/// What servers are to be made of.
#[derive(Default, PartialEq)]
pub(super) struct Parts<'a> {
    images: BTreeSet<&'a str>,
    /// Each with whether its disk may be of no size, for there is a volume instead.
    flavors: BTreeSet<(&'a str, bool)>,
    keypair: Option<&'a str>,
    external_network: Option<&'a str>,
    network: Option<&'a str>,
    subnet: Option<&'a str>,
}

impl<'a> Parts<'a> {
    /// Of a cluster, with what only its template says.
    pub(super) fn of_cluster(
        cluster: &'a CoeClusterSpec,
        template: &'a CoeClusterTemplateSpec,
    ) -> Self {
        let mut parts = Self {
            keypair: cluster.keypair.as_deref(),
            external_network: template.external_network_id.as_deref(),
            network: cluster.fixed_network.as_deref(),
            subnet: cluster.fixed_subnet.as_deref(),
            ..Self::default()
        };
        for group in &cluster.node_groups {
            parts.add(group);
        }
        parts
    }

    /// Of a template.
    pub(super) fn of_template(template: &'a CoeClusterTemplateSpec) -> Self {
        let flavors = [&template.flavor_id, &template.master_flavor_id];
        let flavors = flavors.into_iter().filter_map(Option::as_deref);
        let has_volume = has_volume(&template.labels);
        Self {
            images: BTreeSet::from([template.image_id.as_str()]),
            flavors: flavors.map(|flavor| (flavor, has_volume)).collect(),
            external_network: template.external_network_id.as_deref(),
            network: template.fixed_network.as_deref(),
            subnet: template.fixed_subnet.as_deref(),
            ..Self::default()
        }
    }

    /// Of the servers that are made where a cluster becomes another one: those of new groups, and of groups that get more of them or
    /// have them replaced. What only takes servers away needs none of it, and is not held up where it is gone.
    pub(super) fn of_change(before: &CoeClusterSpec, after: &'a CoeClusterSpec) -> Self {
        let mut parts = Self::default();
        for group in &after.node_groups {
            let was = before.node_groups.iter().find(|was| was.uuid == group.uuid);
            let is_made = was.is_none_or(|was| {
                let has_servers = machines::most(group) > 0;
                let are_more = machines::most(group) > machines::most(was);
                has_servers && (are_more || is_replaced((before, was), (after, group)))
            });
            if is_made {
                parts.add(group);
            }
        }
        parts
    }

    /// Whether there is nothing to look up.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, group: &'a NodeGroup) {
        let has_volume = has_volume(&group.labels);
        self.images.extend(group.image_id.as_deref());
        let flavor = group.flavor_id.as_deref();
        self.flavors
            .extend(flavor.map(|flavor| (flavor, has_volume)));
    }

    /// Lets pass what is there, and says what nobody could be asked for.
    pub(super) async fn looked_up(&self, session: &Session) -> Result<Option<String>, Fault> {
        let mut missing = Vec::new();
        match session.address(&["image"]) {
            Some(glance) => self.in_glance(session, glance).await?,
            None => missing.push("image"),
        }
        match session.address(&["compute"]) {
            Some(nova) => self.in_nova(session, nova).await?,
            None => missing.push("compute"),
        }
        match session.address(&["network"]) {
            Some(neutron) => self.in_neutron(session, neutron).await?,
            None => missing.push("network"),
        }
        Ok((!missing.is_empty()).then(|| {
            format!(
                "not everything was looked up, for the catalogue does not say where one service is of: {}",
                missing.join(", ")
            )
        }))
    }

    async fn in_glance(&self, session: &Session, address: &str) -> Result<(), Fault> {
        for name in self.images.iter().copied() {
            image(session, address, name).await?;
        }
        Ok(())
    }

    async fn in_nova(&self, session: &Session, address: &str) -> Result<(), Fault> {
        let base = Url::parse(address).map_err(|_| unreadable(NOVA))?;
        if !self.flavors.is_empty() {
            self.flavors(session, &base).await?;
        }
        let Some(keypair) = self.keypair else {
            return Ok(());
        };
        if has_key_pair(session, &base, keypair).await? {
            return Ok(());
        }
        Err(Fault::told(
            http::StatusCode::NOT_FOUND,
            format!("Unable to find keypair {keypair}."),
        ))
    }

    async fn flavors(&self, session: &Session, nova: &Url) -> Result<(), Fault> {
        let all = below(&below(nova, "flavors"), "detail");
        let all = session.get(NOVA, all).await;
        let all = all.map_err(|error| error.told())?;
        for (flavor, has_volume) in self.flavors.iter().copied() {
            let found = named(&all["flavors"], flavor).next();
            let found =
                found.ok_or_else(|| Fault::invalid(format!("Unable to find flavor {flavor}.")))?;
            if found["disk"] == 0 && !has_volume {
                return Err(Fault::invalid(
                    "Flavor with zero root volume size is not supported when boot_volume_size is zero.",
                ));
            }
        }
        Ok(())
    }

    async fn in_neutron(&self, session: &Session, address: &str) -> Result<(), Fault> {
        let base = Url::parse(&versioned(address, "v2.0")).map_err(|_| unreadable(NEUTRON))?;
        for (kind, list, wanted) in [
            ("external network", "networks", self.external_network),
            ("fixed network", "networks", self.network),
            ("fixed subnet", "subnets", self.subnet),
        ] {
            let Some(wanted) = wanted else { continue };
            let by = if is_id(wanted) { "id" } else { "name" };
            let found = with(&below(&base, list), &[(by, wanted)]);
            let found = session.get(NEUTRON, found).await;
            let found = found.map_err(|error| error.told())?;
            let is_outside = kind == "external network";
            let is_fit = |one: &&Value| !is_outside || one["router:external"] == true;
            match named(&found[list], wanted).filter(is_fit).count() {
                0 => return Err(Fault::invalid(format!("Unable to find {kind} {wanted}."))),
                1 => {}
                _ if is_outside => return Err(several("external networks", wanted, kind)),
                _ => return Err(several(list, wanted, list.trim_end_matches('s'))),
            }
        }
        Ok(())
    }
}

/// The version of Kubernetes that an image says it has. None: it says nothing, or the catalogue has no Glance.
///
/// # Source
/// magnum-capi-helm, which reads no other.
pub(super) async fn version_of_image(
    session: &Session,
    name: &str,
) -> Result<Option<String>, Fault> {
    let Some(glance) = session.address(&["image"]) else {
        return Ok(None);
    };
    let image = image(session, glance, name).await?;
    let version = image[VERSION_PROPERTY].as_str();
    Ok(version.map(str::to_owned))
}

/// An image by its id or its name.
async fn image(session: &Session, address: &str, image: &str) -> Result<Value, Fault> {
    let images = Url::parse(&format!("{}/images", versioned(address, "v2")));
    let images = images.map_err(|_| unreadable(GLANCE))?;
    if is_id(image) {
        match session.get(GLANCE, below(&images, image)).await {
            Ok(found) => return Ok(found),
            Err(error) if error.is_denied() => {
                return Err(Fault::forbidden(format!(
                    "Not authorized for image {image}."
                )));
            }
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error.told()),
        }
    }
    let found = session.get(GLANCE, with(&images, &[("name", image)])).await;
    let found = found.map_err(|error| error.told())?;
    let mut of_name = named(&found["images"], image);
    let Some(first) = of_name.next() else {
        return Err(Fault::invalid(format!("Image {image} could not be found.")));
    };
    if of_name.next().is_some() {
        return Err(several("images", image, "image"));
    }
    Ok(first.clone())
}

/// Lets pass who can make servers with the key pair of a cluster: Nova has others for each user. Where the catalogue has no Nova it is
/// not asked.
pub(super) async fn key_pair(session: &Session, cluster: &CoeClusterSpec) -> Result<(), Fault> {
    let (Some(name), Some(nova)) = (&cluster.keypair, session.address(&["compute"])) else {
        return Ok(());
    };
    let base = Url::parse(nova).map_err(|_| unreadable(NOVA))?;
    if has_key_pair(session, &base, name).await? {
        return Ok(());
    }
    Err(Fault::invalid(format!(
        "The servers of the cluster are made with the key pair {name}, and user {} has none of that name, for key pairs are those of one user: make a key pair {name} first.",
        session.user_id
    )))
}

async fn has_key_pair(session: &Session, nova: &Url, name: &str) -> Result<bool, Fault> {
    let found = below(&below(nova, "os-keypairs"), name);
    match session.get(NOVA, found).await {
        Err(error) if error.is_absent() => Ok(false),
        found => found.map(|_| true).map_err(|error| error.told()),
    }
}

/// Whether the servers of a group are made anew: they would be of something else, or their nodes would.
fn is_replaced(
    (before, was): (&CoeClusterSpec, &NodeGroup),
    (after, is): (&CoeClusterSpec, &NodeGroup),
) -> bool {
    let version = |spec: &CoeClusterSpec, group: &NodeGroup| {
        group.kubernetes_version.or(spec.kubernetes_version)
    };
    // What says how many there are, and when.
    let was_like = NodeGroup {
        kubernetes_version: is.kubernetes_version,
        node_count: is.node_count,
        min_node_count: is.min_node_count,
        max_node_count: is.max_node_count,
        nodes_to_remove: is.nodes_to_remove.clone(),
        updated_at: is.updated_at.clone(),
        ..was.clone()
    };
    version(before, was) != version(after, is) || was_like != *is
}

/// Whether a server has a volume instead of its flavor's disk.
fn has_volume(labels: &Labels) -> bool {
    labels::count(labels, "boot_volume_size").is_some_and(|size| size > 0)
}

/// Those that go by a name, or have this id.
fn named<'a>(all: &'a Value, ident: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = all.as_array().into_iter().flatten();
    all.filter(move |one| one["name"] == ident || one["id"] == ident)
}

fn several(all: &str, name: &str, one: &str) -> Fault {
    Fault::conflict(format!(
        "Multiple {all} exist with same name '{name}'. Please use the {one} ID instead."
    ))
}

fn unreadable(service: &'static str) -> Fault {
    CloudError::Unavailable(service).told()
}

fn is_id(ident: &str) -> bool {
    Uuid::try_parse(ident).is_ok()
}
