//! Whether a host takes connections and speaks ssh, directly or through the bastion.

use std::{io, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, timeout, timeout_at},
};

use super::{Options, Reason, Target, Unusable, login};
use crate::ssh::{Bastion, Share};

/// How every ssh server begins (RFC 4253, section 4.2).
const BANNER: &[u8] = b"SSH-";
/// How the bastion's ssh says that it is logged in but does not get the connection.
const NOT_FORWARDED: [&str; 3] = [
    "open failed",
    "stdio forwarding failed",
    "Stdio forwarding request failed",
];

/// Connects and waits for the banner, both within the timeout. The connection can be logged in over, unless it goes through a
/// bastion.
pub(super) async fn connect(
    target: &Target,
    options: &Options,
) -> Result<Option<TcpStream>, Unusable> {
    match &options.access.bastion {
        Some(bastion) => behind(bastion, target, options).await.map(|()| None),
        None => directly(&target.address, target.port, options.connect_timeout)
            .await
            .map(Some),
    }
}

/// The same without a bastion; the banner is still to be read. Who takes the connection is not dead, however long its greeting
/// takes: that may be the fault of a busy machine, this one among them.
pub(super) async fn directly(
    address: &str,
    port: u16,
    limit: Duration,
) -> Result<TcpStream, Unusable> {
    let deadline = Instant::now() + limit;
    let stream = timeout_at(deadline, TcpStream::connect((address, port)))
        .await
        .map_err(|_| no_answer(limit))?
        .map_err(|error| no_connection(&error))?;
    timeout_at(deadline, greeted(&stream))
        .await
        .map_err(|_| {
            let detail = format!("no banner within {} s", limit.as_secs_f32());
            Unusable::new(Reason::LoginTimedOut, detail)
        })?
        .map_err(|error| not_ssh(&error))?;
    Ok(stream)
}

/// Logs in to the bastion and leaves a connection that all share.
///
/// A bastion may run no commands at all, so it is asked for a connection to itself; whether it grants that is no matter.
pub(super) async fn open(bastion: &Bastion, options: &Options) -> Result<(), Unusable> {
    let about = |unusable| Unusable {
        bastion: Some(bastion.to_string()),
        ..unusable
    };
    directly(&bastion.address, bastion.port, options.connect_timeout)
        .await
        .map_err(about)?;
    let itself = format!("[127.0.0.1]:{}", bastion.port);
    let login = options
        .access
        .through(bastion, &itself, options.login_timeout, Share::Yes);
    let ended = async {
        let child = start(login, Stdio::null())?;
        child
            .wait_with_output()
            .await
            .map_err(|error| Unusable::broken(error.to_string()))
    };
    let output = timeout(options.login_timeout, ended)
        .await
        .unwrap_or_else(|_| Err(login::too_long(options.login_timeout)))
        .map_err(about)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || NOT_FORWARDED.iter().any(|words| complaint.contains(words)) {
        return Ok(());
    }
    Err(about(login::refusal(&complaint)))
}

/// Connects through the bastion. What is wrong with a connection is only told to the one that does not share.
async fn behind(bastion: &Bastion, target: &Target, options: &Options) -> Result<(), Unusable> {
    let asked = async {
        let shared = ask(bastion, target, options, Share::Yes).await;
        match shared {
            Err(unusable) if unusable.reason == Reason::Forwarding => {
                ask(bastion, target, options, Share::No).await
            }
            answer => answer,
        }
    };
    let limit = options.connect_timeout;
    timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(no_answer(limit)))
}

async fn ask(
    bastion: &Bastion,
    target: &Target,
    options: &Options,
    share: Share,
) -> Result<(), Unusable> {
    let destination = format!("[{}]:{}", target.address, target.port);
    let access = &options.access;
    let forward = access.through(bastion, &destination, options.connect_timeout, share);
    let mut child = start(forward, Stdio::piped())?;
    let Some(mut stream) = child.stdout.take() else {
        return Err(Unusable::broken("ssh has no output"));
    };
    let Err(error) = banner(&mut stream).await else {
        return Ok(());
    };
    let output = child
        .wait_with_output()
        .await
        .map_err(|error| Unusable::broken(error.to_string()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(not_forwarded(&complaint).unwrap_or_else(|| not_ssh(&error)))
}

/// Why the bastion gives no connection; `None` if it gave one.
fn not_forwarded(complaint: &str) -> Option<Unusable> {
    let failed = complaint
        .lines()
        .find(|line| NOT_FORWARDED.iter().any(|words| line.contains(words)))?;
    let reason = match login::refusal(failed).reason {
        Reason::Broken => Reason::Forwarding,
        reason => reason,
    };
    Some(Unusable::new(reason, failed.trim()))
}

fn start(command: std::process::Command, input: Stdio) -> Result<Child, Unusable> {
    Command::from(command)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Unusable::broken(format!("ssh cannot be started: {error}")))
}

/// Looks at the banner's beginning and leaves it to be read. A server sends a line of it at once.
async fn greeted(stream: &TcpStream) -> io::Result<()> {
    let mut greeting = [0; BANNER.len()];
    let length = stream.peek(&mut greeting).await?;
    ssh_speaks(&greeting[..length])
}

/// Reads the banner's beginning.
async fn banner(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut greeting = [0; BANNER.len()];
    stream.read_exact(&mut greeting).await?;
    ssh_speaks(&greeting)
}

fn ssh_speaks(greeting: &[u8]) -> io::Result<()> {
    match greeting {
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        beginning if BANNER.starts_with(beginning) => Ok(()),
        _ => Err(io::Error::other("the banner is not ssh's")),
    }
}

fn not_ssh(error: &io::Error) -> Unusable {
    Unusable::new(Reason::NotSsh, format!("no banner: {error}"))
}

fn no_answer(limit: Duration) -> Unusable {
    let detail = format!("no answer within {} s", limit.as_secs_f32());
    Unusable::new(Reason::TimedOut, detail)
}

fn no_connection(error: &io::Error) -> Unusable {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::Refused,
        io::ErrorKind::TimedOut => Reason::TimedOut,
        // Name resolution has no kind of its own.
        _ if error.to_string().contains("lookup") => Reason::Unresolved,
        _ => Reason::NoRoute,
    };
    Unusable::new(reason, error.to_string())
}
