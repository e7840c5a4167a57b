//! Playbooks out of a git repository.
//!
//! One commit is fetched into a bare repository without history, and its files are read out of the object store: nothing is
//! checked out, so that no attribute, filter, hook or submodule of the repository is ever acted upon. What git may take of
//! the disk and of memory is watched from outside, for it has no bounds of its own; it runs in a process group that is
//! killed when nobody waits any more.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{io::AsyncReadExt, process::Command};

use super::{
    Error, Unpacked,
    network::{self, Gate},
    policy::{Policy, Protocol, Settings},
    tree::{self, Refusal, Wanted, Writer, shown},
};
use crate::FileError;

/// How often git's use of disk and memory is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How much of what git complains is kept: a server may say as much as it likes.
const COMPLAINT: u64 = 64 << 10;

/// What git fetches before it knows how much there is: kubespray's newest commit is about 2 MiB.
const SLACK: u64 = 16 << 20;

/// The variable that git finds the address of the gate in.
const GATE: &str = "WINDLASS_GATE";

/// A repository and what of it is wanted.
pub(super) struct Wish<'a> {
    pub(super) url: &'a str,
    pub(super) reference: &'a str,
    /// The commit that the reference must stand for.
    pub(super) commit: Option<&'a str>,
}

/// Fetches a commit and writes its tree below `work`.
pub(super) async fn pull(
    wish: &Wish<'_>,
    policy: &Policy,
    work: &Path,
    wanted: Wanted,
) -> Result<Unpacked, Error> {
    let address = Address::parse(wish.url).ok_or_else(|| Error::Url(shown(wish.url)))?;
    if !policy.protocols.contains(&address.protocol) {
        return Err(Error::Protocol {
            place: shown(wish.url),
            protocol: address.protocol,
            allowed: policy.protocols.clone(),
        });
    }
    let repository = work.join("repository");
    let git = Git::prepare(&address, policy, work, &repository).await?;
    let fetched = git.fetch(wish).await;
    // What git says of a connection that the gate refused is not the reason.
    if let (Err(_), Some(refusal)) = (&fetched, git.gate.as_ref().and_then(Gate::refusal)) {
        return Err(Error::Network {
            place: shown(wish.url),
            source: refusal,
        });
    }
    let commit = fetched?;
    if let Some(expected) = wish.commit.filter(|expected| *expected != commit) {
        return Err(Error::Moved {
            url: shown(wish.url),
            reference: shown(wish.reference),
            expected: expected.to_owned(),
            found: commit,
        });
    }
    let tree = work.join("tree");
    let read = Reading {
        git,
        place: format!("{} of {}", shown(wish.reference), shown(wish.url)),
        policy: policy.clone(),
        wanted,
    };
    let target = tree.clone();
    tokio::task::spawn_blocking(move || read.write(&target))
        .await
        .map_err(Error::Join)??;
    Ok(Unpacked {
        tree,
        revision: commit,
    })
}

/// What of a repository's address decides whether it is asked.
#[derive(Debug, Eq, PartialEq)]
struct Address {
    protocol: Protocol,
    host: String,
    port: u16,
}

impl Address {
    /// As git reads it, but for helpers (`ext::...`), which run commands. None: git would not understand it either.
    fn parse(url: &str) -> Option<Self> {
        if url.is_empty() || url.starts_with('-') || url.chars().any(char::is_control) {
            return None;
        }
        if let Some((scheme, rest)) = url.split_once("://") {
            let protocol = match scheme {
                "git+ssh" | "ssh+git" => Protocol::Ssh,
                _ => scheme.parse().ok()?,
            };
            let authority = rest.split('/').next().unwrap_or_default();
            let authority = authority.rsplit('@').next().unwrap_or_default();
            let default = match protocol {
                Protocol::Https => 443,
                Protocol::Ssh => 22,
                Protocol::Http => 80,
                Protocol::Git => 9418,
                Protocol::File => {
                    return Some(Self {
                        protocol,
                        host: String::new(),
                        port: 0,
                    });
                }
            };
            let (host, port) = network::host_and_port(authority, default)?;
            return Some(Self {
                protocol,
                host,
                port,
            });
        }
        let before_path = url.split('/').next().unwrap_or_default();
        if url.contains("::") {
            return None;
        }
        // As scp writes it; a colon after a slash is part of a path.
        let (protocol, host) = match before_path.split_once(':') {
            Some((login, _)) => (Protocol::Ssh, login.rsplit('@').next().unwrap_or_default()),
            None => (Protocol::File, ""),
        };
        let named = protocol == Protocol::File || !host.is_empty();
        named.then(|| Self {
            protocol,
            host: host.to_owned(),
            port: 22,
        })
    }
}

/// git on one bare repository, with the settings that the policy grants.
struct Git {
    repository: PathBuf,
    policy: Policy,
    home: PathBuf,
    ssh: Option<String>,
    gate: Option<Gate>,
}

impl Git {
    async fn prepare(
        address: &Address,
        policy: &Policy,
        work: &Path,
        repository: &Path,
    ) -> Result<Self, Error> {
        let mut git = Self {
            repository: repository.to_owned(),
            policy: policy.clone(),
            home: work.to_owned(),
            ssh: None,
            gate: None,
        };
        if policy.settings == Settings::Person || address.protocol == Protocol::File {
            return Ok(git);
        }
        let refused = |source| Error::Network {
            place: shown(&address.host),
            source,
        };
        match address.protocol {
            Protocol::Https | Protocol::Http => {
                let most = policy.bounds.bytes.saturating_add(SLACK);
                let gate = Gate::open(policy, work, most.min(policy.bounds.download)).await;
                git.gate = Some(gate.map_err(FileError::of(work))?);
            }
            _ => {
                let found = network::resolve(policy, &address.host, address.port).await;
                git.ssh = Some(ssh(&address.host, found.map_err(refused)?)?);
                if address.protocol == Protocol::Git {
                    // git would resolve the name once more, to whatever it is by then.
                    address.host.parse::<IpAddr>().map_err(|_| {
                        Error::Url(format!(
                            "{}: git:// names a host by its address here",
                            shown(&address.host)
                        ))
                    })?;
                }
            }
        }
        Ok(git)
    }

    fn arguments(&self) -> Vec<String> {
        let mut settings = vec![
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.bigFileThreshold=1m",
            "core.packedGitWindowSize=16m",
            "core.packedGitLimit=256m",
            "fetch.recurseSubmodules=false",
            "gc.auto=0",
            "maintenance.auto=false",
            "pack.threads=1",
            "protocol.ext.allow=never",
            // One pack, whose size is seen as it grows.
            "transfer.unpackLimit=1",
            "http.lowSpeedLimit=1000",
            "http.lowSpeedTime=30",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
        if self.policy.settings == Settings::None {
            settings.push("credential.helper=".to_owned());
            settings.push("http.cookieFile=".to_owned());
        }
        let mut arguments: Vec<String> = settings
            .into_iter()
            .flat_map(|setting| ["-c".to_owned(), setting])
            .collect();
        if self.gate.is_some() {
            // Shown before it is asked for. The address has the credential, and other users see arguments.
            arguments.extend(["-c", "http.proxyAuthMethod=basic"].map(str::to_owned));
            arguments.push(format!("--config-env=http.proxy={GATE}"));
        }
        arguments
    }

    fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new("git");
        if self.policy.settings == Settings::None {
            command.env_clear();
            for name in ["PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
                if let Some(value) = std::env::var_os(name) {
                    command.env(name, value);
                }
            }
            if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
                command.env("GIT_SSL_CAINFO", file);
            }
            command
                .env("HOME", &self.home)
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_ATTR_NOSYSTEM", "1");
            if let Some(ssh) = &self.ssh {
                command.env("GIT_SSH_COMMAND", ssh);
            }
        }
        if let Some(gate) = &self.gate {
            command.env(GATE, gate.url());
        }
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        let protocols: Vec<&str> = self.policy.protocols.iter().map(|p| p.name()).collect();
        command
            .env("GIT_ALLOW_PROTOCOL", protocols.join(":"))
            .env("GIT_TERMINAL_PROMPT", "0")
            // Its words are read below.
            .env("LC_ALL", "C")
            .arg("--git-dir")
            .arg(&self.repository)
            .args(self.arguments())
            .stdin(Stdio::null());
        command
    }

    /// Brings the one commit; gives its name.
    async fn fetch(&self, wish: &Wish<'_>) -> Result<String, Error> {
        self.run(wish, &["init", "--quiet", "--bare", "--template="])
            .await?;
        // `--` keeps an address or a reference that begins with a dash from being an option.
        let arguments = ["fetch", "--quiet", "--depth", "1", "--no-tags", "--"];
        let arguments = [&arguments[..], &[wish.url, wish.reference]].concat();
        self.run(wish, &arguments).await?;
        self.run(wish, &["rev-parse", "FETCH_HEAD^{commit}"]).await
    }

    async fn run(&self, wish: &Wish<'_>, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::from(self.command());
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::NoGit)?;
        let mut group = Group::of(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = async { tokio::join!(child.wait(), heard(stdout), heard(stderr)) };
        let (status, told, said) = tokio::select! {
            ended = ended => ended,
            refusal = self.watch(&group) => {
                return Err(Error::Refused {
                    place: format!("{} of {}", shown(wish.reference), shown(wish.url)),
                    source: refusal,
                });
            }
        };
        group.forget();
        if status.map_err(Error::NoGit)?.success() {
            return Ok(told.trim().to_owned());
        }
        Err(complaint(wish, &said))
    }

    /// Ends when git takes more of the disk or of memory than it may.
    async fn watch(&self, group: &Group) -> Refusal {
        let bounds = self.policy.bounds;
        let most = bounds.bytes.saturating_add(SLACK);
        loop {
            tokio::time::sleep(LOOK).await;
            if size(&self.repository) > most {
                return Refusal::Bound {
                    what: "the bytes of the repository's newest commit are",
                    most,
                    at: "its pack".to_owned(),
                };
            }
            if group.memory() > bounds.memory {
                return Refusal::Bound {
                    what: "the bytes of memory that git takes for it are",
                    most: bounds.memory,
                    at: "its pack".to_owned(),
                };
            }
        }
    }
}

/// ssh to the address that was looked at, whose key is that of the name, with nobody's settings and no questions.
fn ssh(host: &str, address: IpAddr) -> Result<String, Error> {
    // The text goes through a shell.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if !host.chars().all(plain) || host.starts_with('-') {
        return Err(Error::Url(shown(host)));
    }
    Ok(format!(
        "ssh -F none -o BatchMode=yes -o ProxyCommand=none -o ConnectTimeout=15 -o HostKeyAlias={host} -o HostName={address}"
    ))
}

/// The beginning of what a process says; the rest is read and forgotten.
async fn heard(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(stream) = stream else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut first = stream.take(COMPLAINT);
    // What cannot be read any more was not said.
    let _ = first.read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut first.into_inner(), &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}

fn complaint(wish: &Wish<'_>, said: &str) -> Error {
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    // What follows the first complaint is advice.
    let reason = lines
        .clone()
        .find(|line| line.starts_with("fatal: "))
        .or_else(|| lines.next_back())
        .unwrap_or("git failed");
    let (url, reference) = (shown(wish.url), shown(wish.reference));
    if ["couldn't find remote ref", "not our ref"]
        .iter()
        .any(|words| reason.contains(words))
    {
        return Error::NoReference { url, reference };
    }
    Error::Git {
        url,
        reference,
        reason: shown(reason.trim()),
    }
}

/// A process group that is killed when it is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(leader: Option<u32>) -> Self {
        Self(
            leader
                .and_then(|id| i32::try_from(id).ok())
                .map(Pid::from_raw),
        )
    }

    /// It has ended.
    fn forget(&mut self) {
        self.0 = None;
    }

    /// What its processes hold in memory.
    fn memory(&self) -> u64 {
        let Some(group) = self.0 else { return 0 };
        let Ok(processes) = fs::read_dir("/proc") else {
            return 0;
        };
        processes
            .flatten()
            .filter_map(|process| fs::read_to_string(process.path().join("stat")).ok())
            .filter_map(|stat| resident(&stat, group))
            .sum()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // One that has ended needs no signal.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// The resident bytes of a process of a group, by its line in `/proc/PID/stat`.
fn resident(stat: &str, group: Pid) -> Option<u64> {
    // The name is in brackets and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let of: i32 = fields.nth(2)?.parse().ok()?;
    // Fields 5 and 24 of proc(5), in pages.
    let pages: u64 = fields.nth(18)?.parse().ok()?;
    (of == group.as_raw()).then(|| pages.saturating_mul(4096))
}

/// The bytes of all files below a directory that is being written to.
fn size(directory: &Path) -> u64 {
    walkdir::WalkDir::new(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|metadata| metadata.len())
        .sum()
}

/// The longest line of `git ls-tree` that is read: beyond any path that a tree may have.
const LINE: u64 = 16 << 10;

/// One file of a commit.
struct Blob {
    mode: u32,
    object: String,
    size: u64,
    path: PathBuf,
}

/// Reads the files of a commit out of the object store.
struct Reading {
    git: Git,
    place: String,
    policy: Policy,
    wanted: Wanted,
}

impl Reading {
    fn write(&self, target: &Path) -> Result<(), Error> {
        let refused = |error: tree::Error| Error::of_tree(&self.place, target, error);
        let failed = FileError::of(target);
        let blobs = self.list().map_err(refused)?;
        let total = blobs
            .iter()
            .fold(0, |sum: u64, blob| sum.saturating_add(blob.size));
        if total > self.policy.bounds.bytes {
            return Err(refused(tree::bound(
                "the bytes of all files are",
                self.policy.bounds.bytes,
                Path::new("the commit"),
            )));
        }
        let (bounds, reserve) = (self.policy.bounds, self.policy.room.reserve);
        let mut writer =
            Writer::new(target, bounds, reserve, self.wanted.clone()).map_err(failed)?;
        self.copy(&blobs, &mut writer).map_err(refused)?;
        writer.finish().map_err(refused)
    }

    fn list(&self) -> Result<Vec<Blob>, tree::Error> {
        let mut command = self.git.command();
        // With the directories: trees of trees without files would unfold for ever, and not a word of it be heard.
        command.args(["ls-tree", "-r", "-t", "-l", "-z", "--full-tree"]);
        command.arg("FETCH_HEAD");
        let mut child = Child::spawn(&mut command)?;
        let mut blobs = Vec::new();
        let mut output = BufReader::new(child.output()?);
        for listed in 0_usize.. {
            self.wanted.check()?;
            let mut line = Vec::new();
            output.by_ref().take(LINE).read_until(0, &mut line)?;
            if line.pop().is_none() {
                break;
            }
            let Some(blob) = parse(&line) else {
                let path = line.rsplit(|byte| *byte == b'\t').next();
                return Err(Refusal::Path(shown(tree::path_of(path.unwrap_or_default()))).into());
            };
            if listed >= self.policy.bounds.entries {
                let most = self.policy.bounds.entries as u64;
                return Err(tree::bound("entries are", most, &blob.path));
            }
            if blob.path.as_os_str().len() > self.policy.bounds.path_bytes {
                let most = self.policy.bounds.path_bytes as u64;
                return Err(tree::bound("a path is", most, &blob.path));
            }
            if blob.size > self.policy.bounds.file_bytes {
                let most = self.policy.bounds.file_bytes;
                return Err(tree::bound("the bytes of a file are", most, &blob.path));
            }
            if !blob.is_directory() {
                blobs.push(blob);
            }
        }
        child.succeeded()?;
        Ok(blobs)
    }

    fn copy(&self, blobs: &[Blob], writer: &mut Writer) -> Result<(), tree::Error> {
        // A file as input: nothing waits for it to be read.
        let names = self.git.home.join("objects");
        let mut input = fs::File::create_new(&names)?;
        for blob in blobs.iter().filter(|blob| blob.is_content()) {
            writeln!(input, "{}", blob.object)?;
        }
        let mut command = self.git.command();
        command
            .args(["cat-file", "--batch"])
            .stdin(fs::File::open(&names)?);
        let mut child = Child::spawn(&mut command)?;
        let mut output = BufReader::new(child.output()?);
        for blob in blobs {
            if blob.is_submodule() {
                // As git leaves it without its submodules.
                writer.directory(&blob.path)?;
                continue;
            }
            let mut head = String::new();
            output.by_ref().take(256).read_line(&mut head)?;
            if head.trim_end() != format!("{} blob {}", blob.object, blob.size) {
                return Err(Refusal::Path(shown(&blob.path)).into());
            }
            let mut content = output.by_ref().take(blob.size);
            if blob.is_link() {
                let mut target = Vec::new();
                content.by_ref().take(LINE).read_to_end(&mut target)?;
                writer.link(&blob.path, &tree::path_of(&target))?;
            } else {
                writer.file(&blob.path, blob.mode & 0o100 != 0, &mut content)?;
            }
            // What was not read of a file that does not count, and the line's end.
            std::io::copy(&mut content, &mut std::io::sink())?;
            output.read_exact(&mut [0])?;
        }
        child.succeeded()?;
        Ok(())
    }
}

impl Blob {
    const fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    const fn is_submodule(&self) -> bool {
        self.mode & 0o170_000 == 0o160_000
    }

    const fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    const fn is_content(&self) -> bool {
        !self.is_submodule()
    }
}

/// A line of `git ls-tree -l`: mode, kind, object, size, tabulator, path.
fn parse(line: &[u8]) -> Option<Blob> {
    let tabulator = line.iter().position(|byte| *byte == b'\t')?;
    let (head, path) = line.split_at_checked(tabulator)?;
    let head = std::str::from_utf8(head).ok()?;
    let mut words = head.split_whitespace();
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let _kind = words.next()?;
    let object = words.next()?.to_owned();
    // A submodule has none.
    let size = words.next()?.parse().unwrap_or_default();
    Some(Blob {
        mode,
        object,
        size,
        path: tree::path_of(path.get(1..)?),
    })
}

/// A git of our own that only reads what is here, killed when it is dropped.
struct Child(std::process::Child);

impl Child {
    fn spawn(command: &mut std::process::Command) -> std::io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    fn output(&mut self) -> std::io::Result<std::process::ChildStdout> {
        let output = self.0.stdout.take();
        output.ok_or_else(|| std::io::Error::other("git has no output"))
    }

    fn succeeded(&mut self) -> std::io::Result<()> {
        let status = self.0.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(std::io::Error::other(format!(
            "git could not read the commit: {status}"
        )))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that has ended is waited for alone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    #[test]
    fn an_address_is_read_as_git_reads_it() {
        for (url, protocol, host, port) in [
            (
                "https://github.com/a/b.git",
                Protocol::Https,
                "github.com",
                443,
            ),
            (
                "https://user:word@git.example:8443/a",
                Protocol::Https,
                "git.example",
                8443,
            ),
            ("http://[::1]:80/a", Protocol::Http, "::1", 80),
            (
                "ssh://git@git.example:2222/a",
                Protocol::Ssh,
                "git.example",
                2222,
            ),
            ("git@git.example:a/b.git", Protocol::Ssh, "git.example", 22),
            ("git://192.0.2.1/a", Protocol::Git, "192.0.2.1", 9418),
            ("file:///srv/a", Protocol::File, "", 0),
        ] {
            let expected = Address {
                protocol,
                host: host.to_owned(),
                port,
            };
            assert_eq!(Address::parse(url), Some(expected), "{url}");
        }
        for local in ["/srv/a", "./a:b", "a"] {
            let protocol = Address::parse(local).map(|address| address.protocol);
            assert_eq!(protocol, Some(Protocol::File), "{local}");
        }
        for refused in [
            "",
            "ext::sh -c id",
            "fd::17",
            "ftp://git.example/a",
            "--upload-pack=id",
            "https:///a",
            "https://git.example:x/a",
            "https://git.example/\n",
        ] {
            assert_eq!(Address::parse(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_host_that_a_shell_would_read_is_refused() {
        let address = IpAddr::from([192, 0, 2, 1]);
        for host in ["a;id", "$(id)", "-oProxyCommand=id", "a b"] {
            assert!(ssh(host, address).is_err(), "{host}");
        }
        let plain = ssh("git.example", address).unwrap();
        assert!(plain.contains("HostName=192.0.2.1"), "{plain}");
    }

    #[test]
    fn memory_is_counted_for_the_group_alone() {
        let stat = "7 (a ) b) S 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 4096 250 0";
        assert_eq!(resident(stat, Pid::from_raw(42)), Some(250 * 4096));
        assert_eq!(resident(stat, Pid::from_raw(43)), None);
    }

    #[tokio::test]
    async fn the_credential_of_the_gate_is_in_no_argument_and_no_error() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let policy = Policy {
            protocols: vec![Protocol::Http],
            addresses: Policy::person().addresses,
            ..Policy::tenants()
        };
        let work = tempfile::tempdir().unwrap();
        let wish = Wish {
            url: &format!("http://{}/a", server.local_addr().unwrap()),
            reference: "main",
            commit: None,
        };
        let address = Address::parse(wish.url).unwrap();
        let repository = work.path().join("repository");
        let git = Git::prepare(&address, &policy, work.path(), &repository);
        let git = git.await.unwrap();
        let gate = git.gate.as_ref().unwrap().url();
        let (_, secret) = gate.rsplit_once(':').unwrap().0.rsplit_once(':').unwrap();
        let (secret, _) = secret.split_once('@').unwrap();
        assert_eq!(secret.len(), 32);

        let mut fetching = std::pin::pin!(git.fetch(&wish));
        let mut asked = tokio::select! {
            asked = server.accept() => asked.unwrap().0,
            ended = &mut fetching => panic!("{ended:?}"),
        };
        // git and its helper wait for an answer now.
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let arguments: Vec<String> = processes
            .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        let seen = arguments.iter().filter(|line| line.contains(wish.url));
        assert!(seen.count() >= 2, "git and its helper are not seen");
        let shown = arguments.iter().find(|line| line.contains(secret));
        assert_eq!(shown, None);
        let answer = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        asked.write_all(answer).await.unwrap();
        let error = fetching.await.unwrap_err();
        let Error::Git { reason, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(reason.contains("500"), "{reason}");
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}
