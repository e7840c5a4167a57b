//! Ansible modules that go on on a host after their controller is gone.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::probe::{Options, Target, ssh_command};

/// How often a host that is still at work is asked.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Ansible runs a module by a shell line that ends in `&& sleep 0`, with a file below `ansible-tmp-` or with the marker of
/// privilege escalation in it, and asynchronous ones by `async_wrapper`. The script is read from standard input, so that
/// it does not find itself.
const SCRIPT: &str = r#"
for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    [ "$pid" = "$$" ] && continue
    line=$(tr '\0' ' ' < "$directory/cmdline" 2>/dev/null) || continue
    case $line in
        *'&& sleep 0'*|*/ansible-tmp-*|*BECOME-SUCCESS-*|*async_wrapper*) printf '%s %.160s\n' "$pid" "$line" ;;
    esac
done
true
"#;

/// A host where modules still run, or that cannot be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leftover {
    /// The host's name.
    pub host: String,
    /// The processes, by id; empty if the host did not answer.
    pub processes: Vec<u32>,
}

/// Waits until no Ansible module runs on the hosts any more, at most `bound`, and returns the hosts where some still do or
/// that do not answer. Another person's Ansible counts too: two at a time do harm whoever started them.
pub async fn leftovers(hosts: &[Target], options: &Options, bound: Duration) -> Vec<Leftover> {
    let deadline = Instant::now() + bound;
    let mut left: Vec<Leftover> = Vec::new();
    let mut waiting: Vec<&Target> = hosts.iter().collect();
    loop {
        left.clear();
        let asked = futures::future::join_all(waiting.iter().map(|host| ask(host, options))).await;
        let mut busy = Vec::new();
        for (host, processes) in waiting.into_iter().zip(asked) {
            match processes {
                Some(processes) if processes.is_empty() => {}
                processes => {
                    busy.push(host);
                    left.push(Leftover {
                        host: host.name.to_string(),
                        processes: processes.unwrap_or_default(),
                    });
                }
            }
        }
        if left.is_empty() || Instant::now() + ASK_AGAIN > deadline {
            return left;
        }
        waiting = busy;
        sleep(ASK_AGAIN).await;
    }
}

async fn ask(host: &Target, options: &Options) -> Option<Vec<u32>> {
    let mut command = Command::from(ssh_command(host, options));
    command
        .arg("sh -s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().ok()?;
    let mut input = child.stdin.take()?;
    let answer = async {
        input.write_all(SCRIPT.as_bytes()).await.ok()?;
        drop(input);
        child.wait_with_output().await.ok()
    };
    let output = timeout(options.total(), answer).await.ok()??;
    output.status.success().then(|| {
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split(' ').next()?.parse().ok())
            .collect()
    })
}
