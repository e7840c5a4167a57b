//! What people changed by hand in what a release is made of: an upgrade that would undo it is refused, until somebody lets it.

use std::path::Path;

use api::{
    openstack::{GROUP, OVERWRITE, VERSION},
    run::Failure,
};
use helm::{Change, Helm, Place, Record};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use runs::calls::{call, config, transient};
use serde_json::Value;

use crate::{
    edits::{self, Edit},
    engine::{
        Worker,
        releases::{DEADLINE, objects, said},
    },
    names::MANAGER,
};

/// How the name of a program begins that is Helm.
const HELM: &str = "helm";

impl Worker {
    /// Fails where an upgrade would undo what somebody changed since the last one, in the release or in its objects, and nobody let it.
    pub(super) async fn keeps_edits(
        &self,
        helm: &Helm,
        place: Place<'_>,
        change: Change<'_>,
        history: &[Record],
    ) -> Result<(), Failure> {
        let wanted = helm.template(place, change, DEADLINE).await;
        let wanted = objects(&wanted.map_err(|error| said(&error))?)?;
        let last = history.last();
        let now = last.map(|last| objects(last.manifest())).transpose()?;
        let mut found = match (last, &now) {
            (Some(last), Some(now)) => by_helm(&wanted, now, last, history)?,
            _ => Vec::new(),
        };
        for object in &wanted {
            let before = now.as_deref();
            let before = before.and_then(|now| edits::called(now, &edits::named(object)));
            if let Some(live) = self.live(object).await? {
                let by_hand = edits::in_object(object, before, &live, |by| self.is_ours(by));
                found.extend(by_hand);
            }
        }
        if found.is_empty() || self.is_let(&edits::token(&found)).await? {
            return Ok(());
        }
        Err(self.refusal(place.release, &found))
    }

    /// Helm is called by the name of its program, whoever calls it: what people change by it is seen in the release.
    fn is_ours(&self, manager: &str) -> bool {
        let program = self.engine.helm.file_name().map(Path::new);
        let is_program = program.is_some_and(|program| program == Path::new(manager));
        manager == MANAGER || manager.starts_with(HELM) || is_program
    }

    /// Where an object is not there, nobody has changed it.
    async fn live(&self, object: &Value) -> Result<Option<Value>, Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        self.read(&kind, &text(&object["metadata"]["name"])).await
    }

    /// Whether somebody said of exactly these changes that they may go.
    async fn is_let(&self, token: &str) -> Result<bool, Failure> {
        let subject = &self.work.run.spec.subject;
        let kind = GroupVersionKind::gvk(GROUP, VERSION, &subject.kind);
        let found = self.read(&kind, &subject.name).await?;
        let said = found.map(|found| found["metadata"]["annotations"][OVERWRITE].clone());
        Ok(said == Some(Value::from(token)))
    }

    async fn read(&self, kind: &GroupVersionKind, name: &str) -> Result<Option<Value>, Failure> {
        let resource = ApiResource::from_gvk(kind);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.work.client.clone(), &self.namespace(), &resource);
        let found = api.get_opt(name).await;
        let found = found.map_err(|error| call(format!("read {} {name}", kind.kind), &error))?;
        let unreadable = |error| transient("Release", format!("failed to read {name}: {error}"));
        found
            .map(serde_json::to_value)
            .transpose()
            .map_err(unreadable)
    }

    fn refusal(&self, release: &str, found: &[Edit]) -> Failure {
        let subject = &self.work.run.spec.subject;
        let (namespace, token) = (self.namespace(), edits::token(found));
        let what = format!(
            "Helm release {release} would undo what was changed by hand: {}",
            edits::told(found)
        );
        let (kind, name) = (subject.kind.to_lowercase(), &subject.name);
        let run = self.work.run.name_any();
        let remedy = format!(
            "write it into the spec, where that has it, or undo it; or let it go: kubectl -n {namespace} annotate --overwrite {kind} {name} \
             {OVERWRITE}={token}; then windlass -n {namespace} retry {run}"
        );
        config("EditedByHand", what, &remedy)
    }
}

/// What somebody changed by Helm since the last revision of ours. Before there was one, all were.
fn by_helm(
    wanted: &[Value],
    now: &[Value],
    last: &Record,
    history: &[Record],
) -> Result<Vec<Edit>, Failure> {
    let Some(stored) = last.stored().filter(|stored| *stored != last.revision()) else {
        return Ok(Vec::new());
    };
    let of_ours = history.iter().find(|of| of.revision() == stored);
    let before = of_ours.map(|of| objects(of.manifest())).transpose()?;
    Ok(edits::in_release(
        wanted,
        before.as_deref(),
        now,
        last.revision(),
    ))
}
