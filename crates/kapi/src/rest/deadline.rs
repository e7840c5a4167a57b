//! How long a client wants to wait: a duration as Go writes it. Requests are answered at once, so only its form counts.

use crate::failure::{Failure, Result};

/// Refuses what is no duration.
pub(crate) fn check(timeout: Option<&str>) -> Result<()> {
    timeout.map_or(Ok(()), parse).map_err(|why| {
        let rule = "invalid timeout specified in the request URL";
        Failure::bad_request(format!("{rule} - time: {why}"))
    })
}

fn parse(text: &str) -> Result<(), String> {
    let invalid = || format!("invalid duration {text:?}");
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest.is_empty() {
        return Err(invalid());
    }
    if rest == "0" {
        return Ok(());
    }
    while !rest.is_empty() {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let (figures, after) = split(rest, number);
        if !figures.contains(|c: char| c.is_ascii_digit()) || figures.matches('.').count() > 1 {
            return Err(invalid());
        }
        let (unit, after) = split(after, |c| !number(c));
        if unit.is_empty() {
            return Err(format!("missing unit in duration {text:?}"));
        }
        if !UNITS.contains(&unit) {
            return Err(format!("unknown unit {unit:?} in duration {text:?}"));
        }
        rest = after;
    }
    Ok(())
}

/// The longest beginning of such characters, and the rest.
fn split(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !of(c)).unwrap_or(text.len()))
}

/// Both signs that are written for the Greek letter are in it.
const UNITS: [&str; 8] = ["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for good in [
            "0", "1s", "-1.5h", "1h30m", ".5s", "5.s", "+3ms", "2\u{b5}s",
        ] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
        for bad in ["", "-", "abc", "5", "1d", "1s2", ".s", "1..2s", "1 s", "s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
