//! Cluster templates.

use std::{collections::BTreeSet, net::Ipv4Addr};

use api::magnum::{CoeCluster, CoeClusterTemplate, CoeClusterTemplateSpec, Visibility};
use http::StatusCode;
use kube::ResourceExt;
use serde_json::Value;
use uuid::Uuid;

use super::{Answer, Asked, entries, lookups::Parts};
use crate::{
    contract::{Fault, Fields, patch::Rules},
    identity::Caller,
    labels, names,
    store::{Scope, Stored},
    view,
};

/// What lists can be ordered by.
const COLUMNS: [&str; 12] = [
    "uuid",
    "name",
    "image_id",
    "flavor_id",
    "master_flavor_id",
    "keypair_id",
    "coe",
    "server_type",
    "network_driver",
    "created_at",
    "updated_at",
    "project_id",
];

/// What is for us to write.
const READ_ONLY: [&str; 6] = [
    "uuid",
    "links",
    "created_at",
    "updated_at",
    "project_id",
    "user_id",
];

const RULES: Rules = Rules {
    only: None,
    internal: &[],
    mandatory: &[
        "coe",
        "image_id",
        "network_driver",
        "external_network_id",
        "tls_disabled",
        "public",
        "hidden",
        "server_type",
        "registry_enabled",
        "cluster_distro",
    ],
};

/// What templates are told to be made by.
const DRIVER: &str = "windlass";

/// What may change of a template that clusters were made of, one at a time.
const HARMLESS: [&str; 4] = ["public", "hidden", "name", "tags"];

pub(super) async fn list(asked: &Asked<'_>) -> Result<Answer, Fault> {
    let page = asked.paged(&COLUMNS, &[])?;
    let mut all: Vec<CoeClusterTemplate> = asked.store().list(Scope::All).await?;
    all.retain(|template| is_seen(&asked.caller, template));
    let all = entries(
        all.iter()
            .map(|template| view::template(template, &asked.base)),
    )?;
    asked.page("clustertemplates", "clustertemplates", &page, all)
}

pub(super) async fn show(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let template = seen(asked, ident).await?;
    Answer::ok(view::template(&template, &asked.base))
}

/// The template that a caller may see: their project's own, everybody's, or any where the caller is an administrator.
pub(super) async fn seen(asked: &Asked<'_>, ident: &str) -> Result<CoeClusterTemplate, Fault> {
    let is_seen = |template: &CoeClusterTemplate| is_seen(&asked.caller, template);
    asked.store().find(Scope::All, ident, is_seen).await
}

fn is_seen(caller: &Caller, template: &CoeClusterTemplate) -> bool {
    let visibility = template.spec.visibility.unwrap_or_default();
    caller.is_admin()
        || template.spec.project_id == caller.project_id
        || visibility == Visibility::Public
}

/// The template that a caller may change.
async fn own(asked: &Asked<'_>, ident: &str) -> Result<CoeClusterTemplate, Fault> {
    let found = asked.store().find(asked.scope(), ident, |_| true).await;
    match found {
        // What everybody sees is not denied, but the change of it.
        Err(fault) if fault.status() == 404 && seen(asked, ident).await.is_ok() => Err(
            Fault::forbidden("Policy does not allow this request to be performed."),
        ),
        found => found,
    }
}

pub(super) async fn create(asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.paged(&COLUMNS, &[])?;
    let fields = asked.fields()?.without_null("uuid");
    fields.refuse(&READ_ONLY)?;
    let spec = read(fields, &asked.caller.project_id, &asked.caller.user_id)?;
    published(
        &asked.caller,
        Visibility::default(),
        spec.visibility.unwrap_or_default(),
    )?;
    looked_up(asked, &spec).await?;
    let object = CoeClusterTemplate::new(&Uuid::new_v4().to_string(), spec);
    let stored = asked
        .store()
        .create(&asked.caller.project_id, &object)
        .await?;
    let shown = view::template(&stored, &asked.base);
    let location = format!("{}/v1/clustertemplates/{}", asked.base, stored.name_any());
    Ok(Answer {
        location: Some(location),
        ..Answer::with(StatusCode::CREATED, shown)?
    })
}

pub(super) async fn update(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let patch = asked.patch()?;
    let template = own(asked, ident).await?;
    if patch.is_empty() {
        return Answer::ok(view::template(&template, &asked.base));
    }
    let members: BTreeSet<_> = patch.members().collect();
    let is_harmless = members.len() == 1 && members.iter().all(|member| HARMLESS.contains(member));
    if !is_harmless && is_used(asked, &template).await? {
        return Err(used(&template));
    }
    let change = |template: &mut CoeClusterTemplate| {
        let old = &template.spec;
        let before = view::template(template, &asked.base);
        let Value::Object(before) = Answer::ok(before)?.body.unwrap_or_default() else {
            return Err(Fault::NO_ROUTE);
        };
        let mut after = patch.apply(&before, &RULES)?;
        for name in READ_ONLY {
            after.shift_remove(name);
        }
        // One that another Magnum made keeps the driver that it names, whoever hides or renames it.
        let keeps = after.get("driver") == before.get("driver");
        if keeps {
            after.shift_remove("driver");
        }
        let mut spec = read(Fields::new(after), &old.project_id, &old.user_id)?;
        if keeps {
            spec.driver.clone_from(&old.driver);
        }
        let was = old.visibility.unwrap_or_default();
        published(&asked.caller, was, spec.visibility.unwrap_or_default())?;
        template.spec = spec;
        Ok(())
    };
    let mut wanted = template.clone();
    change(&mut wanted)?;
    // One whose image is gone can still be hidden, or get another name.
    let is_own = template.spec.project_id == asked.caller.project_id;
    if is_own && parts(&wanted.spec) != parts(&template.spec) {
        looked_up(asked, &wanted.spec).await?;
    }
    let changed = asked.store().change(template, change).await?;
    Answer::ok(view::template(&changed, &asked.base))
}

/// What the servers of a template's clusters are made of, where they have any.
fn parts(template: &CoeClusterTemplateSpec) -> Option<Parts<'_>> {
    let asks_cloud = template.server_type.unwrap_or_default().asks_cloud();
    asks_cloud.then(|| Parts::of_template(template))
}

/// Lets pass what is there. What nobody can be asked for is told of each cluster.
async fn looked_up(asked: &Asked<'_>, template: &CoeClusterTemplateSpec) -> Result<(), Fault> {
    let Some(parts) = parts(template) else {
        return Ok(());
    };
    let session = asked.cloud().await.map_err(|error| error.told())?;
    parts.looked_up(&session).await.map(drop)
}

pub(super) async fn delete(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let template = own(asked, ident).await?;
    if is_used(asked, &template).await? {
        return Err(used(&template));
    }
    asked.store().delete(&template).await?;
    Ok(Answer::done())
}

async fn is_used(asked: &Asked<'_>, template: &CoeClusterTemplate) -> Result<bool, Fault> {
    let clusters: Vec<CoeCluster> = asked.store().list(Scope::All).await?;
    let uuid = template.name_any();
    Ok(clusters
        .iter()
        .any(|cluster| cluster.spec.cluster_template_id == uuid))
}

fn used(template: &CoeClusterTemplate) -> Fault {
    Fault::invalid(format!(
        "ClusterTemplate {} is referenced by one or multiple clusters.",
        template.title()
    ))
}

/// Only administrators say who sees a template.
fn published(caller: &Caller, was: Visibility, is: Visibility) -> Result<(), Fault> {
    if was == is || caller.is_admin() {
        return Ok(());
    }
    Err(Fault::forbidden(
        "Not authorized to set public or hidden flag for cluster template.",
    ))
}

/// What a body says.
fn read(mut fields: Fields, project: &str, user: &str) -> Result<CoeClusterTemplateSpec, Fault> {
    let all = &mut fields;
    let coe = all.text("coe", 255)?;
    match coe.as_deref() {
        Some("kubernetes") => {}
        Some(other) => {
            return Err(Fault::field(
                "coe",
                &other.into(),
                "Value should be kubernetes",
            ));
        }
        None => return Err(mandatory("coe")),
    }
    // Clients that send null for nothing are told so by the reference too, of this member alone.
    if all.is_null("server_type") {
        let reason = "Value should be vm or bm";
        return Err(Fault::field("server_type", &Value::Null, reason));
    }
    let image_id = all
        .text("image_id", 255)?
        .ok_or_else(|| mandatory("image_id"))?;
    let name = all.text("name", 255)?;
    let public = all.flag("public")?.unwrap_or(false);
    let hidden = all.flag("hidden")?.unwrap_or(false);
    let spec = CoeClusterTemplateSpec {
        name: name.unwrap_or_else(|| names::invented("template")),
        project_id: project.to_owned(),
        user_id: user.to_owned(),
        image_id,
        server_type: Some(all.word("server_type")?.unwrap_or_default()),
        flavor_id: all.text("flavor_id", 255)?,
        master_flavor_id: all.text("master_flavor_id", 255)?,
        keypair_id: all.text("keypair_id", 255)?,
        dns_nameserver: name_servers(all)?,
        external_network_id: all.text("external_network_id", 255)?,
        fixed_network: all.text("fixed_network", 255)?,
        fixed_subnet: all.text("fixed_subnet", 255)?,
        network_driver: Some(all.word("network_driver")?.unwrap_or_default()),
        apiserver_port: port(all)?,
        docker_volume_size: all.count("docker_volume_size", 1)?,
        docker_storage_driver: all.text("docker_storage_driver", 255)?,
        cluster_distro: all.text("cluster_distro", 255)?,
        http_proxy: all.text("http_proxy", 255)?,
        https_proxy: all.text("https_proxy", 255)?,
        no_proxy: all.text("no_proxy", 255)?,
        volume_driver: all.word("volume_driver")?,
        insecure_registry: all.text("insecure_registry", 255)?,
        labels: all.texts("labels")?.unwrap_or_default(),
        tags: all.remark("tags", 255)?,
        driver: driver(all)?,
        registry_enabled: all.flag("registry_enabled")?,
        tls_disabled: all.flag("tls_disabled")?,
        master_lb_enabled: all.flag("master_lb_enabled")?,
        floating_ip_enabled: all.flag("floating_ip_enabled")?,
        visibility: Some(Visibility::of(public, hidden)),
    };
    fields.finish()?;
    checked(&spec.labels)?;
    Ok(spec)
}

/// Lets labels pass that are what they should be.
pub(super) fn checked(labels: &labels::Labels) -> Result<(), Fault> {
    labels::check(labels)
        .map_err(|wrong| Fault::field("labels", &wrong.value.as_str().into(), &wrong))
}

pub(super) fn mandatory(name: &str) -> Fault {
    Fault::field(name, &Value::Null, "Mandatory field missing.")
}

/// There is one driver, whether it is asked for or not.
fn driver(fields: &mut Fields) -> Result<Option<String>, Fault> {
    match fields.text("driver", 255)? {
        Some(other) if other != DRIVER => Err(Fault::field(
            "driver",
            &other.into(),
            format!("Value should be {DRIVER}, the one driver that there is"),
        )),
        _ => Ok(Some(DRIVER.to_owned())),
    }
}

fn name_servers(fields: &mut Fields) -> Result<Option<String>, Fault> {
    let Some(text) = fields.text("dns_nameserver", 255)? else {
        return Ok(None);
    };
    let is_address = |part: &str| part.trim().parse::<Ipv4Addr>().is_ok();
    if text.split(',').all(is_address) {
        return Ok(Some(text));
    }
    Err(Fault::field(
        "dns_nameserver",
        &text.into(),
        "Value should be IPv4 addresses with commas between them",
    ))
}

fn port(fields: &mut Fields) -> Result<Option<u16>, Fault> {
    let Some(port) = fields.count("apiserver_port", 1024)? else {
        return Ok(None);
    };
    u16::try_from(port).map(Some).map_err(|_| {
        Fault::field(
            "apiserver_port",
            &port.into(),
            "Value should be lower or equal to 65535",
        )
    })
}
