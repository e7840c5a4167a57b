//! CustomResourceDefinitions at work: from the stored definitions to the kinds that are served.
//!
//! The definitions are objects like others. [`Live::settle`] looks at them after each write, decides which names each has,
//! compiles what changed, and publishes another [`Registry`](crate::registry::Registry); then it notes in their status
//! what became of them. It runs before the client is answered, so that the next request finds the kind, and once more in the
//! garbage collection, because a client may go away in between. What a deletion takes with it is the work of the garbage
//! collection too: it has to wait for finalizers.
//!
//! # Source
//! Kubernetes `apiextensions-apiserver`: `pkg/controller/{status,establish,finalizer,apiapproval}`, 1.34.

mod names;
mod serve;
pub(crate) mod status;
pub(crate) mod valid;

use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::names::Claims;

use crate::{
    failure::Cause,
    registry::{DefinitionError, Form, Resource},
    state::Api,
    store::{Draft, Expect, Object, Write, WriteError},
    task::elsewhere,
    value::name_of,
};

/// The API as it is now. A request takes it once and keeps it to its end.
pub(crate) struct Live {
    now: RwLock<Arc<Api>>,
    /// The definitions that are part of this program, in their order.
    own: Vec<String>,
    /// What was looked at last, by whoever settles.
    seen: Mutex<Seen>,
}

type Seen = Vec<Arc<Stored>>;

/// A stored definition.
struct Stored {
    object: Arc<Object>,
    value: Value,
    /// Part of this program.
    own: bool,
}

impl Live {
    pub fn new(api: Api, own: Vec<String>) -> Self {
        Self {
            now: RwLock::new(Arc::new(api)),
            own,
            seen: Mutex::default(),
        }
    }

    pub fn now(&self) -> Arc<Api> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings what is served to what the stored definitions say, and their status to what is served.
    pub async fn settle(&self) {
        let mut seen = self.seen.lock().await;
        for _ in 0..ATTEMPTS {
            let api = self.now();
            let Some(resource) = api.registry.of_form(Form::Definition) else {
                return;
            };
            let definitions = self.stored(&api, resource, &seen);
            if same(&seen, &definitions) {
                return;
            }
            let statuses = elsewhere(|| self.serve(&api, &definitions));
            for (stored, status) in definitions.iter().zip(statuses) {
                match note(&api, resource, stored, status).await {
                    // A change meanwhile is looked at in the next round.
                    Ok(()) | Err(WriteError::Conflict) => {}
                    Err(error) => {
                        let name = &*stored.object.key.name;
                        tracing::error!(definition = name, %error, "the status of a definition was not stored");
                        return;
                    }
                }
            }
            // Last: a request may be given up at any await, and then this has to be done again.
            *seen = definitions;
        }
    }

    /// The definitions, those of this program first.
    fn stored(&self, api: &Api, resource: &Resource, seen: &Seen) -> Seen {
        let snapshot = api.store.snapshot(resource.stored);
        let read = |object: &Arc<Object>| {
            // Definitions are large, and most are those of the last time.
            let known = seen.iter().find(|s| Arc::ptr_eq(&s.object, object));
            known.cloned().unwrap_or_else(|| {
                Arc::new(Stored {
                    value: object.value(),
                    own: self.own.iter().any(|own| **own == *object.key.name),
                    object: Arc::clone(object),
                })
            })
        };
        let mut stored: Seen = snapshot.objects.values().map(read).collect();
        let place = |name: &str| self.own.iter().position(|own| own == name);
        stored.sort_by_key(|stored| place(&stored.object.key.name).unwrap_or(usize::MAX));
        stored
    }

    /// Publishes the registry that follows from the definitions. Returns the status of each.
    fn serve(&self, api: &Api, definitions: &Seen) -> Vec<Value> {
        let mut claims = Claims::of(definitions.iter().map(|stored| &stored.value));
        let mut served = Vec::with_capacity(definitions.len());
        let mut statuses = Vec::with_capacity(definitions.len());
        for stored in definitions {
            let name = name_of(&stored.value);
            let verdict = if stored.own {
                names::as_asked(&stored.value)
            } else {
                claims.decide(&stored.value)
            };
            claims.note(&stored.value, &verdict.names);
            let before = api.registry.definitions.iter().find(|d| d.name == name);
            let is_established =
                stored.own || verdict.conflict.is_none() || status::established(&stored.value);
            let now = if is_established {
                serve::serve(&api.store, stored, &verdict.names, before)
            } else {
                serve::nothing(&api.store, stored, before)
            };
            statuses.push(status::of(&stored.value, &verdict, &now.problems));
            served.push(now);
        }
        for gone in &api.registry.definitions {
            if !served.iter().any(|definition| definition.name == gone.name) {
                gone.retire(&api.store);
            }
        }
        let next = Arc::new(Api {
            registry: api.registry.with(served),
            store: Arc::clone(&api.store),
            advice: api.advice.clone(),
        });
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = next;
        statuses
    }
}

fn same(a: &Seen, b: &Seen) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Stores the status of a definition, if it is another.
async fn note(
    api: &Api,
    resource: &Resource,
    stored: &Stored,
    status: Value,
) -> Result<(), WriteError> {
    if stored.value["status"] == status {
        return Ok(());
    }
    let mut value = stored.value.clone();
    value["status"] = status;
    status::track(&stored.value, &mut value, resource);
    let write = Write {
        kind: resource.stored,
        key: stored.object.key.clone(),
        expect: Expect::Revision(stored.object.revision),
        draft: Draft::new(&value, &[]),
        delete: false,
    };
    api.store.write(write).await.map(|_| ())
}

/// A definition of this program, as it is stored.
///
/// # Errors
///
/// It could not be served.
pub(crate) fn own(definition: &CustomResourceDefinition) -> Result<Value, DefinitionError> {
    let mut value = serde_json::to_value(definition).unwrap_or_default();
    let name = format!("{}.{}", definition.spec.names.plural, definition.spec.group);
    value["metadata"]["name"] = json!(name);
    value["metadata"]["generation"] = json!(1);
    fill(&mut value);
    value["status"] = status::initial(&value["spec"]);
    let causes = valid::causes(&value, None);
    if causes.is_empty() {
        return Ok(value);
    }
    let problem = |cause: &Cause| format!("{}: {}", cause.field, cause.message);
    Err(DefinitionError {
        name,
        problems: causes.iter().map(problem).collect(),
    })
}

/// Fills in what Kubernetes fills in.
pub(crate) fn fill(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let Some(names) = spec.get_mut("names").filter(|names| names.is_object()) else {
        return;
    };
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    for (name, value) in [
        ("singular", kind.to_lowercase()),
        ("listKind", format!("{kind}List")),
    ] {
        let absent = names[name].as_str().is_none_or(str::is_empty);
        if absent && !kind.is_empty() {
            names[name] = json!(value);
        }
    }
}

/// The finalizer under which the objects of a definition go before it does.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Rounds against clients that change definitions all the time.
const ATTEMPTS: u32 = 32;
