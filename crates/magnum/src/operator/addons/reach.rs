//! The way into a cluster.

use std::{io::Write as _, time::Duration};

use api::magnum::CoeCluster;
use base64::Engine as _;
use controller::kubeconfig::Foreign;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tempfile::NamedTempFile;

use super::{Context, Error};
use crate::{
    authority::{Authority, Purpose},
    store::secret_name,
};

/// How long a call to a cluster may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A name that the certificate of every Kubernetes API has, whatever its address is.
const SERVER_NAME: &str = "kubernetes";
/// Who comes, in audit logs of the cluster.
const USER: &str = "windlass-magnum";

/// How clusters are reached.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// By the authority that they were founded with.
    Authority,
    /// All by this kubeconfig.
    #[cfg(test)]
    File(std::path::PathBuf),
}

/// A cluster that is reached.
pub(super) struct Workload {
    pub(super) client: Client,
    /// What only its owner reads, and Helm.
    pub(super) kubeconfig: NamedTempFile,
    /// Where the API is.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Context {
    /// A client of the cluster, or why there is none.
    pub(super) async fn reached(
        &self,
        cluster: &CoeCluster,
        address: &str,
    ) -> Result<Result<Workload, String>, Error> {
        match &self.reach {
            Reach::Authority => {}
            #[cfg(test)]
            Reach::File(file) => return Ok(Ok(self::tests::workload(file).await)),
        }
        let namespace = cluster.namespace().unwrap_or_default();
        let name = secret_name(&cluster.name_any());
        let secret = self.secrets(&namespace).get_opt(&name).await;
        let secret =
            secret.map_err(|error| Error::Api("get the authorities of the cluster", error))?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let (certificate, key) = Purpose::Kubernetes.keys();
        let text = |key: &str| {
            let bytes = &data.get(key)?.0;
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        };
        let Some((certificate, key)) = text(certificate).zip(text(key)) else {
            let why = format!(
                "the Secret {namespace}/{name} with the cluster's authorities is gone: bring it back"
            );
            return Ok(Err(why));
        };
        Ok(connect(&Authority { certificate, key }, address).await)
    }
}

async fn connect(authority: &Authority, address: &str) -> Result<Workload, String> {
    let foreign = kubeconfig(authority, address)?;
    let told = |error: &dyn std::error::Error| controller::chain(error);
    let addresses = tokio::time::timeout(TIMEOUT, foreign.addresses()).await;
    let addresses = addresses
        .map_err(|_| format!("the name in {address} is not resolved"))?
        .map_err(|error| told(&error))?;
    let client = foreign.client(addresses, TIMEOUT);
    let client = client.map_err(|error| told(&error))?;
    let mut file = NamedTempFile::new().map_err(|error| told(&error))?;
    file.write_all(foreign.document().expose_secret().as_bytes())
        .map_err(|error| told(&error))?;
    let server = foreign.server();
    Ok(Workload {
        client,
        kubeconfig: file,
        host: server.host.clone(),
        port: server.port,
    })
}

/// An administrator's, for a day or two.
fn kubeconfig(authority: &Authority, address: &str) -> Result<Foreign, String> {
    let told = |error: &dyn std::error::Error| controller::chain(error);
    let own = authority
        .administrator(USER, Timestamp::now())
        .map_err(|error| told(&error))?;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {
            "server": address, "certificate-authority-data": encode(&authority.certificate),
        }}],
        "users": [{"name": "a", "user": {
            "client-certificate-data": encode(&own.certificate), "client-key-data": encode(&own.key),
        }}],
    });
    let document = SecretString::from(document.to_string());
    let foreign = Foreign::read(document.expose_secret().as_bytes());
    let foreign = foreign.map_err(|refusal| refusal.to_string())?;
    let server = foreign.server().clone();
    Ok(foreign.at(&server.host, server.port, SERVER_NAME))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    pub(super) async fn workload(file: &Path) -> Workload {
        let config = controller::kubeconfig::own(file, None).await.unwrap();
        let kubeconfig = NamedTempFile::new().unwrap();
        std::fs::copy(file, kubeconfig.path()).unwrap();
        Workload {
            host: config.cluster_url.host().unwrap().to_owned(),
            port: config.cluster_url.port_u16().unwrap(),
            client: Client::try_from(config).unwrap(),
            kubeconfig,
        }
    }

    #[tokio::test]
    async fn a_cluster_is_reached_by_its_authority_and_its_file_is_private() {
        use std::os::unix::fs::PermissionsExt as _;

        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = Authority::new("a", Purpose::Kubernetes, Timestamp::now()).unwrap();
        let reached = connect(&authority, "https://192.0.2.9:6443").await;
        let workload = reached.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((workload.host.as_str(), workload.port), ("192.0.2.9", 6443));
        let meta = std::fs::metadata(workload.kubeconfig.path()).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let written = std::fs::read_to_string(workload.kubeconfig.path()).unwrap();
        assert!(written.contains("tls-server-name: kubernetes"));
        // What is this machine's own is nobody's cluster.
        let refused = connect(&authority, "https://127.0.0.1:6443").await;
        let why = refused.err().unwrap();
        assert!(why.contains("loopback"), "{why}");
    }
}
