//! Durations as Kubernetes writes them: `1h30m`, `15s`, `500ms`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

/// A duration in the form of Go, not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// Whole seconds, a half rounded up, as flags take them.
    pub fn seconds(self) -> u64 {
        let half = u64::from(self.0.subsec_millis() >= 500);
        self.0.as_secs().saturating_add(half)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Self).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            D::Error::custom(format!(
                "{text:?} is no duration; write numbers with units, such as 10m or 1h30m"
            ))
        })
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut nanoseconds) = (text, 0.0_f64);
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, tail) = rest.split_at(end);
        let (unit, factor) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        nanoseconds += number.parse::<f64>().ok()? * factor;
        rest = tail.strip_prefix(unit)?;
    }
    let is_given = !text.is_empty();
    let duration = Duration::try_from_secs_f64(nanoseconds / 1e9).ok()?;
    (is_given && duration <= LONGEST).then_some(duration)
}

/// Those that others begin with come later.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

/// As many nanoseconds as Go can count.
const LONGEST: Duration = Duration::from_secs(9_223_372_036);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let cases = [
            ("0", 0),
            ("15s", 15),
            ("10m", 600),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("500ms", 1),
            ("499ms", 0),
            ("1m0.5s", 61),
            ("3us", 0),
        ];
        for (text, seconds) in cases {
            let duration: GoDuration = serde_json::from_value(text.into()).unwrap();
            assert_eq!(duration.seconds(), seconds, "{text}");
        }
        for text in [
            "",
            "1",
            "s",
            "-1s",
            "1 s",
            "1d",
            "1e3s",
            "1..5s",
            "9999999999h",
            "1sx",
        ] {
            assert!(
                serde_json::from_value::<GoDuration>(text.into()).is_err(),
                "{text}"
            );
        }
    }
}
