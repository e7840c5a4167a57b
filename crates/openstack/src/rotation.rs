//! Keys of Fernet and their rotation, as Keystone has them
//! ([fernet tokens](https://docs.openstack.org/keystone/latest/admin/fernet-token-faq.html)). Pure.
//!
//! Keys have numbers. The highest seals, 0 is the one that will, and those between only open what they sealed before. A rotation gives 0
//! the next number, makes another 0, and drops the lowest of the others that are too many. Pods get what a Secret holds some time after
//! it was written, each at its own time; so a key may seal only when all pods have it, and may go only when nothing that it sealed is
//! valid any more, wherever that was sealed last.
//!
//! [`schedule`] has them rotated by themselves: [`Rule::least_gap`] proves beforehand that no rotation on time comes too early, and
//! [`earliest`] keeps those that are not on time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{action::Rotation, config::Merged};

pub mod schedule;

pub use schedule::{Rotated, Scheduled};

/// Keys by their numbers.
pub type Keys = BTreeMap<u32, String>;

/// Since when a key seals, by its number.
pub type Since = BTreeMap<u32, Timestamp>;

/// What is noted beside the keys, in annotations of their Secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Noted {
    /// Since when each key seals.
    pub since: Since,
    /// The longest that what they sealed was ever valid: what was sealed then is valid for that long, whatever is configured now.
    pub lifetime: SignedDuration,
}

impl Noted {
    /// What these annotations say. What cannot be read is not known.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let since = annotations.get(SINCE);
        let since = since.and_then(|text| serde_json::from_str(text).ok());
        let lifetime = annotations.get(LIFETIME);
        let seconds = lifetime.and_then(|text| text.parse::<u32>().ok());
        Self {
            since: since.unwrap_or_default(),
            lifetime: SignedDuration::from_secs(seconds.unwrap_or_default().into()),
        }
    }
}

/// The annotation with [`Noted::since`].
pub const SINCE: &str = "openstack.windlass.dev/keys-since";
/// The annotation with [`Noted::lifetime`], in seconds.
pub const LIFETIME: &str = "openstack.windlass.dev/keys-lifetime";

/// On a Secret with a password that was rotated: since when that is in use.
pub const PASSWORD_SINCE: &str = "openstack.windlass.dev/password-since";

/// Since when the password of a Secret is in use: since its last rotation, or since it was made.
pub fn password_since(secret: &ObjectMeta) -> Option<Timestamp> {
    let annotations = secret.annotations.as_ref();
    let noted = annotations.and_then(|noted| noted.get(PASSWORD_SINCE)?.parse().ok());
    noted.or_else(|| Some(secret.creation_timestamp.as_ref()?.0))
}

/// How many keys there may be, and how long what they seal is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rule {
    /// How many keys there are after a rotation, 0 and the one that seals among them.
    pub keep: usize,
    /// How long anything that a key sealed is valid.
    pub lifetime: SignedDuration,
}

impl Rule {
    /// What the settings of a file say.
    ///
    /// # Errors
    ///
    /// One of them is no number: that one.
    pub fn of<'a>(file: &Merged, rotation: &'a Rotation) -> Result<Self, &'a str> {
        let number = |setting: &'a str| {
            let value = value(file, setting);
            let number = value.and_then(|value| value.trim().parse::<u32>().ok());
            number.ok_or(setting)
        };
        let keep = match rotation.keep.parse() {
            Ok(number) => number,
            Err(_) => number(&rotation.keep)?,
        };
        let mut lifetime = SignedDuration::ZERO;
        for setting in &rotation.lifetime {
            lifetime += SignedDuration::from_secs(number(setting)?.into());
        }
        Ok(Self {
            keep: usize::try_from(keep).unwrap_or(usize::MAX),
            lifetime,
        })
    }

    /// The shortest time between two rotations with which nothing valid is refused, in full minutes, as schedules know them. None: there
    /// is no such time.
    ///
    /// A key seals until the next rotation, and in a pod that has not heard of that up to [`SPREAD`] longer. The rotation that drops it
    /// comes `keep` - 2 times later, and by then everything that it sealed has to have expired. Besides, all pods have to have a key
    /// before it seals.
    pub fn least_gap(self) -> Option<SignedDuration> {
        let kept_for = u64::try_from(self.keep).ok()?.checked_sub(2)?;
        if kept_for == 0 {
            return None;
        }
        let minutes = self.valid_seconds().div_ceil(kept_for.saturating_mul(60));
        let gap = SignedDuration::from_mins(i64::try_from(minutes).ok()?);
        Some(gap.max(SPREAD))
    }

    /// How many keys it takes to rotate them with that time between. None: no number would do.
    pub fn enough(self, gap: SignedDuration) -> Option<u64> {
        if gap < SPREAD {
            return None;
        }
        let gap = gap.as_secs().unsigned_abs();
        Some(self.valid_seconds().div_ceil(gap).saturating_add(2))
    }

    /// How long something may be valid after the rotation that took the seal from its key.
    const fn valid_seconds(self) -> u64 {
        self.lifetime.as_secs().unsigned_abs() + SPREAD.as_secs().unsigned_abs()
    }
}

/// What a setting is, as `SECTION.KEY`.
fn value(file: &Merged, setting: &str) -> Option<String> {
    let (section, key) = setting.split_once('.')?;
    file.setting(Some(section), key)?.values().last()
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
        later(began(sealing)?, SPREAD),
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
            later(last, SPREAD + rule.lifetime),
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

/// From when on a rotation is not too early, of the keys that these times are of.
///
/// # Errors
///
/// It would be refused at any time.
pub fn earliest(since: &Since, rule: Rule) -> Result<Timestamp, Refused> {
    let numbers = since.keys().copied().chain([0]);
    let keys = numbers.map(|number| (number, String::new())).collect();
    let mut from = Timestamp::MIN;
    // Whoever rotates is asked, so that both say the same. It ends: each answer comes of one of the times, and is later than the last.
    loop {
        match rotate(&keys, since, rule, from, String::new()) {
            Err(Refused::Early { until, .. }) => from = until,
            Err(why) => return Err(why),
            Ok(_) => return Ok(from),
        }
    }
}

/// A person may have written any time.
fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn not_before(until: Timestamp, now: Timestamp, why: &'static str) -> Result<(), Refused> {
    if now < until {
        return Err(Refused::Early { why, until });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{SeedableRng as _, rngs::SmallRng};

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

    /// Whether something valid is refused where keys are rotated each time that so many minutes have passed, whatever that breaks.
    fn refuses(keep: usize, lifetime: i64, gap: i64) -> bool {
        // After each rotation: the keys by their age, the one that will seal last. The one before that seals.
        let mut states = vec![vec![1, 2]];
        let end = gap * i64::try_from(keep + 3).unwrap() + SPREAD.as_mins();
        for rotation in 0..=(end + lifetime) / gap {
            let mut keys = states.last().unwrap().clone();
            keys.push(rotation + 3);
            while keys.len() > keep {
                keys.remove(0);
            }
            states.push(keys);
        }
        // A pod hears of all rotations so late. Those between the two extremes have what one of these has.
        let at = |minute: i64, late: i64| {
            let rotations = (minute - late).max(0) / gap;
            &states[usize::try_from(rotations).unwrap()]
        };
        let late = SPREAD.as_mins();
        let pods = [(0, 0), (0, late), (late, 0), (late, late)];
        (0..end).any(|sealed| {
            pods.iter().any(|&(by, in_)| {
                let keys = at(sealed, by);
                let seals = keys[keys.len() - 2];
                // A pod has a key from one time to another: between these two, too, if at both.
                let opened = [sealed, sealed + lifetime];
                opened.iter().any(|time| !at(*time, in_).contains(&seals))
            })
        })
    }

    /// Whether rotations that are on time are all done.
    fn is_kept_to(rule: Rule, gap: i64) -> bool {
        let (mut keys, mut since) = fresh();
        for time in 1..=i64::try_from(rule.keep + 3).unwrap() {
            match rotate(&keys, &since, rule, at(time * gap), String::new()) {
                Ok(rotated) => (keys, since) = rotated,
                Err(_) => return false,
            }
        }
        true
    }

    proptest! {
        #[test]
        fn a_gap_is_long_enough_exactly_where_no_valid_token_is_refused(
            keep in 2..9_usize,
            lifetime in 0..150_i64,
            gap in 1..90_i64,
        ) {
            let rule = Rule { keep, lifetime: SignedDuration::from_mins(lifetime) };
            let written = SignedDuration::from_mins(gap);
            let is_enough = rule.least_gap().is_some_and(|least| written >= least);
            prop_assert_eq!(is_enough, !refuses(keep, lifetime, gap));
            prop_assert_eq!(is_enough, is_kept_to(rule, gap));
            // Who keeps as many as is said may rotate as often, and who keeps one less may not.
            let fits = |keep: u64| {
                let rule = Rule { keep: usize::try_from(keep).unwrap(), ..rule };
                rule.least_gap().is_some_and(|least| written >= least)
            };
            match rule.enough(written) {
                Some(enough) => prop_assert!(fits(enough) && !fits(enough - 1)),
                None => prop_assert!(!fits(1000)),
            }
        }

        /// Full minutes lose nothing: a schedule knows no less.
        #[test]
        fn the_least_gap_is_the_first_that_the_formula_takes(
            keep in 3..400_usize,
            lifetime in 0..400_000_i64,
        ) {
            let rule = Rule { keep, lifetime: SignedDuration::from_secs(lifetime) };
            let kept_for = i64::try_from(keep - 2).unwrap();
            let takes = |minutes: i64| {
                minutes >= SPREAD.as_mins()
                    && kept_for * minutes * 60 >= lifetime + SPREAD.as_secs()
            };
            let least = rule.least_gap().unwrap().as_mins();
            prop_assert!(takes(least) && !takes(least - 1));
        }

        #[test]
        fn a_rotation_is_too_early_until_it_is_not(
            keep in 3..6_usize,
            lifetime in 0..5000_i64,
            gaps in prop::collection::vec(1..4000_i64, 1..8),
        ) {
            let rule = Rule { keep, lifetime: SignedDuration::from_mins(lifetime) };
            let (mut keys, mut since, mut now) = (fresh().0, fresh().1, 0);
            for gap in gaps {
                now += gap;
                let from = earliest(&since, rule).unwrap();
                let rotated = rotate(&keys, &since, rule, at(now), String::new());
                prop_assert_eq!(rotated.is_ok(), at(now) >= from);
                if let Ok(rotated) = rotated {
                    (keys, since) = rotated;
                }
            }
        }
    }

    #[test]
    fn a_time_beyond_all_times_is_waited_for() {
        let since = Since::from([(1, Timestamp::MAX)]);
        assert_eq!(earliest(&since, RULE), Ok(Timestamp::MAX));
        assert_eq!(earliest(&Since::new(), RULE), Err(Refused::Missing(1)));
    }
}
