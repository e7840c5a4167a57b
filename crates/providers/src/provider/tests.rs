//! What is decided about a core provider, and what is told of it, in every situation.

use std::time::Duration;

use api::{
    provider::{Core, CoreProvider, ProviderStatus, Reason, condition},
    run::{RunPhase, RunStatus},
};
use controller::conditions::{READY, STALLED};
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource as _, ResourceExt as _};

use super::{
    apply::{health_look, told_until},
    *,
};
use crate::{
    fetch,
    health::Health,
    inputs::Inputs,
    names::TARGET,
    operation::Operation,
    source::{Held, Missing},
    webhooks::Verdict,
};

fn core(version: &str) -> CoreProvider {
    let spec = serde_json::from_value(serde_json::json!({"version": version})).unwrap();
    let mut core = Provider::new("capi-system", "cluster-api", spec);
    core.metadata.uid = Some("u".to_owned());
    core.metadata.generation = Some(3);
    core
}

fn observed(version: &str) -> Observed {
    Observed {
        findings: Vec::new(),
        among: Ok(None),
        source: Ok(Held {
            config_map: format!("core-cluster-api-{version}"),
            version: version.parse().unwrap(),
            contract: "v1beta2".to_owned(),
            metadata: String::new(),
            components: String::new(),
            signature: None,
        }),
        fetch: None,
        variables: Ok(None),
        additional: Ok(None),
        runs: Vec::new(),
        health: None,
        drifted: Vec::new(),
        told_until: None,
        repairs: true,
        is_nowhere: false,
        dependents: Ok(Vec::new()),
    }
}

fn decide(core: &CoreProvider, observed: &Observed) -> Decision {
    plan(core, observed).unwrap()
}

/// The run that a decision starts, as it stands later.
fn run(core: &CoreProvider, decision: &Decision, phase: RunPhase) -> Run {
    let Decision::Start(new) = decision else {
        panic!("{decision:?} starts nothing")
    };
    let mut run = runs::object::of(
        core,
        new.name.clone(),
        new.operation.name(),
        1,
        new.plan.clone(),
    );
    run.status = Some(RunStatus {
        phase,
        ..RunStatus::default()
    });
    run
}

fn installed(core: &mut CoreProvider, version: &str) {
    core.status = Some(ProviderStatus {
        installed_version: Some(version.to_owned()),
        ..ProviderStatus::default()
    });
}

fn short(decision: &Decision) -> String {
    match decision {
        Decision::Start(new) => format!("start {}", new.name),
        Decision::Follow(run) => format!("follow {}", run.metadata.name.clone().unwrap()),
        Decision::Supersede(run, _) => format!("supersede {}", run.metadata.name.clone().unwrap()),
        Decision::Cancel(run) => format!("cancel {}", run.metadata.name.clone().unwrap()),
        Decision::Keep(run) => format!("keep {}", run.metadata.name.clone().unwrap()),
        Decision::Stall(findings) => format!("stall {}", findings[0].reason.as_str()),
        Decision::Await(waiting) => format!("await {}", waiting.reason().as_str()),
        Decision::Fetch(wanted) => format!("fetch {}", wanted.url),
        Decision::AwaitParts(reason, _) => format!("await parts {}", reason.as_str()),
        Decision::Stick(_) => "stick".to_owned(),
        Decision::Refuse(dependents) => format!("refuse for {}", dependents.join(", ")),
        Decision::Forget => "forget".to_owned(),
    }
}

#[test]
fn one_run_makes_one_wish_true() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let first = decide(&core, &world);
    assert_eq!(short(&first), "start cluster-api-install-1");
    for (phase, expected) in [
        (RunPhase::Pending, "follow cluster-api-install-1"),
        (RunPhase::Paused, "follow cluster-api-install-1"),
        (RunPhase::Failed, "follow cluster-api-install-1"),
        (RunPhase::Cancelled, "follow cluster-api-install-1"),
        (RunPhase::Succeeded, "keep cluster-api-install-1"),
    ] {
        world.runs = vec![run(&core, &first, phase)];
        assert_eq!(short(&decide(&core, &world)), expected);
    }
    installed(&mut core, "v1.13.4");
    assert_eq!(
        short(&decide(&core, &world)),
        "keep cluster-api-install-1",
        "being installed is no new wish"
    );

    core.spec.manager = Some(api::provider::Manager {
        verbosity: Some(5),
        ..api::provider::Manager::default()
    });
    assert_eq!(
        short(&decide(&core, &world)),
        "start cluster-api-reconfigure-2"
    );
    core.spec.manager = None;
    world.source = observed("v1.14.0").source;
    let upgrade = decide(&core, &world);
    assert_eq!(short(&upgrade), "start cluster-api-upgrade-2");
    world.runs.push(run(&core, &upgrade, RunPhase::Running));
    assert_eq!(
        short(&decide(&core, &world)),
        "follow cluster-api-upgrade-2"
    );
    world.source = observed("v1.14.1").source;
    assert_eq!(
        short(&decide(&core, &world)),
        "supersede cluster-api-upgrade-2"
    );
    world.source = Err(Missing::Nothing {
        namespace: String::new(),
        labels: String::new(),
    });
    assert_eq!(
        short(&decide(&core, &world)),
        "follow cluster-api-upgrade-2",
        "what is at work goes on"
    );
    // Back to what was installed once is a wish as any other.
    world.source = observed("v1.13.4").source;
    world.runs[1].status.as_mut().unwrap().phase = RunPhase::Succeeded;
    installed(&mut core, "v1.14.0");
    assert_eq!(short(&decide(&core, &world)), "start cluster-api-upgrade-3");
}

#[test]
fn what_has_drifted_is_put_back_unless_that_is_not_wanted() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let first = decide(&core, &world);
    installed(&mut core, "v1.13.4");
    world.runs = vec![run(&core, &first, RunPhase::Succeeded)];
    world.drifted = (1..=7).map(|at| format!("Service s{at} is gone")).collect();
    let repair = decide(&core, &world);
    let Decision::Start(new) = &repair else {
        panic!("{repair:?}")
    };
    assert_eq!(new.name, "cluster-api-repair-2");
    let reason = new.plan.reason.clone().unwrap();
    assert!(reason.starts_with("Service s1 is gone; "), "{reason}");
    assert!(reason.ends_with("; 2 more"), "{reason}");
    let told = |core: &CoreProvider, world: &Observed| {
        let applied = Applied::of(decide(core, world), world.runs.last().cloned());
        let status = report::status::<Core>(core, &applied, world, Timestamp::UNIX_EPOCH);
        let found = status.conditions.iter();
        let found = found.filter(|condition| condition.type_ == READY);
        let found: Vec<_> = found.map(|one| one.reason.clone()).collect();
        found.join(" ")
    };
    assert_eq!(told(&core, &world), "Drifted");

    world.repairs = false;
    assert_eq!(short(&decide(&core, &world)), "keep cluster-api-install-1");
    assert_eq!(told(&core, &world), "Drifted", "it is told all the same");
    core.annotations_mut()
        .insert(crate::names::REPAIR.to_owned(), "false".to_owned());
    assert!(!observe::repairs(&core));

    world.repairs = true;
    world.runs.push(run(&core, &repair, RunPhase::Running));
    assert_eq!(short(&decide(&core, &world)), "follow cluster-api-repair-2");
    world.runs[1].status.as_mut().unwrap().phase = RunPhase::Succeeded;
    world.drifted.clear();
    assert_eq!(short(&decide(&core, &world)), "keep cluster-api-repair-2");
}

#[test]
fn nothing_is_begun_that_cannot_be_done() {
    let core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    world.is_nowhere = true;
    assert_eq!(short(&decide(&core, &world)), "stall InvalidSpec");
    let mut world = observed("v1.13.4");
    world.among = Ok(Some(crate::check::Waiting::ForCore));
    assert_eq!(
        short(&decide(&core, &world)),
        "await WaitingForCoreProviderReady"
    );
    let mut world = observed("v1.13.4");
    world.variables = Err("no Secret".to_owned());
    assert_eq!(
        short(&decide(&core, &world)),
        "await parts ComponentsFetchError"
    );
}

#[test]
fn nothing_is_brought_that_is_held_or_is_not_asked_for() {
    let mut core = core("v1.13.4");
    core.spec.fetch_config = Some(api::provider::FetchConfig {
        url: Some("https://git.example/org/capi/releases".to_owned()),
        ..api::provider::FetchConfig::default()
    });
    let mut world = observed("v1.13.4");
    world.fetch = fetch::Wanted::of(&core, fetch::Reach::Named);
    let installs = "start cluster-api-install-1";
    assert_eq!(short(&decide(&core, &world)), installs, "it is held");
    let missing = Missing::Version {
        wanted: "v1.13.4".to_owned(),
        there: "v1.12.0".to_owned(),
    };
    world.source = Err(missing);
    let fetches = "fetch https://git.example/org/capi/releases";
    assert_eq!(short(&decide(&core, &world)), fetches);
    world.source = Err(Missing::Stale {
        config_map: "core".to_owned(),
    });
    assert_eq!(short(&decide(&core, &world)), fetches, "it is asked for");
    world.among = Ok(Some(crate::check::Waiting::ForCore));
    let waits = "await WaitingForCoreProviderReady";
    assert_eq!(short(&decide(&core, &world)), waits, "nor before its time");
    world.among = Ok(None);
    world.source = Err(Missing::Unreadable {
        config_map: "core".to_owned(),
        what: "no metadata".to_owned(),
    });
    let stands = "await parts ComponentsFetchError";
    assert_eq!(
        short(&decide(&core, &world)),
        stands,
        "what is there stands"
    );

    assert_eq!(fetch::Wanted::of(&core, fetch::Reach::Nowhere), None);
    core.spec.fetch_config = None;
    assert_eq!(fetch::Wanted::of(&core, fetch::Reach::Named), None);
    let known = fetch::Wanted::of(&core, fetch::Reach::Known).unwrap();
    assert_eq!(known.version.unwrap().to_string(), "v1.13.4");
}

#[test]
fn what_is_held_must_have_the_digest_that_is_insisted_on() {
    let mut core = core("v1.13.4");
    let world = observed("v1.13.4");
    let digest = |text: &str| format!("sha256:{}", fetch::digest_of(text));
    let pin = crate::names::COMPONENTS_DIGEST.to_owned();
    core.annotations_mut().insert(pin.clone(), digest(""));
    assert_eq!(short(&decide(&core, &world)), "start cluster-api-install-1");
    core.annotations_mut().insert(pin, digest("other"));
    let Decision::AwaitParts(_, message) = decide(&core, &world) else {
        panic!("it is installed");
    };
    let begins = "CoreProvider metadata.annotations[windlass.dev/components-digest] is \"sha256:";
    assert!(message.starts_with(begins), "{message}");
}

#[test]
fn what_is_held_must_be_signed_by_the_key_that_is_insisted_on() {
    use crate::signature::tests::{KEY, SIGNATURE, SIGNED};
    let mut core = core("v1.13.4");
    let key = crate::names::COMPONENTS_KEY.to_owned();
    core.annotations_mut().insert(key.clone(), KEY.to_owned());
    let decided = |components: &str, signature: Option<&str>| {
        let mut world = observed("v1.13.4");
        let held = world.source.as_mut().unwrap();
        held.components = components.to_owned();
        held.signature = signature.map(str::to_owned);
        decide(&core, &world)
    };
    let installs = decided(SIGNED, Some(SIGNATURE));
    assert_eq!(short(&installs), "start cluster-api-install-1");
    for (components, signature, told) in [
        (SIGNED, None, "have no signature"),
        (
            "# another",
            Some(SIGNATURE),
            "is not one of them by the given key",
        ),
        (SIGNED, Some("?"), "is no base64"),
    ] {
        let Decision::AwaitParts(Reason::ComponentsFetchError, message) =
            decided(components, signature)
        else {
            panic!("it is installed: {told}");
        };
        let begins = "CoreProvider metadata.annotations[windlass.dev/components-key] is ";
        assert!(message.starts_with(begins), "{message}");
        assert!(message.contains(told), "{message}");
    }

    // What is no key stands for no other one.
    core.annotations_mut().insert(key, "none".to_owned());
    let findings = crate::check::object(&core);
    let [finding] = findings.as_slice() else {
        panic!("{findings:?}")
    };
    assert_eq!(finding.reason, Reason::InvalidSpec);
}

#[test]
fn a_deletion_asks_those_who_need_it() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let first = decide(&core, &world);
    core.meta_mut().deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(short(&decide(&core, &world)), "forget");
    world.runs = vec![run(&core, &first, RunPhase::Running)];
    assert_eq!(
        short(&decide(&core, &world)),
        "cancel cluster-api-install-1"
    );
    world.runs = vec![run(&core, &first, RunPhase::Failed)];
    world.dependents = Ok(vec!["Cluster default/one".to_owned()]);
    assert_eq!(
        short(&decide(&core, &world)),
        "refuse for Cluster default/one"
    );
    world.dependents = Err("no answer".to_owned());
    assert_eq!(
        short(&decide(&core, &world)),
        "await parts OldComponentsDeletionError"
    );
    world.dependents = Ok(Vec::new());
    let deletion = decide(&core, &world);
    assert_eq!(short(&deletion), "start cluster-api-delete-2");
    world.runs.push(run(&core, &deletion, RunPhase::Failed));
    assert_eq!(short(&decide(&core, &world)), "follow cluster-api-delete-2");
    world.runs[1].status.as_mut().unwrap().phase = RunPhase::Succeeded;
    assert_eq!(short(&decide(&core, &world)), "forget");
    // Another operator's work is not taken for ours.
    let mut foreign = core.clone();
    installed(&mut foreign, "v1.13.4");
    assert_eq!(short(&decide(&foreign, &observed("v1.13.4"))), "stick");
}

#[test]
fn a_deletion_of_what_never_wrote_goes_where_it_was_asked_who_needs_it() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let leads = |core: &mut CoreProvider, to: &str| {
        core.annotations_mut()
            .insert(TARGET.to_owned(), to.to_owned())
    };
    leads(&mut core, "typo");
    let first = decide(&core, &world);
    world.runs = vec![run(&core, &first, RunPhase::Failed)];
    core.meta_mut().deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.dependents = Err("there is no Secret typo".to_owned());
    // Nothing is lost by it, and nobody need make that cluster again.
    assert_eq!(short(&decide(&core, &world)), "forget");
    world.runs[0].status.as_mut().unwrap().phase = RunPhase::Succeeded;
    let Decision::AwaitParts(_, message) = decide(&core, &world) else {
        panic!("it is not known who needs it")
    };
    assert!(
        message.contains("kubectl -n capi-system patch coreprovider cluster-api"),
        "{message}"
    );
    world.runs[0].status.as_mut().unwrap().phase = RunPhase::Failed;
    leads(&mut core, "right");
    world.dependents = Ok(Vec::new());
    let Decision::Start(deletion) = decide(&core, &world) else {
        panic!("nobody needs it")
    };
    let inputs = Inputs::from_map(&deletion.plan.inputs).unwrap();
    assert_eq!(inputs.target.as_deref(), Some("right"));
}

#[test]
fn a_provider_is_where_its_runs_have_written() {
    let mut core = core("v1.13.4");
    let world = observed("v1.13.4");
    let first = decide(&core, &world);
    let [begun, ended] =
        [RunPhase::Pending, RunPhase::Succeeded].map(|phase| run(&core, &first, phase));
    core.annotations_mut()
        .insert(TARGET.to_owned(), "another".to_owned());
    let another = Some(("capi-system".to_owned(), "another".to_owned()));
    assert_eq!(place(core.meta(), &[&begun]), another);
    assert_eq!(place(core.meta(), &[&begun, &ended]), None);
    core.metadata.uid = Some("made anew".to_owned());
    assert_eq!(place(core.meta(), &[&ended]), another);
}

#[test]
fn ready_is_of_everything() {
    let core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let first = decide(&core, &world);
    world.runs = vec![run(&core, &first, RunPhase::Succeeded)];
    let told = |world: &Observed, kind: &str| {
        let decision = decide(&core, world);
        let run = world.runs.last().cloned();
        let applied = Applied::of(decision, run);
        let status = report::status::<Core>(&core, &applied, world, Timestamp::UNIX_EPOCH);
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == kind);
        found.map(|condition| format!("{} {}", condition.status, condition.reason))
    };
    let well = Health {
        workloads: 1,
        definitions: 1,
        ..Health::default()
    };
    world.health = Some(Ok(well.clone()));
    assert_eq!(told(&world, READY).unwrap(), "True DeploymentAvailable");
    assert_eq!(health_look(&world), Duration::from_mins(1));
    world.told_until = Some(Duration::from_hours(1));
    assert_eq!(health_look(&world), Duration::from_hours(1));
    let mut busy = well.clone();
    busy.webhooks.again = Some(Duration::from_secs(5));
    world.health = Some(Ok(busy));
    assert_eq!(told(&world, READY).unwrap(), "True DeploymentAvailable");
    assert_eq!(health_look(&world), Duration::from_secs(5));
    let now = Timestamp::UNIX_EPOCH;
    for (renewed_from, expected) in [(None, 60), (Some(600), 60), (Some(20), 20), (Some(-5), 1)] {
        let renewed_from = renewed_from.map(|minutes: i64| now + minutes.minutes());
        assert_eq!(told_until(renewed_from, now), Duration::from_mins(expected));
    }
    let silent = Verdict {
        answering: 3,
        silent: vec!["Service a/b does not answer".to_owned()],
        ..Verdict::default()
    };
    world.health = Some(Ok(Health {
        webhooks: silent,
        ..well.clone()
    }));
    assert_eq!(told(&world, READY).unwrap(), "False WebhookUnavailable");
    assert_eq!(health_look(&world), Duration::from_secs(5));
    assert_eq!(
        told(&world, condition::PROVIDER_INSTALLED).unwrap(),
        "True ProviderInstalled"
    );
    assert_eq!(
        told(&world, condition::PREFLIGHT_CHECK_PASSED).unwrap(),
        "True PreflightChecksPassed"
    );
    for health in [
        Ok(Health {
            waits: vec!["Deployment a/b: 0 of 1".to_owned()],
            ..well
        }),
        Ok(Health::default()),
        Err("no answer".to_owned()),
    ] {
        world.health = Some(health);
        assert_eq!(
            told(&world, READY).unwrap(),
            "False NoDeploymentAvailableConditionReason"
        );
        assert_eq!(told(&world, STALLED), None);
    }
    world.runs[0].status.as_mut().unwrap().phase = RunPhase::Failed;
    assert_eq!(told(&world, READY).unwrap(), "False InstallFailed");
    assert_eq!(told(&world, STALLED).unwrap(), "True InstallFailed");
    assert_eq!(Operation::Install.name(), world.runs[0].spec.operation);
}

#[test]
fn ready_is_false_by_the_reason_that_nothing_goes_on() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let told = |core: &CoreProvider, world: &Observed| {
        let applied = Applied::of(decide(core, world), world.runs.last().cloned());
        let status = report::status::<Core>(core, &applied, world, Timestamp::UNIX_EPOCH);
        let found = status.conditions.iter();
        let told = found.map(|one| {
            assert!(!one.message.is_empty(), "{one:?}");
            (one.type_.clone(), format!("{} {}", one.status, one.reason))
        });
        told.collect::<std::collections::BTreeMap<_, _>>()
    };
    let first = decide(&core, &world);
    world.runs = vec![run(&core, &first, RunPhase::Succeeded)];
    world.health = Some(Ok(Health {
        workloads: 1,
        ..Health::default()
    }));
    assert_eq!(told(&core, &world)[READY], "True DeploymentAvailable");

    // What runs is well, and is not what is wanted.
    installed(&mut core, "v1.13.4");
    core.spec.version = Some("v1.12.0".to_owned());
    world.among = crate::check::among(&core, &[], None);
    let downgrade = "False UnsupportedProviderDowngradeReason";
    assert_eq!(told(&core, &world)[READY], downgrade);
    let preflight = condition::PREFLIGHT_CHECK_PASSED;
    assert_eq!(told(&core, &world)[preflight], downgrade);

    core.spec.version = Some("v1.14.0".to_owned());
    world.among = Ok(None);
    world.source = Err(Missing::Nothing {
        namespace: "capi-system".to_owned(),
        labels: "a=b".to_owned(),
    });
    assert_eq!(told(&core, &world)[READY], "False ComponentsFetchError");
    world.fetch = fetch::Wanted::of(&core, fetch::Reach::Known);
    assert_eq!(told(&core, &world)[READY], "False ComponentsFetched");

    world.source = observed("v1.14.0").source;
    let mut upgrade = run(&core, &decide(&core, &world), RunPhase::Failed);
    let upgraded = condition::PROVIDER_UPGRADED;
    world.runs.push(upgrade.clone());
    assert_eq!(told(&core, &world)[READY], "False InstallFailed");
    assert_eq!(
        told(&core, &world)[upgraded],
        "False ComponentsUpgradeError"
    );
    let unfit = "False ComponentsCustomizationError";
    let code = "ComponentsCustomizationError";
    let failure = runs::calls::config(code, "it names boss", "mend it");
    upgrade.status.as_mut().unwrap().failure = Some(failure);
    world.runs[1] = upgrade;
    assert_eq!(told(&core, &world)[READY], unfit);
    assert_eq!(told(&core, &world)[upgraded], unfit);
}

#[test]
fn variables_without_values_are_named_all_at_once() {
    let core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let mut failed = run(&core, &decide(&core, &world), RunPhase::Failed);
    failed.status.as_mut().unwrap().failure = Some(crate::render::tests::unset());
    world.runs = vec![failed];
    let applied = Applied::of(decide(&core, &world), world.runs.last().cloned());
    let status = report::status::<Core>(&core, &applied, &world, Timestamp::UNIX_EPOCH);
    for kind in [READY, condition::PROVIDER_INSTALLED] {
        let mut found = status.conditions.iter();
        let message = &found.find(|one| one.type_ == kind).unwrap().message;
        for said in ["REGION", "TOKEN", "spec.configSecret"] {
            assert!(message.contains(said), "{kind}: {message}");
        }
    }
}

#[test]
fn what_another_operator_installed_is_taken_over() {
    let mut core = core("v1.13.4");
    installed(&mut core, "v1.13.4");
    let mut world = observed("v1.13.4");
    let Decision::Start(new) = decide(&core, &world) else {
        panic!("nothing is started");
    };
    assert_eq!(new.operation, Operation::Install);
    let reason = new.plan.reason.unwrap();
    assert!(
        reason.contains("v1.13.4 is installed, and not by Windlass"),
        "{reason}"
    );
    world.source = observed("v1.14.0").source;
    let upgrade = decide(&core, &world);
    assert_eq!(short(&upgrade), "start cluster-api-upgrade-1");
}

#[test]
fn a_provider_is_handed_over_without_asking_those_who_need_it() {
    let mut core = core("v1.13.4");
    let mut world = observed("v1.13.4");
    let first = decide(&core, &world);
    world.runs = vec![run(&core, &first, RunPhase::Succeeded)];
    world.dependents = Ok(vec!["Cluster default/one".to_owned()]);
    core.meta_mut().deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(
        short(&decide(&core, &world)),
        "refuse for Cluster default/one"
    );
    let keep = |core: &mut CoreProvider, value: &str| {
        core.annotations_mut()
            .insert(crate::names::KEEP.to_owned(), value.to_owned());
    };
    keep(&mut core, "false");
    assert_eq!(
        short(&decide(&core, &world)),
        "refuse for Cluster default/one"
    );
    keep(&mut core, "true");
    let release = decide(&core, &world);
    assert_eq!(short(&release), "start cluster-api-release-2");
    let Decision::Start(new) = &release else {
        panic!("nothing is started");
    };
    let steps: Vec<_> = new.plan.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(steps, ["release/objects"], "nothing is deleted");
    world.runs.push(run(&core, &release, RunPhase::Running));
    assert_eq!(
        short(&decide(&core, &world)),
        "follow cluster-api-release-2"
    );
    world.runs[1].status.as_mut().unwrap().phase = RunPhase::Succeeded;
    assert_eq!(short(&decide(&core, &world)), "forget");

    // A deletion that has begun gives way.
    world.runs.pop();
    world.dependents = Ok(Vec::new());
    core.annotations_mut().clear();
    let deletion = decide(&core, &world);
    world.runs.push(run(&core, &deletion, RunPhase::Running));
    keep(&mut core, "true");
    assert_eq!(short(&decide(&core, &world)), "cancel cluster-api-delete-2");
    world.runs[1].status.as_mut().unwrap().phase = RunPhase::Cancelled;
    assert_eq!(short(&decide(&core, &world)), "start cluster-api-release-3");

    // What another operator installed has it as its owner.
    installed(&mut core, "v1.13.4");
    assert_eq!(
        short(&decide(&core, &observed("v1.13.4"))),
        "start cluster-api-release-1"
    );
}
