//! A cluster that is as large as they come, at a real API server and its etcd.

use api::run::RunPhase;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::{ControlPlane, Kubernetes, progress::Terminal};

use super::rights::install_kinds;

/// As `five_thousand_hosts_fit_into_a_run_and_a_cluster` says it of the embedded API.
#[test]
fn five_thousand_hosts_fit_into_a_run_and_a_cluster() {
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    install_kinds(&plane);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stored, changeable) = runtime.block_on(async {
        let client = client(&plane).await;
        let stored = builders::store(&client, 5000).await.unwrap();
        let changeable = builders::changeable(&client, &stored.run).await.unwrap();
        (stored, changeable)
    });
    assert_eq!(changeable, ["control"]);
    let groups = &stored.run.spec.plan.groups;
    let named: usize = groups.iter().map(|group| group.targets.len()).sum();
    assert_eq!(named, 5000);
    let status = stored.run.status.unwrap();
    assert_eq!(status.phase, RunPhase::Succeeded);
    assert_eq!(status.excluded.len(), 1667);
    assert!(
        status.history.len() > 100,
        "{} records",
        status.history.len()
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server of the test's own"
)]
async fn client(plane: &ControlPlane) -> Client {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}
