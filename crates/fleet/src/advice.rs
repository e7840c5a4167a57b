//! Warnings at an edit of an inventory that is only tried: `kubectl apply --dry-run=server` says what `windlass inventory plan` does.

use api::inventory::{GROUP, LEVEL_LABEL};
use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use serde_json::Value;

use crate::plan::{self, Error};

/// Tells of edits by what an API has.
pub struct Foretelling(pub Client);

impl kapi::Advisor for Foretelling {
    fn advise<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Vec<String>> {
        warnings(&self.0, object).boxed()
    }
}

/// What is to be said of an object of an inventory before it is applied. Nothing, where nothing changes by it or it is none.
pub async fn warnings(client: &Client, object: &Value) -> Vec<String> {
    let namespace = object["metadata"]["namespace"].as_str();
    let Some(namespace) = namespace.filter(|_| is_of_an_inventory(object)) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    match plan::plan(client, namespace, vec![object.clone()]).await {
        Ok(plan) if plan.changes.is_empty() => {}
        Ok(plan) => {
            lines.push(plan::summary(&plan.changes));
            if plan.unread.is_some() {
                lines.push("Machines are counted by replicas, as they cannot be read".to_owned());
            }
            let effects = plan.changes.iter().flat_map(|change| &change.effects);
            lines.extend(effects.map(ToString::to_string));
        }
        Err(Error::Inventory(problems)) => {
            lines
                .push("with this the inventory is not rendered, and no cluster changes".to_owned());
            lines.extend(problems.0.iter().map(ToString::to_string));
        }
        Err(error) => {
            lines.push(format!(
                "what this changes is not known: failed to {error}; windlass inventory plan says more"
            ));
        }
    }
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more: windlass inventory plan"));
    }
    lines.iter().map(|line| line_of(line)).collect()
}

/// A Rollout and a record change no cluster by what they say.
fn is_of_an_inventory(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    match object["apiVersion"].as_str().unwrap_or_default() {
        "v1" => kind == "ConfigMap" && object["metadata"]["labels"][LEVEL_LABEL].is_string(),
        version => {
            version.split('/').next() == Some(GROUP)
                && !matches!(kind, "Rollout" | "FleetRevision" | "WaveApproval")
        }
    }
}

/// A line as a header takes it: clients show 256 characters of each warning, and none that is not ASCII.
fn line_of(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_ascii() { c } else { '?' });
    api::text::plain(&plain.collect::<String>(), LONGEST)
}

/// With the length, 4096 characters at most: an API server drops warnings beyond that.
const MOST: usize = 15;
const LONGEST: usize = 250;
