//! Real providers of Cluster API: Windlass installs them in a real cluster, they raise clusters, and nobody notices their upgrade, though
//! Windlass itself is killed again and again on the way. A set upgrades them once more by itself, and goes back from a release that does not
//! start; a cluster is carried to other managers, and fifty come up at once. Root is needed.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use e2e::{Guide, Installed, Management, PROVIDERS, Tally, condition, wait_until, windlass};
use lab::progress::Terminal;
use serde_json::{Value, json};

use crate::providers::each_step_once;

mod carried;
mod many;
mod set;

/// A loaded machine takes its time.
const LIMIT: Duration = Duration::from_mins(5);
/// An image that is nowhere.
const NOWHERE: &str = "registry.k8s.io/cluster-api/cluster-api-controller:v0.0.0-nowhere";

#[test]
fn real_providers_raise_clusters_and_are_upgraded_without_a_gap() {
    let [old, new] = Management::VERSIONS;
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:>5.1} s: {what}", began.elapsed().as_secs_f64());
    let terminal = Terminal::default();
    // The host beside it becomes the cluster that a workload cluster is carried to.
    let management = Management::set_beside(windlass().unwrap(), &[], 1, &terminal).unwrap();
    tell("the cluster is there");
    for version in [old, new] {
        management.preload(version).unwrap();
    }
    management.install(old).unwrap();
    tell("providers are installed");
    webhooks_have_answered(&management);
    seen_by_clusterctl(&management, old, &[new]);
    management.raise("first").unwrap();
    tell("a cluster is Available");

    an_image_that_is_nowhere_is_survived(&management, old);
    tell("an image that is nowhere was named, and put back");

    let deaths = Deaths::default();
    let tallies = management
        .upgrade_while(new, "first", &tell, &|| deaths.kill(&management))
        .unwrap();
    all_were_heard(&tallies);
    let killed = deaths.at.borrow().len();
    eprintln!(
        "Windlass was killed {killed} times: {:?}",
        deaths.at.borrow()
    );
    upgraded_once(&management, &deaths, 1);
    webhooks_have_answered(&management);
    seen_by_clusterctl(&management, new, &["Already", "up", "to", "date"]);
    set::takes_all_to_a_newer_patch(&management, &tell);
    set::goes_back_from_what_does_not_start(&management, &tell);

    management.begin("second").unwrap();
    what_stands_in_the_way_is_named(&management, "second");
    tell("another cluster is Available");
    let tree = ["describe", "cluster", "second", "--namespace", "default"];
    let tree = management.clusterctl(&tree).unwrap();
    let mut lines = tree.lines();
    let of_cluster = lines.find(|line| line.starts_with("Cluster default/second"));
    let words: Vec<_> = of_cluster.unwrap_or_default().split_whitespace().collect();
    assert!(
        words.windows(2).any(|pair| pair == ["True", "Available"]),
        "{tree}"
    );
    described_as_in_the_guide(&management, "second");
    carried::to_other_managers(&management, &tell);
    many::come_up_at_once(&management, &tell);
}

/// What takes a cluster in the guide of providers; the story `providers` has its other commands.
fn described_as_in_the_guide(management: &Management, name: &str) {
    let mut guide = Guide::read("docs/providers.md")
        .unwrap()
        .with("-n site", "-n default")
        .with("shop", name);
    for command in guide.take(&["describe cluster"]).lines() {
        let command = command.split(" # ").next().unwrap_or_default();
        let words: Vec<_> = command.split_whitespace().collect();
        let ["windlass", "--kubeconfig", _, arguments @ ..] = words.as_slice() else {
            panic!("{command}")
        };
        let told = lab::command::output(&mut management.windlass(arguments)).unwrap();
        assert!(told.contains(name), "{command}: {told}");
    }
}

/// Each provider is Ready by what its webhooks said to the API, too.
fn webhooks_have_answered(management: &Management) {
    for provider in PROVIDERS {
        let title = provider.label();
        wait_until(&format!("webhooks of {title} to answer"), LIMIT, || {
            let ready = condition(&get(management, provider)?, "Ready").cloned();
            let ready = ready.unwrap_or_default();
            let message = ready["message"].as_str().unwrap_or_default();
            let is_told = ready["status"] == "True" && message.contains("webhooks answer");
            Ok(is_told.then_some(()))
        })
        .unwrap();
    }
}

fn all_were_heard(tallies: &[Tally]) {
    for tally in tallies {
        eprintln!("{tally:?}");
        assert!(tally.calls > 100, "{tally:?}");
    }
    nobody_noticed(tallies);
}

fn nobody_noticed(tallies: &[Tally]) {
    let failed: u64 = tallies.iter().map(|tally| tally.failed).sum();
    assert_eq!(failed, 0, "{tallies:#?}");
}

/// Plain clusterctl lists what is installed, and what it would make of it.
fn seen_by_clusterctl(management: &Management, version: &str, next: &[&str]) {
    let plan = management.clusterctl(&["upgrade", "plan"]).unwrap();
    let rows: Vec<Vec<_>> = plan
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for provider in PROVIDERS {
        let label = provider.label();
        let expected = [label.as_str(), provider.namespace, provider.title, version];
        let expected = [&expected[..], next].concat();
        assert!(rows.contains(&expected), "{expected:?} is not in {plan}");
    }
}

/// The pods that there are go on serving, the provider tells what is waited for, and the way back is the spec as it was.
fn an_image_that_is_nowhere_is_survived(management: &Management, version: &str) {
    let [core, ..] = PROVIDERS;
    let before = serving(management, core);
    let calls = management.calls();
    let containers = json!([{"name": "manager", "imageUrl": NOWHERE}]);
    let spec = json!({"version": version, "deployment": {"containers": containers}});
    management.declare_with(core, &spec).unwrap();
    wait_until("the image to be asked for in vain", LIMIT, || {
        let reasons =
            "--output=jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}";
        let reasons =
            management.kubectl(&["--namespace", core.namespace, "get", "pods", reasons])?;
        Ok(reasons.contains("Image").then_some(()))
    })
    .unwrap();
    let run = wait_until("the run to tell what it waits for", LIMIT, || {
        let run = runs(management, core)?.pop();
        Ok(run.filter(|run| run.to_string().contains("1 of an older one")))
    })
    .unwrap();
    assert_eq!(run["spec"]["operation"], "Reconfigure", "{run:#}");
    assert_eq!(run["status"]["step"], "check/ready", "{run:#}");
    let provider = wait_until("the provider to be at work", LIMIT, || {
        let provider = get(management, core)?;
        let ready = condition(&provider, "Ready").cloned().unwrap_or_default();
        let message = ready["message"].as_str().unwrap_or_default();
        let is_told = ready["status"] == "False" && message.contains("is at step check/ready");
        Ok(is_told.then_some(provider))
    })
    .unwrap();
    assert_eq!(provider["status"]["installedVersion"], version);
    assert_eq!(serving(management, core), before, "the old pods serve");
    assert!(management.is_available("first").unwrap());

    management.declare(core, version).unwrap();
    management.installed(core, version).unwrap();
    nobody_noticed(&calls.end().unwrap());
    let pods = serving(management, core);
    assert_eq!(pods, before, "nothing was to be replaced");
    let runs = runs(management, core).unwrap();
    let [.., given_up, last] = runs.as_slice() else {
        panic!("{runs:#?}")
    };
    assert_eq!(given_up["status"]["phase"], "Superseded", "{given_up:#}");
    assert_eq!(last["status"]["phase"], "Succeeded", "{last:#}");
}

/// The pods of a provider whose programs run.
fn serving(management: &Management, provider: Installed) -> String {
    let names = [
        "--namespace",
        provider.namespace,
        "get",
        "pods",
        "--field-selector=status.phase=Running",
        "--output=jsonpath={.items[*].metadata.name}",
    ];
    management.kubectl(&names).unwrap()
}

/// What the journals of upgrades had said when Windlass was killed, and by which record of each provider it was.
#[derive(Default)]
struct Deaths {
    seen: RefCell<BTreeSet<[String; 3]>>,
    at: RefCell<Vec<(&'static str, [String; 3])>>,
}

impl Deaths {
    /// From now on, whatever was upgraded before.
    fn from_now_on(management: &Management) -> anyhow::Result<Self> {
        let deaths = Self::default();
        for provider in PROVIDERS {
            deaths.new_record(management, provider)?;
        }
        Ok(deaths)
    }

    /// Kills it at every record of an upgrade that is seen, and starts it again.
    fn kill(&self, management: &Management) -> anyhow::Result<()> {
        for provider in PROVIDERS {
            if let Some(record) = self.new_record(management, provider)? {
                self.at.borrow_mut().push((provider.namespace, record));
                management.operate()?;
            }
        }
        Ok(())
    }

    /// The last record that was not seen before.
    fn new_record(
        &self,
        management: &Management,
        provider: Installed,
    ) -> anyhow::Result<Option<[String; 3]>> {
        let mut seen = self.seen.borrow_mut();
        let records = management.upgrade_records(provider)?;
        let mut new = None;
        for record in records {
            let [run, event, step] = record.clone();
            if seen.insert([format!("{}/{run}", provider.namespace), event, step]) {
                new = Some(record);
            }
        }
        Ok(new)
    }

    /// Whether it was killed while new pods of a provider came up, which takes seconds.
    fn was_while_pods_came_up(&self, provider: Installed) -> bool {
        let deaths = self.at.borrow();
        let mut of_provider = deaths.iter().filter(|(at, _)| *at == provider.namespace);
        of_provider.any(|(_, [_, event, step])| event == "StepStarted" && step == "check/ready")
    }
}

/// Each provider was upgraded so often, each time by one run, the last of which went through its steps once, whoever died meanwhile.
fn upgraded_once(management: &Management, deaths: &Deaths, times: usize) {
    for provider in PROVIDERS {
        let upgrades = upgrades(management, provider);
        assert_eq!(upgrades.len(), times, "{upgrades:#?}");
        let upgrade = upgrades.last().unwrap();
        assert_eq!(upgrade["status"]["phase"], "Succeeded", "{upgrade:#}");
        each_step_once(upgrade);
        assert!(deaths.was_while_pods_came_up(provider), "{provider:?}");
    }
    assert!(deaths.at.borrow().len() > PROVIDERS.len());
}

/// While a cluster comes up, what is deepest below it and unfinished is named first; then nothing is.
fn what_stands_in_the_way_is_named(management: &Management, name: &str) {
    let describe = || {
        let mut command = management.windlass(&["--namespace", "default"]);
        command.args(["describe", "cluster", name]);
        lab::command::output(&mut command)
    };
    let mut named = BTreeSet::new();
    wait_until(&format!("{name} to be Available"), LIMIT, || {
        let told = describe()?;
        if management.is_available(name)? {
            return Ok(Some(()));
        }
        let mut lines = told.lines();
        assert_eq!(
            lines.next(),
            Some(format!("Cluster/{name} waits for:").as_str()),
            "{told}"
        );
        let first = lines.next().unwrap_or_default().split_whitespace();
        named.insert(first.take(2).collect::<Vec<_>>().join(" "));
        Ok(None)
    })
    .unwrap();
    eprintln!("{named:#?}");
    // Nothing is below a machine in memory that boots.
    let machine = format!("DevMachine/{name}-");
    let is_it = |fact: &String| fact.starts_with(&machine) && fact.ends_with(" waiting");
    assert!(named.iter().any(is_it), "{named:#?}");

    management.raised(name).unwrap();
    let mut told = String::new();
    let nothing = format!("Cluster/{name} waits for nothing.");
    wait_until("nothing to be waited for", LIMIT, || {
        told = describe()?;
        Ok((told.lines().next() == Some(nothing.as_str())).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {told}"));
}

/// The upgrades of a provider, the oldest first.
fn upgrades(management: &Management, provider: Installed) -> Vec<Value> {
    let mut runs = runs(management, provider).unwrap();
    runs.retain(|run| run["spec"]["operation"] == "Upgrade");
    runs
}

/// The runs of a provider, the oldest first.
fn runs(management: &Management, provider: Installed) -> anyhow::Result<Vec<Value>> {
    let get = [
        "--namespace",
        provider.namespace,
        "get",
        "runs",
        "--sort-by=.metadata.creationTimestamp",
        "--output=json",
    ];
    let mut list: Value = serde_json::from_str(&management.kubectl(&get)?)?;
    Ok(serde_json::from_value(list["items"].take())?)
}

fn get(management: &Management, provider: Installed) -> anyhow::Result<Value> {
    let name = format!("{}/{}", provider.kind, provider.name);
    let get = [
        "--namespace",
        provider.namespace,
        "get",
        &name,
        "--output=json",
    ];
    Ok(serde_json::from_str(&management.kubectl(&get)?)?)
}
