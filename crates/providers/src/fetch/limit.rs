//! Servers that want no more requests for a while: one of them is asked by nobody until then, whichever provider is to be brought.
//!
//! # Source
//! RFC 6585 section 4 (429), RFC 9110 section 10.2.3 (`Retry-After`), and GitHub's REST API, which answers 403 with
//! `x-ratelimit-remaining: 0` and says by `x-ratelimit-reset` when it counts anew.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::{Timestamp, fmt::rfc2822};
use reqwest::{
    StatusCode,
    header::{DATE, HeaderMap, RETRY_AFTER},
};

use super::FetchError;

/// How long a server is left alone that does not say for how long.
const UNTOLD: Duration = Duration::from_mins(1);
/// The longest, whatever a server says: GitHub counts anew each hour.
const LONGEST: Duration = Duration::from_hours(1);

/// For how long a server wants to be left alone. None: it does not say that. Its times are held against the date of its answer, so that
/// neither clock matters. Pure.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER.as_str());
    let reset = text("x-ratelimit-reset").and_then(|text| text.parse().ok());
    let none_left = text("x-ratelimit-remaining").is_none_or(|left| left == "0");
    let is_limit = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => after.is_some() || (reset.is_some() && none_left),
        _ => false,
    };
    if !is_limit {
        return None;
    }
    let date = text(DATE.as_str()).and_then(moment).unwrap_or(now);
    let until =
        |moment: Timestamp| Duration::try_from(moment.duration_since(date)).unwrap_or_default();
    let seconds = after.and_then(|after| after.parse().ok().map(Duration::from_secs));
    let said = seconds
        .or_else(|| after.and_then(moment).map(until))
        .or_else(|| {
            reset
                .and_then(|reset| Timestamp::from_second(reset).ok())
                .map(until)
        });
    Some(
        said.unwrap_or(UNTOLD)
            .clamp(Duration::from_secs(1), LONGEST),
    )
}

/// A date of HTTP. Those of its two obsolete forms are not read.
fn moment(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// The servers that are to be left alone, and until when.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<HashMap<String, Instant>>);

impl Limits {
    /// Why a server is not asked now.
    pub(super) fn of(&self, host: &str) -> Option<FetchError> {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        limits.retain(|_, until| *until > now);
        let until = limits.get(host)?;
        Some(FetchError::Limited {
            host: host.to_owned(),
            pause: until.saturating_duration_since(now),
        })
    }

    /// Notes that the server that was to be asked, or one to which it led, is to be left alone.
    pub(super) fn note(&self, host: String, pause: Duration) {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        limits.insert(host, Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_how_long_is_left_alone_so_long() {
        let now = "2026-11-27T10:00:00Z".parse().unwrap();
        let hour = "Fri, 27 Nov 2026 11:00:00 GMT";
        // By the server's own clock, which is an hour ahead, in two minutes.
        let (in_two, epoch) = ("Fri, 27 Nov 2026 11:02:00 GMT", "1795777320");
        for (why, status, headers, expected) in [
            ("plain", 200, &[("retry-after", "9")][..], None),
            ("nothing said", 429, &[], Some(60)),
            ("seconds", 429, &[("retry-after", "9")], Some(9)),
            ("at once", 429, &[("retry-after", "0")], Some(1)),
            ("a day", 429, &[("retry-after", "86400")], Some(3600)),
            (
                "a date",
                429,
                &[("retry-after", in_two), ("date", hour)],
                Some(120),
            ),
            (
                "a date of the past",
                429,
                &[("retry-after", hour), ("date", in_two)],
                Some(1),
            ),
            ("no date", 429, &[("retry-after", "soon")], Some(60)),
            ("forbidden", 403, &[], None),
            (
                "forbidden for a while",
                403,
                &[("retry-after", "9")],
                Some(9),
            ),
            (
                "as GitHub",
                403,
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", epoch),
                    ("date", hour),
                ],
                Some(120),
            ),
            (
                "forbidden with requests left",
                403,
                &[("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", epoch)],
                None,
            ),
            ("away", 503, &[("retry-after", "9")], None),
        ] {
            let headers = headers.iter().map(|(name, value)| {
                (
                    name.parse::<reqwest::header::HeaderName>().unwrap(),
                    value.parse().unwrap(),
                )
            });
            let headers: HeaderMap = headers.collect();
            let pause = pause(StatusCode::from_u16(status).unwrap(), &headers, now);
            assert_eq!(pause.map(|pause| pause.as_secs()), expected, "{why}");
        }
    }
}
