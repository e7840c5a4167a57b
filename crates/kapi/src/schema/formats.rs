//! The string formats that are checked; an unknown format is only a remark, as in Kubernetes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use regex::Regex;

/// Whether `text` has the format. Unknown formats hold.
pub(super) fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => {
            text.parse::<jiff::Timestamp>().is_ok() && text.contains(['T', 't'])
        }
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "uuid" => matches(
            text,
            "^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
        ),
        "hostname" => hostname(text),
        "email" => text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        "uri" => text.contains(':') || text.starts_with('/'),
        "byte" => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_ok(),
        "mac" => matches(text, "^(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5}$"),
        _ => true,
    }
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// Go's `time.ParseDuration`, and the longer spelling with words.
fn duration(text: &str) -> bool {
    matches(
        text,
        r"^[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$",
    ) || matches(
        text,
        r"^(?i)\s*[0-9]+\s*(ns|nano|us|micro|ms|milli|s|sec|second|m|min|minute|h|hr|hour|d|day|w|week)s?\s*$",
    )
}

fn hostname(text: &str) -> bool {
    text.len() <= 253
        && matches(
            text,
            r"^(?i)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*\.?$",
        )
}

fn matches(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}
