//! Recorded keys of hosts that came with a cluster from another place (`windlass move`), in a Secret.

use std::path::Path;

use api::run::{Failure, FailureClass};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::workspace::{disk, failure};
use crate::{host_keys::KNOWN_HOSTS, names::host_keys_name};

/// Writes the keys to `file` if there are some and no file: whoever answers must show the key that was recorded elsewhere,
/// as if it had been recorded here.
pub(crate) async fn bring(
    client: &Client,
    namespace: &str,
    cluster: &str,
    file: &Path,
) -> Result<(), Failure> {
    if file.exists() {
        return Ok(());
    }
    let name = host_keys_name(cluster);
    let secret = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(&name)
        .await
        .map_err(|error| {
            let text = format!("Secret {name} cannot be read: {}", crate::chain(&error));
            failure(FailureClass::Transient, "NoHostKeys", text, None)
        })?;
    match secret.and_then(|secret| secret.data?.remove(KNOWN_HOSTS)) {
        Some(keys) => std::fs::write(file, keys.0).map_err(|error| disk(file, &error)),
        None => Ok(()),
    }
}
