//! Waits for providers, and shows the steps of their runs. The operator works on whether anybody watches or not.

use std::{collections::BTreeMap, sync::Arc};

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

/// A provider that is waited for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Awaited {
    pub(super) provider: ProviderType,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The version that it is to have. None: it is to be gone.
    pub(super) version: Option<String>,
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
            .map(|one| (one, Shown::default()))
            .collect(),
    };
    while let Some((one, change)) = changes.try_next().await.context("the watch ended")? {
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
            Change::Object(object) => standing(one, &object)?,
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

/// How one stands.
enum Standing {
    /// Not as it is to be yet.
    Waits(String),
    /// As it is to be.
    There(String),
}

fn standing(one: &Awaited, object: &DynamicObject) -> anyhow::Result<Standing> {
    let status = object.data.get("status").cloned().unwrap_or_default();
    let status: ProviderStatus = serde_json::from_value(status).unwrap_or_default();
    let ready = status.conditions.iter().find(|one| one.type_ == READY);
    let is_because = |reason: Reason| ready.is_some_and(|ready| ready.reason == reason.as_str());
    let Some(version) = &one.version else {
        let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
        if is_because(Reason::DependentsExist) {
            bail!("{}: {message}", one.title());
        }
        return Ok(Standing::Waits(message));
    };
    Ok(match towards(&status, object.meta().generation, version) {
        Towards::Stopped(message) => bail!("{}: {message}", one.title()),
        Towards::There(message) => Standing::There(format!("{version} is installed, {message}")),
        // Its steps tell the story.
        Towards::Waits(_) if is_because(Reason::RunInProgress) => Standing::Waits(String::new()),
        Towards::Waits(message) => Standing::Waits(message),
    })
}
