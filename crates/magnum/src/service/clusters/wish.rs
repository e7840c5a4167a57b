//! A new cluster: what a body says, and what becomes of it with what its template says.

use std::collections::BTreeMap;

use api::{
    KubernetesVersion,
    magnum::{CoeClusterSpec, CoeClusterTemplate, NodeGroup, Role},
};
use jiff::Timestamp;
use kube::ResourceExt;
use uuid::Uuid;

use super::super::{
    lookups,
    templates::{checked, mandatory},
};
use crate::{
    cloud::Session,
    contract::{Fault, Fields, Version},
    names, view,
};

/// How many workers and control planes there are where nobody says it.
pub(super) const NODES: u32 = 1;

/// What a body says of a new cluster.
pub(super) struct Wish {
    name: String,
    pub(super) template: String,
    node_count: u32,
    master_count: u32,
    fields: Settings,
    merge_labels: bool,
}

/// What a cluster has from its template, unless it says something else.
#[derive(Default)]
struct Settings {
    keypair: Option<String>,
    docker_volume_size: Option<u32>,
    labels: Option<BTreeMap<String, String>>,
    flavor_id: Option<String>,
    master_flavor_id: Option<String>,
    create_timeout: Option<u32>,
    discovery_url: Option<String>,
    fixed_network: Option<String>,
    fixed_subnet: Option<String>,
    floating_ip_enabled: Option<bool>,
    master_lb_enabled: Option<bool>,
}

impl Wish {
    pub(super) fn read(mut fields: Fields, version: Version) -> Result<Self, Fault> {
        let all = &mut fields;
        let name = match all.text("name", 242)? {
            Some(name) if is_name(&name) => name,
            Some(name) => {
                let reason = "A name begins with a letter and has letters, digits, _ . and -";
                return Err(Fault::field("name", &name.into(), reason));
            }
            None => names::invented("cluster"),
        };
        let template = all.text("cluster_template_id", 255)?;
        let least = u32::from(version < Version::EMPTY_GROUPS);
        let wish = Self {
            name,
            template: template.ok_or_else(|| mandatory("cluster_template_id"))?,
            node_count: all.count("node_count", least)?.unwrap_or(NODES),
            master_count: all.count("master_count", 1)?.unwrap_or(NODES),
            merge_labels: all.flag("merge_labels")?.unwrap_or(false),
            fields: Settings {
                keypair: all.text("keypair", 255)?,
                docker_volume_size: all.count("docker_volume_size", 1)?,
                labels: all.texts("labels")?,
                flavor_id: all.text("flavor_id", 255)?,
                master_flavor_id: all.text("master_flavor_id", 255)?,
                create_timeout: all.count("create_timeout", 0)?,
                discovery_url: all.remark("discovery_url", 255)?,
                fixed_network: all.text("fixed_network", 255)?,
                fixed_subnet: all.text("fixed_subnet", 255)?,
                floating_ip_enabled: all.flag("floating_ip_enabled")?,
                master_lb_enabled: all.flag("master_lb_enabled")?,
            },
        };
        fields.finish()?;
        if wish.master_count.is_multiple_of(2) {
            return Err(Fault::invalid(
                "The number of control planes must be odd: etcd needs a majority.",
            ));
        }
        Ok(wish)
    }

    /// With what the template says.
    pub(super) fn resolve(
        self,
        template: &CoeClusterTemplate,
        project: &str,
        user: &str,
    ) -> Result<CoeClusterSpec, Fault> {
        let from = template.spec.clone();
        let own = self.fields;
        let server_type = from.server_type.unwrap_or_default();
        let balanced = own.master_lb_enabled.or(from.master_lb_enabled);
        if self.master_count > 1 && balanced != Some(true) {
            return Err(Fault::invalid(
                "Several control planes need master_lb_enabled.",
            ));
        }
        let labels = match own.labels {
            Some(own) if self.merge_labels => {
                let mut labels = from.labels;
                labels.extend(own);
                labels
            }
            own => own.unwrap_or(from.labels),
        };
        checked(&labels)?;
        let mut spec = CoeClusterSpec {
            name: self.name,
            project_id: project.to_owned(),
            user_id: user.to_owned(),
            cluster_template_id: template.name_any(),
            server_type: Some(server_type),
            network_driver: from.network_driver,
            kubernetes_version: kubernetes_version(&labels)?,
            keypair: own.keypair.or(from.keypair_id),
            create_timeout: own.create_timeout,
            docker_volume_size: own.docker_volume_size.or(from.docker_volume_size),
            labels,
            flavor_id: own.flavor_id.or(from.flavor_id),
            master_flavor_id: own.master_flavor_id.or(from.master_flavor_id),
            fixed_network: own.fixed_network.or(from.fixed_network),
            fixed_subnet: own.fixed_subnet.or(from.fixed_subnet),
            discovery_url: own.discovery_url,
            floating_ip_enabled: own.floating_ip_enabled.or(from.floating_ip_enabled),
            master_lb_enabled: balanced,
            max_batch_size: None,
            node_groups: Vec::new(),
            imported: None,
        };
        spec.node_groups = vec![
            NodeGroup {
                role: Role(Role::MASTER.to_owned()),
                flavor_id: spec
                    .master_flavor_id
                    .clone()
                    .or_else(|| spec.flavor_id.clone()),
                ..group(&spec, "default-master", self.master_count, &from.image_id)
            },
            group(&spec, "default-worker", self.node_count, &from.image_id),
        ];
        Ok(spec)
    }
}

fn group(spec: &CoeClusterSpec, name: &str, count: u32, image: &str) -> NodeGroup {
    NodeGroup {
        uuid: Uuid::new_v4().to_string(),
        name: name.to_owned(),
        is_default: Some(true),
        node_count: count,
        min_node_count: Some(0),
        flavor_id: spec.flavor_id.clone(),
        image_id: Some(image.to_owned()),
        docker_volume_size: spec.docker_volume_size,
        labels: spec.labels.clone(),
        created_at: Some(view::moment(Timestamp::now())),
        ..NodeGroup::default()
    }
}

/// What the label says, with or without a v in front.
pub(in crate::service) fn kubernetes_version(
    labels: &BTreeMap<String, String>,
) -> Result<Option<KubernetesVersion>, Fault> {
    let Some(text) = labels.get("kube_tag") else {
        return Ok(None);
    };
    let plain = text.strip_prefix('v').unwrap_or(text);
    plain.parse().map(Some).map_err(|error| {
        Fault::field(
            "labels",
            &text.as_str().into(),
            format!("kube_tag: {error}"),
        )
    })
}

/// The version that an image says it has.
pub(in crate::service) async fn version_of_image(
    image: &str,
    session: &Session,
) -> Result<Option<KubernetesVersion>, Fault> {
    let Some(version) = lookups::version_of_image(session, image).await? else {
        return Ok(None);
    };
    let labels = BTreeMap::from([("kube_tag".to_owned(), version.clone())]);
    kubernetes_version(&labels).map_err(|_| {
        Fault::invalid(format!(
            "The property kube_version of image {image} is {version:?}, which is no version of Kubernetes: correct it, as v1.34.3, or set the label kube_tag."
        ))
    })
}

/// Writes a version as if the label said it.
pub(super) fn of_version(spec: &mut CoeClusterSpec, version: KubernetesVersion) {
    spec.kubernetes_version = Some(version);
    let groups = spec.node_groups.iter_mut().map(|group| &mut group.labels);
    for labels in groups.chain([&mut spec.labels]) {
        labels.insert("kube_tag".to_owned(), format!("v{version}"));
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)
}
