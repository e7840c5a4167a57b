//! The embedded API against what a real one answered to the same requests.
//!
//! `cargo run -p kapi --example record -- KUBECONFIG` writes the answers anew. Where the two differ on purpose or not yet,
//! `conformance/deviations.json` says so; a difference that is not there fails, and so does one that is gone.

#[path = "conformance/play.rs"]
mod play;

use std::collections::{BTreeMap, BTreeSet};

use kapi::Server;
use kube::Client;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_the_real_server() {
    let golden: Value = serde_json::from_str(include_str!("golden/conformance.json")).unwrap();
    let allowed: BTreeMap<String, String> =
        serde_json::from_str(include_str!("conformance/deviations.json")).unwrap();
    let widgets = serde_json::from_value(play::widgets().unwrap()).unwrap();
    let server = Server::in_memory(&[widgets]).await.unwrap();
    let client = Client::new(server.router(), "default");
    let mut different = BTreeSet::new();
    let mut report = String::new();
    for scenario in play::scenarios().unwrap() {
        let ours = play::play(&client, &scenario).await.unwrap();
        let real = golden["scenarios"][&scenario.scenario].as_array().unwrap();
        assert_eq!(
            ours.len(),
            real.len(),
            "{}: record it anew",
            scenario.scenario
        );
        for (at, (ours, real)) in ours.iter().zip(real).enumerate() {
            assert_eq!(ours["step"], real["step"], "record it anew");
            if ours == real {
                continue;
            }
            let name = format!(
                "{} {at}: {}",
                scenario.scenario,
                real["step"].as_str().unwrap()
            );
            if !allowed.contains_key(&name) {
                report += &format!("{name}\n  ours {ours}\n  real {real}\n");
            }
            different.insert(name);
        }
    }
    let gone: Vec<&String> = allowed
        .keys()
        // Those of random requests are held by tests/differential.
        .filter(|name| !different.contains(*name) && !name.starts_with("random: "))
        .collect();
    assert!(
        report.is_empty() && gone.is_empty(),
        "{report}no differences any more: {gone:?}"
    );
}
