//! How a registry wants to be asked, as it says where it was asked otherwise. Pure.

use http::header;
use reqwest::{Response, Url};

/// How a registry wants to be asked.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Challenge {
    /// With a name and a password.
    Basic,
    /// With a token.
    Bearer {
        /// Who gives it.
        realm: Url,
        /// What they call the registry.
        service: Option<String>,
    },
}

impl Challenge {
    pub(crate) fn of(response: &Response) -> Option<Self> {
        let told = response.headers().get_all(header::WWW_AUTHENTICATE);
        let mut told = told.iter().filter_map(|told| told.to_str().ok());
        told.find_map(Self::read)
    }

    /// `Bearer realm="URL",service="NAME"` or `Basic ...`; none: it is of another kind.
    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let value = |wanted: &str| {
            let mut rest = rest;
            while let Some((name, after)) = rest.split_once('=') {
                let (value, left) = match after.strip_prefix('"') {
                    Some(quoted) => quoted.split_once('"')?,
                    None => after.split_once(',').unwrap_or((after, "")),
                };
                let name = name.trim_matches([',', ' ']);
                if name.eq_ignore_ascii_case(wanted) {
                    return Some(value.to_owned());
                }
                rest = left;
            }
            None
        };
        let realm = Url::parse(&value("realm")?).ok()?;
        matches!(realm.scheme(), "http" | "https").then_some(())?;
        Some(Self::Bearer {
            realm,
            service: value("service"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_tokens_is_read_from_what_registries_say() {
        let told = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.parse().unwrap(),
                service: service.map(str::to_owned),
            })
        };
        for (text, expected) in [
            (
                "Bearer realm=\"https://a.example/token\",service=\"r.example\",scope=\"repository:a,b:pull\"",
                told("https://a.example/token", Some("r.example")),
            ),
            (
                "bearer scope=\"a=b,c\", service=r.example, realm=https://a.example/",
                told("https://a.example/", Some("r.example")),
            ),
            (
                "Bearer realm=\"https://a.example/t\"",
                told("https://a.example/t", None),
            ),
            (
                "Basic realm=\"https://a.example/token\"",
                Some(Challenge::Basic),
            ),
            ("Bearer realm=\"file:///etc/passwd\"", None),
            ("Bearer realm=\"https://a.example", None),
            ("Bearer", None),
            ("Negotiate", None),
        ] {
            assert_eq!(Challenge::read(text), expected, "{text}");
        }
    }
}
