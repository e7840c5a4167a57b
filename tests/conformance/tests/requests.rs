//! Every scenario on the embedded API, in this process and over TLS, and on two real ones. Root is needed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use conformance::{
    compare::differences,
    deviations::deviations,
    play::{self, Scenario},
    target::Target,
};
use futures::{StreamExt, TryStreamExt, stream};
use lab::Kubernetes;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_api_answers_as_real_ones_do() -> Result<()> {
    let scenarios = play::scenarios()?;
    let (ours, tls, oldest, newest) = tokio::try_join!(
        play_all(Target::in_process(), &scenarios),
        play_all(Target::over_tls(), &scenarios),
        play_all(Target::real(Kubernetes::Oldest), &scenarios),
        play_all(Target::real(Kubernetes::Newest), &scenarios),
    )?;
    let allowed = deviations()?;
    let mut different = BTreeSet::new();
    let mut report = String::new();
    for (name, ours) in &ours {
        let over_tls = differences(&tls[name], ours);
        if !over_tls.is_empty() {
            report += &format!(
                "{name}: over TLS (ours) and in-process (real)\n  {}\n",
                over_tls.join("\n  ")
            );
        }
        // Where the real ones differ from each other, either is right.
        let nearest = [&oldest[name], &newest[name]]
            .map(|real| differences(ours, real))
            .into_iter()
            .min_by_key(Vec::len)
            .unwrap_or_default();
        if nearest.is_empty() {
            continue;
        }
        if !allowed.contains_key(name) {
            report += &format!("{name}\n  {}\n", nearest.join("\n  "));
        }
        different.insert(name);
    }
    let gone: Vec<_> = allowed
        .keys()
        .filter(|name| !different.contains(name))
        .collect();
    println!("{} requests, {} differ", ours.len(), different.len());
    ensure!(
        report.is_empty(),
        "different and not in deviations.json:\n{report}"
    );
    ensure!(
        gone.is_empty(),
        "in deviations.json, but not different any more: {gone:#?}"
    );
    Ok(())
}

/// Each answer by its scenario, its number and its step. Scenarios have a namespace each, so some run at a time.
async fn play_all(
    target: impl Future<Output = Result<Target>>,
    scenarios: &[Scenario],
) -> Result<BTreeMap<String, Value>> {
    let target = target.await?;
    let (alone, others): (Vec<_>, Vec<_>) = scenarios.iter().partition(|scenario| scenario.alone);
    let mut answers = BTreeMap::new();
    for (scenarios, at_once) in [(others, 4), (alone, 1)] {
        let answered: Vec<Vec<(String, Value)>> = stream::iter(scenarios)
            .map(|scenario| named_answers(&target, scenario))
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
