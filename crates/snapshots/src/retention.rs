//! Which snapshots go. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::Name;

/// How far the clock of another machine may be ahead of this one: what was taken later than that has a time that was made up.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// Whether a time can be one at which something was done.
pub fn is_past(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) <= AHEAD
}

/// What is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Keep {
    /// How many, the newest first. None: any number.
    pub count: Option<usize>,
    /// How old. None: of any age.
    pub age: Option<SignedDuration>,
}

/// The snapshots that go: what is beyond the number, and what is beyond the age. The newest one stays, whatever is said: it is all that
/// there is if no other one could be made since.
pub fn surplus(snapshots: &[(Name, Timestamp)], keep: Keep, now: Timestamp) -> Vec<Name> {
    let mut newest_first: Vec<_> = snapshots.iter().collect();
    newest_first.sort_by(|(a, at), (b, bt)| (bt, b).cmp(&(at, a)));
    let goes = |(place, (_, taken)): &(usize, &(Name, Timestamp))| {
        let beyond = keep.count.is_some_and(|count| *place >= count);
        let old = keep.age.is_some_and(|age| now.duration_since(*taken) > age);
        *place > 0 && (beyond || old)
    };
    let counted = newest_first.into_iter().enumerate();
    counted
        .filter(goes)
        .map(|(_, (name, _))| name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 86_400;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 - days * DAY).unwrap()
    }

    fn gone(ages: &[i64], keep: Keep) -> Vec<i64> {
        let taken: Vec<_> = ages
            .iter()
            .map(|days| (format!("s{days}").parse().unwrap(), at(*days)))
            .collect();
        let mut gone: Vec<i64> = surplus(&taken, keep, at(0))
            .iter()
            .map(|name| name.as_str()[1..].parse().unwrap())
            .collect();
        gone.sort_unstable();
        gone
    }

    fn keep(count: Option<usize>, days: Option<i64>) -> Keep {
        let age = days.map(|days| SignedDuration::from_secs(days * DAY));
        Keep { count, age }
    }

    #[test]
    fn what_is_beyond_the_number_or_the_age_goes() {
        let ages = [30, 1, 20, 10];
        for (kept, expected) in [
            (keep(None, None), &[][..]),
            (keep(Some(2), None), &[20, 30]),
            (keep(Some(4), None), &[]),
            (keep(None, Some(15)), &[20, 30]),
            (keep(None, Some(20)), &[30]),
            (keep(Some(3), Some(15)), &[20, 30]),
            (keep(Some(1), Some(90)), &[10, 20, 30]),
            // The newest one is all that there is.
            (keep(Some(0), None), &[10, 20, 30]),
            (keep(None, Some(0)), &[10, 20, 30]),
        ] {
            assert_eq!(gone(&ages, kept), expected, "{kept:?}");
        }
        assert_eq!(gone(&[400], keep(Some(1), Some(1))), [0; 0]);
        assert_eq!(gone(&[], keep(Some(1), Some(1))), [0; 0]);
    }

    proptest! {
        #[test]
        fn the_newest_stays_and_no_older_one_stays_before_a_newer(
            ages in proptest::collection::btree_set(0_i64..500, 1..30),
            count in proptest::option::of(0_usize..10),
            days in proptest::option::of(0_i64..400),
        ) {
            let ages: Vec<_> = ages.into_iter().collect();
            let gone = gone(&ages, keep(count, days));
            let stays: Vec<_> = ages.iter().filter(|age| !gone.contains(age)).collect();
            prop_assert_eq!(stays.first(), Some(&&ages[0]));
            prop_assert!(stays.iter().all(|stays| gone.iter().all(|gone| *stays < gone)));
            if let Some(count) = count {
                prop_assert!(stays.len() <= count.max(1));
            }
        }
    }
}
