//! Steps on keys of Fernet.

use std::collections::BTreeMap;

use api::run::{Failure, FailureClass};
use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use rand::Rng as _;
use runs::calls::{call, config, failure};
use serde_json::json;

use crate::{
    action::{Action, Rotation},
    config::{Merged, Source},
    definition::Definition,
    engine::{Done, Worker},
    names,
    rotation::{self, Keys, Refused, Rule, Since},
    service::Inputs,
};

impl Worker {
    pub(super) async fn make_keys(&self, secret: &str) -> Result<bool, Failure> {
        let values = BTreeMap::from([("0", key()), ("1", key())]);
        let since = Since::from([(1, Timestamp::now())]);
        let told = BTreeMap::from([(SINCE.to_owned(), written(&since))]);
        self.make_told_secret(secret, values, told).await
    }

    /// Notes how long what the keys seal will be valid, before the pods that seal so start.
    pub(super) async fn note_lifetimes(
        &self,
        inputs: &Inputs,
        definition: &Definition,
    ) -> Result<(), Failure> {
        for step in &definition.by_hand {
            let Action::RotateKeys(rotation) = &step.does else {
                continue;
            };
            let name = names::secret(self.name(), &rotation.secret);
            let lifetime = rule(inputs, rotation)?.lifetime;
            let found = self.secrets().get_opt(&name).await;
            let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
            let Some(secret) =
                found.filter(|secret| self.is_own(secret.labels()) && noted(secret) < lifetime)
            else {
                continue;
            };
            let note = lifetime.as_secs().to_string();
            let patch = json!({"metadata": {
                "annotations": {LIFETIME: note},
                "resourceVersion": secret.resource_version(),
            }});
            self.held()?;
            let patched = self
                .secrets()
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            patched.map_err(|error| call(format!("change Secret {name}"), &error))?;
        }
        Ok(())
    }

    pub(super) async fn rotate_keys(&self, inputs: &Inputs, rotation: &Rotation) -> Done {
        let name = names::secret(self.name(), &rotation.secret);
        let found = self.secrets().get_opt(&name).await;
        let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
        let mut secret = found.ok_or_else(|| super::missing(&name, "is not there"))?;
        if !self.is_own(secret.labels()) {
            let what = format!("Secret {name} is there, and was not made for this object");
            let remedy = "rotate its keys as whoever made it does";
            return Err(config("Taken", what, remedy).into());
        }
        let mut rule = rule(inputs, rotation)?;
        rule.lifetime = rule.lifetime.max(noted(&secret));
        let keys = read(&name, &secret)?;
        let since = secret.annotations().get(SINCE);
        let since: Since = since
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let rotated = rotation::rotate(&keys, &since, rule, Timestamp::now(), key());
        let (keys, since) = rotated.map_err(|why| refused(&name, &why))?;
        let told = keys.keys().map(u32::to_string).collect::<Vec<_>>();
        let data = keys
            .into_iter()
            .map(|(number, key)| (number.to_string(), ByteString(key.into_bytes())));
        secret.data = Some(data.collect());
        secret
            .annotations_mut()
            .insert(SINCE.to_owned(), written(&since));
        self.held()?;
        // As it was read, or not at all: nobody else's rotation is lost.
        let stored = self
            .secrets()
            .replace(&name, &PostParams::default(), &secret)
            .await;
        stored.map_err(|error| call(format!("change Secret {name}"), &error))?;
        Ok(Some(format!("keys {} are there", told.join(", "))))
    }
}

/// The longest that tokens were ever valid in this Secret's time, in seconds: what was sealed then is valid for that long, whatever
/// is configured now.
const LIFETIME: &str = "openstack.windlass.dev/keys-lifetime";

fn noted(secret: &Secret) -> SignedDuration {
    let noted = secret.annotations().get(LIFETIME);
    let seconds = noted.and_then(|text| text.parse::<u32>().ok());
    SignedDuration::from_secs(seconds.unwrap_or_default().into())
}

/// Since when each key seals.
const SINCE: &str = "openstack.windlass.dev/keys-since";

fn written(since: &Since) -> String {
    let entries = since
        .iter()
        .map(|(number, time)| (number.to_string(), time.to_string().into()));
    serde_json::Value::Object(entries.collect()).to_string()
}

fn read(name: &str, secret: &Secret) -> Result<Keys, Failure> {
    let entries = secret.data.iter().flatten();
    let keys = entries.map(|(number, key)| {
        let number = number.parse().ok()?;
        Some((number, String::from_utf8(key.0.clone()).ok()?))
    });
    keys.collect::<Option<_>>()
        .ok_or_else(|| super::missing(name, "holds something that is no key of a number"))
}

fn rule(inputs: &Inputs, rotation: &Rotation) -> Result<Rule, Failure> {
    let unreadable = |setting: &str| {
        config(
            "Unreadable",
            format!("{} has no number as {setting}", rotation.file),
            "give it one in spec.config",
        )
    };
    let text = inputs.files.get(&rotation.file).cloned();
    let source = Source {
        name: rotation.file.clone(),
        text: text.unwrap_or_default(),
    };
    let merged = Merged::of(&[source]).map_err(|_| unreadable(&rotation.keep))?;
    let number = |setting: &str| {
        let (section, key) = setting.split_once('.')?;
        let value = merged.setting(Some(section), key)?.values().last()?;
        value.trim().parse::<u32>().ok()
    };
    let keep = number(&rotation.keep).ok_or_else(|| unreadable(&rotation.keep))?;
    let mut lifetime = SignedDuration::ZERO;
    for setting in &rotation.lifetime {
        let seconds = number(setting).ok_or_else(|| unreadable(setting))?;
        lifetime += SignedDuration::from_secs(seconds.into());
    }
    Ok(Rule {
        keep: usize::try_from(keep).unwrap_or(usize::MAX),
        lifetime,
    })
}

fn refused(secret: &str, why: &Refused) -> Failure {
    let remedy = match why {
        Refused::Early { until, .. } => {
            format!("have the step done again after {until}, or keep more keys")
        }
        Refused::TooFew(_) => "let fernet_tokens.max_active_keys be 3 or more".to_owned(),
        Refused::Missing(_) => format!("put the keys into Secret {secret} as they were"),
        Refused::Unknown(number) => format!(
            "say it: kubectl annotate --overwrite secret {secret} '{SINCE}={{\"{number}\": \"TIME\"}}', TIME as 2026-01-31T12:00:00Z"
        ),
    };
    let message = format!("the keys in Secret {secret} stay: {why}");
    failure(FailureClass::Config, "NotYet", message, &remedy)
}

/// A key of Fernet.
fn key() -> String {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE.encode(bytes)
}
