//! Whether the webhooks of a provider answer: the API is asked for something about which it asks them.
//!
//! A pod that is available tells nothing of whether the API reaches it: its Service may have no endpoints, its certificate another authority,
//! the network a policy. So the API is asked to try ([`PatchParams::dry_run`]) the smallest object of each of the provider's kinds, and whatever
//! a webhook answers, also that it refuses the object, it is alive. Nothing is stored, and no controller sees anything. It is tried by
//! server-side apply, because the API authorises that by name: the right to it is to make objects of one name, [`NAME`], and no others. Where
//! a kind is converted, it is tried in a version that is not the one that is stored, so that whoever converts is asked as well.
//!
//! Who cannot be asked so, as one that is asked about deletions alone or about kinds of others, counts as who answers at the same address. Who
//! is heeded only where it answers (`failurePolicy: Ignore`), or asked of some objects alone, is never known to have been asked, and counts so too.
//!
//! The API is not asked again while everything that an answer depends on stays: see [`Memory`].
//!
//! # Source
//! kubernetes v1.34 `apiserver/pkg/registry/generic/registry/store.go` (`Create`: who changes an object is asked before it is held against its schema,
//! who judges it after that) and `endpoints/handlers/patch.go` (`createAuthorizerAttributes`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::provider::label;
use clusterctl::Provider;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use tokio::time::timeout;

mod answer;
mod memory;
mod question;
mod sample;
mod webhook;

pub use memory::Memory;

use self::{
    answer::Answer,
    question::{Question, questions},
    webhook::{Part, Server, Webhook},
};
use crate::{
    health::Found,
    names::{MANAGER, WEBHOOK_CHECK as NAME},
    outline::Outline,
    rights,
};

/// The API gives a webhook 30 s at most.
const WITHIN: Duration = Duration::from_secs(35);
/// So many webhooks are named.
const SHOWN: usize = 3;

/// How the webhooks of a provider are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// How many of them answer.
    pub answering: usize,
    /// Those that do not, for people, a line for each address.
    pub silent: Vec<String>,
    /// What is not known, and why, for people.
    pub unknown: Option<String>,
    /// How soon it is asked again though nothing changes, for an answer is missing.
    pub again: Option<Duration>,
}

/// Everything that an answer depends on.
#[derive(Clone, Debug)]
struct Seen {
    webhooks: Vec<Webhook>,
    /// Another one when the answer may be another.
    mark: String,
}

/// Reads it.
async fn read(there: &Client, found: &Found, provider: &Provider) -> Result<Seen, kube::Error> {
    let labels = format!("{}={}", label::PROVIDER, provider.manifest_label());
    let parameters = ListParams::default().labels(&labels);
    let mutating = Api::<MutatingWebhookConfiguration>::all(there.clone());
    let mutating = mutating.list(&parameters).await?.items;
    let validating = Api::<ValidatingWebhookConfiguration>::all(there.clone());
    let validating = validating.list(&parameters).await?.items;
    let mut parts = found.marks();
    parts.extend(mutating.iter().map(version));
    parts.extend(validating.iter().map(version));
    let mut webhooks: Vec<_> = mutating.iter().flat_map(webhook::mutating).collect();
    webhooks.extend(validating.iter().flat_map(webhook::validating));
    webhooks.extend(found.definitions.iter().filter_map(webhook::converting));
    if !webhooks.is_empty() {
        // A Service gives its labels to what tells of its endpoints.
        let slices = Api::<EndpointSlice>::all(there.clone());
        let slices = slices.list_metadata(&parameters).await?.items;
        parts.extend(slices.iter().map(version));
    }
    parts.sort();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    Ok(Seen {
        webhooks,
        mark: controller::digest(&parts, 16),
    })
}

fn version<K: ResourceExt>(object: &K) -> String {
    let version = object.resource_version().unwrap_or_default();
    format!("{} {version}", object.name_any())
}

/// Asks, one kind after the other.
async fn ask(
    there: &Client,
    namespace: &str,
    webhooks: &[Webhook],
    definitions: &[Outline],
) -> Heard {
    let mut heard = Heard::default();
    for question in questions(webhooks, definitions) {
        let servers = question.asked.iter().map(|webhook| &webhook.server);
        // Who did not answer once is not waited for again.
        if servers
            .clone()
            .all(|server| heard.silent.contains_key(server))
        {
            continue;
        }
        let answer = put(there, namespace, &question).await;
        if let Answer::Forbidden(why) = answer {
            heard.refused = Some(why);
            break;
        }
        heard.note(webhooks, &question, answer);
    }
    heard
}

async fn put(there: &Client, namespace: &str, question: &Question<'_>) -> Answer {
    let api: Api<DynamicObject> = if question.is_namespaced {
        Api::namespaced_with(there.clone(), namespace, &question.resource)
    } else {
        Api::all_with(there.clone(), &question.resource)
    };
    let object = match question.object(there).await {
        Ok(object) => object,
        // It went meanwhile, and nobody is asked about it.
        Err(kube::Error::Api(status)) if status.code == 404 => return Answer::Nothing,
        Err(error) => return answer::read(Err(&error)),
    };
    let parameters = PatchParams::apply(MANAGER).force().dry_run();
    let patch = Patch::Apply(&object);
    let tried = api.patch(NAME, &parameters, &patch);
    match timeout(WITHIN, tried).await {
        Ok(tried) => answer::read(tried.as_ref().map(drop)),
        Err(_) => Answer::Late,
    }
}

/// What was heard.
#[derive(Debug, Default)]
struct Heard {
    answered: BTreeSet<Server>,
    /// By address, a webhook that was called, and what the API said.
    silent: BTreeMap<Server, (String, String)>,
    /// Why nobody may be asked.
    refused: Option<String>,
    /// Why somebody could not be asked.
    busy: Option<String>,
}

impl Heard {
    fn note(&mut self, webhooks: &[Webhook], question: &Question<'_>, answer: Answer) {
        let asked = question.asked.iter();
        let named = |name: &str| webhooks.iter().find(|webhook| webhook.name == name);
        match answer {
            Answer::Passed => self.answered.extend(asked.map(|one| one.server.clone())),
            // Those that judge it are not asked about what does not fit its schema.
            Answer::Unfit => {
                let changing = asked.filter(|webhook| webhook.part == Part::Changes);
                self.answered.extend(changing.map(|one| one.server.clone()));
            }
            Answer::Unconvertible => {
                let converting = asked.filter(|webhook| webhook.part == Part::Converts);
                self.answered
                    .extend(converting.map(|one| one.server.clone()));
            }
            Answer::Denied(name) => {
                self.answered
                    .extend(named(&name).map(|one| one.server.clone()));
            }
            Answer::Silent(name, why) => match named(&name) {
                Some(one) => {
                    self.silent.insert(one.server.clone(), (name, why));
                }
                // Somebody else's was asked first.
                None => self.busy = Some(format!("{name} does not answer: {why}")),
            },
            Answer::Unconverted(why) => {
                let converting = asked.filter(|webhook| webhook.part == Part::Converts);
                let silent =
                    converting.map(|one| (one.server.clone(), (one.name.clone(), why.clone())));
                self.silent.extend(silent);
            }
            Answer::Late => {
                let why = format!("no answer within {} s", WITHIN.as_secs());
                for webhook in asked.filter(|one| !self.answered.contains(&one.server)) {
                    let silent = (webhook.name.clone(), why.clone());
                    self.silent.insert(webhook.server.clone(), silent);
                }
            }
            Answer::Busy(why) => self.busy = Some(why),
            Answer::Forbidden(_) | Answer::Nothing => {}
        }
    }

    fn verdict(&self, webhooks: &[Webhook], provider: &Provider) -> Verdict {
        let is_silent = |webhook: &&Webhook| self.silent.contains_key(&webhook.server);
        let rest: Vec<_> = webhooks.iter().filter(|one| !is_silent(one)).collect();
        let (answering, unknown): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|webhook| self.answered.contains(&webhook.server));
        let silent = self.silent.iter().map(|(server, (name, why))| {
            let others = webhooks
                .iter()
                .filter(|one| one.server == *server && one.name != *name)
                .count();
            let others = match others {
                0 => String::new(),
                others => format!(" and {others} more webhooks"),
            };
            format!("{server} does not answer: {why} ({name}{others})")
        });
        Verdict {
            answering: answering.len(),
            silent: silent.collect(),
            unknown: self.unknown(&unknown, provider),
            again: None,
        }
    }

    fn unknown(&self, unknown: &[&Webhook], provider: &Provider) -> Option<String> {
        if unknown.is_empty() {
            return None;
        }
        let count = unknown.len();
        if let Some(refused) = &self.refused {
            return Some(rights::unasked(
                &format!("{count} webhooks are not asked, as {refused}"),
                provider,
            ));
        }
        let shown = unknown.iter().take(SHOWN).map(|one| one.name.clone());
        let more = count.saturating_sub(SHOWN);
        let shown: Vec<_> = shown
            .chain((more > 0).then(|| format!("{more} more")))
            .collect();
        let shown = shown.join(", ");
        Some(match &self.busy {
            Some(busy) => format!("{count} webhooks could not be asked yet ({shown}): {busy}"),
            None => format!("{count} webhooks cannot be asked by a dry run ({shown})"),
        })
    }
}

#[cfg(test)]
mod tests;
