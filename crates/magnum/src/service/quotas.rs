//! Quotas of projects.

use api::magnum::{CoeQuota, CoeQuotaSpec, QuotaResource};
use http::StatusCode;

use super::{Answer, Asked, entries, templates::mandatory};
use crate::{
    contract::{
        Fault, Fields,
        objects::Quota,
        page::{Marker, Page},
    },
    store::Scope,
    view,
};

/// The one resource that is counted, as clients write it.
const CLUSTER: &str = "Cluster";
/// The name of its object in a project's namespace.
const NAME: &str = "cluster";

pub(super) async fn list(asked: &Asked<'_>) -> Result<Answer, Fault> {
    let page = Page::read(
        &asked.query,
        Marker::Id,
        &["project_id", "resource", "hard_limit"],
        &["all_tenants"],
    )?;
    asked.caller.may_administer()?;
    let all = [(
        "all_tenants".to_owned(),
        asked.argument("all_tenants").into(),
    )];
    let everybody = Fields::new(all.into_iter().collect()).flag("all_tenants")?;
    let whose = match everybody {
        Some(true) => Scope::All,
        Some(false) | None => asked.own(),
    };
    let mut all: Vec<CoeQuota> = asked.store().list(whose).await?;
    all.sort_by_key(|quota| quota.spec.id);
    let all = entries(all.iter().map(view::quota))?;
    asked.page("quotas", "quotas", &page, all)
}

pub(super) async fn show(
    asked: &Asked<'_>,
    project: &str,
    resource: &str,
) -> Result<Answer, Fault> {
    known(resource)?;
    if project != asked.caller.project_id {
        asked.caller.may_administer()?;
    }
    let Some(quota) = of(asked, project).await? else {
        return Answer::ok(Quota {
            project_id: project.to_owned(),
            resource: CLUSTER,
            hard_limit: asked.service.options.max_clusters_per_project,
            kept: None,
        });
    };
    Answer::ok(view::quota(&quota))
}

pub(super) async fn create(asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.caller.may_administer()?;
    let Wish {
        project_id,
        hard_limit,
    } = Wish::read(asked.fields()?)?;
    let project_id = project_id.ok_or_else(|| mandatory("project_id"))?;
    let quotas: Vec<CoeQuota> = asked.store().list(Scope::All).await?;
    let last = quotas.iter().map(|quota| quota.spec.id).max();
    let spec = CoeQuotaSpec {
        id: last.unwrap_or_default().saturating_add(1),
        project_id: project_id.clone(),
        resource: QuotaResource::Cluster,
        hard_limit: hard_limit.unwrap_or(1),
    };
    let stored = asked
        .store()
        .create(&project_id, &CoeQuota::new(NAME, spec))
        .await?;
    Answer::with(StatusCode::CREATED, view::quota(&stored))
}

pub(super) async fn update(
    asked: &Asked<'_>,
    project: &str,
    resource: &str,
) -> Result<Answer, Fault> {
    asked.caller.may_administer()?;
    known(resource)?;
    let wish = Wish::read(asked.fields()?)?;
    let hard_limit = wish.hard_limit.ok_or_else(|| mandatory("hard_limit"))?;
    let quota = there(asked, project).await?;
    let changed = asked.store().change(quota, |quota| {
        quota.spec.hard_limit = hard_limit;
        Ok(())
    });
    Answer::accepted(view::quota(&changed.await?))
}

pub(super) async fn delete(
    asked: &Asked<'_>,
    project: &str,
    resource: &str,
) -> Result<Answer, Fault> {
    asked.caller.may_administer()?;
    known(resource)?;
    let quota = there(asked, project).await?;
    asked.store().delete(&quota).await?;
    Ok(Answer::done())
}

/// What a body says.
struct Wish {
    project_id: Option<String>,
    hard_limit: Option<u32>,
}

impl Wish {
    fn read(mut fields: Fields) -> Result<Self, Fault> {
        fields.refuse(&["id", "created_at", "updated_at"])?;
        let wish = Self {
            project_id: fields.text("project_id", 64)?,
            hard_limit: fields.count("hard_limit", 0)?,
        };
        let resource = fields.text("resource", 255)?;
        let resource = resource.unwrap_or_else(|| CLUSTER.to_owned());
        if resource != CLUSTER {
            return Err(Fault::field(
                "resource",
                &resource.into(),
                "Value should be Cluster",
            ));
        }
        fields.finish()?;
        Ok(wish)
    }
}

/// A quota of what is not counted would only look as if it were one.
fn known(resource: &str) -> Result<(), Fault> {
    if resource == CLUSTER {
        return Ok(());
    }
    Err(Fault::not_found("Quota resource", resource))
}

async fn of(asked: &Asked<'_>, project: &str) -> Result<Option<CoeQuota>, Fault> {
    let quotas: Vec<CoeQuota> = asked.store().list(Scope::Project(project)).await?;
    Ok(quotas.into_iter().next())
}

async fn there(asked: &Asked<'_>, project: &str) -> Result<CoeQuota, Fault> {
    let quota = of(asked, project).await?;
    quota.ok_or_else(|| Fault::not_found("Quota", project))
}
