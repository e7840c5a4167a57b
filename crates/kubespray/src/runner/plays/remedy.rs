//! What is done on hosts about a failure by itself, between an attempt and the next one, where the plan allows it.
//!
//! What may be done about which failure, how, and what an answer means is [`ansible::failure::remedy`]'s. What
//! removes something is done on the host alone that the failure's code comes from: others that failed beside it may have failed otherwise. A host gets each remedy once for a step: the
//! journal says which has had it. A runner that is killed while one is at work leaves no word of it, and the next one
//! does it again, which is harmless by what a remedy is.

use ansible::{
    failure::remedy::{self, Answer},
    probe,
};
use api::{
    HostName,
    remedy::Remedy,
    run::{Applied, Failure, Step},
    text::plain,
};
use futures::{StreamExt, stream};
use workflow::{StepContext, StepProgress};

use crate::runner::{
    executor::{KubesprayExecutor, stopped},
    prepare,
};

/// Where more hosts have failed, nothing is done: the trouble is none of a host.
const MOST: usize = 50;
/// How often a step is tried again because a remedy helped, until a person has it tried again.
const EARNED: usize = 3;
/// How many at a time.
const AT_A_TIME: usize = 16;
/// How many hosts a message names.
const NAMED: usize = 5;

/// What was done about the failure of a step; `before` is what was done earlier.
pub(super) async fn applied(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    failure: &Failure,
    before: &[Applied],
) -> Vec<Applied> {
    let mut remedies = Vec::new();
    for (remedy, hosts) in due(&executor.work.inputs.remedies, failure, before) {
        let stopped = stopped(context);
        let done = tokio::select! {
            done = apply(executor, step, context, remedy, &hosts) => done,
            () = stopped => break,
        };
        let helped = done.helped;
        remedies.push(done);
        if helped {
            break;
        }
    }
    remedies
}

/// What may be done about a failure, in order, each with the hosts that have not had it.
fn due(allowed: &[Remedy], failure: &Failure, before: &[Applied]) -> Vec<(Remedy, Vec<HostName>)> {
    let earned = before.iter().filter(|applied| applied.helped).count();
    if failure.targets.len() > MOST || earned >= EARNED {
        return Vec::new();
    }
    let allowed = remedy::of(&failure.code)
        .iter()
        .filter(|remedy| allowed.contains(remedy));
    let with_hosts = allowed.map(|remedy| {
        let name = remedy.to_string();
        let had = before.iter().filter(|applied| applied.name == name);
        let had: Vec<_> = had.flat_map(|applied| &applied.targets).collect();
        // A lock that nobody holds is waited for in no time, and a cache is not to go for another trouble.
        let most = match remedy {
            Remedy::WaitForPackageLock => MOST,
            Remedy::ClearCaches | Remedy::PruneImages => 1,
        };
        let targets = failure.targets.iter().take(most);
        let fresh = targets.filter(|target| !had.contains(target));
        let hosts = fresh.filter_map(|target| target.as_str().parse().ok());
        (*remedy, hosts.collect::<Vec<_>>())
    });
    with_hosts.filter(|(_, hosts)| !hosts.is_empty()).collect()
}

async fn apply(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    remedy: Remedy,
    hosts: &[HostName],
) -> Applied {
    executor.proven().await;
    let names: Vec<_> = hosts.iter().take(NAMED).map(HostName::as_str).collect();
    let progress = StepProgress {
        activity: Some(format!("{remedy} on {}", names.join(", "))),
        ..StepProgress::default()
    };
    // Nobody to tell is seen when the end is told.
    let _ = context.reporter.progress(&step.id, progress).await;
    let answers = match prepare::options(executor).await {
        Ok(options) => {
            let script = remedy::script(remedy);
            let targets = prepare::targets(executor, hosts);
            let asked = stream::iter(targets).map(|target| {
                let (options, script) = (options.clone(), script.clone());
                async move {
                    let said = probe::run(&target, &options, &script, remedy::limit(remedy)).await;
                    let answer = said.map_or_else(
                        |unusable| Answer {
                            helped: false,
                            said: unusable.message(),
                        },
                        |said| remedy::judged(remedy, &said),
                    );
                    (target.name, answer)
                }
            });
            told(&asked.buffered(AT_A_TIME).collect::<Vec<_>>().await)
        }
        Err(failure) => Answer {
            helped: false,
            said: failure.message,
        },
    };
    Applied {
        name: remedy.to_string(),
        targets: hosts.iter().map(Into::into).collect(),
        helped: answers.helped,
        said: plain(&answers.said, 1024),
    }
}

/// What came of it on all hosts. One that it did not help on would fail again: where that is so, nothing is gained.
fn told(answers: &[(HostName, Answer)]) -> Answer {
    let told = answers.iter().take(NAMED);
    let mut told: Vec<_> = told
        .map(|(host, answer)| format!("{host}: {}", answer.said))
        .collect();
    let more = answers.len().saturating_sub(NAMED);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    Answer {
        helped: !answers.is_empty() && answers.iter().all(|(_, answer)| answer.helped),
        said: told.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use api::run::FailureClass;

    use super::*;

    fn failed(code: &str) -> Failure {
        Failure {
            class: FailureClass::External,
            code: code.to_owned(),
            message: "no".to_owned(),
            remedy: None,
            targets: ["a", "b"].map(|name| name.parse().unwrap()).into(),
        }
    }

    #[test]
    fn only_what_is_allowed_is_done_and_once_on_each_host() {
        let all = Remedy::ALL;
        let had = |name: &str, helped| Applied {
            name: name.to_owned(),
            targets: vec!["a".parse().unwrap()],
            helped,
            said: String::new(),
        };
        let wait = had("WaitForPackageLock", true);
        let clear = had("ClearCaches", false);
        for (allowed, code, before, expected) in [
            (
                &all[..],
                "PackageManagerLocked",
                vec![],
                "WaitForPackageLock: a b",
            ),
            (&[], "PackageManagerLocked", vec![], ""),
            (&all[1..], "PackageManagerLocked", vec![], ""),
            (
                &all[..],
                "PackageManagerLocked",
                vec![wait.clone()],
                "WaitForPackageLock: b",
            ),
            (
                &all[..],
                "DiskFull",
                vec![wait],
                "ClearCaches: a, PruneImages: a",
            ),
            (&all[..2], "DiskFull", vec![clear.clone()], ""),
            (&all[2..], "DiskFull", vec![clear], "PruneImages: a"),
            (&all[..], "InodesFull", vec![], ""),
        ] {
            let due = due(allowed, &failed(code), &before);
            let due: Vec<_> = due
                .iter()
                .map(|(remedy, hosts)| {
                    let hosts: Vec<_> = hosts.iter().map(HostName::as_str).collect();
                    format!("{remedy}: {}", hosts.join(" "))
                })
                .collect();
            assert_eq!(due.join(", "), expected, "{allowed:?} {code} {before:?}");
        }
    }

    #[test]
    fn nothing_is_done_where_many_have_failed_or_it_helped_often_enough() {
        let all = &Remedy::ALL[..];
        let of = |hosts: usize| Failure {
            targets: (0..hosts)
                .map(|host| format!("h{host}").parse().unwrap())
                .collect(),
            ..failed("DiskFull")
        };
        assert_eq!(due(all, &of(MOST), &[]).len(), 2);
        assert!(due(all, &of(MOST + 1), &[]).is_empty());
        assert!(due(all, &of(0), &[]).is_empty());

        let had = |helped| Applied {
            name: "ClearCaches".to_owned(),
            targets: vec!["z".parse().unwrap()],
            helped,
            said: String::new(),
        };
        let helped = vec![had(true); EARNED];
        assert!(due(all, &of(1), &helped).is_empty());
        assert!(!due(all, &of(1), &helped[1..]).is_empty());
        assert!(!due(all, &of(1), &vec![had(false); EARNED]).is_empty());
    }

    #[test]
    fn it_helped_where_it_helped_on_each_host() {
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let answer = |helped, said: &str| Answer {
            helped,
            said: said.to_owned(),
        };
        let both = [
            (host("a"), answer(true, "1 MiB freed on /")),
            (host("b"), answer(false, "nothing")),
        ];
        let all = told(&both);
        assert_eq!(all.said, "a: 1 MiB freed on /; b: nothing");
        assert!(!all.helped);
        assert!(told(&both[..1]).helped);
        assert!(!told(&[]).helped);
    }
}
