//! openstack-helm's own charts, rendered by the real Helm: each pod that waits for the Job of a hook that comes after it is found. It is ignored where
//! nobody has a checkout, and run by `WINDLASS_OPENSTACK_HELM=DIR cargo test -p helm --test foreign -- --ignored`.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use helm::{Proven, deadlock::When, deadlocks};
use lab::{command::output, progress::Terminal};
use serde_json::Value;

mod openstack_helm_checkout {
    use super::*;

    #[test]
    #[ignore = "needs a checkout of openstack-helm: set WINDLASS_OPENSTACK_HELM to its directory"]
    fn every_pod_that_waits_for_a_later_hook_is_found() {
        let checkout = PathBuf::from(std::env::var_os("WINDLASS_OPENSTACK_HELM").unwrap());
        let program = lab::helm(&Terminal::default()).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut knotted = BTreeSet::new();
        for chart in charts(&checkout) {
            let rendered = render(&program, &checkout, &chart, place.path());
            let found = deadlocks(&rendered).unwrap();
            let expected = expected(&rendered);
            for (waiter, needs) in &expected {
                let mut found = found.iter();
                let knot = found.find(|knot| knot.waiter == *waiter && knot.needs == *needs);
                let knot = knot.unwrap_or_else(|| panic!("{chart}: {waiter} waits for {needs}"));
                assert_eq!(knot.when, When::Waiting, "{chart}: {knot}");
            }
            eprintln!("{chart}: {} knots, {} by name", found.len(), expected.len());
            assert_eq!(Proven::of(&rendered).is_ok(), found.is_empty(), "{chart}");
            if !expected.is_empty() {
                knotted.insert(chart);
            }
        }
        // Its services, of which none can be waited for.
        for service in [
            "keystone",
            "glance",
            "placement",
            "nova",
            "neutron",
            "cinder",
            "heat",
        ] {
            assert!(knotted.contains(service), "{service}: {knotted:?}");
        }
    }
}

fn charts(checkout: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(checkout).unwrap().map(Result::unwrap);
    let charts = entries.filter(|entry| entry.path().join("Chart.yaml").exists());
    let names = charts.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name != TOOLKIT).collect()
}

/// With the one chart that all of them are made with beside it, as `helm dependency build` puts it.
fn render(program: &Path, checkout: &Path, chart: &str, place: &Path) -> String {
    let copy = |from: &Path, to: &Path| {
        let mut cp = Command::new("cp");
        output(cp.args(["-rL", "--no-target-directory"]).arg(from).arg(to)).unwrap();
    };
    let own = place.join(chart);
    copy(&checkout.join(chart), &own);
    let charts = own.join("charts");
    fs::create_dir_all(&charts).unwrap();
    copy(&checkout.join(TOOLKIT), &charts.join(TOOLKIT));
    output(Command::new(program).args(["template", "osh"]).arg(&own)).unwrap()
}

/// What its charts say themselves: `DEPENDENCY_JOBS` of the container that comes first, by the names of Jobs that are hooks which come after.
fn expected(rendered: &str) -> BTreeSet<(String, String)> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(rendered).unwrap();
    let hook = |document: &Value| {
        let hook = document["metadata"]["annotations"]["helm.sh/hook"].as_str();
        hook.unwrap_or_default().to_owned()
    };
    let name = |document: &Value| document["metadata"]["name"].as_str().unwrap().to_owned();
    let of_documents = documents.iter().filter(|document| !document.is_null());
    let later = of_documents.clone().filter(|document| {
        document["kind"] == "Job" && hook(document).split(',').any(|hook| hook == "post-install")
    });
    let later: BTreeSet<_> = later.map(name).collect();
    let mut expected = BTreeSet::new();
    for document in of_documents.filter(|document| hook(document).is_empty()) {
        let first = document["spec"]["template"]["spec"]["initContainers"].as_array();
        let of_first = first.into_iter().flatten();
        let variables =
            of_first.flat_map(|container| container["env"].as_array().into_iter().flatten());
        let jobs = variables.filter(|variable| variable["name"] == "DEPENDENCY_JOBS");
        for job in jobs.flat_map(|jobs| jobs["value"].as_str().unwrap_or_default().split(',')) {
            if later.contains(job) {
                let kind = document["kind"].as_str().unwrap();
                expected.insert((format!("{kind} {}", name(document)), format!("Job {job}")));
            }
        }
    }
    expected
}

const TOOLKIT: &str = "helm-toolkit";
