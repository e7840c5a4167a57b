//! The API that a move goes to, and in plain words why one cannot be used.

use std::{error::Error, io, path::Path, time::Duration};

use anyhow::Context;
use controller::kubeconfig;
use kube::Client;

use super::side::Side;

/// How long an API may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);

/// The side that a kubeconfig leads to.
pub(super) async fn there(
    file: &Path,
    context: Option<&str>,
    namespace: &str,
) -> anyhow::Result<Side> {
    let shown = file.display();
    let mut config = kubeconfig::own(file, context)
        .await
        .with_context(|| format!("failed to read the kubeconfig {shown} (--to-kubeconfig)"))?;
    config.connect_timeout = Some(CONNECT);
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).context("failed to make a client")?;
    Side::find(client, namespace).await.with_context(|| {
        format!(
            "the API there ({server}, of --to-kubeconfig {shown}) cannot be used; nothing was changed"
        )
    })
}

/// Why an API cannot be used, and what to do.
pub(super) fn why(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "it does not know the credentials of the kubeconfig, or they have expired; have new ones made"
        }
        kube::Error::Api(status) if status.code == 403 => {
            "you may not look at it; have get namespaces granted for Namespace default, whose uid tells the two APIs apart"
        }
        kube::Error::Api(_) => "it answers, but with a failure; try again when it is well",
        error if has_other_certificate(error) => {
            "its certificate is not what the kubeconfig expects; correct certificate-authority or server, or have a new \
             kubeconfig made"
        }
        _ => "it cannot be reached; check server in the kubeconfig, and that the API runs",
    }
}

fn has_other_certificate(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // What an I/O error wraps is not its source but the error itself.
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|wrapped| wrapped as &(dyn Error + 'static));
        cause = wrapped.or_else(|| error.source());
    }
    false
}
