//! Values as SOPS knows them: what Go's reader of YAML takes a word for, and the bytes that are digested of it.
//!
//! # Source
//!
//! `resolve.go` of go.yaml.in/yaml/v3, `ToBytes` of SOPS.

use std::sync::LazyLock;

use jiff::civil::DateTime;
use regex::Regex;
use serde_json::{Number, Value};

use crate::document::Format;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// Never encrypted, and not digested.
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// A moment, as Go writes it.
    Time(String),
}

impl Scalar {
    /// What a word without quotes is. None: a number that SOPS has no room for.
    pub(crate) fn of_word(word: &str, format: Format) -> Option<Self> {
        let text = || Self::Text(word.to_owned());
        match word {
            "true" | "True" | "TRUE" => return Some(Self::Bool(true)),
            "false" | "False" | "FALSE" => return Some(Self::Bool(false)),
            "" | "~" | "null" | "Null" | "NULL" => return Some(Self::Null),
            ".nan" | ".NaN" | ".NAN" => return Some(Self::Float(f64::NAN)),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return Some(Self::Float(f64::INFINITY));
            }
            "-.inf" | "-.Inf" | "-.INF" => return Some(Self::Float(f64::NEG_INFINITY)),
            _ => {}
        }
        match word.as_bytes().first() {
            Some(b'.') => Some(float(word).unwrap_or_else(text)),
            Some(b'0'..=b'9' | b'+' | b'-') => {
                if let Some(time) = time(word) {
                    return Some(Self::Time(time));
                }
                let plain = word.replace('_', "");
                match integer(&plain) {
                    Some(Ok(integer)) => Some(Self::Integer(integer)),
                    Some(Err(TooLarge)) if matches!(format, Format::Yaml) => None,
                    _ => Some(float(&plain).unwrap_or_else(text)),
                }
            }
            _ => Some(text()),
        }
    }

    /// The text that is digested of it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Integer(integer) => integer.to_string(),
            // Neither Go nor Rust pads, rounds or uses an exponent here.
            Self::Float(float) => float.to_string(),
            Self::Text(text) | Self::Time(text) => text.clone(),
        }
    }

    /// As a value of an object; none: a number that JSON does not have.
    pub(crate) fn value(self, format: Format) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(integer) => Value::Number(integer.into()),
            Self::Float(float) => match (format, float.to_string().parse::<i64>()) {
                // SOPS up to 3.11 knew no whole numbers in JSON.
                (Format::Json, Ok(integer)) => Value::Number(integer.into()),
                _ => Value::Number(Number::from_f64(float)?),
            },
            Self::Text(text) | Self::Time(text) => Value::String(text),
        })
    }
}

/// A whole number beyond 63 bits and within 64.
struct TooLarge;

/// A whole number in any of the bases that Go knows; none: it is no whole number, or one beyond 64 bits.
fn integer(plain: &str) -> Option<Result<i64, TooLarge>> {
    let (sign, unsigned) = match plain.as_bytes().first()? {
        b'-' => ("-", plain.get(1..)?),
        b'+' => ("+", plain.get(1..)?),
        _ => ("", plain),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (base, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else {
        match lower.strip_prefix('0') {
            Some(digits) if !digits.is_empty() => (8, digits),
            _ => (10, lower.as_str()),
        }
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    match i64::from_str_radix(&format!("{sign}{digits}"), base) {
        Ok(integer) => Some(Ok(integer)),
        Err(_) if sign.is_empty() && u64::from_str_radix(digits, base).is_ok() => {
            Some(Err(TooLarge))
        }
        Err(_) => None,
    }
}

fn float(plain: &str) -> Option<Scalar> {
    let float: f64 = FLOAT.is_match(plain).then(|| plain.parse().ok())??;
    // Beyond all numbers it is a word.
    float.is_finite().then_some(Scalar::Float(float))
}

/// A moment as Go writes it; none: it is none.
fn time(word: &str) -> Option<String> {
    let parts = TIME.captures(word)?;
    let part = |name: &str| parts.name(name).map_or("", |part| part.as_str());
    let number = |name: &str| part(name).parse::<i8>().unwrap_or(0);
    let (year, month, day) = (part("year").parse().ok()?, number("month"), number("day"));
    let (hour, minute, second) = (number("hour"), number("minute"), number("second"));
    DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    match (part("at"), part("zone")) {
        ("" | " ", "") => {}
        ("T" | "t", zone) if !zone.is_empty() => {}
        _ => return None,
    }
    let fraction = part("fraction").trim_end_matches('0').trim_end_matches('.');
    let zone = match part("zone") {
        "" | "Z" | "+00:00" | "-00:00" => "Z",
        zone => zone,
    };
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"
    ))
}

#[expect(clippy::expect_used, reason = "the tests of this module use each")]
static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$").expect("it compiles")
});

#[expect(clippy::expect_used, reason = "the tests of this module use each")]
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)^(?<year>[0-9]{4})-(?<month>[0-9]{1,2})-(?<day>[0-9]{1,2})
        (?:
            (?<at>[Tt\x20])(?<hour>[0-9]{1,2}):(?<minute>[0-9]{1,2}):(?<second>[0-9]{1,2})
            (?<fraction>\.[0-9]{1,9})?(?<zone>Z|[-+][0-9]{2}:[0-9]{2})?
        )?$",
    )
    .expect("it compiles")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_go_takes_them_for() {
        let text = |word: &str| Scalar::Text(word.to_owned());
        let time = |word: &str| Scalar::Time(word.to_owned());
        for (word, expected) in [
            ("yes", text("yes")),
            ("True", Scalar::Bool(true)),
            ("tRUE", text("tRUE")),
            ("~", Scalar::Null),
            ("0", Scalar::Integer(0)),
            ("-0", Scalar::Integer(0)),
            ("0644", Scalar::Integer(420)),
            ("08", Scalar::Float(8.0)),
            ("0o17", Scalar::Integer(15)),
            ("0x_1F", Scalar::Integer(31)),
            ("-0b11", Scalar::Integer(-3)),
            ("1_000", Scalar::Integer(1000)),
            ("0x-5", text("0x-5")),
            ("--5", text("--5")),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("1.", Scalar::Float(1.0)),
            (".", text(".")),
            ("1.2.3", text("1.2.3")),
            ("192.0.2.1", text("192.0.2.1")),
            ("-9223372036854775808", Scalar::Integer(i64::MIN)),
            ("99999999999999999999", Scalar::Float(1e20)),
            ("2026-1-2", time("2026-01-02T00:00:00Z")),
            ("2026-01-02T03:04:05.100Z", time("2026-01-02T03:04:05.1Z")),
            (
                "2026-01-02T03:04:05+02:00",
                time("2026-01-02T03:04:05+02:00"),
            ),
            ("2026-01-02 03:04:05", time("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05", text("2026-01-02T03:04:05")),
            ("1e999", text("1e999")),
            ("2026-02-30", text("2026-02-30")),
            ("2026-01-02-03", text("2026-01-02-03")),
            ("<<", text("<<")),
        ] {
            assert_eq!(
                Scalar::of_word(word, Format::Yaml),
                Some(expected),
                "{word}"
            );
        }
        let large = "18446744073709551615";
        assert_eq!(Scalar::of_word(large, Format::Yaml), None);
        let float = Scalar::of_word(large, Format::Json);
        assert_eq!(float, Some(Scalar::Float(18_446_744_073_709_551_615.0)));
    }

    #[test]
    fn numbers_are_digested_as_go_writes_them() {
        for (float, expected) in [
            (1.0, "1"),
            (1e21, "1000000000000000000000"),
            (1e-7, "0.0000001"),
            (-0.0, "-0"),
            (0.1, "0.1"),
        ] {
            assert_eq!(Scalar::Float(float).text(), expected);
        }
        assert_eq!(Scalar::Float(f64::NAN).value(Format::Yaml), None);
        let whole = Scalar::Float(3.0);
        assert_eq!(whole.clone().value(Format::Json), Some(3.into()));
        assert_eq!(whole.value(Format::Yaml), Some(3.0.into()));
    }
}
