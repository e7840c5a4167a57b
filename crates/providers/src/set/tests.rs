//! What is decided about a set, and what is told of it, pass after pass, in a world that does what is written.

use std::collections::BTreeMap;

use api::provider::{
    Bootstrap, Core, Infrastructure, Kind, PlanPhase, Provider, ProviderStatus, SetPlan, label,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::*;
use crate::{
    names::{APPROVE, START_AGAIN},
    stand::Stand,
};

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n\
     - {major: 1, minor: 13, contract: v1beta2}\n- {major: 1, minor: 14, contract: v1beta2}\n- {major: 1, minor: 18, contract: v1beta2}\n";

/// A release whose kind has these fields.
fn release(version: &str, fields: &[&str]) -> ConfigMap {
    let fields: Vec<_> = fields
        .iter()
        .map(|field| format!("{field}: {{type: string}}"))
        .collect();
    let components = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: some-system}}\n---\n\
         apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.example.com}}\n\
         spec: {{group: example.com, scope: Namespaced, names: {{kind: Thing, plural: things}}, versions: [\
         {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, properties: {{{}}}}}}}}}]}}\n",
        fields.join(", ")
    );
    serde_json::from_value(json!({
        "metadata": {"name": version, "labels": {label::VERSION: version}},
        "data": {"metadata": METADATA, "components": components},
    }))
    .unwrap()
}

fn condition(kind: &str, status: &str, message: &str) -> Condition {
    serde_json::from_value(json!({
        "type": kind, "status": status, "reason": "Some", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

/// A provider that is installed in v1.13.4, and has newer releases.
fn installed<K: Kind>(namespace: &str, name: &str) -> Stand {
    let spec = serde_json::from_value(json!({"version": "v1.13.4"})).unwrap();
    let mut object = Provider::<K>::new(namespace, name, spec);
    object.metadata.generation = Some(1);
    object.status = Some(ProviderStatus {
        contract: Some("v1beta2".to_owned()),
        ..ProviderStatus::default()
    });
    let releases = ["v1.13.4", "v1.13.9", "v1.14.2"];
    let releases = releases.map(|version| release(version, &["size"]));
    let mut stand = Stand::of(&object, releases.into());
    become_ready(&mut stand, "v1.13.4");
    stand
}

fn become_ready(stand: &mut Stand, version: &str) {
    stand.status.installed_version = Some(version.to_owned());
    stand.status.observed_generation = stand.generation;
    stand.status.conditions = vec![condition("Ready", "True", "all is well")];
}

/// A set and its providers.
struct World {
    set: ProviderSet,
    observed: Observed,
}

impl World {
    fn new(spec: &Value) -> Self {
        Self {
            set: serde_json::from_value(json!({
                "apiVersion": "providers.windlass.dev/v1alpha1", "kind": "ProviderSet",
                "metadata": {"name": "main", "namespace": "capi-system", "generation": 1}, "spec": spec,
            }))
            .unwrap(),
            observed: Observed {
                elder: None,
                stands: vec![
                    installed::<Core>("capi-system", "cluster-api"),
                    installed::<Bootstrap>("kubeadm-system", "kubeadm"),
                    installed::<Infrastructure>("capd-system", "docker"),
                ],
                failures: BTreeMap::new(),
                backs: BTreeMap::new(),
                is_told: false,
                now: "2026-01-03T12:00:00Z".parse().unwrap(),
            },
        }
    }

    /// One pass: what was decided is done, and told.
    fn pass(&mut self) -> String {
        let decided = plan(&self.set, &self.observed);
        let mut write = |plan: &SetPlan, at: usize, is_back: bool| {
            let upgrade = &plan.upgrades[at];
            let version = if is_back { &upgrade.from } else { &upgrade.to };
            let mut stands = self.observed.stands.iter_mut();
            let stand = stands.find(|stand| stand.label().as_ref() == Some(&upgrade.provider));
            let stand = stand.unwrap();
            stand.wanted.clone_from(version);
            stand.generation = stand.generation.map(|generation| generation + 1);
            format!("{} {version}", upgrade.provider)
        };
        let short = match &decided.decision {
            Decision::Stall(reason, _) => format!("stall {}", reason.as_str()),
            Decision::Await(reason, _) => format!("await {}", reason.as_str()),
            Decision::Keep(_) => "keep".to_owned(),
            Decision::Hold(held) => format!("hold {}", held.reason.as_str()),
            Decision::Begin(_) => "begin".to_owned(),
            Decision::Upgrade(plan, at) => format!("write {}", write(plan, *at, false)),
            Decision::Follow(..) => "follow".to_owned(),
            Decision::GoBack(plan, at, _) => format!("back {}", write(plan, *at, true)),
            Decision::Stop(_, reason, _) => format!("stop {}", reason.as_str()),
        };
        let applied = Applied::of(decided);
        self.set.status = Some(report::status(&self.set, &applied, &self.observed));
        short
    }

    fn passes<const N: usize>(&mut self) -> [String; N] {
        std::array::from_fn(|_| self.pass())
    }

    fn stand(&mut self, at: usize) -> &mut Stand {
        &mut self.observed.stands[at]
    }

    /// The run of a provider makes its wish true.
    fn succeed(&mut self, at: usize) {
        let stand = self.stand(at);
        let wanted = stand.wanted.clone();
        become_ready(stand, &wanted);
    }

    /// The run of a provider fails.
    fn fail(&mut self, at: usize) {
        let stand = self.stand(at);
        stand.status.observed_generation = stand.generation;
        stand.status.conditions = vec![
            condition("Ready", "False", "run x failed"),
            condition("Stalled", "True", "run x failed"),
        ];
    }

    /// The whole of a plan, from its first version to its last.
    fn carry_out(&mut self) {
        assert_eq!(self.pass(), "begin");
        loop {
            let did = self.pass();
            if did == "keep" {
                return;
            }
            assert!(did.starts_with("write"), "{did}");
            for at in 0..self.observed.stands.len() {
                self.succeed(at);
            }
        }
    }

    /// A person has an older version of a provider again.
    fn put_back(&mut self, at: usize, version: &str) {
        let stand = self.stand(at);
        stand.wanted = version.to_owned();
        stand.generation = stand.generation.map(|generation| generation + 1);
        become_ready(stand, version);
    }

    fn edit(&mut self, spec: &Value) {
        self.set.spec = serde_json::from_value(spec.clone()).unwrap();
        self.set.metadata.generation = self.set.metadata.generation.map(|one| one + 1);
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.set.annotations_mut();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    fn plan(&self) -> &SetPlan {
        self.set.status.as_ref().unwrap().plan.as_ref().unwrap()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let status = self.set.status.as_ref().unwrap();
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == kind);
        found
            .map(|found| {
                (
                    format!("{} {}", found.status, found.reason),
                    found.message.clone(),
                )
            })
            .unwrap_or_default()
    }

    fn ready(&self) -> String {
        self.condition("Ready").0
    }
}

fn everywhere(version: &str) -> Value {
    let named = |provider: &str| json!({"provider": provider, "version": version});
    json!([
        named("cluster-api"),
        named("bootstrap-kubeadm"),
        named("infrastructure-docker")
    ])
}

#[test]
fn providers_are_upgraded_one_after_the_other_and_core_first() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    assert_eq!(
        world.passes(),
        ["begin", "write cluster-api v1.14.2", "follow", "follow"]
    );
    assert_eq!(world.ready(), "False UpgradeUnderWay");
    world.succeed(0);
    assert_eq!(
        world.passes(),
        ["write bootstrap-kubeadm v1.14.2", "follow"]
    );
    assert_eq!(world.plan().done, "1/3");
    world.succeed(1);
    assert_eq!(
        world.passes(),
        ["write infrastructure-docker v1.14.2", "follow"]
    );
    world.succeed(2);
    assert_eq!(world.passes(), ["keep", "keep"]);
    assert_eq!(world.plan().phase, PlanPhase::Done);
    assert_eq!(world.plan().done, "3/3");
    assert_eq!(world.ready(), "True UpToDate");
}

#[test]
fn a_version_that_was_written_before_it_was_told_is_not_written_again() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.pass();
    let core = world.stand(0);
    core.wanted = "v1.14.2".to_owned();
    core.generation = Some(2);
    assert_eq!(world.pass(), "follow");
}

#[test]
fn a_provider_that_is_not_ready_any_more_is_waited_for() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.passes::<2>();
    world.succeed(0);
    world.stand(0).status.conditions = vec![condition("Ready", "False", "a pod is gone")];
    assert_eq!(world.pass(), "follow");
    assert!(world.condition("Ready").1.contains("a pod is gone"));
}

#[test]
fn nothing_else_is_begun_where_one_fails_and_it_goes_back() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.passes::<2>();
    world.succeed(0);
    world.pass();
    world.fail(1);
    let label = "bootstrap-kubeadm".to_owned();
    let why = "v1.14.2 did not get ready in run x".to_owned();
    world.observed.failures.insert(label.clone(), why);
    world.observed.backs.insert(label, Back::Open);
    assert_eq!(world.pass(), "back bootstrap-kubeadm v1.13.4");
    assert_eq!(world.ready(), "False WentBack");
    assert_eq!(world.pass(), "follow");
    world.succeed(1);
    assert_eq!(world.passes(), ["stop WentBack", "stop WentBack"]);
    let (stalled, message) = world.condition("Stalled");
    assert_eq!(stalled, "True WentBack");
    assert!(message.contains("v1.14.2 did not get ready"), "{message}");
    assert_eq!(world.stand(2).wanted, "v1.13.4");

    // Another wish, or the same one once more, is begun.
    world.annotate(START_AGAIN, "1");
    assert_eq!(world.passes(), ["begin", "write bootstrap-kubeadm v1.14.2"]);
}

#[test]
fn a_provider_stays_where_nobody_wants_it_to_go_back_or_it_cannot() {
    let closed = Back::Closed("objects of things.example.com may be stored as v2".to_owned());
    for (on_failure, back, said) in [
        ("Stay", Back::Open, "run x failed"),
        ("GoBack", closed, "may be stored as v2"),
    ] {
        let mut world =
            World::new(&json!({"providers": everywhere("v1.14.2"), "onFailure": on_failure}));
        world.passes::<2>();
        world.fail(0);
        world.observed.backs.insert("cluster-api".to_owned(), back);
        assert_eq!(
            world.passes(),
            ["stop UpgradeFailed", "stop UpgradeFailed"],
            "{on_failure}"
        );
        let (stalled, message) = world.condition("Stalled");
        assert_eq!(stalled, "True UpgradeFailed");
        assert!(message.contains(said), "{message}");
        // Its run was mended, and began once more.
        world.stand(0).status.conditions.clear();
        assert_eq!(world.pass(), "follow");
        world.succeed(0);
        assert_eq!(world.pass(), "write bootstrap-kubeadm v1.14.2");
    }
}

#[test]
fn what_a_person_puts_back_stays_so() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.passes::<3>();
    let core = world.stand(0);
    core.wanted = "v1.13.4".to_owned();
    core.generation = Some(9);
    become_ready(core, "v1.13.4");
    assert_eq!(world.passes(), ["stop WentBack", "stop WentBack"]);
}

#[test]
fn a_provider_that_was_done_and_is_put_back_stops_the_plan() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.passes::<2>();
    world.succeed(0);
    assert_eq!(world.pass(), "write bootstrap-kubeadm v1.14.2");
    world.put_back(0, "v1.13.4");
    world.succeed(1);
    assert_eq!(world.passes(), ["stop WentBack", "stop WentBack"]);
    assert_eq!(world.stand(2).wanted, "v1.13.4");
    let message = world.condition("Stalled").1;
    assert!(message.contains("the upgrade of cluster-api"), "{message}");
}

#[test]
fn an_approval_is_of_one_beginning() {
    let spec = json!({"upgrade": {"patch": {"auto": true}}, "approval": "Always"});
    let mut world = World::new(&spec);
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let first = world.plan().id.clone();
    world.annotate(APPROVE, &first);
    world.carry_out();

    world.put_back(0, "v1.13.4");
    assert_eq!(
        world.passes(),
        ["hold WaitingForApproval", "hold WaitingForApproval"]
    );
    let message = world.condition("Ready").1;
    assert!(
        message.contains("cluster-api was put back to v1.13.4 after this set had written v1.13.9"),
        "{message}"
    );
    let second = world.plan().id.clone();
    world.annotate(APPROVE, &second);
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.9"]);
}

#[test]
fn what_was_put_back_is_not_taken_again_with_the_release_of_another() {
    let mut world = World::new(&json!({"upgrade": {"patch": {"auto": true}}}));
    world.carry_out();
    // Others follow before it is found out what is bad about the first.
    world.stand(2).maps.push(release("v1.13.10", &["size"]));
    world.carry_out();
    world.put_back(0, "v1.13.4");
    assert_eq!(world.pass(), "hold WaitingForApproval");
    world.stand(1).maps.push(release("v1.13.10", &["size"]));
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let mut windows = serde_json::to_value(&world.set.spec).unwrap();
    windows["approval"] = json!("Minor");
    world.edit(&windows);
    assert_eq!(world.pass(), "hold WaitingForApproval", "no other wish");

    // A release that nobody has tried is another matter, and so is another wish.
    world.stand(0).maps.push(release("v1.13.10", &["size"]));
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.10"]);
    world.succeed(0);
    assert_eq!(world.pass(), "write bootstrap-kubeadm v1.13.10");
    world.succeed(1);
    assert_eq!(world.pass(), "keep");
    world.put_back(0, "v1.13.4");
    assert_eq!(world.pass(), "hold WaitingForApproval");
    world.annotate(START_AGAIN, "1");
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.10"]);
}

#[test]
fn what_went_back_is_not_tried_again_with_the_release_of_another() {
    let mut world = World::new(&json!({"upgrade": {"patch": {"auto": true}}}));
    world.passes::<2>();
    world.fail(0);
    let label = "cluster-api".to_owned();
    world.observed.backs.insert(label, Back::Open);
    assert_eq!(world.pass(), "back cluster-api v1.13.4");
    world.succeed(0);
    assert_eq!(world.pass(), "stop WentBack");
    world.stand(2).maps.push(release("v1.13.10", &["size"]));
    assert_eq!(world.passes(), ["stop WentBack", "stop WentBack"]);

    // Nor when the releases are away for a while, and the plan is forgotten.
    let mut stands = world.observed.stands.clone();
    for stand in &mut world.observed.stands {
        stand.maps.truncate(1);
    }
    assert_eq!(world.pass(), "keep");
    for (stand, before) in world.observed.stands.iter_mut().zip(&mut stands) {
        stand.maps.append(&mut before.maps.split_off(1));
    }
    assert_eq!(world.pass(), "hold WaitingForApproval");
}

#[test]
fn an_approval_is_of_what_the_releases_held() {
    let mut world = World::new(&json!({
        "providers": everywhere("v1.14.2"), "approval": "Always",
        "maintenance": {"windows": [{"schedule": "0 22 * * 6", "duration": "2h"}]},
    }));
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let id = world.plan().id.clone();
    world.annotate(APPROVE, &id);
    assert_eq!(world.pass(), "hold WaitingForWindow");
    // Until it opens, somebody loads another release of that version.
    world.stand(2).maps[2] = release("v1.14.2", &["colour"]);
    world.observed.now = "2026-01-03T23:00:00Z".parse().unwrap();
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let message = world.condition("Ready").1;
    assert!(message.contains("infrastructure-docker lose"), "{message}");
    assert_ne!(world.plan().id, id);
}

#[test]
fn a_plan_is_refused_with_every_reason_at_once() {
    let mut world = World::new(&json!({"providers": [
        {"provider": "cluster-api", "version": "v1.12.0"},
        {"provider": "infrastructure-docker", "version": "v1.18.0"},
    ]}));
    assert_eq!(world.pass(), "stall Refused");
    let (planned, message) = world.condition("Planned");
    assert_eq!(planned, "False Refused");
    assert!(message.contains("has no 1.12"), "{message}");
    world.edit(&json!({"providers": [
        {"provider": "bootstrap-kubeadm", "version": "v1.18.0"},
        {"provider": "infrastructure-docker", "version": "v1.14.3"},
    ]}));
    assert_eq!(world.pass(), "stall Refused");
    let message = world.condition("Planned").1;
    assert!(message.contains("go by way of v1.16"), "{message}");
    assert!(message.contains("has no release v1.14.3"), "{message}");
    world.edit(&json!({"providers": [{"provider": "infrastructure-metal", "version": "v1.14.2"}]}));
    assert_eq!(world.pass(), "stall Refused");
    let message = world.condition("Planned").1;
    assert!(message.contains("infrastructure-metal"), "{message}");
}

#[test]
fn what_is_wrong_with_the_spec_is_told_by_field() {
    let mut world = World::new(&json!({
        "providers": [{"provider": "cluster-api", "version": "1.14"}],
        "maintenance": {"windows": [{"schedule": "0 22 * * 6", "duration": "2h", "timeZone": "Europe/Nowhere"}]},
    }));
    assert_eq!(world.pass(), "stall InvalidSpec");
    let message = world.condition("Stalled").1;
    assert!(
        message.contains("ProviderSet spec.providers[cluster-api].version is \"1.14\""),
        "{message}"
    );
    assert!(
        message.contains("ProviderSet spec.maintenance.windows[0]"),
        "{message}"
    );
}

#[test]
fn a_policy_takes_what_it_names_and_tells_of_the_rest() {
    let mut world = World::new(&json!({"upgrade": {"patch": {"auto": true}}}));
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.9"]);
    let available = &world.set.status.as_ref().unwrap().available;
    let told: Vec<_> = available
        .iter()
        .map(|one| format!("{} {}", one.provider, one.version))
        .collect();
    assert_eq!(
        told,
        [
            "cluster-api v1.14.2",
            "bootstrap-kubeadm v1.14.2",
            "infrastructure-docker v1.14.2"
        ]
    );

    let mut world = World::new(&json!({}));
    assert_eq!(world.pass(), "keep");
    let available = &world.set.status.as_ref().unwrap().available;
    assert_eq!(available.len(), 6);
    assert!(
        available[0]
            .message
            .contains("spec.upgrade.patch.auto: true"),
        "{}",
        available[0].message
    );
}

#[test]
fn a_version_is_the_least_where_the_policy_takes_more_and_else_it_is_it() {
    let named = |upgrade: &Value| {
        json!({"upgrade": {"minor": {"auto": true}}, "providers": [
            {"provider": "cluster-api", "version": "v1.13.9"},
            {"provider": "bootstrap-kubeadm", "version": "v1.13.9", "upgrade": upgrade},
        ]})
    };
    let mut world = World::new(&named(&json!({})));
    world.pass();
    let to: Vec<_> = world
        .plan()
        .upgrades
        .iter()
        .map(|one| format!("{} {}", one.provider, one.to))
        .collect();
    assert_eq!(
        to,
        [
            "cluster-api v1.14.2",
            "bootstrap-kubeadm v1.13.9",
            "infrastructure-docker v1.14.2"
        ]
    );
}

#[test]
fn nothing_is_taken_by_itself_while_a_provider_is_not_well() {
    let mut world = World::new(&json!({"upgrade": {"patch": {"auto": true}}}));
    world.stand(2).status.conditions = vec![condition("Ready", "False", "no pods")];
    assert_eq!(world.pass(), "await ProviderNotReady");
    world.edit(&json!({"providers": everywhere("v1.14.2")}));
    assert_eq!(world.pass(), "begin", "what is asked for may mend it");
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    let docker = world.stand(2);
    docker.wanted = "v1.13.9".to_owned();
    docker.generation = Some(2);
    assert_eq!(world.pass(), "await WaitingForProviders");
}

#[test]
fn plans_wait_for_a_person_where_the_policy_says_so() {
    let minor = |approval: &str| json!({"providers": everywhere("v1.14.2"), "approval": approval});
    let patch = |approval: &str| json!({"providers": everywhere("v1.13.9"), "approval": approval});
    for (spec, expected) in [
        (minor("Never"), "begin"),
        (minor("Minor"), "hold WaitingForApproval"),
        (patch("Minor"), "begin"),
        (patch("Always"), "hold WaitingForApproval"),
    ] {
        assert_eq!(World::new(&spec).pass(), expected, "{spec}");
    }
    let mut world = World::new(&minor("Always"));
    world.pass();
    let message = world.condition("Ready").1;
    let id = world.plan().id.clone();
    assert!(
        message.contains(&format!("windlass -n capi-system providers approve {id}")),
        "{message}"
    );
    world.annotate(APPROVE, "another");
    assert_eq!(world.pass(), "hold WaitingForApproval");
    world.annotate(APPROVE, &id);
    assert_eq!(world.pass(), "begin");
}

#[test]
fn a_plan_by_which_objects_lose_something_waits_for_a_person_in_any_case() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    let docker = world.stand(2);
    docker.maps = vec![
        release("v1.13.4", &["size", "colour"]),
        release("v1.14.2", &["size"]),
    ];
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let message = world.condition("Ready").1;
    assert!(
        message.contains("objects of infrastructure-docker lose fields"),
        "{message}"
    );
    let docker = world.stand(2);
    docker.maps.remove(0);
    assert_eq!(world.pass(), "hold WaitingForApproval");
    let message = world.condition("Ready").1;
    assert!(
        message.contains("no ConfigMap keeps infrastructure-docker v1.13.4"),
        "{message}"
    );
}

#[test]
fn plans_begin_in_windows_and_rest_after_them_where_that_is_said() {
    // The third of January of 2026 is a Saturday.
    let spec = |end: &str| {
        json!({"upgrade": {"patch": {"auto": true}}, "maintenance": {
            "windows": [{"schedule": "0 22 * * 6", "duration": "2h"}], "onWindowEnd": end,
        }})
    };
    let noon: Timestamp = "2026-01-03T12:00:00Z".parse().unwrap();
    let night: Timestamp = "2026-01-03T23:00:00Z".parse().unwrap();
    for (end, expected) in [
        ("Continue", "write bootstrap-kubeadm v1.13.9"),
        ("Pause", "hold WaitingForWindow"),
    ] {
        let mut world = World::new(&spec(end));
        world.observed.now = noon;
        assert_eq!(world.pass(), "hold WaitingForWindow");
        assert_eq!(world.ready(), "True WaitingForWindow", "nobody misses it");
        world.observed.now = night;
        assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.9"]);
        world.succeed(0);
        world.observed.now = "2026-01-04T09:00:00Z".parse().unwrap();
        assert_eq!(world.pass(), expected, "{end}");
        world.observed.now = "2026-01-10T23:00:00Z".parse().unwrap();
        if end == "Pause" {
            assert_eq!(world.plan().phase, PlanPhase::UnderWay);
            assert_eq!(world.pass(), "write bootstrap-kubeadm v1.13.9");
        }
    }
}

#[test]
fn a_plan_that_stopped_goes_on_in_a_window_only() {
    // The third of January of 2026 is a Saturday.
    let mut world = World::new(&json!({
        "providers": everywhere("v1.14.2"),
        "maintenance": {"windows": [{"schedule": "0 22 * * 6", "duration": "2h"}], "onWindowEnd": "Continue"},
    }));
    world.observed.now = "2026-01-03T23:00:00Z".parse().unwrap();
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.14.2"]);
    world.fail(0);
    assert_eq!(world.pass(), "stop UpgradeFailed");

    // On Monday a person retries its run.
    world.observed.now = "2026-01-05T12:00:00Z".parse().unwrap();
    world.stand(0).status.conditions.clear();
    assert_eq!(world.passes(), ["follow", "follow"]);
    assert_eq!(world.ready(), "False UpgradeUnderWay");
    world.succeed(0);
    assert_eq!(
        world.passes(),
        ["hold WaitingForWindow", "hold WaitingForWindow"]
    );
    assert_eq!(world.plan().phase, PlanPhase::Stopped);
    let message = world.condition("Ready").1;
    assert!(message.contains("1/3 of plan"), "{message}");

    world.observed.now = "2026-01-10T23:00:00Z".parse().unwrap();
    assert_eq!(world.pass(), "write bootstrap-kubeadm v1.14.2");
    assert_eq!(world.plan().phase, PlanPhase::UnderWay);
    world.succeed(1);
    world.observed.now = "2026-01-11T01:00:00Z".parse().unwrap();
    assert_eq!(
        world.pass(),
        "write infrastructure-docker v1.14.2",
        "what was begun in a window goes on after it"
    );
}

#[test]
fn another_wish_replaces_the_rest_of_a_plan() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.passes::<2>();
    world.edit(&json!({"providers": [{"provider": "cluster-api", "version": "v1.14.2"}]}));
    assert_eq!(world.pass(), "follow", "what is at work goes on");
    world.succeed(0);
    assert_eq!(world.passes(), ["keep", "keep"]);
    assert_eq!(world.stand(1).wanted, "v1.13.4");
}

#[test]
fn a_plan_under_way_goes_on_whatever_releases_come() {
    let mut world = World::new(&json!({"upgrade": {"patch": {"auto": true}}}));
    world.passes::<2>();
    world.stand(0).maps.push(release("v1.13.10", &["size"]));
    world.succeed(0);
    assert_eq!(world.pass(), "write bootstrap-kubeadm v1.13.9");
    world.succeed(1);
    assert_eq!(world.pass(), "write infrastructure-docker v1.13.9");
    world.succeed(2);
    assert_eq!(world.passes(), ["begin", "write cluster-api v1.13.10"]);
}

#[test]
fn a_set_without_a_core_or_with_an_elder_one_does_nothing() {
    let mut world = World::new(&json!({"providers": everywhere("v1.14.2")}));
    world.observed.elder = Some("first".to_owned());
    assert_eq!(world.pass(), "stall MoreThanOneExists");
    world.observed.elder = None;
    world.observed.stands.clear();
    assert_eq!(world.pass(), "await WaitingForCore");
}

#[test]
fn a_set_is_of_the_core_that_is_installed_from_its_namespace() {
    let World { observed, .. } = World::new(&json!({}));
    let beside = |namespace: &str, all: &[Stand]| observe::beside(all.to_vec(), namespace).len();
    let mut all = observed.stands;
    assert_eq!(beside("capi-system", &all), 3);
    assert_eq!(beside("kubeadm-system", &all), 0);
    // Who may make a CoreProvider somewhere has no say either.
    let spec = serde_json::from_value(json!({"version": "v1.14.2"})).unwrap();
    let own = Provider::<Core>::new("tenant", "cluster-api", spec);
    all.push(Stand::of(&own, Vec::new()));
    assert_eq!(beside("tenant", &all), 0);
}
