//! Waits for providers, and shows the steps of their runs. The operator works on whether anybody watches or not.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use api::{
    Run,
    provider::{ProviderStatus, ProviderType, Reason},
};
use controller::conditions::READY;
use futures::{StreamExt, TryStreamExt, future::ready, stream::BoxStream};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use providers::stand::{Towards, resource, towards};
use runs::object::age;

use crate::{
    status::Steps,
    terminal::{self, say},
};

/// How long the operator is given to take up what was written where nothing else tells that it has: annotations raise no generation.
const TAKEN_UP: Duration = Duration::from_secs(10);

/// A provider that is waited for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Awaited {
    pub(super) provider: ProviderType,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The version that it is to have. None: it is to be gone.
    pub(super) version: Option<String>,
    /// Why it was stalled before something of it was written. That is the answer to what was written only when it is told anew, or nothing else
    /// comes.
    pub(super) before: Option<String>,
}

impl Awaited {
    /// Its object, of whatever kind.
    pub(super) fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), &self.namespace, &resource(self.provider))
    }

    fn title(&self) -> String {
        format!("{} {}/{}", self.provider, self.namespace, self.name)
    }

    /// Whether a run is of it.
    fn has(&self, run: &Run) -> bool {
        let subject = &run.spec.subject;
        run.namespace().as_deref() == Some(&self.namespace)
            && subject.kind == self.provider.kind()
            && subject.name == self.name
    }
}

/// Waits until all of them are as they are to be.
///
/// # Errors
///
/// One cannot get there before somebody changes something.
pub(super) async fn follow(client: &Client, awaited: &[Awaited]) -> anyhow::Result<()> {
    say!("Ctrl-C ends what is shown here, and not what is done");
    watch(client, awaited).await
}

/// The same for a command that has more to do after that.
pub(super) async fn watch(client: &Client, awaited: &[Awaited]) -> anyhow::Result<()> {
    let awaited: Vec<_> = awaited.iter().cloned().map(Arc::new).collect();
    let mut changes = futures::stream::select_all(awaited.iter().map(|one| changes(client, one)));
    let mut view = View {
        left: awaited
            .into_iter()
            .map(|one| {
                let before = one.before.clone();
                (
                    one,
                    Shown {
                        before,
                        ..Shown::default()
                    },
                )
            })
            .collect(),
    };
    let mut taken_up = pin!(tokio::time::sleep(TAKEN_UP));
    let mut is_over = false;
    loop {
        let (one, change) = tokio::select! {
            change = changes.try_next() => match change.context("the watch ended")? {
                Some(change) => change,
                None => break,
            },
            () = &mut taken_up, if !is_over => {
                is_over = true;
                view.nothing_came()?;
                continue;
            }
        };
        for line in view.take(&one, change)? {
            say!("{}", terminal::text(&line));
        }
        if view.left.is_empty() {
            return Ok(());
        }
    }
    bail!("the watch ended")
}

enum Change {
    Object(Box<DynamicObject>),
    Gone,
    Run(Box<Run>),
}

fn changes(
    client: &Client,
    one: &Arc<Awaited>,
) -> BoxStream<'static, Result<(Arc<Awaited>, Change), watcher::Error>> {
    let named = watcher::Config::default().fields(&format!("metadata.name={}", one.name));
    let objects = watcher(one.api(client), named)
        .default_backoff()
        .scan(false, |is_there, event| {
            let change = match event {
                Ok(watcher::Event::Init) => {
                    *is_there = false;
                    None
                }
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    *is_there = true;
                    Some(Change::Object(Box::new(object)))
                }
                Ok(watcher::Event::Delete(_)) => Some(Change::Gone),
                // One that is not there when the watch begins is as gone as one that goes later.
                Ok(watcher::Event::InitDone) if !*is_there => Some(Change::Gone),
                _ => None,
            };
            ready(Some(change))
        })
        .filter_map(ready);
    let runs = Api::<Run>::namespaced(client.clone(), &one.namespace);
    let runs = watcher(runs, watcher::Config::default())
        .default_backoff()
        .filter_map(async |event| match event {
            Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run)) => {
                Some(Change::Run(Box::new(run)))
            }
            _ => None,
        });
    let one = Arc::clone(one);
    futures::stream::select(objects.boxed(), runs.boxed())
        .map(move |change| Ok((Arc::clone(&one), change)))
        .boxed()
}

/// Those that are still waited for.
struct View {
    left: BTreeMap<Arc<Awaited>, Shown>,
}

/// What was shown of one.
#[derive(Default)]
struct Shown {
    steps: Steps,
    run: Option<Run>,
    message: String,
    /// As long as nothing else was told.
    before: Option<String>,
}

impl View {
    /// What is to be shown of a change.
    fn take(&mut self, one: &Arc<Awaited>, change: Change) -> anyhow::Result<Vec<String>> {
        let Some(shown) = self.left.get_mut(one) else {
            return Ok(Vec::new());
        };
        let standing = match change {
            Change::Run(run) => {
                if !one.has(&run) || shown.run.as_ref().is_some_and(|last| age(last) > age(&run)) {
                    return Ok(Vec::new());
                }
                shown.run = Some((*run).clone());
                return Ok(shown.steps.edges(*run));
            }
            Change::Gone if one.version.is_none() => Standing::There("it is gone".to_owned()),
            Change::Gone => bail!("{} was deleted", one.title()),
            Change::Object(object) => standing(one, &object, &mut shown.before)?,
        };
        match standing {
            Standing::Waits(message) if message == shown.message => Ok(Vec::new()),
            Standing::Waits(message) => {
                let line = format!("{}: {message}", one.title());
                shown.message = message;
                Ok(vec![line])
            }
            Standing::There(message) => {
                self.left.remove(one);
                Ok(vec![format!("{}: {message}", one.title())])
            }
        }
    }
}

impl View {
    /// What was told before is the answer where nothing else came.
    fn nothing_came(&self) -> anyhow::Result<()> {
        let mut left = self.left.iter();
        match left.find_map(|(one, shown)| Some((one, shown.before.as_ref()?))) {
            Some((one, message)) => bail!("{}: {message}", one.title()),
            None => Ok(()),
        }
    }
}

/// Why an object is stalled, if it is.
pub(super) fn stalled(object: &DynamicObject) -> Option<String> {
    match towards(&status(object), object.meta().generation, "") {
        Towards::Stopped(message) => Some(message),
        _ => None,
    }
}

fn status(object: &DynamicObject) -> ProviderStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// How one stands.
enum Standing {
    /// Not as it is to be yet.
    Waits(String),
    /// As it is to be.
    There(String),
}

fn standing(
    one: &Awaited,
    object: &DynamicObject,
    before: &mut Option<String>,
) -> anyhow::Result<Standing> {
    let status = status(object);
    let ready = status.conditions.iter().find(|one| one.type_ == READY);
    let is_because = |reason: Reason| ready.is_some_and(|ready| ready.reason == reason.as_str());
    let version = one.version.as_deref();
    // One that is to be gone has no version that it could be there in.
    let towards = towards(
        &status,
        object.meta().generation,
        version.unwrap_or_default(),
    );
    if matches!(&towards, Towards::Stopped(message) if before.as_ref() == Some(message)) {
        return Ok(Standing::Waits(String::new()));
    }
    *before = None;
    Ok(match towards {
        Towards::Stopped(message) => bail!("{}: {message}", one.title()),
        Towards::There(message) => {
            let version = version.unwrap_or_default();
            Standing::There(format!("{version} is installed, {message}"))
        }
        // Its steps tell the story.
        Towards::Waits(_) if is_because(Reason::RunInProgress) => Standing::Waits(String::new()),
        Towards::Waits(message) => Standing::Waits(message),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn core(version: Option<&str>) -> Awaited {
        Awaited {
            provider: ProviderType::Core,
            namespace: "capi-system".to_owned(),
            name: "cluster-api".to_owned(),
            version: version.map(ToOwned::to_owned),
            before: None,
        }
    }

    fn stalled_by(message: &str) -> DynamicObject {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "InstallFailed", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let object = json!({
            "metadata": {"name": "cluster-api", "generation": 2},
            "status": {
                "observedGeneration": 2,
                "conditions": [condition("Ready", "False"), condition("Stalled", "True")],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_deletion_that_goes_no_further_is_told_and_not_waited_for() {
        let told = standing(&core(None), &stalled_by("run delete-2 failed"), &mut None);
        let told = told.err().unwrap().to_string();
        assert!(told.ends_with("cluster-api: run delete-2 failed"), "{told}");
        let mut seen = stalled_by("run install-1 failed");
        seen.metadata.generation = Some(3);
        let waits = standing(&core(None), &seen, &mut None).unwrap();
        assert!(matches!(waits, Standing::Waits(_)));
    }

    #[test]
    fn what_was_wrong_before_is_the_answer_only_where_nothing_else_comes() {
        let one = Arc::new(Awaited {
            before: stalled(&stalled_by("no target")),
            ..core(Some("v1.14.2"))
        });
        let shown = || Shown {
            before: one.before.clone(),
            ..Shown::default()
        };
        let mut view = View {
            left: BTreeMap::from([(Arc::clone(&one), shown())]),
        };
        let change = |message: &str| Change::Object(Box::new(stalled_by(message)));
        assert!(view.take(&one, change("no target")).unwrap().is_empty());
        let told = view.nothing_came().unwrap_err().to_string();
        assert!(told.ends_with("no target"), "{told}");
        let told = view.take(&one, change("no answer")).unwrap_err();
        assert!(told.to_string().ends_with("no answer"), "{told}");
        assert!(view.nothing_came().is_ok());
    }
}
