//! The files of a run: inventory, variables, ansible.cfg, the ssh key, host keys.
//!
//! What is secret lies in memory, readable by the owner alone, in a directory that the run's own leads to, so that a later
//! runner finds and removes what a killed one left.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ansible::{
    inventory::{self, Configuration, Directories, Inventory, InventoryFiles, PythonPath},
    mask::Mask,
    ssh::Bastion,
    write_private,
};
use api::{
    HostName,
    run::{Failure, FailureClass},
    secrets::CREDENTIALS_TYPE,
};
use controller::away;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;

use runs::runner::Error;

use super::work::{ClusterWork, PATIENCE};
use crate::{
    host_keys,
    inputs::Inputs,
    private::{self, Place},
    secret::{is_for_vault, key_of},
};

/// The files of a run.
#[derive(Clone)]
pub(crate) struct Workspace {
    pub(super) work: Arc<ClusterWork>,
    private: Place,
}

impl Workspace {
    /// Makes the directories.
    pub(crate) fn prepare(work: Arc<ClusterWork>) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let private = Place::make(&work.directory).map_err(failed(&work.directory))?;
        for directory in [
            &private.path.join("c"),
            &private.path.join("t"),
            &work.cluster_directory(),
            &work.directory.join("logs"),
        ] {
            private::directory(directory).map_err(failed(directory))?;
        }
        Ok(Self { work, private })
    }

    /// Removes what must not stay.
    pub(crate) fn clean(&self) {
        if let Err(error) = private::forget(&self.work.directory) {
            tracing::warn!(path = %self.private.path.display(), error = &error as &dyn std::error::Error, "the private directory was not removed");
        }
        if let Err(error) = ansible::playbook::forget(&self.ansible_home()) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the directory of sockets was not removed"
            );
        }
    }

    /// Ansible's home, which the cluster keeps.
    pub(crate) fn ansible_home(&self) -> PathBuf {
        self.work.cluster_directory().join("ansible")
    }

    /// The playbooks.
    pub(crate) fn checkout(&self) -> PathBuf {
        self.work
            .layout
            .sources()
            .join(&self.work.inputs.source.digest)
    }

    /// The file of host keys, which the cluster keeps.
    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.work.cluster_directory().join("known_hosts")
    }

    /// The cluster's own directories.
    pub(crate) fn directories(&self) -> Directories {
        Directories::below(&self.work.cluster_directory())
    }

    /// A short directory for ssh's control sockets.
    pub(crate) fn control_sockets(&self) -> PathBuf {
        self.private.path.join("c")
    }

    /// Where Ansible makes what it sends to hosts, which holds variables.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.private.path.join("t")
    }

    /// The texts that are masked.
    pub(crate) fn mask_file(&self) -> PathBuf {
        self.private.path.join("mask.json")
    }

    /// What is masked of what is told.
    pub(crate) fn mask(&self) -> Mask {
        Mask::load(&self.mask_file()).unwrap_or_default()
    }

    /// Where secrets are written to: memory, or nowhere.
    pub(crate) fn secret_directory(&self) -> Result<&Path, Failure> {
        if self.private.in_memory {
            return Ok(&self.private.path);
        }
        Err(failure(
            FailureClass::External,
            "NoMemoryForSecrets",
            "secrets are kept in memory only, and neither /dev/shm nor $XDG_RUNTIME_DIR is memory here".to_owned(),
            Some("mount a tmpfs on /dev/shm, then retry the run"),
        ))
    }

    /// The private key, written anew from its Secret; none: ssh uses what it finds.
    pub(crate) async fn key(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(reference) = &self.work.inputs.ssh.key else {
            return Ok(None);
        };
        let path = self.secret_directory()?.join("key");
        // What was written for an earlier step serves while the API is away.
        let written = path.exists();
        let Some(bytes) = self
            .read(&reference.name, key_of(reference), "NoSshKey", written)
            .await?
        else {
            return Ok(Some(path));
        };
        write_private(&path, &bytes).map_err(|error| disk(&path, &error))?;
        Ok(Some(path))
    }

    /// The hosts' public keys that the spec gives, in itself or by a Secret; none: it gives none, or the API is away and
    /// what was written for an earlier step serves.
    pub(crate) async fn given_host_keys(&self) -> Result<Option<String>, Failure> {
        let ssh = &self.work.inputs.ssh;
        let Some(reference) = &ssh.known_hosts_secret else {
            return Ok(ssh.known_hosts.clone());
        };
        let key = host_keys::key_of(reference);
        let written = self.known_hosts().exists();
        let bytes = self
            .read(&reference.name, key, "NoHostKeys", written)
            .await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What a Secret holds under a key; nothing where the API does not answer and that is `bearable`.
    async fn read(
        &self,
        name: &str,
        key: &str,
        code: &'static str,
        bearable: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let patience = if bearable { Duration::ZERO } else { PATIENCE };
        let secret = match self.secret(name, patience).await {
            Ok(secret) => secret,
            Err(_) if bearable => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let bytes = secret.and_then(|secret| secret.data?.remove(key));
        let bytes = bytes.ok_or_else(|| {
            failure(
                FailureClass::Config,
                code,
                format!("Secret {name} with key {key} is not there"),
                Some("create it, then retry the run"),
            )
        })?;
        Ok(Some(bytes.0))
    }

    /// A Secret, or that there is none; the failure is that the API does not say, or that it is for a Vault alone. Whatever a run does
    /// with a Secret that a spec names, it has it from here. For so long an API is waited for that is away.
    pub(super) async fn secret(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<Secret>, Failure> {
        let api = Api::<Secret>::namespaced(self.work.client.clone(), &self.work.namespace());
        let secret = away::outlive(patience, away::is_away, || api.get_opt(name)).await;
        let secret = secret.map_err(|error| {
            let text = crate::chain(&error);
            failure(
                FailureClass::Transient,
                "SecretUnreadable",
                format!("the Secret {name} cannot be read: {text}"),
                None,
            )
        })?;
        not_for_vault(name, secret)
    }

    /// Compiles and writes inventory and variables. Hosts that are left out get a place in the fact cache.
    pub(crate) fn inventory(
        &self,
        inputs: &Inputs,
        key: Option<PathBuf>,
        excluded: &[HostName],
        pythons: &BTreeMap<String, PythonPath>,
    ) -> Result<(Inventory, InventoryFiles), Failure> {
        let mut input = inputs.to_inventory(self.directories(), key, excluded);
        for host in &mut input.hosts {
            host.python = pythons.get(&host.name).cloned();
        }
        let inventory = inventory::compile(&input).map_err(|errors| {
            let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
            failure(
                FailureClass::Config,
                "InvalidInventory",
                texts.join(". "),
                Some("correct the spec"),
            )
        })?;
        let files = inventory
            .write(&self.work.directory)
            .map_err(|error| disk(&error.path, &error.source))?;
        self.facts_of_excluded(&inventory)
            .map_err(|error| disk(&self.directories().facts, &error))?;
        Ok((inventory, files))
    }

    /// The settings of ansible.cfg, to be completed by whoever starts Ansible.
    pub(crate) fn configuration(&self, key: Option<PathBuf>) -> Configuration {
        let inputs = &self.work.inputs;
        Configuration {
            checkout: self.checkout(),
            hosts: inputs.hosts.len(),
            max_forks: inputs.forks,
            facts: self.directories().facts,
            known_hosts: self.known_hosts(),
            control: self.control_sockets(),
            connect_timeout_seconds: u32::try_from(inputs.ssh.connect_timeout.seconds()).ok(),
            connection_attempts: None,
            callback_plugins: Vec::new(),
            callbacks: Vec::new(),
            bastion: self.bastion(),
            private_key: key,
            overrides: inputs.ansible.clone(),
        }
    }

    /// The host to reach the others through.
    pub(crate) fn bastion(&self) -> Option<Bastion> {
        self.work.inputs.ssh.bastion(self.control_sockets())
    }

    /// kubespray refuses to work when a host of the cluster has no cached facts. A host that is left out keeps its last
    /// known ones, or gets the five that the others read.
    fn facts_of_excluded(&self, inventory: &Inventory) -> std::io::Result<()> {
        for host in inventory.excluded() {
            let path = self.directories().facts.join(host.as_str());
            let variables = inventory.host(host.as_str());
            let address = ["ip", "ansible_host"]
                .iter()
                .find_map(|name| variables?.get(*name)?.as_str());
            let access = variables
                .and_then(|variables| variables.get("access_ip")?.as_str())
                .or(address);
            if path.exists() {
                continue;
            }
            let facts = json!({
                "ansible_default_ipv4": {"address": address},
                "main_ip": address,
                "main_ips": [address],
                "main_access_ip": access,
                "main_access_ips": [access],
            });
            write_private(&path, facts.to_string().as_bytes())?;
        }
        Ok(())
    }
}

fn not_for_vault(name: &str, secret: Option<Secret>) -> Result<Option<Secret>, Failure> {
    if !secret.as_ref().is_some_and(is_for_vault) {
        return Ok(secret);
    }
    Err(failure(
        FailureClass::Config,
        "CredentialsOfVault",
        format!(
            "Secret {name} is of the type {CREDENTIALS_TYPE}: it is for a Vault alone, and no run reads it"
        ),
        Some("refer to another Secret, then retry the run"),
    ))
}

pub(crate) fn disk(path: &Path, error: &std::io::Error) -> Failure {
    let full = error.kind() == std::io::ErrorKind::StorageFull;
    failure(
        if full {
            FailureClass::External
        } else {
            FailureClass::Permanent
        },
        if full { "DiskFull" } else { "FileUnwritable" },
        format!("{} cannot be written: {error}", path.display()),
        full.then_some("free room on the disk of the data directory, then retry the run"),
    )
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller has just made the text"
)]
pub(crate) fn failure(
    class: FailureClass,
    code: &str,
    message: String,
    remedy: Option<&str>,
) -> Failure {
    // It may quote a host, a server or a file of others.
    let message = api::text::lines(&message, 4096);
    Failure {
        class,
        code: code.to_owned(),
        message,
        remedy: remedy.map(str::to_owned),
        targets: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_reads_what_vault_secrets_log_in_with() {
        let of = |kind: &str| Secret {
            type_: Some(kind.to_owned()),
            ..Secret::default()
        };
        for secret in [None, Some(Secret::default()), Some(of("Opaque"))] {
            assert_eq!(not_for_vault("a", secret.clone()), Ok(secret));
        }
        let refused = not_for_vault("a", Some(of(CREDENTIALS_TYPE))).unwrap_err();
        assert_eq!(refused.code, "CredentialsOfVault");
        assert!(refused.message.contains("Secret a"), "{}", refused.message);
    }
}
