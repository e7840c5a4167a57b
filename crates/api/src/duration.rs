//! Lengths of time as people write them: `60d`, `1y`, `0m`, `1h30m`.

use std::{fmt, str::FromStr, time};

/// A length of time: numbers with units, largest first. Units are `s`, `m` (minutes), `h`, `d`, `w` and `y` (365 days).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Duration(u64);

/// Why a text is not a duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "duration {0:?} is not a list of number and unit: write for example 30s, 5m, 12h, 60d, 1y or 1h30m"
)]
pub struct InvalidDuration(String);

/// A day, in seconds.
const DAY: u64 = 86_400;
/// From so many days on they are counted in years.
const FEW_DAYS: u64 = 400;

const UNITS: [(char, u64); 6] = [
    ('y', 365 * DAY),
    ('w', 7 * DAY),
    ('d', DAY),
    ('h', 3_600),
    ('m', 60),
    ('s', 1),
];

impl Duration {
    /// A duration of whole seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The length in seconds.
    pub const fn seconds(self) -> u64 {
        self.0
    }
}

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_secs(duration.0)
    }
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Self)
            .ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        // As people count: 31d and not 4w3d.
        let days = self.0 / DAY;
        if self.0.is_multiple_of(DAY) && days < FEW_DAYS && !days.is_multiple_of(365) {
            return write!(f, "{days}d");
        }
        let mut rest = self.0;
        for (unit, seconds) in UNITS {
            if rest >= seconds {
                write!(f, "{}{unit}", rest / seconds)?;
                rest %= seconds;
            }
        }
        Ok(())
    }
}

crate::schema::string_newtype!(
    Duration,
    "A length of time: numbers with the units s, m (minutes), h, d, w, y (365 days), for example 60d or 1h30m.",
    r"^([0-9]{1,9}[smhdwy])+$",
    32
);

fn parse(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    let mut largest = usize::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.chars().next()?;
        // Each unit once, largest first: `30m1h` is more often a slip than a wish.
        let rank = UNITS.len() - UNITS.iter().position(|(name, _)| *name == unit)?;
        if rank >= largest {
            return None;
        }
        largest = rank;
        let seconds = UNITS[UNITS.len() - rank].1;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(seconds)?)?;
        rest = tail.get(unit.len_utf8()..)?;
    }
    (largest != usize::MAX).then_some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_the_proposal_writes() {
        for (text, seconds) in [
            ("60d", 5_184_000),
            ("1y", 31_536_000),
            ("0m", 0),
            ("1h30m", 5_400),
        ] {
            assert_eq!(text.parse(), Ok(Duration::from_seconds(seconds)), "{text}");
        }
    }

    #[test]
    fn days_are_shown_as_days() {
        for (text, shown) in [
            ("40d", "40d"),
            ("5w5d", "40d"),
            ("1w", "7d"),
            ("399d", "399d"),
            ("365d", "1y"),
            ("400d", "1y5w"),
            ("1d12h", "1d12h"),
            ("25h", "1d1h"),
        ] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn refuses_what_has_no_unit_or_no_order() {
        for text in [
            "",
            "60",
            "d",
            "1.5h",
            "-1d",
            "1h 30m",
            "30m1h",
            "1h1h",
            "99999999999999999999y",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(seconds in 0..=u64::from(u32::MAX)) {
            let duration = Duration::from_seconds(seconds);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
