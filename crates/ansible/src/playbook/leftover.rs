//! Ansible modules that go on on a host after their controller is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    process::Stdio,
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::probe::{Options, Target, logins, ssh_command};

/// The longest answer of a host, in bytes, and the longest name of a program: the kernel's has 15.
const ANSWER_LIMIT: u64 = 256 * 1024;
const NAME_LIMIT: usize = 64;
/// How many modules are named, and how long a chain of children is followed: an answer that was made up must not keep us busy.
const MODULES: usize = 64;
const CHAIN: usize = 256;

/// How often a host that is still at work is asked.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Ansible runs a module by a shell line that ends in `&& sleep 0`, with a file below `ansible-tmp-` or with the marker of
/// privilege escalation in it, and asynchronous ones by `async_wrapper`. The brackets keep grep from finding itself. Only a
/// host where one runs tells of all its processes, to name what it is about.
const SCRIPT: &str = r#"
files=$(grep -lsE '[&]& sleep 0|/[a]nsible-tmp-|[B]ECOME-SUCCESS-|[a]sync_wrapper' /proc/[0-9]*/cmdline)
if [ -n "$files" ]; then
    for file in $files; do echo "module ${file%/cmdline}"; done
    for directory in /proc/[0-9]*; do
        { read -r line < "$directory/stat"; } 2>/dev/null || continue
        name=${line#*\(}; name=${name%\)*}
        set -- ${line##*\) }
        echo "process ${directory#/proc/} $2 $name"
    done
fi
echo end
"#;

/// A host where modules still run, or that cannot be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leftover {
    /// The host's name.
    pub host: String,
    /// The modules; empty if the host did not answer.
    pub processes: Vec<Module>,
}

/// A module at work on a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Module {
    /// The process that it began with.
    pub id: u32,
    /// The program that it waits for, for example `apt-get`. Its arguments are not told: secrets may be among them.
    pub program: String,
}

/// For people.
impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        for (number, module) in self.processes.iter().enumerate() {
            let before = if number == 0 { " (" } else { ", " };
            write!(f, "{before}{} in process {}", module.program, module.id)?;
        }
        if self.processes.is_empty() {
            Ok(())
        } else {
            write!(f, ")")
        }
    }
}

/// Waits until no Ansible module runs on the hosts any more, at most `bound`, and returns the hosts where some still do or
/// that do not answer. Another person's Ansible counts too: two at a time do harm whoever started them.
pub async fn leftovers(hosts: &[Target], options: &Options, bound: Duration) -> Vec<Leftover> {
    let deadline = Instant::now() + bound;
    let turns = Semaphore::new(logins());
    let mut waiting: Vec<&Target> = hosts.iter().collect();
    loop {
        let asked = waiting.iter().map(async |host| {
            let _turn = turns.acquire().await;
            ask(host, options).await
        });
        let (mut busy, mut left) = (Vec::new(), Vec::new());
        for (host, processes) in waiting.iter().zip(join_all(asked).await) {
            if processes.as_ref().is_none_or(|found| !found.is_empty()) {
                busy.push(*host);
                left.push(Leftover {
                    host: host.name.to_string(),
                    processes: processes.unwrap_or_default(),
                });
            }
        }
        if left.is_empty() || Instant::now() + ASK_AGAIN > deadline {
            return left;
        }
        waiting = busy;
        sleep(ASK_AGAIN).await;
    }
}

/// The modules at work on a host; `None` if it does not say.
async fn ask(host: &Target, options: &Options) -> Option<Vec<Module>> {
    let mut command = Command::from(ssh_command(host, options));
    command
        .arg("sh -s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().ok()?;
    let (mut input, output) = (child.stdin.take()?, child.stdout.take()?);
    let answer = async {
        input.write_all(SCRIPT.as_bytes()).await.ok()?;
        drop(input);
        let mut said = Vec::new();
        output
            .take(ANSWER_LIMIT)
            .read_to_end(&mut said)
            .await
            .ok()?;
        Some(said)
    };
    let limit = options.connect_timeout + options.login_timeout;
    let said = timeout(limit, answer).await.ok()??;
    let said = String::from_utf8_lossy(&said);
    said.lines()
        .any(|line| line == "end")
        .then(|| modules(&said))
}

/// The modules, each by the first of its processes.
fn modules(said: &str) -> Vec<Module> {
    let marked: BTreeSet<u32> = said
        .lines()
        .filter_map(|line| line.strip_prefix("module /proc/")?.parse().ok())
        .collect();
    let processes: BTreeMap<u32, (u32, &str)> = said.lines().filter_map(process).collect();
    let first = marked.iter().filter(|id| {
        let parent = processes.get(id).map(|(parent, _)| parent);
        parent.is_some_and(|parent| !marked.contains(parent))
    });
    first
        .take(MODULES)
        .map(|id| Module {
            id: *id,
            program: api::text::plain(last(*id, &processes), NAME_LIMIT),
        })
        .collect()
}

fn process(line: &str) -> Option<(u32, (u32, &str))> {
    let mut words = line.strip_prefix("process ")?.splitn(3, ' ');
    let (id, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((id, (parent, words.next()?)))
}

/// The program at the end of the chain of children: the shells and the module before it wait for it.
fn last<'a>(id: u32, processes: &BTreeMap<u32, (u32, &'a str)>) -> &'a str {
    let mut at = id;
    // A child has a parent of its own, so that no chain is longer than there are processes.
    for _ in processes.iter().take(CHAIN) {
        let child = processes.iter().find(|(_, (parent, _))| *parent == at);
        let Some((child, _)) = child else { break };
        at = *child;
    }
    processes.get(&at).map_or("", |(_, name)| *name)
}
