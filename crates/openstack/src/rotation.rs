//! Keys of Fernet and their rotation, as Keystone has them
//! ([fernet tokens](https://docs.openstack.org/keystone/latest/admin/fernet-token-faq.html)). Pure.
//!
//! Keys have numbers. The highest seals, 0 is the one that will, and those between only open what they sealed before. A rotation gives 0
//! the next number, makes another 0, and drops the lowest of the others that are too many. Pods get what a Secret holds some time after
//! it was written, each at its own time; so a key may seal only when all pods have it, and may go only when nothing that it sealed is
//! valid any more, wherever that was sealed last.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Keys by their numbers.
pub type Keys = BTreeMap<u32, String>;

/// Since when a key seals, by its number.
pub type Since = BTreeMap<u32, Timestamp>;

/// How many keys there may be, and how long what they seal is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// How many keys there are after a rotation, 0 and the one that seals among them.
    pub keep: usize,
    /// How long anything that a key sealed is valid.
    pub lifetime: SignedDuration,
}

/// Why keys cannot be rotated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A key is not there that has to be.
    #[error("key {0} is not there")]
    Missing(u32),
    /// With fewer there is none that opens what was sealed before.
    #[error("{0} keys are kept, and with fewer than 3 a rotation makes tokens invalid at once")]
    TooFew(usize),
    /// Nobody knows when a key began to seal.
    #[error("nobody knows since when key {0} seals")]
    Unknown(u32),
    /// It is too early.
    #[error("{why} until {until}")]
    Early {
        /// What would break.
        why: &'static str,
        /// When it is not any more.
        until: Timestamp,
    },
}

/// How long it takes at most until all pods have what a Secret holds: the kubelet looks every minute, from a cache that may be as old.
pub const SPREAD: SignedDuration = SignedDuration::from_mins(5);

/// The keys after a rotation, and since when they seal.
///
/// # Errors
///
/// Something that is valid would be refused.
pub fn rotate(
    keys: &Keys,
    since: &Since,
    rule: Rule,
    now: Timestamp,
    new: String,
) -> Result<(Keys, Since), Refused> {
    if rule.keep < 3 {
        return Err(Refused::TooFew(rule.keep));
    }
    let next = keys.get(&0).ok_or(Refused::Missing(0))?;
    let sealing = keys
        .keys()
        .copied()
        .next_back()
        .filter(|number| *number > 0);
    let sealing = sealing.ok_or(Refused::Missing(1))?;
    let began = |number| since.get(&number).copied().ok_or(Refused::Unknown(number));
    // The next one was made when the one that seals began to.
    not_before(
        began(sealing)? + SPREAD,
        now,
        "not all pods have the next key",
    )?;
    let mut rotated = keys.clone();
    rotated.insert(sealing + 1, next.clone());
    rotated.insert(0, new);
    while rotated.len() > rule.keep {
        let Some(gone) = rotated.keys().copied().find(|number| *number > 0) else {
            break;
        };
        // It sealed until its follower did, and in a pod that had not heard of that, a while longer.
        let last = if gone == sealing {
            now
        } else {
            began(gone + 1)?
        };
        not_before(
            last + SPREAD + rule.lifetime,
            now,
            "what the oldest key sealed is valid",
        )?;
        rotated.remove(&gone);
    }
    let mut told = since.clone();
    told.insert(sealing + 1, now);
    told.retain(|number, _| rotated.contains_key(number));
    Ok((rotated, told))
}

fn not_before(until: Timestamp, now: Timestamp, why: &'static str) -> Result<(), Refused> {
    if now < until {
        return Err(Refused::Early { why, until });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn fresh() -> (Keys, Since) {
        let keys = Keys::from([(0, "b".to_owned()), (1, "a".to_owned())]);
        (keys, Since::from([(1, at(0))]))
    }

    const RULE: Rule = Rule {
        keep: 3,
        lifetime: SignedDuration::from_mins(60),
    };

    #[test]
    fn the_next_key_seals_and_the_oldest_goes_when_nothing_of_it_is_valid() {
        let (keys, since) = fresh();
        let rotate = |keys: &Keys, since: &Since, minutes, new: &str| {
            super::rotate(keys, since, RULE, at(minutes), new.to_owned())
        };
        let early = rotate(&keys, &since, 4, "c").unwrap_err();
        assert!(
            early
                .to_string()
                .starts_with("not all pods have the next key"),
            "{early}"
        );
        let (keys, since) = rotate(&keys, &since, 5, "c").unwrap();
        let all: Vec<_> = keys
            .iter()
            .map(|(number, key)| format!("{number}{key}"))
            .collect();
        assert_eq!(all, ["0c", "1a", "2b"]);
        let early = rotate(&keys, &since, 69, "d").unwrap_err();
        assert!(
            early
                .to_string()
                .contains("oldest key sealed is valid until"),
            "{early}"
        );
        let (keys, since) = rotate(&keys, &since, 70, "d").unwrap();
        assert_eq!(keys.keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(since.keys().copied().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_nobody_can_vouch_for_is_refused() {
        let (keys, since) = fresh();
        let late = at(100_000);
        let rule = |keep| Rule { keep, ..RULE };
        let refused = |keys: &Keys, since: &Since, rule| {
            rotate(keys, since, rule, late, String::new()).unwrap_err()
        };
        assert_eq!(refused(&keys, &since, rule(2)), Refused::TooFew(2));
        assert_eq!(refused(&keys, &Since::new(), RULE), Refused::Unknown(1));
        let mut none = keys.clone();
        none.remove(&0);
        assert_eq!(refused(&none, &since, RULE), Refused::Missing(0));
        none.remove(&1);
        none.insert(0, String::new());
        assert_eq!(refused(&none, &since, RULE), Refused::Missing(1));
    }

    /// Pods that each hear of a rotation at a time of their own; tokens sealed in one at any time and opened in any other.
    #[test]
    fn no_valid_token_is_refused_by_any_pod_however_late_it_hears() {
        for seed in 0..60 {
            let mut random = SmallRng::seed_from_u64(seed);
            let rule = Rule {
                keep: random.random_range(3..6),
                lifetime: SignedDuration::from_mins(random.random_range(1..120)),
            };
            let pods = random.random_range(1..4);
            let (mut keys, mut since) = fresh();
            // Of each pod: from when on it has which keys.
            let mut heard = vec![vec![(0, keys.clone())]; pods];
            for minute in 1..1000 {
                if random.random_bool(0.5) {
                    let new = format!("{minute}");
                    if let Ok((next, told)) = rotate(&keys, &since, rule, at(minute), new) {
                        (keys, since) = (next, told);
                        for pod in &mut heard {
                            let late = random.random_range(0..=SPREAD.as_mins());
                            pod.push((minute + late, keys.clone()));
                        }
                    }
                }
            }
            assert!(heard[0].len() > 3, "seed {seed}: it never rotates");
            let has = |pod: usize, minute: i64| {
                let known = heard[pod].iter().rev().find(|(from, _)| *from <= minute);
                &known.unwrap().1
            };
            for _ in 0..2000 {
                let sealed = random.random_range(0..1000);
                let opened = sealed + random.random_range(0..=rule.lifetime.as_mins());
                let (by, in_) = (random.random_range(0..pods), random.random_range(0..pods));
                let key = has(by, sealed).values().next_back().unwrap();
                let opens = has(in_, opened).values().any(|known| known == key);
                assert!(
                    opens,
                    "seed {seed}: sealed {sealed} by {by}, opened {opened} in {in_}"
                );
            }
        }
    }
}
