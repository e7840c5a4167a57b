//! Steps of the toolbox that are no plays: nodes are cordoned, a token is made, certificates are looked at.

use std::time::Duration;

use ansible::probe;
use api::{
    HostName,
    run::{FailureClass, Step},
    text::plain,
};
use base64::Engine;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use runs::small_log;
use workflow::{StepContext, StepOutcome};

use super::{
    drain::{connect, first, unanswered},
    executor::{KubesprayExecutor, failed, succeeded},
    prepare,
    work::PATIENCE,
    workspace::{disk, failure},
};
use crate::{action, health::not_after, token};

/// How long a host may take to show its certificates.
const LOOK: Duration = Duration::from_secs(30);
/// How many certificates of a host are told.
const MOST: usize = 256;
/// Prints each certificate that the parts of a host have, and no key: where kubeadm, kubespray and the kubelet keep them.
const SHOW: &str = r##"
show() { [ -r "$1" ] && echo "# $1" && sed -n '/-----BEGIN CERTIFICATE-----/,/-----END CERTIFICATE-----/p' "$1"; }
for directory in /etc/kubernetes/ssl /etc/kubernetes/pki; do
  if [ -L "$directory" ]; then continue; fi
  for file in "$directory"/*.crt "$directory"/etcd/*.crt; do show "$file"; done
done
for file in /etc/ssl/etcd/ssl/*.pem; do
  case "$file" in *-key.pem) ;; *) show "$file" ;; esac
done
for file in /var/lib/kubelet/pki/kubelet-client-current.pem /var/lib/kubelet/pki/kubelet.crt; do show "$file"; done
for file in /etc/kubernetes/*.conf; do
  data=$(sed -n 's/^ *client-certificate-data: *//p' "$file" | head -n 1)
  if [ -n "$data" ]; then echo "# $file"; echo "$data" | base64 -d; echo; fi
done
exit 0
"##;

/// Has pods come to nodes, or no new ones.
pub(crate) async fn cordon(
    executor: &KubesprayExecutor,
    step: &Step,
    lets_in: bool,
) -> StepOutcome {
    let hosts = action::hosts_of(executor.work.plan.plan(), step);
    let done = async {
        let cluster = connect(&executor.work, PATIENCE).await?;
        let mut missing = Vec::new();
        for host in &hosts {
            match cluster.node(host).await? {
                Some(node) if lets_in => cluster.let_in(&node).await?,
                Some(node) => cluster.keep_out(&node).await?,
                None => missing.push(host.to_string()),
            }
        }
        Ok::<_, String>(missing)
    };
    match done.await {
        Err(error) => failed(unanswered(error)),
        Ok(missing) if missing.is_empty() => succeeded(None),
        Ok(missing) => failed(failure(
            FailureClass::External,
            "NodeMissing",
            format!("they are no nodes of the cluster: {}", first(&missing)),
            Some("have their kubelets register them (windlass converge), or name other hosts"),
        )),
    }
}

/// Makes a token by which a node may join. What is told is its name.
pub(crate) async fn make_token(
    executor: &KubesprayExecutor,
    expires: api::Duration,
) -> StepOutcome {
    let work = &executor.work;
    let id = token::id(&work.run.uid().unwrap_or_default());
    let lives = SignedDuration::try_from(Duration::from(expires)).unwrap_or(SignedDuration::ZERO);
    let ends = Timestamp::now()
        .saturating_add(lives)
        .unwrap_or(Timestamp::MAX);
    let secret = token::secret(&id, &work.run.name_any(), ends);
    let made = async { connect(work, PATIENCE).await?.make_token(&secret).await };
    match made.await {
        Err(error) => failed(unanswered(error)),
        Ok(()) => succeeded(Some(format!(
            "token {id} lives for {expires}; the rest of it is in Secret {}/{} of the cluster: windlass cluster token prints it",
            token::NAMESPACE,
            token::secret_name(&id)
        ))),
    }
}

/// One certificate on a host.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Seen {
    ends: Timestamp,
    host: String,
    file: String,
}

impl Seen {
    fn told(&self) -> String {
        let Self { ends, host, file } = self;
        format!("{} {host} {file}", ends.strftime("%Y-%m-%d"))
    }
}

/// Looks at the certificates on hosts: all of them into the log of the step, what matters into its record.
pub(crate) async fn certificates(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let options = match prepare::options(executor).await {
        Ok(options) => options,
        Err(failure) => return failed(failure),
    };
    let left_out = action::hosts_left_out(&context.excluded);
    let mut hosts = action::hosts_of(executor.work.plan.plan(), step);
    hosts.retain(|host| !left_out.contains(host));
    let targets = prepare::targets(executor, &hosts);
    let asked = targets
        .iter()
        .map(async |target| probe::run(target, &options, SHOW, LOOK).await);
    let mut seen = Vec::new();
    let mut silent = Vec::new();
    for (target, said) in targets.iter().zip(join_all(asked).await) {
        match said {
            Ok(said) => seen.extend(of_host(&target.name, &said)),
            Err(unusable) => silent.push(format!("{}: {}", target.name, unusable.message())),
        }
    }
    seen.sort_unstable();
    let log = executor.work.directory.join("logs");
    let log = log.join(format!("{}.log", step.id.replace('/', "__")));
    for line in seen.iter().map(Seen::told).chain(silent.iter().cloned()) {
        if let Err(error) = small_log::append(&log, &line) {
            return failed(disk(&log, &error));
        }
    }
    if !silent.is_empty() {
        return failed(failure(
            FailureClass::External,
            "HostUnreachable",
            format!("hosts do not show their certificates: {}", first(&silent)),
            Some("let them answer ssh, then retry the run"),
        ));
    }
    succeeded(Some(told(&seen, hosts.len(), Timestamp::now())))
}

/// What matters of them, in the order of their ends.
fn told(seen: &[Seen], hosts: usize, now: Timestamp) -> String {
    let ended: Vec<_> = seen.iter().filter(|seen| seen.ends <= now).collect();
    let count = format!("{} certificates on {hosts} hosts", seen.len());
    let named = |seen: &[&Seen]| {
        let told: Vec<_> = seen.iter().map(|seen| seen.told()).collect();
        first(&told)
    };
    let left: Vec<_> = seen.iter().filter(|seen| seen.ends > now).take(3).collect();
    match (ended.is_empty(), left.is_empty()) {
        (true, true) => count,
        (true, false) => format!("{count}; the first to end: {}", named(&left)),
        (false, _) => format!(
            "{count}; {} have ended: {}; windlass renew makes those of the control plane anew",
            ended.len(),
            named(&ended)
        ),
    }
}

/// The certificates that a host has shown: of each file the first. What is none is passed over.
fn of_host(host: &HostName, said: &str) -> Vec<Seen> {
    let mut seen = Vec::new();
    for part in said.split("# ").skip(1) {
        let Some((file, rest)) = part.split_once('\n') else {
            continue;
        };
        let body = rest
            .split_once("-----BEGIN CERTIFICATE-----")
            .and_then(|(_, rest)| rest.split_once("-----END CERTIFICATE-----"));
        let Some((body, _)) = body else { continue };
        let body: String = body.split_whitespace().collect();
        let der = base64::engine::general_purpose::STANDARD.decode(body);
        let Some(ends) = der.ok().and_then(|der| not_after(&der)) else {
            continue;
        };
        seen.push(Seen {
            ends,
            host: host.to_string(),
            file: plain(file, 128),
        });
        if seen.len() >= MOST {
            break;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_shows_is_read_and_what_is_none_is_passed_over() {
        let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let pem = certificate.cert.pem();
        let said = format!(
            "# /etc/kubernetes/ssl/apiserver.crt\n{pem}{pem}# /etc/kubernetes/ssl/broken.crt\n-----BEGIN CERTIFICATE-----\nAAAA\n\
             -----END CERTIFICATE-----\n# \u{1b}[2Jx\n{pem}# none"
        );
        let seen = of_host(&"a".parse().unwrap(), &said);
        let files: Vec<_> = seen.iter().map(|seen| seen.file.as_str()).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert_eq!(files[0], "/etc/kubernetes/ssl/apiserver.crt");
        assert!(!files[1].contains('\u{1b}'), "{files:?}");

        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |day: i64| Seen {
            ends: now + SignedDuration::from_hours(24 * day),
            host: "a".into(),
            file: format!("f{day}"),
        };
        let text = told(&[at(1), at(2)], 1, now);
        assert_eq!(
            text,
            "2 certificates on 1 hosts; the first to end: 2027-01-16 a f1, 2027-01-17 a f2"
        );
        let text = told(&[at(-1), at(2)], 1, now);
        assert!(text.contains("1 have ended: 2027-01-14 a f-1"), "{text}");
    }
}
