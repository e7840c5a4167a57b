//! An API that runs beside its runners, as that of `windlass up` does, and may end before them.

use std::{net::IpAddr, path::PathBuf};

use http::Uri;
use kube::config::Kubeconfig;

use crate::layout::Layout;

/// The API that runs beside the runner: that of the data directory, at an address of this machine alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beside {
    kubeconfig: PathBuf,
    server: String,
}

impl Beside {
    /// The API of a kubeconfig, if it is such a one.
    pub(crate) fn of(kubeconfig: Option<&PathBuf>, layout: &Layout) -> Option<Self> {
        let kubeconfig = kubeconfig?.canonicalize().ok()?;
        let own = layout.root().join("kubeconfig").canonicalize().ok()?;
        if kubeconfig != own {
            return None;
        }
        let server = server(&kubeconfig)?;
        let host = server.parse::<Uri>().ok()?;
        let address = host.host()?.trim_matches(['[', ']']).parse::<IpAddr>();
        address
            .is_ok_and(|address| address.is_loopback())
            .then_some(Self { kubeconfig, server })
    }

    /// Whether it would be found at the address that it had: one that started anew may have another one.
    pub(crate) fn is_there(&self) -> bool {
        server(&self.kubeconfig).as_ref() == Some(&self.server)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the address alone is looked at: no client is made of it"
)]
fn server(kubeconfig: &PathBuf) -> Option<String> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).ok()?;
    let cluster = kubeconfig.clusters.into_iter().next()?.cluster?;
    cluster.server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_of_the_data_directory_at_an_address_of_this_machine_runs_beside() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let own = directory.path().join("kubeconfig");
        let elsewhere = directory.path().join("elsewhere");
        let config = |server: &str| {
            format!("clusters: [{{name: a, cluster: {{server: \"{server}\"}}}}]\nusers: []\n")
        };
        for (server, beside) in [
            ("https://127.0.0.1:6443", true),
            ("https://[::1]:6443", true),
            ("https://10.0.0.1:6443", false),
            ("https://0.0.0.0:6443", false),
            ("https://localhost:6443", false),
            ("nonsense", false),
        ] {
            for path in [&own, &elsewhere] {
                std::fs::write(path, config(server)).unwrap();
            }
            let found = Beside::of(Some(&own), &layout);
            assert_eq!(found.is_some(), beside, "{server}");
            assert_eq!(Beside::of(Some(&elsewhere), &layout), None, "{server}");
        }
        assert_eq!(Beside::of(None, &layout), None);

        std::fs::write(&own, config("https://127.0.0.1:6443")).unwrap();
        let beside = Beside::of(Some(&own), &layout).unwrap();
        assert!(beside.is_there());
        std::fs::write(&own, config("https://127.0.0.1:6444")).unwrap();
        assert!(!beside.is_there(), "it has moved to another port");
    }
}
