//! Asks hosts whether they answer: TCP, the ssh banner, a login, sudo and Python, all hosts at once.
//!
//! A dead host costs Ansible minutes and takes the living down with it. Here it costs one timeout, for any number of them,
//! and the reason is known. Hosts that answer are logged in to while the dead ones are waited for, over the connection that
//! they took: a second one would cost each of them another process. A login costs processor time on this machine (an ssh
//! process each), so only so many are under way at once. No host counts as dead because this machine was slow: a host is dead
//! that takes no connection, and the kernel does that part.

mod connect;
mod login;
mod reason;
mod script;

use std::{process::Command, thread, time::Duration};

use api::{HostName, node::NodeFacts};
use futures::future::join_all;
use tokio::{net::TcpStream, sync::Semaphore};

pub use reason::{Reason, Unusable};
pub use script::{Output, fetch, run, send};

use crate::{catalogue::PythonVersion, ssh::Access};

/// How many hosts are connected to at once: well below the 1024 files that a process may usually open.
const CONNECTIONS: usize = 256;
/// How many logins are under way at once per processor. A login takes about 10 ms of it and mostly waits for its host; even on
/// a busy machine so many end in seconds.
const LOGINS_PER_PROCESSOR: usize = 24;
/// What a second login counts for: so much less is under way beside it.
const SECOND_LOGIN: u32 = 4;

/// One host to ask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: HostName,
    /// The address that ssh connects to.
    pub address: String,
    /// The port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
}

/// How hosts are asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// How they are reached.
    pub access: Access,
    /// How long a host may take to answer a connection.
    pub connect_timeout: Duration,
    /// How long a login and the questions may take, from their turn on.
    pub login_timeout: Duration,
    /// The oldest Python that Ansible's modules run with: [`crate::catalogue::Release::host_python`].
    pub oldest_python: PythonVersion,
}

/// What one host answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The host.
    pub host: HostName,
    /// What it said of itself, or why it cannot be used.
    pub answer: Result<NodeFacts, Unusable>,
    /// Which machine it is, where it says that.
    pub machine: Option<Machine>,
}

/// What tells a machine that runs from all others: one of the two alone does not, for machines that are copies of each other share the
/// first, and containers of one host the second.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Machine {
    /// `/etc/machine-id`.
    id: String,
    /// `/proc/sys/kernel/random/boot_id`.
    boot: String,
}

impl Machine {
    /// From both; none: they are not in their form.
    ///
    /// # Source
    /// machine-id(5); random(4).
    pub fn of(id: &str, boot: &str) -> Option<Self> {
        let is_hex = |text: &str, length: usize| {
            let mut digits = text.bytes().filter(|byte| *byte != b'-');
            digits.clone().count() == length && digits.all(|byte| byte.is_ascii_hexdigit())
        };
        (is_hex(id, 32) && is_hex(boot, 32)).then(|| Self {
            id: id.to_ascii_lowercase(),
            boot: boot.to_ascii_lowercase(),
        })
    }
}

/// What a login answered.
#[derive(Clone, Debug, Default)]
struct Answer {
    facts: NodeFacts,
    machine: Option<Machine>,
}

/// Asks whether hosts accept connections and speak ssh; the answers are in the order of the targets. It takes no longer
/// than one connection timeout, for up to 256 hosts. A bastion is not gone through.
pub async fn connect(targets: &[Target], options: &Options) -> Vec<Report> {
    let turns = Semaphore::new(CONNECTIONS);
    let asked = targets.iter().map(async |target| {
        let _turn = turns.acquire().await;
        connect::directly(&target.address, target.port, options.connect_timeout)
            .await
            .map(drop)
    });
    reports(targets, join_all(asked).await, |()| Answer::default())
}

/// Logs in to the bastion, if there is one, within the time of a login, and leaves a connection that all hosts behind it share: without
/// it each of them would log in there by itself, all at once.
///
/// # Errors
///
/// The bastion does not answer, or refuses the login.
pub async fn open(options: &Options) -> Result<(), Unusable> {
    match &options.access.bastion {
        Some(bastion) => connect::open(bastion, options).await,
        None => Ok(()),
    }
}

/// Asks everything; the answers are in the order of the targets.
pub async fn probe(targets: &[Target], options: &Options) -> Vec<Report> {
    if let Err(unusable) = open(options).await {
        let answers = targets.iter().map(|_| Err(unusable.clone())).collect();
        return reports(targets, answers, |answer| answer);
    }
    let connections = Semaphore::new(CONNECTIONS);
    let logins = Semaphore::new(logins());
    let asked = targets.iter().map(async |target| {
        let _turn = connections.acquire().await;
        match connect::connect(target, options).await {
            Ok(connection) => log_in(target, connection, options, &logins).await,
            // It took the connection; the login, which may take longer, decides.
            Err(unusable) if unusable.reason == Reason::LoginTimedOut => {
                let _turn = logins.acquire().await;
                login::login(target, None, options).await
            }
            Err(unusable) => Err(unusable),
        }
    });
    reports(targets, join_all(asked).await, |answer| answer)
}

/// Logs in, a second time if the first took too long: it may have been this machine that was slow. Nor does a connection that
/// was given to ssh decide: a host that prints something at every login breaks it.
async fn log_in(
    target: &Target,
    connection: Option<TcpStream>,
    options: &Options,
    logins: &Semaphore,
) -> Result<Answer, Unusable> {
    let given = connection.is_some();
    let turn = logins.acquire().await;
    let first = login::login(target, connection, options).await;
    drop(turn);
    let turns = match &first {
        Err(unusable) if unusable.reason == Reason::LoginTimedOut => SECOND_LOGIN,
        Err(unusable) if unusable.reason == Reason::Broken && given => 1,
        _ => return first,
    };
    let _turns = logins.acquire_many(turns).await;
    login::login(target, None, options).await
}

/// ssh to a host, with nothing of the user's own configuration, so that a probe and Ansible see the same; the remote command
/// is to be added.
pub fn ssh_command(target: &Target, options: &Options) -> Command {
    let Target {
        address,
        port,
        user,
        ..
    } = target;
    // A host that was slow to answer has answered the probe.
    let timeout = options.connect_timeout.max(options.login_timeout);
    options.access.to_host(address, *port, user, timeout)
}

/// How many logins may be under way at once.
pub(crate) fn logins() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors * LOGINS_PER_PROCESSOR).min(128)
}

fn reports<A>(
    targets: &[Target],
    answers: Vec<Result<A, Unusable>>,
    answer_of: fn(A) -> Answer,
) -> Vec<Report> {
    let answers = targets.iter().zip(answers);
    let reports = answers.map(|(target, answer)| {
        let (answer, machine) = match answer.map(answer_of) {
            Ok(Answer { facts, machine }) => (Ok(facts), machine),
            Err(unusable) => (Err(unusable), None),
        };
        Report {
            host: target.name.clone(),
            answer,
            machine,
        }
    });
    reports.collect()
}
