//! What links in answers begin with: the address of the service as its clients know it.

use axum::http::{HeaderMap, HeaderName, Uri, header};

use crate::Options;

/// What a proxy with TLS says of the client's side.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Reads an address that links can begin with, and leaves out what they add themselves: a last `/`, `/v1`.
///
/// # Errors
///
/// It is no http or https URL, or has a user, arguments or a fragment.
pub fn public_url(text: &str) -> Result<String, String> {
    let wrong = |why: &str| {
        format!("{why}: write the address of the catalogue, for example https://magnum.example.com")
    };
    let url: Uri = text
        .parse()
        .map_err(|_| wrong("it can not be read as an address"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it does not begin with http:// or https://"));
    }
    let authority = url.authority().map(|authority| authority.as_str());
    if authority.is_none_or(|authority| authority.contains('@')) || text.contains(['?', '#']) {
        return Err(wrong("it has more than a host, a port and a path"));
    }
    let plain = text.trim_end_matches('/');
    Ok(plain.strip_suffix("/v1").unwrap_or(plain).to_owned())
}

/// The address as it was given, or else as the client wrote it; what no address can hold is left out, for it comes back in every
/// link. A client that says it came through a proxy by a scheme is told links of that scheme, and nobody else is.
pub(crate) fn base(headers: &HeaderMap, options: &Options) -> String {
    if let Some(url) = &options.public_url {
        return url.clone();
    }
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Each proxy adds what it saw at the end; the first one is the client's.
    let forwarded = text(&FORWARDED).and_then(|list| list.split(',').next());
    let forwarded = forwarded.map(str::trim);
    let scheme = forwarded
        .filter(|scheme| ["http", "https"].contains(scheme))
        .unwrap_or(options.scheme);
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    let host = text(&header::HOST);
    let host = host.filter(|host| host.len() <= 255 && host.chars().all(is_part));
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(scheme: &'static str, public_url: Option<&str>) -> Options {
        Options {
            max_clusters_per_project: 1,
            host: "here".to_owned(),
            scheme,
            policy: crate::policy::Policy::default(),
            public_url: public_url.map(str::to_owned),
        }
    }

    #[test]
    fn links_begin_with_what_the_client_knows() {
        let told = |pairs: &[(&'static str, &str)], options: &Options| {
            let pairs = pairs.iter();
            let pairs =
                pairs.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            base(&HeaderMap::from_iter(pairs), options)
        };
        let http = options("http", None);
        let host = ("host", "coe.example:9511");
        for (pairs, options, expected) in [
            (&[host][..], &http, "http://coe.example:9511"),
            (
                &[host][..],
                &options("https", None),
                "https://coe.example:9511",
            ),
            (
                &[host, ("x-forwarded-proto", "https")][..],
                &http,
                "https://coe.example:9511",
            ),
            (
                &[host, ("x-forwarded-proto", "https, http")][..],
                &http,
                "https://coe.example:9511",
            ),
            (
                &[host, ("x-forwarded-proto", "javascript")][..],
                &http,
                "http://coe.example:9511",
            ),
            (&[("host", "a\"b")][..], &http, "http://localhost"),
            (&[][..], &http, "http://localhost"),
            (
                &[host, ("x-forwarded-proto", "http")][..],
                &options("http", Some("https://cloud.example/coe")),
                "https://cloud.example/coe",
            ),
        ] {
            assert_eq!(told(pairs, options), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_public_address_is_one_that_links_can_begin_with() {
        for text in [
            "https://a.example",
            "https://a.example/",
            "https://a.example/v1",
            "https://a.example/v1/",
        ] {
            assert_eq!(public_url(text).unwrap(), "https://a.example", "{text}");
        }
        assert_eq!(
            public_url("http://[::1]:9511/coe/v1").unwrap(),
            "http://[::1]:9511/coe"
        );
        for text in [
            "",
            "a.example",
            "ftp://a.example",
            "https://u:p@a.example",
            "https://a.example/?x",
            "https://a.example/#x",
            "https://",
        ] {
            assert!(
                public_url(text)
                    .unwrap_err()
                    .contains("https://magnum.example.com"),
                "{text}"
            );
        }
    }
}
