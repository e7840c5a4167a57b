//! Clusters.

use api::magnum::{
    CoeCluster, CoeClusterTemplate, CoeQuota, HealthReport, HealthStatus, NOTICE_ANNOTATION,
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, json};
use uuid::Uuid;

use super::{
    Answer, Asked,
    actions::{Resize, made_here},
    credentials, entries,
    lookups::Parts,
    templates::seen,
};
use crate::{
    authority::{Authority, Purpose},
    cloud::Session,
    contract::{Fault, Fields, Version, patch::Rules},
    machines::{self, Unfit},
    store::{self, Scope},
    view,
};

mod wish;

use wish::{NODES, Wish};
pub(super) use wish::{kubernetes_version, version_of_image};

/// What lists can be ordered by.
const COLUMNS: [&str; 10] = [
    "uuid",
    "name",
    "cluster_template_id",
    "keypair",
    "status",
    "create_timeout",
    "created_at",
    "updated_at",
    "project_id",
    "health_status",
];

/// What is for us to write.
const READ_ONLY: [&str; 17] = [
    "uuid",
    "links",
    "stack_id",
    "cluster_id",
    "status",
    "status_reason",
    "health_status",
    "health_status_reason",
    "api_address",
    "coe_version",
    "container_version",
    "project_id",
    "user_id",
    "node_addresses",
    "master_addresses",
    "created_at",
    "updated_at",
];

const RULES: Rules = Rules {
    only: Some(&["node_count", "health_status", "health_status_reason"]),
    internal: &[],
    mandatory: &[],
};

pub(super) async fn list(asked: &Asked<'_>) -> Result<Answer, Fault> {
    let page = asked.paged(&COLUMNS, &[])?;
    let all: Vec<CoeCluster> = asked.store().list(asked.scope()).await?;
    let all = all
        .iter()
        .map(|cluster| view::cluster(cluster, &asked.base, asked.version));
    asked.page("clusters", "clusters", &page, entries(all)?)
}

pub(super) async fn list_detail(asked: &Asked<'_>) -> Result<Answer, Fault> {
    let page = asked.paged(&COLUMNS, &[])?;
    let all: Vec<CoeCluster> = asked.store().list(asked.scope()).await?;
    let templates: Vec<CoeClusterTemplate> = asked.store().list(Scope::All).await?;
    let of = |cluster: &CoeCluster| {
        let mut templates = templates.iter();
        templates.find(|template| template.name_any() == cluster.spec.cluster_template_id)
    };
    let all = all
        .iter()
        .map(|cluster| view::cluster_detail(cluster, of(cluster), &asked.base, asked.version));
    asked.page("clusters", "clusters/detail", &page, entries(all)?)
}

pub(super) async fn show(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let cluster = any(asked, ident).await?;
    let template = template_of(asked, &cluster).await?;
    Answer::ok(view::cluster_detail(
        &cluster,
        template.as_ref(),
        &asked.base,
        asked.version,
    ))
}

/// A cluster of the caller's project, or any where the caller is an administrator.
pub(super) async fn any(asked: &Asked<'_>, ident: &str) -> Result<CoeCluster, Fault> {
    asked.store().find(asked.scope(), ident, |_| true).await
}

/// A cluster of the caller's project, also where the caller is an administrator.
pub(super) async fn own(asked: &Asked<'_>, ident: &str) -> Result<CoeCluster, Fault> {
    asked.store().find(asked.own(), ident, |_| true).await
}

async fn template_of(
    asked: &Asked<'_>,
    cluster: &CoeCluster,
) -> Result<Option<CoeClusterTemplate>, Fault> {
    let uuid = &cluster.spec.cluster_template_id;
    match asked.store().find(Scope::All, uuid, |_| true).await {
        Ok(template) => Ok(Some(template)),
        Err(fault) if fault.status() == 404 => Ok(None),
        Err(fault) => Err(fault),
    }
}

pub(super) async fn create(asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.paged(&COLUMNS, &[])?;
    let fields = asked.fields()?;
    fields.refuse(&READ_ONLY)?;
    let wish = Wish::read(fields, asked.version)?;
    let template = usable(asked, &wish.template).await?;
    let spec = wish.resolve(&template, &asked.caller.project_id, &asked.caller.user_id)?;
    let mut cluster = CoeCluster::new(&Uuid::new_v4().to_string(), spec);
    if cluster.spec.kubernetes_version.is_none()
        && let Some(session) = of_servers(asked, &cluster).await?
        && let Some(version) = version_of_image(&template.spec.image_id, &session).await?
    {
        wish::of_version(&mut cluster.spec, version);
    }
    renderable(&cluster, &template)?;
    let session = of_servers(asked, &cluster).await?;
    if let Some(session) = &session {
        let notice = Parts::of_cluster(&cluster.spec, &template.spec)
            .looked_up(session)
            .await?;
        let notice = notice.map(|notice| (NOTICE_ANNOTATION.to_owned(), notice));
        cluster.annotations_mut().extend(notice);
    }
    // Held until the cluster is stored: the next one that is counted is counted with it.
    let turn = asked.service.turn(&asked.caller.project_id);
    let _turn = turn.lock().await;
    within_quota(asked).await?;
    let uuid = cluster.name_any();
    let authorities = Purpose::ALL.map(|purpose| {
        let made = Authority::new(&cluster.spec.name, purpose, Timestamp::now());
        made.map(|authority| (purpose, authority))
    });
    let authorities: Result<Vec<_>, _> = authorities.into_iter().collect();
    let authorities = authorities.map_err(|error| super::certificates::broken(&error))?;
    cluster
        .finalizers_mut()
        .push(api::magnum::FINALIZER.to_owned());
    let mut secrets = vec![store::secret_of(&uuid, &authorities)];
    let given = match &session {
        Some(session) => credentials::of_new(asked, session, &cluster).await?,
        None => None,
    };
    secrets.extend(given.iter().map(|given| given.secret(&uuid)));
    let created = asked.store().create_cluster(&cluster, &secrets).await;
    if let (Err(_), Some(session), Some(given)) = (&created, session, given) {
        credentials::given_up(asked, &session, &cluster, given).await?;
    }
    created?;
    Answer::accepted(json!({"uuid": uuid}))
}

/// The cloud, as the caller sees it, for a cluster that is made of its servers.
pub(super) async fn of_servers(
    asked: &Asked<'_>,
    cluster: &CoeCluster,
) -> Result<Option<Session>, Fault> {
    if !cluster.spec.server_type.unwrap_or_default().asks_cloud() {
        return Ok(None);
    }
    let session = asked.cloud().await;
    session.map(Some).map_err(|error| error.told())
}

/// Changes a cluster, once what its new servers are made of was looked up. What is refused anyhow is refused before that.
///
/// An administrator of another project is let pass: their token shows what they have, and not what the cluster's project has.
pub(super) async fn change(
    asked: &Asked<'_>,
    cluster: CoeCluster,
    change: impl Fn(&mut CoeCluster) -> Result<(), Fault>,
) -> Result<CoeCluster, Fault> {
    let mut wanted = cluster.clone();
    change(&mut wanted)?;
    let parts = Parts::of_change(&cluster.spec, &wanted.spec);
    let is_own = cluster.spec.project_id == asked.caller.project_id;
    if is_own
        && !parts.is_empty()
        && let Some(session) = of_servers(asked, &cluster).await?
    {
        // What nobody can be asked for was told of the cluster.
        parts.looked_up(&session).await?;
    }
    asked.store().change(cluster, change).await
}

/// What could never be made is not accepted.
pub(super) fn renderable(cluster: &CoeCluster, template: &CoeClusterTemplate) -> Result<(), Fault> {
    if !cluster.spec.server_type.unwrap_or_default().has_machines() {
        return Ok(());
    }
    bounded(cluster)?;
    let made = machines::objects(cluster, &template.spec, &[]);
    made.map(drop)
        .map_err(|unfit| Fault::invalid(format!("{unfit}.")))
}

/// So many nodes are not accepted that the store of all clusters would suffer.
pub(super) fn bounded(cluster: &CoeCluster) -> Result<(), Fault> {
    if !cluster.spec.server_type.unwrap_or_default().has_machines() {
        return Ok(());
    }
    machines::bounded(&cluster.spec.node_groups).map_err(|unfit| match unfit {
        Unfit::Nodes(all) => Fault::field("node_count", &all.into(), format!("{unfit}.")),
        Unfit::Bounds { least, .. } => {
            Fault::field("min_node_count", &least.into(), format!("{unfit}."))
        }
        unfit => Fault::invalid(format!("{unfit}.")),
    })
}

/// A template that the caller may make clusters of.
async fn usable(asked: &Asked<'_>, ident: &str) -> Result<CoeClusterTemplate, Fault> {
    let template = match seen(asked, ident).await {
        Err(fault) if fault.status() == 404 && asked.version < Version::EMPTY_GROUPS => {
            return Err(Fault::invalid(format!(
                "ClusterTemplate {ident} could not be found."
            )));
        }
        found => found?,
    };
    let is_hidden = template.spec.visibility.unwrap_or_default().is_hidden();
    if is_hidden && !asked.caller.is_admin() {
        return Err(Fault::forbidden(
            "Not authorized to use a hidden cluster template.",
        ));
    }
    Ok(template)
}

async fn within_quota(asked: &Asked<'_>) -> Result<(), Fault> {
    let quotas: Vec<CoeQuota> = asked.store().list(asked.own()).await?;
    let usual = asked.service.options.max_clusters_per_project;
    let limit = quotas.first().map_or(usual, |quota| quota.spec.hard_limit);
    let clusters = asked.store().count::<CoeCluster>(asked.own()).await?;
    if clusters < usize::try_from(limit).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(Fault::forbidden(format!(
        "Resource limit exceeded: You have reached the maximum clusters per project, {limit}. You may delete a cluster to make room for a new one."
    )))
}

pub(super) async fn update(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let patch = asked.patch()?;
    let cluster = any(asked, ident).await?;
    let uuid = json!({"uuid": cluster.name_any()});
    if patch.is_empty() {
        return Answer::accepted(uuid);
    }
    let status = cluster.status.clone().unwrap_or_default();
    let health = status.health.unwrap_or_default();
    let shown = view::cluster(&cluster, &asked.base, asked.version);
    let before = Map::from_iter([
        ("node_count".to_owned(), json!(shown.node_count)),
        ("health_status".to_owned(), json!(health.status)),
        ("health_status_reason".to_owned(), json!(health.reasons)),
    ]);
    let mut after = Fields::new(patch.apply(&before, &RULES)?);
    let count = after.count("node_count", 0)?.unwrap_or(NODES);
    let told = HealthReport {
        status: after
            .word("health_status")?
            .unwrap_or(HealthStatus::Unknown),
        reasons: after.texts("health_status_reason")?.unwrap_or_default(),
    };
    if patch.members().any(|member| member != "node_count") {
        asked.caller.must_be(&cluster.spec.user_id)?;
        asked.store().tell_health(&cluster, &json!(told)).await?;
    }
    if patch.members().any(|member| member == "node_count") {
        Resize::of_workers(count).carry_out(asked, cluster).await?;
    }
    Answer::accepted(uuid)
}

pub(super) async fn delete(asked: &Asked<'_>, ident: &str) -> Result<Answer, Fault> {
    let cluster = any(asked, ident).await?;
    // Who is told that it is gone would look after its servers no more.
    made_here(&cluster)?;
    asked.store().delete(&cluster).await?;
    Ok(Answer::done())
}
