//! Records what a real API server answers to the scenarios of `tests/conformance`.
//!
//! `cargo xtask testenv up`, and `cargo run -p kapi --example record -- KUBECONFIG` with its kubeconfig: creates the
//! definition of the scenarios there, plays each in a namespace of its own, and writes `tests/golden/conformance.json`.
//! `cargo test -p kapi --test conformance` then holds the embedded API against it.

#[path = "../tests/conformance/play.rs"]
mod play;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let path = std::env::args().nth(1).context("record KUBECONFIG")?;
    let kubeconfig = Kubeconfig::read_from(path).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let version = client.apiserver_version().await?.git_version;

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply("record").force();
    let name = "widgets.example.com";
    definitions
        .patch(name, &parameters, &Patch::Apply(play::widgets()?))
        .await?;
    await_condition(definitions, name, conditions::is_crd_established()).await?;

    let mut scenarios = Map::new();
    for scenario in play::scenarios()? {
        let answers = play::play(&client, &scenario).await?;
        eprintln!("{}: {} requests", scenario.scenario, answers.len());
        scenarios.insert(scenario.scenario, Value::Array(answers));
    }
    let golden = json!({"version": version, "scenarios": scenarios});
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/conformance.json");
    std::fs::write(path, format!("{golden:#}\n")).context("write the recording")?;
    Ok(())
}
