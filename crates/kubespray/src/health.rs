//! The health of a built cluster, from real probes through its kubeconfig.
//!
//! Reads only: `/readyz?verbose` for the API server and, through it, etcd; the nodes and their versions; the end of the API
//! server's and the administrator's certificates, and of those that servers of hosts were seen to show. Nothing here goes to the
//! hosts by ssh.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use api::{
    HostName,
    node::{Health, NodeFacts, NodeVersions},
    text::{lines, plain},
};
use controller::kubeconfig::{ConnectError, Foreign};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::certificates::{Place, Served};

/// How long one probe may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest list of checks of an API server that is looked at, and the longest reason of a failure that is told, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
/// How many nodes are asked for at once, and how often: together more than Kubernetes is made for.
const PAGE: u32 = 500;
const PAGES: usize = 20;
const REASON_LIMIT: usize = 512;

/// Why nothing could be probed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its server may not be reached, or no client could be made of it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The resolver took too long.
    #[error("nobody said within 10 s where the server is")]
    Resolve,
}

/// What one probe found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Check {
    /// How good it is.
    pub health: Health,
    /// For people, the same from probe to probe while nothing changes.
    pub message: String,
}

impl Check {
    fn new(health: Health, message: impl Into<String>) -> Self {
        Self {
            health,
            message: message.into(),
        }
    }
}

/// One node as the cluster sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Whether it is Ready, and if not, why.
    pub check: Check,
    /// The versions that it reports.
    pub versions: NodeVersions,
    /// The system that it reports.
    pub facts: NodeFacts,
}

/// What all probes found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whether the API server is ready.
    pub api_server: Check,
    /// Whether the API server finds etcd ready.
    pub etcd: Check,
    /// Whether every expected node is Ready.
    pub nodes: Check,
    /// Whether certificates are valid for long enough.
    pub certificates: Check,
    /// The end of the administrator's own.
    pub own_end: Option<Timestamp>,
    /// The nodes by name.
    pub members: BTreeMap<String, Member>,
    /// The oldest kubelet's version, without the leading `v`.
    pub kubernetes: Option<String>,
}

impl Report {
    /// The worst of all.
    pub fn health(&self) -> Health {
        self.checks()
            .into_iter()
            .map(|check| check.health)
            .max()
            .unwrap_or_default()
    }

    /// What is not as it should be, as one text. Empty: nothing.
    pub fn trouble(&self) -> String {
        let messages: Vec<_> = self
            .checks()
            .into_iter()
            .filter(|check| check.health != Health::Ok)
            .map(|check| check.message.as_str())
            .collect();
        messages.join("; ")
    }

    pub(crate) fn checks(&self) -> [&Check; 4] {
        [
            &self.api_server,
            &self.etcd,
            &self.nodes,
            &self.certificates,
        ]
    }
}

/// What is expected of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expected {
    /// The hosts that should be Ready nodes.
    pub nodes: Vec<HostName>,
    /// How long before their end certificates count as about to end.
    pub renew: Duration,
    /// The servers whose certificates are looked at.
    pub places: Vec<Place>,
    /// Since when a look counts: they may have been renewed then.
    pub since: Option<Timestamp>,
}

/// Probes the cluster that `kubeconfig` leads to. What servers showed is judged with it.
///
/// # Errors
///
/// Its API cannot be connected to: the address cannot be resolved or may not be used, or the kubeconfig holds what cannot be.
/// That it does not answer is no error, but in the report.
pub async fn probe(
    kubeconfig: &Foreign,
    expected: &Expected,
    served: &Served,
) -> Result<Report, Error> {
    let addresses = tokio::time::timeout(TIMEOUT, kubeconfig.addresses())
        .await
        .map_err(|_| Error::Resolve)??;
    let own = own_certificate(kubeconfig);
    let client = kubeconfig.client(addresses.clone(), TIMEOUT / 2)?;
    let (readiness, nodes, serving) = futures::join!(
        readiness(&client),
        nodes(&client),
        serving_certificate(kubeconfig, &addresses)
    );
    Ok(report(
        &readiness,
        nodes,
        &Ends {
            serving,
            own,
            served,
        },
        expected,
        Timestamp::now(),
    ))
}

/// What `/readyz?verbose` said, or why it said nothing.
type Readiness = Result<String, String>;

async fn readiness(client: &Client) -> Readiness {
    let request = http::Request::get("/readyz?verbose")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(text)) => Ok(lines(&text, ANSWER_LIMIT)),
        // A server that is not ready answers 500 with the same list.
        Ok(Err(kube::Error::Api(status))) if status.message.contains("[-]") => {
            Ok(lines(&status.message, ANSWER_LIMIT))
        }
        Ok(Err(error)) => Err(plain(&crate::chain(&error), REASON_LIMIT)),
        Err(_) => Err("no answer within 10 s".to_owned()),
    }
}

/// All nodes, page by page: one answer is read up to a bound, and a server that always has one more is left at some point.
async fn nodes(client: &Client) -> Result<Vec<Node>, String> {
    let all = async {
        let api = Api::<Node>::all(client.clone());
        let mut parameters = ListParams::default().limit(PAGE);
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let page = api.list(&parameters).await?;
            found.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
        Ok::<_, kube::Error>(found)
    };
    match tokio::time::timeout(TIMEOUT, all).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(plain(&crate::chain(&error), REASON_LIMIT)),
        Err(_) => Err("no answer within 10 s".to_owned()),
    }
}

/// The end of the certificate that the server shows. It is looked at, not trusted: nothing is sent over the connection
/// that would need trust, and nowhere else is gone to.
async fn serving_certificate(kubeconfig: &Foreign, addresses: &[SocketAddr]) -> Option<Timestamp> {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .tls_info(true)
        .tls_danger_accept_invalid_certs(true)
        .no_proxy()
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .resolve_to_addrs(&kubeconfig.server().host, addresses)
        .timeout(TIMEOUT)
        .build()
        .ok()?;
    let address = format!("{}/livez", kubeconfig.server());
    let response = client.get(address).send().await.ok()?;
    let info = response.extensions().get::<reqwest::tls::TlsInfo>()?;
    not_after(info.peer_certificate()?)
}

fn own_certificate(kubeconfig: &Foreign) -> Option<Timestamp> {
    let chain = kubeconfig.client_certificate()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(chain.as_bytes()).ok()?;
    not_after(&pem.contents)
}

/// When a certificate ends.
pub(crate) fn not_after(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// When certificates end.
struct Ends<'a> {
    /// What the server of the kubeconfig shows.
    serving: Option<Timestamp>,
    /// The administrator's.
    own: Option<Timestamp>,
    /// What the servers of hosts showed.
    served: &'a Served,
}

/// Judges what was read. Pure.
fn report(
    readiness: &Readiness,
    nodes: Result<Vec<Node>, String>,
    ends: &Ends<'_>,
    expected: &Expected,
    now: Timestamp,
) -> Report {
    let (api_server, etcd) = judge_readiness(readiness);
    let members: BTreeMap<_, _> = nodes
        .iter()
        .flatten()
        .map(|node| (node.name_any(), member(node)))
        .collect();
    let kubernetes = members
        .values()
        .filter_map(|member| member.versions.kubelet.clone())
        .min();
    Report {
        api_server,
        etcd,
        nodes: judge_nodes(nodes.err(), &members, &expected.nodes),
        certificates: judge_certificates(ends, expected.renew, now),
        own_end: ends.own,
        members,
        kubernetes,
    }
}

fn judge_readiness(readiness: &Readiness) -> (Check, Check) {
    let text = match readiness {
        Err(error) => {
            let api_server = Check::new(
                Health::Err,
                format!("the API server does not answer: {error}"),
            );
            let etcd = Check::new(
                Health::Warn,
                "nothing is known of etcd while the API server does not answer",
            );
            return (api_server, etcd);
        }
        Ok(text) => text,
    };
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let etcd = failed.iter().any(|name| name.starts_with("etcd"));
    let others: Vec<_> = failed
        .iter()
        .copied()
        .filter(|name| !name.starts_with("etcd"))
        .collect();
    let api_server = if others.is_empty() {
        Check::new(Health::Ok, "the API server is ready")
    } else {
        let list = others.join(", ");
        Check::new(Health::Err, format!("the API server is not ready: {list}"))
    };
    let etcd = if etcd {
        Check::new(Health::Err, "the API server finds etcd not ready")
    } else {
        Check::new(Health::Ok, "the API server finds etcd ready")
    };
    (api_server, etcd)
}

fn member(node: &Node) -> Member {
    let status = node.status.clone().unwrap_or_default();
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let check = match ready {
        Some(condition) if condition.status == "True" => Check::new(Health::Ok, "Ready"),
        Some(condition) => Check::new(
            Health::Err,
            condition
                .reason
                .as_ref()
                .map_or_else(|| "not Ready".to_owned(), |reason| plain(reason, 128)),
        ),
        None => Check::new(Health::Err, "has not reported yet"),
    };
    let info = status.node_info.unwrap_or_default();
    Member {
        check,
        versions: NodeVersions {
            kubelet: word(info.kubelet_version.trim_start_matches('v')),
            container_runtime: word(&info.container_runtime_version),
        },
        facts: NodeFacts {
            os: Some(plain(&info.os_image, 256)),
            kernel: word(&info.kernel_version),
            architecture: word(&info.architecture),
            python: None,
        },
    }
}

/// A version or the name of a system, as a kubelet reports it of its host; nothing if it is anything else.
fn word(text: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~:/-".contains(&byte);
    let valid = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
    valid.then(|| text.to_owned())
}

fn judge_nodes(
    error: Option<String>,
    members: &BTreeMap<String, Member>,
    expected: &[HostName],
) -> Check {
    if let Some(error) = error {
        return Check::new(Health::Err, format!("the nodes cannot be listed: {error}"));
    }
    let bad: Vec<_> = expected
        .iter()
        .filter_map(|host| match members.get(host.as_str()) {
            None => Some(format!("{host}: has not joined")),
            Some(member) if member.check.health != Health::Ok => {
                Some(format!("{host}: {}", member.check.message))
            }
            Some(_) => None,
        })
        .collect();
    let total = expected.len();
    let ready = total.saturating_sub(bad.len());
    match bad.len() {
        0 => Check::new(Health::Ok, format!("{ready} of {total} nodes are Ready")),
        count => Check::new(
            if count == total {
                Health::Err
            } else {
                Health::Warn
            },
            format!("{ready} of {total} nodes are Ready; {}", bad.join(", ")),
        ),
    }
}

fn judge_certificates(ends: &Ends<'_>, renew: Duration, now: Timestamp) -> Check {
    let certificate = "a certificate".to_owned();
    let served = ends.served.first().map(|(host, part, end)| {
        let certificate = format!("the certificate of {} on {host}", part.name());
        (end, certificate)
    });
    let known = [ends.serving, ends.own].into_iter().flatten();
    let known = known.map(|end| (end, certificate.clone()));
    let first = served.into_iter().chain(known).min_by_key(|(end, _)| *end);
    let Some((first, certificate)) = first else {
        return Check::new(Health::Warn, "no certificate could be read");
    };
    let day = first.strftime("%Y-%m-%d");
    let renew = SignedDuration::try_from(renew).unwrap_or(SignedDuration::MAX);
    if first <= now {
        Check::new(Health::Err, format!("{certificate} ended on {day}"))
    } else if now.duration_until(first) < renew {
        Check::new(Health::Warn, format!("{certificate} ends on {day}"))
    } else {
        Check::new(Health::Ok, format!("certificates are valid until {day}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Part;

    const DAY: i64 = 86_400;

    fn node(name: &str, ready: &str) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name},
            "status": {
                "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady"}],
                "nodeInfo": {
                    "kubeletVersion": "v1.34.3", "containerRuntimeVersion": "containerd://1.6.20",
                    "osImage": "Debian", "kernelVersion": "6.1", "architecture": "amd64", "bootID": "", "machineID": "",
                    "systemUUID": "", "kubeProxyVersion": "", "operatingSystem": "linux",
                },
            },
        }))
        .unwrap()
    }

    fn judged(readiness: &Readiness, nodes: Result<Vec<Node>, String>, end: i64) -> Report {
        let expected = Expected {
            nodes: vec!["a".parse().unwrap(), "b".parse().unwrap()],
            renew: Duration::from_hours(720),
            places: Vec::new(),
            since: None,
        };
        let ends = Ends {
            serving: Timestamp::from_second(end).ok(),
            own: None,
            served: &Served::default(),
        };
        report(readiness, nodes, &ends, &expected, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_worst_probe_decides_and_is_named() {
        let ready = || Ok("[+]ping ok\n[+]etcd ok\nreadyz check passed".to_owned());
        let both = || Ok(vec![node("a", "True"), node("b", "True")]);
        for (name, report, health, text) in [
            (
                "all well",
                judged(&ready(), both(), 365 * DAY),
                Health::Ok,
                "",
            ),
            (
                "etcd",
                judged(
                    &Ok("[+]ping ok\n[-]etcd failed: reason withheld".into()),
                    both(),
                    365 * DAY,
                ),
                Health::Err,
                "etcd not ready",
            ),
            (
                "no answer",
                judged(&Err("refused".into()), Err("refused".into()), 365 * DAY),
                Health::Err,
                "refused",
            ),
            (
                "one node",
                judged(
                    &ready(),
                    Ok(vec![node("a", "True"), node("b", "False")]),
                    365 * DAY,
                ),
                Health::Warn,
                "1 of 2 nodes are Ready; b: KubeletNotReady",
            ),
            (
                "missing",
                judged(&ready(), Ok(vec![node("a", "True")]), 365 * DAY),
                Health::Warn,
                "b: has not joined",
            ),
            (
                "about to end",
                judged(&ready(), both(), DAY),
                Health::Warn,
                "ends on 1970-01-02",
            ),
            (
                "ended",
                judged(&ready(), both(), -DAY),
                Health::Err,
                "ended on 1969-12-31",
            ),
        ] {
            assert_eq!(report.health(), health, "{name}");
            assert!(
                report.trouble().contains(text),
                "{name}: {}",
                report.trouble()
            );
        }
    }

    #[test]
    fn the_certificate_that_ends_first_is_named_and_one_that_nobody_checks_is_not() {
        let end = |days: i64| Timestamp::from_second(days * DAY).unwrap();
        let served = |part, days| Served {
            at: None,
            ends: [(("a".to_owned(), part), end(days))].into(),
        };
        for (part, days, text) in [
            (
                Part::ApiServer,
                3,
                "the certificate of kube-apiserver on a ends on 1970-01-04",
            ),
            (
                Part::Etcd,
                3,
                "the certificate of etcd on a ends on 1970-01-04",
            ),
            (Part::Etcd, 400, "certificates are valid until 1971-01-01"),
            (Part::Kubelet, 3, "certificates are valid until 1971-01-01"),
        ] {
            let ends = Ends {
                serving: Some(end(365)),
                own: Some(end(365)),
                served: &served(part, days),
            };
            let check = judge_certificates(&ends, Duration::from_hours(720), Timestamp::UNIX_EPOCH);
            assert_eq!(check.message, text);
        }
    }

    #[test]
    fn what_a_kubelet_says_is_a_word_or_plain_text() {
        let mut bad = node("a", "False");
        let status = bad.status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].reason = Some("\u{1b}[31mNo\nReady".to_owned());
        let info = status.node_info.as_mut().unwrap();
        info.kubelet_version = "v1.34.3 {{ x }}".to_owned();
        info.os_image = "Deb\u{202e}ian\u{1b}]0;x\u{7}".to_owned();
        info.kernel_version = "x".repeat(1 << 20);
        let report = judged(&Ok(String::new()), Ok(vec![bad]), DAY);
        let member = &report.members["a"];
        assert_eq!(member.check.message, "No Ready");
        assert_eq!(member.versions.kubelet, None);
        assert_eq!(member.facts.os.as_deref(), Some("Debian"));
        assert_eq!(member.facts.kernel, None);
    }

    #[test]
    fn versions_and_systems_come_from_the_nodes() {
        let report = judged(&Ok(String::new()), Ok(vec![node("a", "True")]), DAY);
        assert_eq!(report.kubernetes.as_deref(), Some("1.34.3"));
        assert_eq!(report.members["a"].facts.os.as_deref(), Some("Debian"));
    }
}
