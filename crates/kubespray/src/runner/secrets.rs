//! The variables of a run that are secret: read from their Secrets whenever a playbook starts, written into memory.

use std::{collections::BTreeMap, fs, time::Duration};

use ansible::{
    FileError,
    inventory::{Level, SecretFiles, SecretInventory, SecretValue},
    mask::Mask,
};
use api::{
    cluster::SecretKeyRef,
    run::{Failure, FailureClass},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};

use super::{
    work::PATIENCE,
    workspace::{Workspace, disk, failure},
};
use crate::{
    authorities,
    inputs::Inputs,
    playbooks::Own,
    problem::{self, Problem},
    variables::{self, Content, Found, Holds, Referred},
};

impl Workspace {
    /// Writes the variables that are secret, and what is masked because of them. What was written for an earlier step serves
    /// while the API is away. `own` is the playbook of Windlass' own that they are for, if it is for one.
    pub(crate) async fn secret_variables(&self, own: Option<Own>) -> Result<SecretFiles, Failure> {
        let inputs = &self.work.inputs;
        let names = inputs.variable_secrets();
        let authorities = self.authorities(own).await?;
        let of_authorities = self.mask_file().with_file_name("authorities");
        // They are for one play, and are not left behind it.
        if authorities.is_none() && of_authorities.exists() {
            fs::remove_dir_all(&of_authorities).map_err(|error| disk(&of_authorities, &error))?;
        }
        if names.is_empty() && inputs.ssh.key.is_none() && authorities.is_none() {
            return Ok(SecretFiles::default());
        }
        let directory = self.secret_directory()?;
        let target = if authorities.is_some() {
            fs::create_dir_all(&of_authorities).map_err(|error| disk(&of_authorities, &error))?;
            of_authorities.as_path()
        } else {
            directory
        };
        let mut secrets = BTreeMap::new();
        let were_written = authorities.is_none() && self.mask_file().exists();
        let patience = if were_written {
            Duration::ZERO
        } else {
            PATIENCE
        };
        for name in names {
            match self.secret(&name, patience).await {
                Ok(secret) => drop(secrets.insert(name, secret)),
                Err(_) if were_written => return Ok(SecretFiles::found(directory)),
                Err(failure) => return Err(failure),
            }
        }
        let mut inventory = inventory(inputs, &secrets)?;
        inventory.everywhere.extend(authorities);
        let unwritable = |error: FileError| disk(&error.path, &error.source);
        let mut texts = inventory.texts();
        // Written before: what a step may need to log in is read before what it works with.
        let key = fs::read_to_string(directory.join("key")).unwrap_or_default();
        texts.push(key);
        // What was secret in one step is secret in the next.
        Mask::of(texts.iter().map(String::as_str))
            .and(self.mask())
            .save(&self.mask_file())
            .map_err(unwritable)?;
        inventory.write(target).map_err(unwritable)
    }

    /// The variable with the authorities, for the playbook that brings them and for no other.
    async fn authorities(
        &self,
        own: Option<Own>,
    ) -> Result<Option<(String, SecretValue)>, Failure> {
        let reference = self.work.inputs.authorities_secret_ref.as_ref();
        let Some(reference) = reference.filter(|_| own == Some(Own::Authorities)) else {
            return Ok(None);
        };
        let secret = self.secret(&reference.name, PATIENCE).await?;
        let found = authorities::found(reference, secret.as_ref(), Timestamp::now());
        let found = found.map_err(|problems| {
            failure(
                FailureClass::Config,
                "AuthoritiesUnusable",
                problem::text(&problems),
                Some("then retry the run"),
            )
        })?;
        let value = SecretValue::Secret(found.into_variable());
        Ok(Some((authorities::VARIABLE.to_owned(), value)))
    }
}

/// The secret variables: those of a Secret as a whole, over which what the spec itself says wins, over which those of the
/// operation win.
fn inventory(
    inputs: &Inputs,
    secrets: &BTreeMap<String, Option<Secret>>,
) -> Result<SecretInventory, Failure> {
    let level = Level::Cluster;
    let mut everywhere = own(
        &inputs.variables,
        inputs.extra_vars_secret_ref.as_ref(),
        variables::CLUSTER,
        level,
        secrets,
    )?;
    if let Some(reference) = &inputs.operation_secret_ref {
        everywhere.extend(whole(reference, variables::CREATION, level, secrets)?);
    }
    let mut hosts = BTreeMap::new();
    for host in &inputs.hosts {
        let field = format!("ClusterNode/{} spec.extraVarsSecretRef", host.name);
        let of_host = own(
            &host.variables.other,
            host.extra_vars_secret_ref.as_ref(),
            &field,
            Level::Host,
            secrets,
        )?;
        hosts.insert(host.name.clone(), of_host);
    }
    Ok(SecretInventory { everywhere, hosts })
}

fn own(
    written: &Map<String, Value>,
    reference: Option<&SecretKeyRef>,
    field: &str,
    level: Level,
    secrets: &BTreeMap<String, Option<Secret>>,
) -> Result<BTreeMap<String, SecretValue>, Failure> {
    let mut all = match reference {
        Some(reference) => whole(reference, field, level, secrets)?,
        None => BTreeMap::new(),
    };
    all.retain(|name, _| !written.contains_key(name));
    for (name, value) in written {
        if variables::holds_reference(value) {
            all.insert(name.clone(), filled(value, secrets)?);
        }
    }
    Ok(all)
}

fn whole(
    reference: &SecretKeyRef,
    field: &str,
    level: Level,
    secrets: &BTreeMap<String, Option<Secret>>,
) -> Result<BTreeMap<String, SecretValue>, Failure> {
    let holds = Holds::Variables(level);
    let variables = match content(reference, holds, secrets) {
        Ok(Content::Variables(variables)) => variables,
        Ok(Content::Value(_)) => return Err(wrong(field, reference, holds, &Found::NotVariables)),
        Err(found) => return Err(wrong(field, reference, holds, &found)),
    };
    let names = Found::Usable(variables.keys().cloned().collect());
    if !problems(field, reference, holds, &names).is_empty() {
        return Err(wrong(field, reference, holds, &names));
    }
    let secret = |(name, value)| (name, SecretValue::Secret(value));
    Ok(variables.into_iter().map(secret).collect())
}

/// A value of a spec with what its references refer to.
fn filled(
    value: &Value,
    secrets: &BTreeMap<String, Option<Secret>>,
) -> Result<SecretValue, Failure> {
    match (value, variables::reference(value)) {
        (_, Some(Some(reference))) => {
            let (field, holds) = (variables::REFERENCE, Holds::Value);
            match content(&reference, holds, secrets) {
                Ok(Content::Value(text)) => Ok(SecretValue::Secret(text.into())),
                Ok(Content::Variables(_)) => {
                    Err(wrong(field, &reference, holds, &Found::NotVariables))
                }
                Err(found) => Err(wrong(field, &reference, holds, &found)),
            }
        }
        (Value::Object(entries), _) => entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), filled(value, secrets)?)))
            .collect::<Result<_, Failure>>()
            .map(SecretValue::Map),
        (Value::Array(items), _) => items
            .iter()
            .map(|item| filled(item, secrets))
            .collect::<Result<_, Failure>>()
            .map(SecretValue::List),
        (plain, _) => Ok(SecretValue::Plain(plain.clone())),
    }
}

fn content(
    reference: &SecretKeyRef,
    holds: Holds,
    secrets: &BTreeMap<String, Option<Secret>>,
) -> Result<Content, Found> {
    let secret = secrets.get(&reference.name).and_then(Option::as_ref);
    variables::read(secret.ok_or(Found::NoSecret)?, reference, holds)
}

fn problems(field: &str, reference: &SecretKeyRef, holds: Holds, found: &Found) -> Vec<Problem> {
    let referred = Referred {
        field: field.to_owned(),
        reference: reference.clone(),
        holds,
    };
    variables::wrong(&referred, found)
}

/// A Secret may have changed since the plan was made.
fn wrong(field: &str, reference: &SecretKeyRef, holds: Holds, found: &Found) -> Failure {
    failure(
        FailureClass::Config,
        "SecretVariablesUnusable",
        problem::text(&problems(field, reference, holds, found)),
        Some("then retry the run"),
    )
}
