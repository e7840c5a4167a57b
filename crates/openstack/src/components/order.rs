//! In which order components start: each once those are at work that it waits for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::API;

/// For whom each component waits, by their names.
pub type Waits<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// All of these components in the order in which they start, the API as early as it can, others by their names. Who is waited for and is none
/// of them is not waited for.
///
/// # Errors
///
/// Some wait for each other: those, each before the one that it waits for, and the first once more at the end.
pub fn started<'a>(waits: &Waits<'a>) -> Result<Vec<&'a str>, Vec<&'a str>> {
    let mut started: Vec<&str> = Vec::new();
    while started.len() < waits.len() {
        let is_free = |name: &&str| {
            !started.contains(name) && awaited(waits, name).all(|other| started.contains(&other))
        };
        let free = waits.keys().copied().filter(is_free);
        let Some(next) = free.min_by_key(|name| (*name != API, *name)) else {
            return Err(circle(waits, &started));
        };
        started.push(next);
    }
    Ok(started)
}

/// For whom it waits, of those that there are.
fn awaited<'a>(waits: &Waits<'a>, name: &str) -> impl Iterator<Item = &'a str> {
    let of_name = waits.get(name).into_iter().flatten().copied();
    of_name.filter(|other| waits.contains_key(other))
}

/// Each that is left waits for one that is left, so whoever goes from one to the next comes back.
fn circle<'a>(waits: &Waits<'a>, started: &[&str]) -> Vec<&'a str> {
    let is_left = |name: &&str| !started.contains(name);
    let mut way: Vec<&str> = waits.keys().copied().find(is_left).into_iter().collect();
    while let Some(next) = way
        .last()
        .and_then(|name| awaited(waits, name).find(is_left))
    {
        if let Some(begin) = way.iter().position(|name| *name == next) {
            let mut circle = way.split_off(begin);
            circle.push(next);
            return circle;
        }
        way.push(next);
    }
    way
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Waits<'_> {
        let mut waits = Waits::new();
        for line in text.split_whitespace() {
            let (name, after) = line.split_once('>').unwrap();
            let after = after.split(',').filter(|name| !name.is_empty());
            waits.insert(name, after.collect());
        }
        waits
    }

    #[test]
    fn each_starts_after_those_that_it_waits_for() {
        for (waits, expected) in [
            ("api> worker>", "api worker"),
            ("api>conductor conductor>", "conductor api"),
            ("api> a> b>a", "api a b"),
            (
                "scheduler>api api>conductor conductor> b>",
                "b conductor api scheduler",
            ),
            ("api>nobody", "api"),
        ] {
            let waits = read(waits);
            assert_eq!(started(&waits).unwrap().join(" "), expected);
        }
    }

    #[test]
    fn who_wait_for_each_other_are_named_and_nobody_else() {
        for (waits, expected) in [
            ("api>api", "api api"),
            ("api>b b>api c>", "api b api"),
            ("a>b api> b>c c>b", "b c b"),
            ("a>b b>c c>a d>a", "a b c a"),
        ] {
            let waits = read(waits);
            assert_eq!(started(&waits).unwrap_err().join(" "), expected);
        }
    }

    #[test]
    fn services_may_need_each_other_as_long_as_their_components_do_not() {
        let waits =
            read("compute/api> compute/agent>network/api network/api> network/agent>compute/api");
        assert_eq!(
            started(&waits).unwrap().join(" "),
            "compute/api network/agent network/api compute/agent"
        );
        let waits = read("compute/api>network/api network/api>network/db network/db>compute/api");
        assert_eq!(
            started(&waits).unwrap_err().join(" "),
            "compute/api network/api network/db compute/api"
        );
    }

    proptest! {
        #[test]
        fn there_is_an_order_or_a_circle(edges in prop::collection::vec((0_usize..6, 0_usize..6), 0..12)) {
            let names = ["a", "api", "b", "c", "d", "e"];
            let mut waits: Waits<'_> = names.iter().map(|name| (*name, BTreeSet::new())).collect();
            for (from, to) in edges {
                waits.get_mut(names[from]).unwrap().insert(names[to]);
            }
            match started(&waits) {
                Ok(order) => for (at, name) in order.iter().enumerate() {
                    prop_assert!(waits[name].iter().all(|other| order[..at].contains(other)));
                },
                Err(circle) => {
                    prop_assert!(circle.len() > 1 && circle.first() == circle.last());
                    prop_assert!(circle.windows(2).all(|pair| waits[pair[0]].contains(pair[1])));
                }
            }
        }
    }
}
