//! From a policy and the clusters that change to a run: who goes when, and against what each counts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Duration, Threshold,
    inventory::{Rollout, RolloutMember, RolloutRun, RolloutSpec, ValuePath, Wave},
};
use inventory::Rule;
use kube::ResourceExt;

use super::engine::{CANARY, Policy};

/// The wave of those that no other names.
pub const REST: &str = "rest";
/// The level of the budget where none is given.
const USUAL_LEVEL: &str = "site";
/// How long a cluster is watched where nothing is said.
const SOAK: u64 = 60;
/// How long a cluster may take where nothing is said: an upgrade of fifty hosts, one after the other.
const DEADLINE: u64 = 4 * 3600;

/// A cluster that changes.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The objects that it belongs to: level, then name.
    pub levels: BTreeMap<String, String>,
    /// Those that it belonged to when it became what it is.
    pub before: BTreeMap<String, String>,
    /// What it becomes.
    pub revision: String,
}

/// What a spec comes to, with its defaults.
pub fn policy(spec: &RolloutSpec) -> Policy {
    let seconds = |given: Option<Duration>, usual| given.map_or(usual, Duration::seconds);
    Policy {
        parallel: usize::from(spec.parallel.unwrap_or(1).max(1)),
        budgets: budgets(spec),
        soak: seconds(spec.soak, SOAK),
        deadline: seconds(spec.deadline, DEADLINE),
        gates: spec.gates.clone(),
        approval: spec.approval.unwrap_or_default(),
        failures: spec.failures.unwrap_or(Threshold::Count(0)),
    }
}

fn budgets(spec: &RolloutSpec) -> BTreeMap<String, usize> {
    if spec.budgets.is_empty() {
        return [(USUAL_LEVEL.to_owned(), 1)].into();
    }
    let budgets = spec.budgets.iter();
    budgets
        .map(|budget| (budget.level.clone(), usize::from(budget.maximum.max(1))))
        .collect()
}

/// The levels that a policy speaks of and no cluster has, each with the field that does. Without any clusters nothing is known of levels.
pub fn unknown_levels(
    spec: &RolloutSpec,
    known: &BTreeSet<String>,
) -> impl Iterator<Item = (ValuePath, Rule)> {
    let field = |list, place| spec_field(list).index(place).key("level");
    let waves = spec.waves.iter().enumerate();
    let waves =
        waves.filter_map(move |(place, wave)| Some((field("waves", place), wave.level.as_ref()?)));
    let budgets = spec.budgets.iter().enumerate();
    let budgets = budgets.map(move |(place, budget)| (field("budgets", place), &budget.level));
    let levels = waves.chain(budgets);
    let unknown = levels.filter(|(_, level)| !known.is_empty() && !known.contains(*level));
    unknown.map(|(path, level)| {
        let (level, known) = (level.clone(), known.iter().cloned().collect());
        (path, Rule::NoSuchLevel { level, known })
    })
}

/// A field of a Rollout's spec.
pub(super) fn spec_field(key: &str) -> ValuePath {
    ValuePath::default().key("spec").key(key)
}

/// What a cluster counts against.
pub fn domains(policy: &Policy, levels: &BTreeMap<String, String>) -> Vec<String> {
    let named = policy.budgets.keys();
    named
        .filter_map(|level| Some(format!("{level}/{}", levels.get(level)?)))
        .collect()
}

/// The run of these clusters, in waves. Nothing of it has begun.
pub fn run(id: &str, spec: &RolloutSpec, mut candidates: Vec<Candidate>) -> RolloutRun {
    let policy = policy(spec);
    let place = |candidate: &Candidate| {
        let mut waves = spec.waves.iter();
        let named = waves.position(|wave| is_of(wave, candidate));
        named.unwrap_or(spec.waves.len())
    };
    candidates.sort_by_cached_key(|candidate| (place(candidate), candidate.name.clone()));
    let canary = spec.canary.clone().unwrap_or_default();
    // An edit that reaches none of the named ones is to be tried somewhere first all the same.
    let is_named = |candidate: &Candidate| canary.clusters.contains(&candidate.name);
    let count = if candidates.iter().any(is_named) {
        0
    } else {
        usize::from(canary.count.unwrap_or(1))
    };
    let members: Vec<_> = candidates
        .iter()
        .enumerate()
        .map(|(number, candidate)| {
            let is_canary = number < count || is_named(candidate);
            let wave = spec.waves.get(place(candidate));
            let wave = wave.map_or(REST, |wave| wave.name.as_str());
            let mut counted = domains(&policy, &candidate.levels);
            let was = domains(&policy, &candidate.before).into_iter();
            let was: Vec<_> = was.filter(|domain| !counted.contains(domain)).collect();
            counted.extend(was);
            RolloutMember {
                name: candidate.name.clone(),
                wave: if is_canary { CANARY } else { wave }.to_owned(),
                domains: counted,
                revision: candidate.revision.clone(),
                ..RolloutMember::default()
            }
        })
        .collect();
    let names = std::iter::once(CANARY)
        .chain(spec.waves.iter().map(|wave| wave.name.as_str()))
        .chain([REST]);
    let mut waves: Vec<String> = Vec::new();
    let mut clusters = Vec::new();
    for name in names {
        let of_wave = members.iter().filter(|member| member.wave == name);
        let before = clusters.len();
        if !waves.iter().any(|known| known == name) {
            clusters.extend(of_wave.cloned());
        }
        if clusters.len() > before {
            waves.push(name.to_owned());
        }
    }
    RolloutRun {
        id: id.to_owned(),
        waves,
        clusters,
        ..RolloutRun::default()
    }
}

/// The roll-out that a cluster with these labels belongs to: of those that select it the oldest.
pub fn owner<'a>(
    rollouts: impl Iterator<Item = &'a Rollout>,
    labels: &BTreeMap<String, String>,
) -> Option<&'a Rollout> {
    let is_meant = |rollout: &&Rollout| {
        let selector = rollout.spec.selector.as_ref();
        rollout.metadata.deletion_timestamp.is_none()
            && selector.is_none_or(|selector| selects(selector, labels))
    };
    rollouts.filter(is_meant).min_by_key(|rollout| {
        (
            rollout.creation_timestamp().map(|time| time.0),
            rollout.name_any(),
        )
    })
}

/// Whether labels are those that select.
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

fn is_of(wave: &Wave, candidate: &Candidate) -> bool {
    match (&wave.level, &wave.selector) {
        (Some(level), _) => candidate
            .levels
            .get(level)
            .is_some_and(|object| wave.objects.contains(object)),
        (None, Some(selector)) => selects(selector, &candidate.labels),
        (None, None) => false,
    }
}

/// What a spec names of which there is nothing: a cluster, an object of a level, labels. One line each.
pub fn names_nothing(rollout: &Rollout, all: &[Candidate]) -> Vec<String> {
    let (name, spec) = (rollout.name_any(), &rollout.spec);
    let own = all.iter().filter(|candidate| {
        let selector = spec.selector.as_ref();
        selector.is_none_or(|selector| selects(selector, &candidate.labels))
    });
    let all: Vec<_> = own.collect();
    let selects_none = |selector: &BTreeMap<String, String>| {
        let mut labels = all.iter().map(|candidate| &candidate.labels);
        !labels.any(|labels| selects(selector, labels))
    };
    let mut told = Vec::new();
    let mut tell = |path: String, what: String| {
        told.push(format!(
            "Rollout/{name} {path}: {what}; mend the name, unless it is meant for later"
        ));
    };
    if let Some(selector) = &spec.selector
        && selects_none(selector)
    {
        let what = "no FleetCluster has these labels".to_owned();
        tell("spec.selector".to_owned(), what);
        return told;
    }
    let canaries = spec.canary.iter().flat_map(|canary| &canary.clusters);
    for (place, canary) in canaries.enumerate() {
        if !all.iter().any(|candidate| candidate.name == *canary) {
            tell(
                format!("spec.canary.clusters[{place}]"),
                format!("there is no FleetCluster {canary} that the roll-out is for"),
            );
        }
    }
    for (number, wave) in spec.waves.iter().enumerate() {
        if wave.selector.as_ref().is_some_and(selects_none) {
            tell(
                format!("spec.waves[{number}].selector"),
                "no FleetCluster has these labels".to_owned(),
            );
        }
        let Some(level) = &wave.level else { continue };
        for (place, object) in wave.objects.iter().enumerate() {
            if !all
                .iter()
                .any(|candidate| candidate.levels.get(level) == Some(object))
            {
                tell(
                    format!("spec.waves[{number}].objects[{place}]"),
                    format!("no FleetCluster belongs to the {level} {object}"),
                );
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn candidate(name: &str, site: &str, stage: &str) -> Candidate {
        Candidate {
            name: name.to_owned(),
            labels: [("stage".to_owned(), stage.to_owned())].into(),
            levels: [("site".to_owned(), site.to_owned())].into(),
            before: BTreeMap::new(),
            revision: "r".to_owned(),
        }
    }

    fn order(spec: serde_json::Value) -> String {
        let spec: RolloutSpec = serde_json::from_value(spec).unwrap();
        let candidates = vec![
            candidate("shop", "fra", "prod"),
            candidate("billing", "fra", "test"),
            candidate("wiki", "ber", "prod"),
        ];
        let run = run("id", &spec, candidates);
        let members = run.clusters.iter();
        let members: Vec<_> = members
            .map(|member| {
                format!(
                    "{}:{}@{}",
                    member.wave,
                    member.name,
                    member.domains.join("+")
                )
            })
            .collect();
        format!("{} | {}", run.waves.join(" "), members.join(" "))
    }

    #[test]
    fn waves_are_by_level_or_by_label_and_canaries_first() {
        for (spec, expected) in [
            (
                json!({}),
                "canary rest | canary:billing@site/fra rest:shop@site/fra rest:wiki@site/ber",
            ),
            (
                json!({"canary": {"count": 0}, "waves": [
                    {"name": "test", "selector": {"stage": "test"}},
                    {"name": "ber", "level": "site", "objects": ["ber"]},
                ]}),
                "test ber rest | test:billing@site/fra ber:wiki@site/ber rest:shop@site/fra",
            ),
            (
                json!({"canary": {"clusters": ["wiki"]}, "budgets": [{"level": "rack", "maximum": 1}]}),
                "canary rest | canary:wiki@ rest:billing@ rest:shop@",
            ),
            (
                json!({"canary": {"clusters": ["none-that-changes"]}}),
                "canary rest | canary:billing@site/fra rest:shop@site/fra rest:wiki@site/ber",
            ),
            (
                json!({"waves": [{"name": "ber", "level": "site", "objects": ["ber"]}]}),
                "canary rest | canary:wiki@site/ber rest:billing@site/fra rest:shop@site/fra",
            ),
        ] {
            assert_eq!(order(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn who_is_brought_elsewhere_counts_where_it_was_too() {
        let mut moves = candidate("shop", "fra", "prod");
        moves.before = [("site".to_owned(), "ber".to_owned())].into();
        let run = run("id", &RolloutSpec::default(), vec![moves]);
        assert_eq!(run.clusters[0].domains, ["site/fra", "site/ber"]);
    }

    #[test]
    fn what_names_nothing_is_told() {
        let all = [
            candidate("shop", "fra", "prod"),
            candidate("wiki", "ber", "test"),
        ];
        let told = |spec: serde_json::Value| {
            let spec = serde_json::from_value(spec).unwrap();
            names_nothing(&Rollout::new("all", spec), &all)
        };
        let waves = json!([
            {"name": "one", "level": "site", "objects": ["fra", "muc"]},
            {"name": "two", "selector": {"stage": "tset"}},
            {"name": "three", "selector": {"stage": "test"}},
        ]);
        let canary = json!({"clusters": ["shop", "wikki"]});
        let spec = json!({"canary": canary, "waves": waves});
        assert_eq!(
            told(spec),
            [
                "spec.canary.clusters[1]: there is no FleetCluster wikki that the roll-out is for",
                "spec.waves[0].objects[1]: no FleetCluster belongs to the site muc",
                "spec.waves[1].selector: no FleetCluster has these labels",
            ]
            .map(|told| format!("Rollout/all {told}; mend the name, unless it is meant for later"))
        );
        assert_eq!(told(json!({})), [""; 0]);
        // It is there, and another roll-out's.
        let spec = json!({"selector": {"stage": "prod"}, "canary": {"clusters": ["wiki"]}});
        assert_eq!(
            told(spec),
            [
                "Rollout/all spec.canary.clusters[0]: there is no FleetCluster wiki that the roll-out is for; mend the name, unless it is meant for later"
            ]
        );
        assert_eq!(
            told(json!({"selector": {"stage": "prdo"}})),
            [
                "Rollout/all spec.selector: no FleetCluster has these labels; mend the name, unless it is meant for later"
            ]
        );
    }
}
