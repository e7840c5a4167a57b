//! Measures the probe: `probe KEY KNOWN_HOSTS TIMEOUT_SECONDS ADDRESS...` prints JSON.
//!
//! `connect` is the question whether hosts answer (TCP and ssh's banner), `probe` everything up to Python.

#![allow(clippy::expect_used, reason = "a measurement that fails shall stop")]

use std::time::{Duration, Instant};

use ansible::probe::{HostKeys, Options, Report, Target, connect, probe};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key, known_hosts, timeout, addresses @ ..] = arguments.as_slice() else {
        eprintln!("probe KEY KNOWN_HOSTS TIMEOUT_SECONDS ADDRESS...");
        std::process::exit(2);
    };
    let targets: Vec<Target> = (1..)
        .zip(addresses)
        .map(|(number, address)| Target {
            name: format!("node-{number}").parse().expect("a name"),
            address: address.clone(),
            port: 22,
            user: "root".to_owned(),
        })
        .collect();
    let options = Options {
        connect_timeout: Duration::from_secs(timeout.parse().expect("a number of seconds")),
        login_timeout: Duration::from_secs(30),
        key: Some(key.into()),
        known_hosts: known_hosts.into(),
        host_keys: HostKeys::AcceptNew,
        bastion: None,
    };
    let start = Instant::now();
    let connected = connect(&targets, &options).await;
    let connect = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let probed = probe(&targets, &options).await;
    let probe = start.elapsed().as_secs_f64();
    for report in probed
        .iter()
        .filter(|report| report.answer.is_err())
        .take(30)
    {
        eprintln!("{}: {:?}", report.host, report.answer);
    }
    println!(
        r#"{{"connect_seconds": {connect:.3}, "answering": {}, "probe_seconds": {probe:.3}, "usable": {}}}"#,
        good(&connected),
        good(&probed)
    );
}

fn good(reports: &[Report]) -> usize {
    reports
        .iter()
        .filter(|report| report.answer.is_ok())
        .count()
}
