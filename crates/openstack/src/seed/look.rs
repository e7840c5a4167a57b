//! Looks whether Keystone has what a seed names, at rest: nothing is changed by one.
//!
//! A look is remembered for a while, and for longer the longer it took. Passwords are tried by logins, which cost Keystone more than
//! everything else, so each look tries those of a few users, in turn.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{
    Run,
    openstack::{IdentitySeed, SeedLeft},
    run::Failure,
};
use controller::Problem;
use kube::{Client, ResourceExt};
use runs::calls::transient;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::{Inputs, Sort, Wrong, walk::Walk};
use crate::{
    engine::{seed_administrator, seed_failed, seed_password, site::Site},
    health::{Down, Part},
    names,
};

/// The condition that says whether Keystone has something else.
pub const DRIFTED: &str = "Drifted";
/// How old a look may be.
const FRESH: Duration = Duration::from_secs(30);
/// How many times longer than it took it is good at least: looks take a tenth of the time.
const RESTS: u32 = 10;
/// How long a look may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// For how long what nobody asks about any more is kept.
const KEPT: Duration = Duration::from_hours(1);
/// How many passwords a look tries.
const TRIED: usize = 5;
/// How much is told of what is left.
const LEFT: usize = 256;

/// What a look showed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Looked {
    /// What differs, in the words of steps.
    pub differs: Vec<String>,
    /// What cannot be as it is named: a run would fail at it.
    pub refused: Vec<String>,
    /// What is the seed's and no longer named.
    pub left: Vec<SeedLeft>,
}

impl Looked {
    /// What is not as it should be, for people.
    pub fn told(&self) -> Vec<String> {
        let mut told = self.refused.clone();
        if !self.differs.is_empty() {
            told.push(format!("Keystone differs in {}", self.differs.join(", ")));
        }
        told
    }

    /// As a reason of conditions and Events.
    pub const fn reason(&self) -> &'static str {
        if self.refused.is_empty() {
            "Drifted"
        } else {
            "Refused"
        }
    }

    /// What is said where nothing differs.
    pub fn well(&self) -> String {
        let left: Vec<_> = self.left.iter().map(|left| left.what.as_str()).collect();
        let left = match left.as_slice() {
            [] => String::new(),
            left => format!("; no longer named, and there still: {}", left.join(", ")),
        };
        format!("Keystone has all of it{left}")
    }
}

/// What looks showed last.
#[derive(Debug, Default)]
pub struct Looks(Mutex<HashMap<String, Known>>);

#[derive(Clone, Debug)]
struct Known {
    /// The run that made what was looked at, and the generation of the seed.
    of: (Option<String>, Option<i64>),
    asked: Instant,
    took: Duration,
    turn: usize,
    answer: Result<Looked, Down>,
}

impl Looks {
    /// Looks at what a run made, unless that was done a moment ago. `runs` are all of the seed.
    ///
    /// # Errors
    ///
    /// Keystone cannot be asked.
    pub async fn ask(
        &self,
        client: &Client,
        seed: &IdentitySeed,
        by: &Run,
        runs: &[Run],
    ) -> Result<Looked, Down> {
        let uid = seed.uid().unwrap_or_default();
        let of = (by.uid(), seed.metadata.generation);
        let before = self.known().get(&uid).cloned();
        if let Some(known) = &before
            && known.of == of
            && known.asked.elapsed() < FRESH.max(known.took * RESTS)
        {
            return known.answer.clone();
        }
        let turn = before
            .as_ref()
            .map_or(0, |known| known.turn.wrapping_add(1));
        let begun = Instant::now();
        let answer = timeout(PATIENCE, look(client, seed, (by, runs), turn)).await;
        let answer = answer.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            Err(transient("Late", why))
        });
        let attempts = before.and_then(|known| Some(known.answer.err()?.attempts));
        let answer = answer.map_err(|failure| Down {
            part: Part::Keystone,
            why: failure.message,
            attempts: attempts.unwrap_or_default().saturating_add(1),
        });
        let now = Known {
            of,
            asked: Instant::now(),
            took: begun.elapsed(),
            turn,
            answer: answer.clone(),
        };
        let mut known = self.known();
        known.retain(|_, known| known.asked.elapsed() < KEPT);
        known.insert(uid, now);
        answer
    }

    /// A pass that panicked left whole entries.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn look(
    client: &Client,
    seed: &IdentitySeed,
    (by, runs): (&Run, &[Run]),
    turn: usize,
) -> Result<Looked, Failure> {
    let Some(inputs) = inputs(&by.spec.plan.inputs) else {
        let why = format!("run {} does not tell what it made", by.name_any());
        return Err(transient("Unreadable", why));
    };
    let site = Site {
        client: client.clone(),
        namespace: seed.namespace().unwrap_or_default(),
    };
    let cluster = site.cluster().await?;
    let owner = names::owner(&seed.name_any(), &site.namespace, &cluster);
    let mut refused = Vec::new();
    let mut passwords = BTreeMap::new();
    for (place, user) in inputs.users.iter().enumerate() {
        match seed_password(&site, user).await? {
            Ok(password) if is_turn(place, turn, inputs.users.len()) => {
                passwords.insert(place, password);
            }
            Ok(_) => {}
            Err(problem) => refused.push(problem),
        }
    }
    let session = seed_administrator(&site, &inputs).await?;
    let failed = |wrong: Wrong| seed_failed(&wrong);
    let mut walk = Walk::looking(&session, &inputs, &owner, passwords);
    for sort in Sort::ALL {
        walk.go(sort).await.map_err(failed)?;
    }
    let told = seed.status.as_ref().map(|status| status.left.as_slice());
    // What it names now, and not what it named when the run was planned.
    let named = Inputs::of(seed);
    let mut of_left = Walk::looking(&session, &named, &owner, BTreeMap::new());
    let former: Vec<_> = runs
        .iter()
        .filter_map(|run| self::inputs(&run.spec.plan.inputs))
        .collect();
    let left = of_left.left(&former, told.unwrap_or_default()).await;
    let mut left = left.map_err(failed)?;
    left.truncate(LEFT);
    if inputs.prune {
        of_left.remove(&left).await.map_err(failed)?;
    }
    refused.append(&mut walk.refused);
    walk.differs.append(&mut of_left.differs);
    Ok(Looked {
        differs: walk.differs,
        refused: refused.iter().map(Problem::to_string).collect(),
        left,
    })
}

fn inputs(plan: &Map<String, Value>) -> Option<Inputs> {
    serde_json::from_value(Value::Object(plan.clone())).ok()
}

/// Whether the password of the user at that place, of so many, is tried in that look.
fn is_turn(place: usize, turn: usize, of: usize) -> bool {
    let first = turn.wrapping_mul(TRIED) % of.max(1);
    (place + of - first) % of.max(1) < TRIED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_password_has_its_turn_and_no_look_tries_many() {
        for of in [1, 4, 5, 6, 23] {
            let mut tried = vec![0; of];
            for turn in 0..of {
                let now: Vec<_> = (0..of).filter(|place| is_turn(*place, turn, of)).collect();
                assert!(now.len() <= TRIED, "{now:?}");
                for place in now {
                    tried[place] += 1;
                }
            }
            assert!(tried.iter().all(|times| *times > 0), "{of}: {tried:?}");
        }
    }

    #[test]
    fn what_differs_and_what_is_left_is_said() {
        let mut looked = Looked {
            left: vec![SeedLeft {
                what: "user a".to_owned(),
                path: "users/1".to_owned(),
            }],
            ..Looked::default()
        };
        assert_eq!(looked.told(), Vec::<String>::new());
        assert!(looked.well().ends_with("there still: user a"));
        looked.differs = vec!["user b enabled".to_owned()];
        assert_eq!(looked.told(), ["Keystone differs in user b enabled"]);
        assert_eq!(looked.reason(), "Drifted");
        looked.refused = vec!["x".to_owned()];
        assert_eq!(looked.reason(), "Refused");
    }
}
