//! The API that a provider is installed in.

use std::time::Duration;

use api::provider::{Kind, Provider};
use controller::kubeconfig::{ConnectError, Foreign, Refusal};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ObjectMeta};

use crate::names::{KUBECONFIG_KEY, TARGET};

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where a provider is installed: in the cluster whose API has it, or in the one that the kubeconfig in a Secret, by namespace and
/// name, leads to.
pub type Place = Option<(String, String)>;

/// Where a provider is installed.
pub fn place<K: Kind>(provider: &Provider<K>) -> Place {
    of(&provider.metadata)
}

/// Where the provider with this metadata is installed.
pub fn of(meta: &ObjectMeta) -> Place {
    let secret = meta
        .annotations
        .as_ref()?
        .get(TARGET)
        .filter(|name| !name.is_empty())?;
    Some((meta.namespace.clone().unwrap_or_default(), secret.clone()))
}

/// How what is in a cluster that is gone for good is left there.
pub(crate) fn leave(namespace: &str, kind: &str, name: &str) -> String {
    let command = let_go(namespace, kind, name);
    format!("where the cluster is gone for good, leave what was in it: {command}")
}

/// The command that lets a provider's object go, and leaves all that was installed.
pub(crate) fn let_go(namespace: &str, kind: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    format!(
        "kubectl -n {namespace} patch {kind} {name} --type merge -p '{{\"metadata\": {{\"finalizers\": null}}}}'"
    )
}

/// Why it cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The Secret cannot be read.
    #[error("read Secret {0}, which the annotation {TARGET} names")]
    Secret(String, #[source] kube::Error),
    /// The Secret is not there.
    #[error(
        "there is no Secret {0}, which the annotation {TARGET} names; make it in the provider's namespace, with the cluster's kubeconfig under the key {KUBECONFIG_KEY}"
    )]
    NoSecret(String),
    /// The Secret does not have the key.
    #[error(
        "Secret {0}, which the annotation {TARGET} names, has no key {KUBECONFIG_KEY}; put the cluster's kubeconfig there"
    )]
    NoKey(String),
    /// The kubeconfig is refused.
    #[error("the kubeconfig of Secret {0} is refused: {1}")]
    Refused(String, Refusal),
    /// The cluster cannot be reached.
    #[error("reach the cluster of the kubeconfig of Secret {0}")]
    Connect(String, #[source] ConnectError),
}

/// The minor of Kubernetes from which on pods may sleep before they end.
const LINGERS_FROM: u32 = 30;

/// Whether pods there can be told to go on for some seconds when they are to end.
///
/// # Errors
///
/// The API does not say which version it is.
pub async fn lingers(there: &Client) -> Result<bool, kube::Error> {
    let version = there.apiserver_version().await?;
    // Some add a sign to it.
    let digits: String = version
        .minor
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Ok(version.major != "1"
        || digits
            .parse::<u32>()
            .is_ok_and(|found| found >= LINGERS_FROM))
}

/// A client of it: of the cluster that the Secret of that name leads to, or of this API.
///
/// # Errors
///
/// The Secret or what it holds is not what it must be, or its server's name has no address.
pub async fn client(
    own: &Client,
    namespace: &str,
    secret: Option<&str>,
) -> Result<Client, TargetError> {
    let Some(name) = secret else {
        return Ok(own.clone());
    };
    let named = || name.to_owned();
    let api = Api::<Secret>::namespaced(own.clone(), namespace);
    let found = api
        .get_opt(name)
        .await
        .map_err(|source| TargetError::Secret(named(), source))?;
    let found = found.ok_or_else(|| TargetError::NoSecret(named()))?;
    let data = found.data.unwrap_or_default();
    let document = data
        .get(KUBECONFIG_KEY)
        .ok_or_else(|| TargetError::NoKey(named()))?;
    let foreign =
        Foreign::read(&document.0).map_err(|refusal| TargetError::Refused(named(), refusal))?;
    let failed = |error| TargetError::Connect(named(), error);
    let addresses = foreign.addresses().await.map_err(failed)?;
    foreign.client(addresses, TIMEOUT).map_err(failed)
}
