//! The way to a server of the cluster, from wherever the steps are executed: through the Kubernetes API where it is a Service of the
//! namespace, directly otherwise.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinHandle,
};

/// A way to a server, as long as the value lives.
pub struct Way {
    /// The host as it is reached from here.
    pub host: String,
    /// The port.
    pub port: u16,
    forward: Option<JoinHandle<()>>,
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(forward) = &self.forward {
            forward.abort();
        }
    }
}

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{what}")]
    Api {
        /// What was asked.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// No pod of the Service runs.
    #[error("Service {0} has no pod that runs")]
    NoPod(String),
    /// Nobody knows the host.
    #[error("look up {host}")]
    Unknown {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The host is none of a server of the user's.
    #[error("{host} is not asked: {why}")]
    Refused {
        /// The host.
        host: String,
        /// Why.
        why: &'static str,
    },
    /// There is no free port.
    #[error("listen on loopback")]
    Listen(#[source] std::io::Error),
}

/// The Service of the namespace that a host may be, as its own pods call it or as those of others do.
pub fn service_of<'a>(host: &'a str, namespace: &str) -> Option<&'a str> {
    let name = host
        .strip_suffix(&format!(".{namespace}.svc"))
        .unwrap_or(host);
    (!name.contains(['.', ':'])).then_some(name)
}

/// Finds the way to a server, as pods reach it.
///
/// # Errors
///
/// The API refuses or does not answer, or nothing stands behind the Service.
pub async fn to(client: &Client, namespace: &str, host: &str, port: u16) -> Result<Way, Error> {
    match inside(client, namespace, host, port).await? {
        Some(way) => Ok(way),
        None => directly(host, port).await,
    }
}

/// Finds the way to a Service of the namespace. None: the host is none.
///
/// # Errors
///
/// The API refuses or does not answer, or nothing stands behind the Service.
pub async fn inside(
    client: &Client,
    namespace: &str,
    host: &str,
    port: u16,
) -> Result<Option<Way>, Error> {
    let api = |what| {
        move |source| Error::Api {
            what,
            source: Box::new(source),
        }
    };
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let name = service_of(host, namespace).unwrap_or_default();
    let service = if name.is_empty() {
        None
    } else {
        let found = services.get_opt(name).await;
        found.map_err(api("look for the Service"))?
    };
    let Some(selector) = service.and_then(|service| service.spec?.selector) else {
        return Ok(None);
    };
    let labels: Vec<_> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let found = pods
        .list(&ListParams::default().labels(&labels.join(",")))
        .await;
    let found = found.map_err(api("list the pods of the Service"))?;
    let running = found.items.into_iter().filter(|pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
            && pod.metadata.deletion_timestamp.is_none()
    });
    // One that starts beside others is asked by nobody else either.
    let pod = running
        .max_by_key(is_ready)
        .ok_or_else(|| Error::NoPod(name.to_owned()))?
        .name_any();
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .map_err(Error::Listen)?;
    let here = listener.local_addr().map_err(Error::Listen)?;
    let forward = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(pump(pods.clone(), pod.clone(), port, connection));
        }
    });
    Ok(Some(Way {
        host: here.ip().to_string(),
        port: here.port(),
        forward: Some(forward),
    }))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What is of this machine, of its link or of its cloud's metadata service is no server of the user's.
async fn directly(host: &str, port: u16) -> Result<Way, Error> {
    let unknown = |source| Error::Unknown {
        host: host.to_owned(),
        source,
    };
    let found = lookup_host((host, port)).await.map_err(unknown)?;
    let addresses: Vec<_> = found.map(|address| address.ip()).collect();
    if let Some(why) = addresses.iter().find_map(|ip| api::address::refused(*ip)) {
        return Err(Error::Refused {
            host: host.to_owned(),
            why,
        });
    }
    let address = addresses.first().ok_or_else(|| {
        unknown(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "it has no address",
        ))
    })?;
    Ok(Way {
        host: address.to_string(),
        port,
        forward: None,
    })
}

/// A connection that cannot be made is one that ends at once, which its user tells of.
async fn pump(pods: Api<Pod>, pod: String, port: u16, mut connection: TcpStream) {
    let forwarded = pods.portforward(&pod, &[port]).await;
    if let Ok(mut forwarder) = forwarded
        && let Some(mut there) = forwarder.take_stream(port)
    {
        let _ = copy_bidirectional(&mut connection, &mut there).await;
        drop(there);
        let _ = forwarder.join().await;
    }
}
