//! Fifty workload clusters at once, by providers that Windlass has installed, and what they cost it.

use std::time::{Duration, Instant};

use e2e::{Management, PROVIDERS, is_true, wait_until};
use lab::command::output;
use serde_json::Value;

use super::{runs, webhooks_have_answered};

const MANY: usize = 50;
const NAMESPACE: &str = "many";
/// Two processors have a hundred machines and their control planes to play.
const LIMIT: Duration = Duration::from_mins(30);
/// What Windlass may grow by, in MiB: it looks at providers, and not at what these raise.
const GROWTH: u64 = 32;

pub(super) fn come_up_at_once(management: &Management, tell: &dyn Fn(&str)) {
    // One that was not killed yet.
    management.operate().unwrap();
    webhooks_have_answered(management);
    let (before, done) = (management.memory().unwrap(), all_runs(management));
    management.make_namespace(NAMESPACE).unwrap();
    let names: Vec<_> = (1..=MANY).map(|number| format!("c{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let raising = Instant::now();
    management.begin_in(NAMESPACE, &names).unwrap();
    tell("fifty clusters are declared");
    let mut shown = 0;
    wait_until("fifty clusters to be Available", LIMIT, || {
        let available = available(management)?;
        if available >= shown + 10 {
            tell(&format!("{available} clusters are Available"));
            shown = available;
        }
        Ok((available == MANY).then_some(()))
    })
    .unwrap();
    let took = raising.elapsed().as_secs();
    let after = management.memory().unwrap();
    eprintln!("{MANY} clusters took {took} s; Windlass {before:?} MiB before, {after:?} MiB after");
    assert!(after.most <= before.most + GROWTH, "{before:?} {after:?}");
    assert_eq!(
        all_runs(management),
        done,
        "nothing was to be done meanwhile"
    );
    webhooks_have_answered(management);
    told_of(management);
}

fn available(management: &Management) -> anyhow::Result<usize> {
    let get = ["get", "clusters.cluster.x-k8s.io", "--output=json"];
    let list = management.kubectl(&[&["--namespace", NAMESPACE], &get[..]].concat())?;
    let list: Value = serde_json::from_str(&list)?;
    let clusters = list["items"].as_array().into_iter().flatten();
    let is_whole = |cluster: &&Value| {
        is_true(cluster, "Available") && cluster["status"]["workers"]["availableReplicas"] == 1
    };
    Ok(clusters.filter(is_whole).count())
}

fn all_runs(management: &Management) -> usize {
    let runs = PROVIDERS.map(|provider| runs(management, provider).unwrap().len());
    runs.iter().sum()
}

/// Each is shown as a tree, and all of them keep their provider from being deleted.
fn told_of(management: &Management) {
    let asked = Instant::now();
    let describe = ["--namespace", NAMESPACE, "describe", "cluster", "c50"];
    let tree = output(&mut management.windlass(&describe)).unwrap();
    eprintln!("one of them was described in {:?}", asked.elapsed());
    assert!(tree.starts_with("Cluster/c50 waits for nothing."), "{tree}");
    let [.., infrastructure] = PROVIDERS;
    let delete = [
        "providers",
        "delete",
        "--infrastructure",
        infrastructure.name,
    ];
    let of = ["--namespace", infrastructure.namespace];
    let confirm = ["--confirm", infrastructure.name];
    let mut command = management.windlass(&[&of, &delete[..], &confirm].concat());
    let refused = format!("{:#}", output(&mut command).unwrap_err());
    // With the one of the cluster before.
    let more = format!("and {} more", MANY + 1 - 3);
    assert!(
        refused.contains("DevCluster") && refused.contains(&more),
        "{more} of DevClusters is not in {refused}"
    );
}
