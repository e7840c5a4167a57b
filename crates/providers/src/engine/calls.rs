//! New pods are called over new connections, before old ones end.
//!
//! The API keeps connections to a webhook open, and goes on using one however its Service has changed. When the old pod ends, it closes
//! them, and a call that is just being made over one of them is lost: one in ten thousand, and with clusters that are busy that is
//! one in most upgrades. Connections belong to what a definition or a webhook configuration says of the call, so when that is
//! written in other words, the API makes new ones. The bundle of authorities has room for words: text before the first certificate
//! is no part of it. So each run writes a mark of its own there, into definitions that call a webhook not before the new pods are
//! ready, while the old ones still answer.
//!
//! Where cert-manager's injector writes the bundle, there is no room for it, and such a call may be lost.

use std::time::Duration;

use api::run::Failure;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clusterctl::Object;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use runs::calls::call;
use serde_json::{Value, json};

use super::Installer;
use crate::{certificates, render};

/// How long nodes may take to hear that a pod is taken out of its Service: one or two seconds.
pub(super) const HEARD: Duration = Duration::from_secs(3);

const BUNDLE: &str = "/spec/conversion/webhook/clientConfig/caBundle";

impl Installer {
    /// The mark of the run: another one with every other wish, the same when a step is repeated.
    pub(super) fn mark(&self) -> String {
        let inputs = self.inputs.to_map().map(Value::Object).unwrap_or_default();
        let digest = controller::digest(&[&inputs.to_string()], MARK_LENGTH);
        format!("{} {digest}", self.inputs.version)
    }

    /// Definitions that call whom they call now as they do it now, as long as they trust the same authorities.
    pub(super) async fn calling_as_before(
        &self,
        there: &Client,
        mut objects: Vec<Object>,
    ) -> Result<Vec<Object>, Failure> {
        for object in &mut objects {
            let now = called_now(there, object).await?;
            let wanted = object.value().pointer(BUNDLE).and_then(Value::as_str);
            if let (Some(now), Some(wanted)) = (now, wanted)
                && certificates::unmarked(&now) == certificates::unmarked(&decoded(wanted))
            {
                *object = with_bundle(object, &now);
            }
        }
        Ok(objects)
    }

    /// Whether one of these definitions is to be called over other connections from now on.
    pub(super) async fn calls_anew(
        &self,
        there: &Client,
        objects: &[Object],
    ) -> Result<bool, Failure> {
        for object in objects {
            let wanted = object.value().pointer(BUNDLE).and_then(Value::as_str);
            let now = called_now(there, object).await?;
            if now.is_some_and(|now| wanted.is_some_and(|wanted| decoded(wanted) != now)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The bundle of a definition that is there.
async fn called_now(there: &Client, object: &Object) -> Result<Option<String>, Failure> {
    if !render::is_definition(object) || object.value().pointer(BUNDLE).is_none() {
        return Ok(None);
    }
    let api = Api::<CustomResourceDefinition>::all(there.clone());
    let found = api.get_opt(object.name()).await;
    let found = found.map_err(|error| call(format!("read {}", object.title()), &error))?;
    let webhook = found.and_then(|found| found.spec.conversion?.webhook);
    let bundle = webhook.and_then(|webhook| webhook.client_config?.ca_bundle);
    Ok(bundle.and_then(|bundle| String::from_utf8(bundle.0).ok()))
}

fn decoded(bundle: &str) -> String {
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn with_bundle(object: &Object, bundle: &str) -> Object {
    let mut value = object.value().clone();
    if let Some(there) = value.pointer_mut(BUNDLE) {
        *there = json!(certificates::encode(bundle.as_bytes()));
    }
    Object::new(value).unwrap_or_else(|_| object.clone())
}

const MARK_LENGTH: usize = 12;
