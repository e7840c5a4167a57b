//! Steps on keys of Fernet.

use std::collections::BTreeMap;

use api::run::{Failure, FailureClass, Step};
use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use rand::Rng as _;
use runs::calls::{call, config, failure};
use serde_json::json;
use workflow::StepContext;

use crate::{
    action::{Action, Job, Rotation},
    audit,
    config::{Merged, Source},
    definition::Definition,
    engine::{Done, Worker},
    names,
    rotation::{self, Keys, LIFETIME, Noted, Refused, Rule, SINCE, Since},
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
            let is_longer = |secret: &Secret| Noted::read(secret.annotations()).lifetime < lifetime;
            let Some(secret) =
                found.filter(|secret| self.is_own(secret.labels()) && is_longer(secret))
            else {
                continue;
            };
            let note = lifetime.as_secs().to_string();
            let patch = json!({"metadata": {
                "annotations": {LIFETIME: note},
                "resourceVersion": secret.resource_version(),
            }});
            self.about(&audit::object("Secret", &name))?;
            let patched = self
                .secrets()
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            patched.map_err(|error| call(format!("change Secret {name}"), &error))?;
        }
        Ok(())
    }

    pub(super) async fn rotate_keys(
        &self,
        (inputs, definition): (&Inputs, &Definition),
        rotation: &Rotation,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let name = names::secret(self.name(), &rotation.secret);
        let mut rule = rule(inputs, rotation)?;
        if !rotation.reseal.is_empty() {
            let (_, keys, noted) = self.ring(&name).await?;
            // What is refused begins nothing.
            let early = rotation::rotate(&keys, &noted.since, rule, Timestamp::now(), key());
            early.map_err(|why| refused(&name, &why))?;
            self.reseal((inputs, definition), rotation, &noted.since, step, context)
                .await?;
        }
        let (mut secret, keys, noted) = self.ring(&name).await?;
        rule.lifetime = rule.lifetime.max(noted.lifetime);
        let rotated = rotation::rotate(&keys, &noted.since, rule, Timestamp::now(), key());
        let (keys, since) = rotated.map_err(|why| refused(&name, &why))?;
        let told = keys.keys().map(u32::to_string).collect::<Vec<_>>();
        let data = keys
            .into_iter()
            .map(|(number, key)| (number.to_string(), ByteString(key.into_bytes())));
        secret.data = Some(data.collect());
        secret
            .annotations_mut()
            .insert(SINCE.to_owned(), written(&since));
        self.about(&audit::object("Secret", &name))?;
        // As it was read, or not at all: nobody else's rotation is lost.
        let stored = self
            .secrets()
            .replace(&name, &PostParams::default(), &secret)
            .await;
        stored.map_err(|error| call(format!("change Secret {name}"), &error))?;
        Ok(Some(format!("keys {} are there", told.join(", "))))
    }

    /// Has all that there is sealed with the key in use, once between two rotations: all pods seal with that one by now.
    async fn reseal(
        &self,
        (inputs, definition): (&Inputs, &Definition),
        rotation: &Rotation,
        since: &Since,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let job = Job {
            command: rotation.reseal.clone(),
            ..Job::default()
        };
        let mut release = self.subject().job(inputs, definition, &job, &step.id);
        release.values["occasion"] = json!(written(since));
        self.run_well(release, step, context).await
    }

    /// The Secret with keys, and what it says.
    async fn ring(&self, name: &str) -> Result<(Secret, Keys, Noted), Failure> {
        let found = self.secrets().get_opt(name).await;
        let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
        let secret = found.ok_or_else(|| super::missing(name, "is not there"))?;
        if !self.is_own(secret.labels()) {
            let what = format!("Secret {name} is there, and was not made for this object");
            let remedy = "rotate its keys as whoever made it does";
            return Err(config("Taken", what, remedy));
        }
        let (keys, noted) = (read(name, &secret)?, Noted::read(secret.annotations()));
        Ok((secret, keys, noted))
    }
}

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
    let source = Source::new(&rotation.file, text.unwrap_or_default());
    let merged = Merged::of(&[source]).map_err(|_| unreadable(&rotation.keep))?;
    Rule::of(&merged, rotation).map_err(unreadable)
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
