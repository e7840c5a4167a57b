//! What was answered, and when it is asked again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use clusterctl::Provider;
use controller::backoff::jittered;
use kube::Client;

use super::{Heard, Verdict, ask, read};
use crate::{health::Found, rights};

/// How long an answer stands while nothing changes that it depends on: a network's policy is not seen from here.
const STANDS: Duration = Duration::from_hours(1);
/// How long until it is asked again what got no answer; it doubles.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest that becomes where a webhook is silent: it may only be busy, and its provider is not Ready meanwhile.
const SILENT: Duration = Duration::from_secs(30);
/// And where the API could not be asked, or may not be: that keeps nobody from working.
const UNASKED: Duration = Duration::from_mins(5);

/// What the webhooks of providers answered, by provider. They are asked again when their configurations, their definitions, the endpoints
/// of their Services or the provider's workloads have changed; after growing pauses where an answer is missing; and once an hour.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    mark: String,
    verdict: Verdict,
    asked: Instant,
    /// When it is asked again though nothing has changed.
    pause: Duration,
    /// How often in a row somebody did not answer.
    in_vain: u32,
}

impl Memory {
    /// How the webhooks of a provider are, which has its namespace there. Whoever has to be asked is.
    pub async fn look(
        &self,
        there: &Client,
        (key, namespace): (&str, &str),
        provider: &Provider,
        found: &Found,
    ) -> Verdict {
        let seen = match read(there, found, provider).await {
            Ok(seen) => seen,
            Err(error) => {
                let why = rights::told(&error, provider);
                let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
                return Verdict {
                    again: (!is_forbidden).then_some(PAUSE),
                    unknown: Some(format!("whether its webhooks answer is not known: {why}")),
                    ..Verdict::default()
                };
            }
        };
        if seen.webhooks.is_empty() {
            self.forget(key);
            return Verdict::default();
        }
        if let Some(verdict) = self.stands(key, &seen.mark) {
            return verdict;
        }
        let heard = ask(there, namespace, &seen.webhooks, &found.definitions).await;
        self.keep(
            key,
            seen.mark,
            &heard,
            heard.verdict(&seen.webhooks, provider),
        )
    }

    /// What is known of a provider goes with it.
    pub fn forget(&self, key: &str) {
        self.all().remove(key);
    }

    fn stands(&self, key: &str, mark: &str) -> Option<Verdict> {
        let all = self.all();
        let kept = all.get(key)?;
        kept.stands(mark, Instant::now())
            .then(|| kept.verdict.clone())
    }

    fn keep(&self, key: &str, mark: String, heard: &Heard, mut verdict: Verdict) -> Verdict {
        let mut all = self.all();
        // What is another one now is not made to wait for how long the one before was silent.
        let before = all.get(key).filter(|kept| kept.mark == mark);
        let before = before.map_or(0, |kept| kept.in_vain);
        let (in_vain, longest) = if !heard.silent.is_empty() {
            (before.saturating_add(1), SILENT)
        } else if heard.refused.is_some() || (heard.busy.is_some() && verdict.unknown.is_some()) {
            (before.saturating_add(1), UNASKED)
        } else {
            (0, STANDS)
        };
        let pause = pause(in_vain, longest);
        verdict.again = (in_vain > 0).then_some(pause);
        let kept = Kept {
            mark,
            verdict: verdict.clone(),
            asked: Instant::now(),
            pause,
            in_vain,
        };
        all.insert(key.to_owned(), kept);
        verdict
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn stands(&self, mark: &str, now: Instant) -> bool {
        self.mark == mark && now.saturating_duration_since(self.asked) < self.pause
    }
}

fn pause(in_vain: u32, longest: Duration) -> Duration {
    match in_vain.checked_sub(1) {
        None => jittered(longest),
        Some(again) => {
            let doubled = PAUSE.saturating_mul(2_u32.saturating_pow(again));
            doubled.min(longest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stands_for_an_hour_unless_something_changes_and_silence_for_moments() {
        let kept = |in_vain, longest| Kept {
            mark: "a".to_owned(),
            verdict: Verdict::default(),
            asked: Instant::now(),
            pause: pause(in_vain, longest),
            in_vain,
        };
        let after = |kept: &Kept, mark: &str, seconds| {
            kept.stands(mark, kept.asked + Duration::from_secs(seconds))
        };
        let answered = kept(0, STANDS);
        assert!(after(&answered, "a", 44 * 60));
        assert!(!after(&answered, "a", 76 * 60));
        assert!(!after(&answered, "b", 1), "something has changed");
        for (in_vain, longest, seconds) in [
            (1, SILENT, 5),
            (2, SILENT, 10),
            (3, SILENT, 20),
            (4, SILENT, 30),
            (u32::MAX, SILENT, 30),
            (4, UNASKED, 40),
            (7, UNASKED, 300),
            (u32::MAX, UNASKED, 300),
        ] {
            let silent = kept(in_vain, longest);
            assert!(after(&silent, "a", seconds - 1), "{in_vain}");
            assert!(!after(&silent, "a", seconds), "{in_vain}");
        }
    }
}
