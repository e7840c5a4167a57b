//! Measures the probe: `probe KEY KNOWN_HOSTS TIMEOUT_SECONDS ADDRESS...` prints JSON.
//!
//! `connect` is the question whether hosts answer (TCP and ssh's banner), `probe` everything up to Python; the processor time is
//! that of the ssh clients.

#![allow(clippy::expect_used, reason = "a measurement that fails shall stop")]

use std::time::{Duration, Instant};

use ansible::{
    catalogue,
    probe::{Options, Report, Target, connect, probe},
    ssh::{Access, HostKeys},
};

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
        access: Access {
            key: Some(key.into()),
            known_hosts: known_hosts.into(),
            host_keys: HostKeys::AcceptNew,
            bastion: None,
        },
        oldest_python: catalogue::newest().host_python(),
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
        r#"{{"connect_seconds": {connect:.3}, "answering": {}, "probe_seconds": {probe:.3}, "usable": {}, "ssh_cpu_seconds": {:.2}}}"#,
        good(&connected),
        good(&probed),
        processor_seconds_of_children()
    );
}

/// Fields 16 and 17 of `/proc/self/stat`, in hundredths.
fn processor_seconds_of_children() -> f64 {
    let line = std::fs::read_to_string("/proc/self/stat").expect("the kernel's record");
    let (_, rest) = line.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
    (ticks(13) + ticks(14)) / 100.0
}

fn good(reports: &[Report]) -> usize {
    reports
        .iter()
        .filter(|report| report.answer.is_ok())
        .count()
}
