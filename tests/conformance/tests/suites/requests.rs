//! Every scenario on the embedded API, in this process and over TLS, and on real ones. Root is needed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use conformance::{
    compare::differences,
    deviations::{answered_as_by_the_oldest, deviations},
    play::{self, Scenario},
    target::Target,
};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use lab::{Extent, Kubernetes};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_api_answers_as_real_ones_do() -> Result<()> {
    let scenarios = play::scenarios()?;
    let versions = Extent::of_this_run().kubernetes().iter();
    let (ours, tls, mut real) = tokio::try_join!(
        play_all(Target::in_process(), &scenarios),
        play_all(Target::over_tls(), &scenarios),
        try_join_all(versions.map(|version| Real::start(*version, &scenarios))),
    )?;
    let expected = Expected::read()?;
    let mut found = Found::compare(&ours, &real, &expected);
    for _ in 0..AGAIN {
        let doubtful: Vec<_> = scenarios
            .iter()
            .filter(|scenario| found.doubts(scenario, &expected))
            .cloned()
            .collect();
        if doubtful.is_empty() {
            break;
        }
        for real in &mut real {
            real.play(&doubtful).await?;
        }
        found = Found::compare(&ours, &real, &expected);
    }
    let mut report: String = found.unexpected.into_values().collect();
    for (name, ours) in &ours {
        let over_tls = differences(&tls[name], ours);
        if !over_tls.is_empty() {
            let lines = over_tls.join("\n  ");
            report += &format!("{name}: over TLS (ours) and in-process (real)\n  {lines}\n");
        }
    }
    let gone: Vec<_> = expected
        .deviations
        .keys()
        .filter(|name| !found.different.contains(*name))
        .collect();
    println!("{} requests, {} differ", ours.len(), found.different.len());
    ensure!(
        report.is_empty(),
        "different and not in deviations.json:\n{report}"
    );
    ensure!(
        gone.is_empty(),
        "in deviations.json, but not different any more: {gone:#?}"
    );
    ensure!(
        found.as_the_oldest.is_subset(&expected.as_the_oldest),
        "like the oldest and not in oldest.json: {:#?}",
        found.as_the_oldest
    );
    Ok(())
}

/// How often a real server is asked again what it has answered otherwise. Its controllers work beside it, and what they have
/// done by then is now this and now that; only what it never answers as ours does is different.
const AGAIN: usize = 2;

/// A real server, and all that it has answered to each step.
struct Real {
    target: Target,
    answers: BTreeMap<String, Vec<Value>>,
}

impl Real {
    async fn start(version: Kubernetes, scenarios: &[Scenario]) -> Result<Self> {
        let mut real = Self {
            target: Target::real(version).await?,
            answers: BTreeMap::new(),
        };
        real.play(scenarios).await?;
        Ok(real)
    }

    async fn play(&mut self, scenarios: &[Scenario]) -> Result<()> {
        for (name, answer) in answers(&self.target, scenarios).await? {
            self.answers.entry(name).or_default().push(answer);
        }
        Ok(())
    }

    /// Where ours differs from the answer that is most like it.
    fn differences(&self, name: &str, ours: &Value) -> Vec<String> {
        let given = self.answers[name].iter();
        let differences = given.map(|real| differences(ours, real));
        differences.min_by_key(Vec::len).unwrap_or_default()
    }
}

/// What may differ.
struct Expected {
    deviations: BTreeMap<String, String>,
    as_the_oldest: BTreeSet<String>,
}

impl Expected {
    fn read() -> Result<Self> {
        Ok(Self {
            deviations: deviations()?,
            as_the_oldest: answered_as_by_the_oldest()?,
        })
    }
}

/// What differs.
#[derive(Default)]
struct Found {
    different: BTreeSet<String>,
    as_the_oldest: BTreeSet<String>,
    /// By the name of the step, for people.
    unexpected: BTreeMap<String, String>,
}

impl Found {
    fn compare(ours: &BTreeMap<String, Value>, real: &[Real], expected: &Expected) -> Self {
        let mut found = Self::default();
        for (name, ours) in ours {
            let mut real: Vec<_> = real
                .iter()
                .map(|real| real.differences(name, ours))
                .collect();
            let newest = real.pop().unwrap_or_default();
            if newest.is_empty() {
                continue;
            }
            // Where the real ones differ from each other, either is right.
            let oldest = real.pop();
            let known = || expected.as_the_oldest.contains(name);
            if oldest.as_ref().map_or_else(known, Vec::is_empty) {
                found.as_the_oldest.insert(name.clone());
                continue;
            }
            found.different.insert(name.clone());
            if !expected.deviations.contains_key(name) {
                let nearest = oldest.into_iter().chain([newest]).min_by_key(Vec::len);
                let lines = nearest.unwrap_or_default().join("\n  ");
                found
                    .unexpected
                    .insert(name.clone(), format!("{name}\n  {lines}\n"));
            }
        }
        found
    }

    /// Whether a step of this scenario differs, though none should.
    fn doubts(&self, scenario: &Scenario, expected: &Expected) -> bool {
        let start = format!("{} ", scenario.scenario);
        let surprising = self.as_the_oldest.difference(&expected.as_the_oldest);
        let mut doubtful = self.unexpected.keys().chain(surprising);
        doubtful.any(|name| name.starts_with(&start))
    }
}

async fn play_all(
    target: impl Future<Output = Result<Target>>,
    scenarios: &[Scenario],
) -> Result<BTreeMap<String, Value>> {
    answers(&target.await?, scenarios).await
}

/// Each answer by its scenario, its number and its step. Scenarios have a namespace each, so some run at a time.
async fn answers(target: &Target, scenarios: &[Scenario]) -> Result<BTreeMap<String, Value>> {
    let (alone, others): (Vec<_>, Vec<_>) = scenarios.iter().partition(|scenario| scenario.alone);
    let mut answers = BTreeMap::new();
    for (scenarios, at_once) in [(others, 4), (alone, 1)] {
        let answered: Vec<Vec<(String, Value)>> = stream::iter(scenarios)
            .map(|scenario| named_answers(target, scenario))
            .buffer_unordered(at_once)
            .try_collect()
            .await?;
        answers.extend(answered.into_iter().flatten());
    }
    Ok(answers)
}

async fn named_answers(target: &Target, scenario: &Scenario) -> Result<Vec<(String, Value)>> {
    let answers = play::play(target, scenario).await?;
    let named = answers.into_iter().enumerate().map(|(at, answer)| {
        let step = answer["step"].as_str().unwrap_or_default();
        (format!("{} {at}: {step}", scenario.scenario), answer)
    });
    Ok(named.collect())
}
