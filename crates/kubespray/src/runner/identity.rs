//! Whether the hosts of a run are machines of their own.
//!
//! A name or an address may lead to the machine of another host: by a slip, or because a DNS name or a NAT was changed. What is done to the
//! one is done to the other then, a reset for example.

use std::collections::HashMap;

use ansible::probe::{Machine, Report};
use api::run::{Failure, FailureClass};

use super::{drain, executor::KubesprayExecutor, work::PATIENCE, workspace::failure};

/// Why the hosts that answered are not what they are called, if so. The nodes are asked too, where the cluster has an API that answers.
pub(crate) async fn confused(executor: &KubesprayExecutor, reports: &[Report]) -> Option<Failure> {
    if let Some(failure) = twice(reports) {
        return Some(failure);
    }
    let machines = async {
        drain::connect(&executor.work, PATIENCE)
            .await?
            .machines()
            .await
    };
    match machines.await {
        Ok(nodes) => of_another(reports, &nodes),
        // A cluster that is being created has none, and one that is to be mended need not answer.
        Err(error) => {
            tracing::debug!(error, "no node says which machine it is");
            None
        }
    }
}

/// Two of them are one.
fn twice(reports: &[Report]) -> Option<Failure> {
    let mut known: HashMap<&Machine, &Report> = HashMap::new();
    let said = reports
        .iter()
        .filter_map(|report| Some((report.machine.as_ref()?, report)));
    for (machine, report) in said {
        if let Some(other) = known.insert(machine, report) {
            let (first, second) = (&other.host, &report.host);
            return Some(same(
                report,
                &format!("{first} and {second} are the same machine"),
            ));
        }
    }
    None
}

/// One is the machine of a node of another name.
fn of_another(reports: &[Report], nodes: &[(String, Machine)]) -> Option<Failure> {
    reports.iter().find_map(|report| {
        let machine = report.machine.as_ref()?;
        let mut others = nodes
            .iter()
            .filter(|(name, _)| name != report.host.as_str());
        let (node, _) = others.find(|(_, its)| its == machine)?;
        let host = &report.host;
        Some(same(
            report,
            &format!("{host} is the machine of the node {node}"),
        ))
    })
}

fn same(report: &Report, what: &str) -> Failure {
    let mut failure = failure(
        FailureClass::Config,
        "SameMachine",
        format!(
            "{what}: it says the same /etc/machine-id and has booted once; no host was touched"
        ),
        Some(
            "correct ansible_host and ansible_port of the ClusterNode. If they are containers of one machine, give each an /etc/machine-id of \
             its own; then retry the run",
        ),
    );
    failure.targets = vec![(&report.host).into()];
    failure
}

#[cfg(test)]
mod tests {
    use api::node::NodeFacts;

    use super::*;

    fn machine(id: u8, boot: u8) -> Machine {
        Machine::of(&format!("{id:032x}"), &format!("{boot:032x}")).unwrap()
    }

    fn report(host: &str, machine: Option<Machine>) -> Report {
        Report {
            host: host.parse().unwrap(),
            answer: Ok(NodeFacts::default()),
            machine,
        }
    }

    #[test]
    fn a_machine_is_one_host() {
        let hosts = [
            report("m1", Some(machine(1, 1))),
            // A copy of it, that has booted itself; a container beside it; two that say nothing.
            report("m2", Some(machine(1, 2))),
            report("m3", Some(machine(3, 1))),
            report("m4", None),
            report("m5", None),
        ];
        assert_eq!(twice(&hosts), None);
        let again = report("w1", Some(machine(1, 1)));
        let all: Vec<_> = hosts.iter().cloned().chain([again.clone()]).collect();
        let failure = twice(&all).unwrap();
        assert!(
            failure
                .message
                .starts_with("m1 and w1 are the same machine")
        );

        let nodes = [
            ("m1".to_owned(), machine(1, 1)),
            ("m2".to_owned(), machine(1, 2)),
        ];
        assert_eq!(of_another(&hosts, &nodes), None);
        let failure = of_another(&[again], &nodes).unwrap();
        assert!(
            failure
                .message
                .starts_with("w1 is the machine of the node m1")
        );
    }
}
