//! A `ProviderSet` takes all providers to a newer patch: not before its window opens, core first, one after the other, and nobody notices.
//! Nor does anybody notice one that does not start, from which it goes back by itself.

use std::time::SystemTime;

use e2e::{Management, PROVIDERS, condition, is_true, wait_until};
use serde_json::{Value, json};

use super::{Deaths, LIMIT, get, nobody_noticed, serving, upgraded_once, upgrades};

/// A window that is closed: it opens on a day that most years do not have.
const CLOSED: &str = "0 0 29 2 *";

pub(super) fn takes_all_to_a_newer_patch(management: &Management, tell: &dyn Fn(&str)) {
    let [_, newest] = Management::VERSIONS;
    let [core, ..] = PROVIDERS;
    let upgraded = upgrades(management, core).len();
    declare(management, CLOSED);
    management.preload_patched().unwrap();
    // The releases come one after the other, and with each the plan is another.
    let expected = PROVIDERS.map(|provider| {
        let label = provider.label();
        json!([label, newest, Management::PATCHED])
    });
    wait_until("the set to wait for its window", LIMIT, || {
        let set = set(management)?;
        let upgrades = set["status"]["plan"]["upgrades"].as_array();
        let planned = upgrades.into_iter().flatten();
        let planned = planned.map(|one| json!([one["provider"], one["from"], one["to"]]));
        let is_planned = planned.collect::<Vec<_>>() == expected;
        Ok((is_planned && reason(&set) == "WaitingForWindow").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {:#}", set(management).unwrap()));
    for provider in PROVIDERS {
        let object = get(management, provider).unwrap();
        assert_eq!(object["spec"]["version"], newest, "the window is closed");
    }
    tell("a set waits for its window");

    let calls = management.calls();
    let deaths = Deaths::from_now_on(management).unwrap();
    declare(management, &open());
    wait_until("the set to be through", LIMIT * 2, || {
        deaths.kill(management)?;
        let set = self::set(management)?;
        let plan = &set["status"]["plan"];
        assert!(!is_true(&set, "Stalled"), "{set:#}");
        Ok((plan["phase"] == "Done" && reason(&set) == "UpToDate").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {:#}", set(management).unwrap()));
    for provider in PROVIDERS {
        management.installed(provider, Management::PATCHED).unwrap();
    }
    management.old_pods_gone().unwrap();
    nobody_noticed(&calls.end().unwrap());
    tell("the set has upgraded all four");
    upgraded_once(management, &deaths, upgraded + 1);
    one_after_the_other(management);
    assert_eq!(
        self::set(management).unwrap()["status"]["plan"]["done"],
        "4/4"
    );
}

/// A release of core whose program does not start is taken, and given up: core has the version again that it had, whose pods never went.
pub(super) fn goes_back_from_what_does_not_start(management: &Management, tell: &dyn Fn(&str)) {
    let [core, ..] = PROVIDERS;
    let before = serving(management, core);
    let calls = management.calls();
    management.preload_broken().unwrap();
    wait_until("the set to have gone back", LIMIT, || {
        let set = set(management)?;
        Ok((is_true(&set, "Stalled") && reason(&set) == "WentBack").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error}: {:#}", set(management).unwrap()));
    let set = set(management).unwrap();
    let upgrades_of_set = set["status"]["plan"]["upgrades"].as_array().unwrap();
    let went_back = json!({
        "provider": core.label(), "namespace": core.namespace,
        "from": Management::PATCHED, "to": Management::BROKEN, "state": "WentBack",
    });
    assert_eq!(*upgrades_of_set, [went_back], "{set:#}");
    let given_up = upgrades(management, core)
        .into_iter()
        .find(|run| run["spec"]["plan"]["inputs"]["version"] == Management::BROKEN)
        .unwrap();
    let failure = &given_up["status"]["failure"];
    assert_eq!(failure["code"], "NotReady", "{given_up:#}");
    let why = failure["message"].as_str().unwrap();
    assert!(why.contains("progressDeadlineSeconds"), "{why}");
    let told = ["get", "events", "--output=name"];
    let told = [&told[..], &["--field-selector=reason=WentBack"]].concat();
    let told = management.kubectl(&[&["--namespace", core.namespace], &told[..]].concat());
    assert_ne!(told.unwrap().trim(), "", "an Event says so");

    management.installed(core, Management::PATCHED).unwrap();
    management.old_pods_gone().unwrap();
    nobody_noticed(&calls.end().unwrap());
    assert_eq!(serving(management, core), before, "they serve on");
    tell("the set has gone back from what does not start");
}

/// A window that has opened within the last hour, each day anew.
fn open() -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let hour = now.as_secs() / 3600 % 24;
    format!("0 {hour} * * *")
}

fn declare(management: &Management, schedule: &str) {
    let [core, ..] = PROVIDERS;
    let windows = json!([{"schedule": schedule, "duration": "23h"}]);
    let set = json!({
        "apiVersion": "providers.windlass.dev/v1alpha1", "kind": "ProviderSet",
        "metadata": {"name": "main", "namespace": core.namespace},
        "spec": {
            "upgrade": {"patch": {"auto": true}}, "maintenance": {"windows": windows, "onWindowEnd": "Pause"},
        },
    });
    management.apply(&set).unwrap();
}

fn set(management: &Management) -> anyhow::Result<Value> {
    let [core, ..] = PROVIDERS;
    let get = [
        "get",
        "providersets.providers.windlass.dev",
        "main",
        "--output=json",
    ];
    let object = management.kubectl(&[&["--namespace", core.namespace], &get[..]].concat())?;
    Ok(serde_json::from_str(&object)?)
}

/// Why it is ready, or not.
fn reason(set: &Value) -> &str {
    let ready = condition(set, "Ready").unwrap_or(&Value::Null);
    ready["reason"].as_str().unwrap_or_default()
}

/// No upgrade was begun before the one before had ended, core first.
fn one_after_the_other(management: &Management) {
    let mut before = String::new();
    for provider in PROVIDERS {
        let upgrade = upgrades(management, provider).pop().unwrap();
        // Of one form, to the second: they compare as texts.
        let second = |time: &Value| time.as_str().unwrap()[..19].to_owned();
        let began = second(&upgrade["metadata"]["creationTimestamp"]);
        assert!(
            before <= began,
            "{}: {before} {upgrade:#}",
            provider.label()
        );
        before = second(&upgrade["status"]["finishedAt"]);
    }
}
