//! What is asked of a host for a snapshot, and what it answers. Pure.
//!
//! The answer comes from a host, so it is data: it is read strictly, and only numbers and digests of it come back to a shell.

use api::text::plain;
use serde::Deserialize;
use snapshots::manifest::{Here, LARGEST_SNAPSHOT, is_digest};

use crate::etcd::ASK;

/// Where a host keeps a snapshot until the runner has it, and where it drills one: each attempt in a [place](Place) of its own below. It
/// goes with the script that made it when its connection is lost, and what is left even so is [cleared](clear) by every snapshot and every
/// drill.
const SAVED: &str = "windlass-snapshot";
const DRILLED: &str = "windlass-drill";
const BELOW: &str = "/var/backups";
/// How old what is left of another run must be to be removed, in minutes. That run may be at work, as one of another cluster or operator
/// on the same hosts is: none is that long.
const LEFT: u32 = 24 * 60;
/// The longest complaint that is told, in bytes.
const COMPLAINT: usize = 512;

/// Etcd that kubeadm runs has its certificates elsewhere, and `fail` ends an answer.
const BEGIN: &str = r#"
umask 077
if [ ! -e /etc/etcd.env ]; then
  for d in /etc/kubernetes/ssl/etcd /etc/kubernetes/pki/etcd; do
    if [ -e "$d/healthcheck-client.crt" ]; then
      ETCDCTL_CACERT=$d/ca.crt; ETCDCTL_CERT=$d/healthcheck-client.crt; ETCDCTL_KEY=$d/healthcheck-client.key
      break
    fi
  done
fi
fail() { printf 'failed %s ' "$1"; tail -n 1 "$dir/said" 2>/dev/null | cut -c 1-500 | tr -d '\n'; echo; rm -rf "$dir"; echo end; exit 0; }
has() { command -v "$1" >/dev/null 2>&1; }
counted() { etcdctl get "" --prefix --count-only --write-out=fields "$@" 2>/dev/null | sed -n 's/^"Count" : /count /p; s/^"Revision" : /at /p'; }
digest() { sha256sum 2>/dev/null | cut -d ' ' -f 1; }
checker=etcdctl
if has etcdutl; then checker=etcdutl; fi
echo begin
"#;

const SAVE: &str = r#"
trap 'rm -rf "$dir"; exit 1' HUP INT TERM PIPE
has etcdctl || fail no-etcdctl
rm -rf "$dir" && mkdir -p "$dir" || fail directory
"$checker" snapshot status --help >"$dir/said" 2>&1 || fail no-etcdutl
grep -q 'snapshot status' "$dir/said" || fail no-etcdutl
say endpoint etcdctl endpoint status --write-out=json
etcdctl snapshot save "$dir/snapshot.db" >"$dir/said" 2>&1 || fail save
"$checker" snapshot status "$dir/snapshot.db" --write-out=json >"$dir/status" 2>"$dir/said" & status=$!
digest <"$dir/snapshot.db" >"$dir/digest" & digest=$!
printf 'size '; wc -c <"$dir/snapshot.db"
wait "$status" || fail status
wait "$digest" || fail digest
say status cat "$dir/status"
echo "checker $checker"
printf 'digest '; cat "$dir/digest"
printf 'authority '; digest <"$ETCDCTL_CACERT"
revision=$(sed -n 's/.*"revision":\([0-9][0-9]*\).*/\1/p' "$dir/status" | head -n 1)
counted --rev="$revision"
echo end
"#;

const ABOUT: &str = r#"
dir=/nonexistent
printf 'authority '; digest <"$ETCDCTL_CACERT"
printf 'version '
{ etcd --version 2>/dev/null || etcdctl version; } | sed -n 's/^etcd Version: //p; s/^etcdctl version: //p' | head -n 1
echo end
"#;

/// A throw-away etcd on loopback, with the certificates of the one that is there: nobody else on the host can ask it. It ends with the
/// script, whatever ends that, and by its own clock if even that does not.
const DRILL: &str = r#"
pid=
clean() { trap - EXIT; if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; fi; rm -rf "$dir"; }
trap clean EXIT
trap 'clean; exit 1' HUP INT TERM PIPE
etcd=$(command -v etcd) || fail no-etcd
printf 'digest '; digest <"$dir/snapshot.db"
"$checker" snapshot restore --help >"$dir/said" 2>&1 || fail no-etcdutl
grep -q 'data-dir' "$dir/said" || fail no-etcdutl
cert=$(value ETCD_CERT_FILE)
scheme=https
if [ -z "$cert" ]; then scheme=http; fi
started=
for try in 1 2 3; do
  client=$(( $(od -An -N2 -tu2 /dev/urandom) % 20000 + 40000 ))
  peer=$(( client + 1 ))
  rm -rf "$dir/data"
  "$checker" snapshot restore "$dir/snapshot.db" --data-dir "$dir/data" --name drill --initial-cluster "drill=$scheme://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "$scheme://127.0.0.1:$peer" >"$dir/said" 2>&1 || fail restore
  set -- ETCD_NAME=drill ETCD_DATA_DIR="$dir/data" ETCD_INITIAL_CLUSTER="drill=$scheme://127.0.0.1:$peer" \
    ETCD_LISTEN_CLIENT_URLS="$scheme://127.0.0.1:$client" ETCD_ADVERTISE_CLIENT_URLS="$scheme://127.0.0.1:$client" \
    ETCD_LISTEN_PEER_URLS="$scheme://127.0.0.1:$peer" ETCD_INITIAL_ADVERTISE_PEER_URLS="$scheme://127.0.0.1:$peer"
  if [ "$scheme" = https ]; then
    set -- "$@" ETCD_CERT_FILE="$cert" ETCD_KEY_FILE="$(value ETCD_KEY_FILE)" ETCD_TRUSTED_CA_FILE="$(value ETCD_TRUSTED_CA_FILE)" \
      ETCD_CLIENT_CERT_AUTH=true ETCD_PEER_CERT_FILE="$(value ETCD_PEER_CERT_FILE)" ETCD_PEER_KEY_FILE="$(value ETCD_PEER_KEY_FILE)" \
      ETCD_PEER_TRUSTED_CA_FILE="$(value ETCD_PEER_TRUSTED_CA_FILE)" ETCD_PEER_CLIENT_CERT_AUTH=true
  fi
  env -i PATH="$PATH" "$@" timeout 600 nice "$etcd" >"$dir/said" 2>&1 &
  pid=$!
  ETCDCTL_ENDPOINTS=$scheme://127.0.0.1:$client
  waited=0
  while [ "$waited" -lt 240 ] && kill -0 "$pid" 2>/dev/null; do
    if etcdctl endpoint health >/dev/null 2>&1; then started=yes; break; fi
    waited=$(( waited + 1 ))
    sleep 0.5
  done
  if [ -n "$started" ]; then break; fi
  kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; pid=
done
[ -n "$started" ] || fail start
counted
echo end
"#;

/// What the directories of one attempt of a run are called on a host. A script that outlives its runner removes those of its own attempt,
/// and none that a later one, or another run, works in.
#[derive(Debug)]
pub(crate) struct Place {
    run: String,
    attempt: u64,
}

impl Place {
    /// A place that nobody else has.
    pub(crate) fn new(run: Option<&str>) -> Self {
        let attempt = rand::random();
        // It comes to a shell.
        let run = run.unwrap_or_default().chars();
        let run: String = run
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        let run = if run.is_empty() {
            format!("{attempt:016x}")
        } else {
            run
        };
        Self { run, attempt }
    }

    fn of(&self, what: &str) -> String {
        let Self { run, attempt } = self;
        format!("{BELOW}/{what}.{run}.{attempt:016x}")
    }
}

/// The script that saves a snapshot.
pub(crate) fn save(place: &Place) -> String {
    script(&place.of(SAVED), SAVE)
}

/// The script that prints the snapshot that was saved, which goes with that, whoever hears it.
pub(crate) fn print(place: &Place) -> String {
    let saved = place.of(SAVED);
    format!(
        "trap 'rm -rf {saved}' EXIT\ntrap 'exit 1' HUP INT TERM PIPE\ncat {saved}/snapshot.db || exit 1\n"
    )
}

/// The script that removes what snapshots and drills have left: all of this run, which one runner at a time is at work on, and of others
/// what is old.
pub(crate) fn clear(place: &Place) -> String {
    let run = &place.run;
    format!(
        "rm -rf {BELOW}/{SAVED}.{run}.* {BELOW}/{DRILLED}.{run}.*\n\
         find {BELOW} -maxdepth 1 -type d \\( -name '{SAVED}.*' -o -name '{DRILLED}.*' \\) -mmin +{LEFT} -exec rm -rf {{}} +\n"
    )
}

/// The script that says to what a snapshot would be brought back.
pub(crate) fn about() -> String {
    script("/nonexistent", ABOUT)
}

/// The script that takes a snapshot of a size to be drilled.
pub(crate) fn take_for_drill(place: &Place, size: u64) -> String {
    take(&place.of(DRILLED), size)
}

/// The script that takes a snapshot of a size into a directory, of which it is all. Of one that is cut, because the runner died, nothing
/// is left.
pub(crate) fn take(directory: &str, size: u64) -> String {
    format!(
        "umask 077 && rm -rf {directory} && mkdir -p {directory} && cat >{directory}/snapshot.part && sync && \
         test \"$(wc -c <{directory}/snapshot.part)\" -eq {size} && mv {directory}/snapshot.part {directory}/snapshot.db || \
         {{ rm -rf {directory}; false; }}"
    )
}

/// The script that drills it.
pub(crate) fn drill(place: &Place) -> String {
    script(&place.of(DRILLED), DRILL)
}

fn script(directory: &str, what: &str) -> String {
    format!("{ASK}\ndir={directory}\n{BEGIN}{what}")
}

/// What a member says of a snapshot that it saved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Saved {
    pub(crate) cluster_id: String,
    pub(crate) etcd_version: String,
    pub(crate) authority: String,
    pub(crate) revision: u64,
    pub(crate) keys: u64,
    pub(crate) entries: u64,
    pub(crate) checked_by: String,
    pub(crate) size: u64,
    pub(crate) digest: String,
}

/// What a drill found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Drilled {
    pub(crate) digest: String,
    pub(crate) keys: u64,
    pub(crate) revision: u64,
}

/// Why a host did not do it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unable {
    /// It lacks a program.
    Lacks(&'static str),
    /// What failed, and what it said.
    Failed(String, String),
    /// Its answer cannot be read.
    Unread(String),
}

/// Reads what a host says of a snapshot that it saved.
pub(crate) fn read_saved(said: &str) -> Result<Saved, Unable> {
    let lines = answer(said)?;
    let endpoint: Vec<Endpoint> = json(&lines, "endpoint")?;
    let status: Status = json(&lines, "status")?;
    let endpoint = endpoint.into_iter().next();
    let endpoint = endpoint.ok_or_else(|| unread("how its member is"))?;
    let checked_by = match told(&lines, "checker") {
        "etcdutl" => "etcdutl",
        "etcdctl" => "etcdctl",
        _ => return Err(unread("what checked it")),
    };
    let size = number(&lines, "size")?;
    if size > LARGEST_SNAPSHOT {
        return Err(Unable::Unread(format!(
            "it says that its snapshot has {size} bytes, and at most {LARGEST_SNAPSHOT} are taken"
        )));
    }
    Ok(Saved {
        cluster_id: format!("{:x}", endpoint.status.header.cluster_id),
        etcd_version: version(&endpoint.status.version)?,
        authority: digest(&lines, "authority")?,
        revision: status.revision,
        keys: number(&lines, "count")?,
        entries: status.total_key,
        checked_by: checked_by.to_owned(),
        size,
        digest: digest(&lines, "digest")?,
    })
}

/// Reads what a host says of itself.
pub(crate) fn read_about(said: &str) -> Result<Here, Unable> {
    let lines = answer(said)?;
    Ok(Here {
        authority: digest(&lines, "authority")?,
        etcd_version: version(told(&lines, "version"))?,
    })
}

/// Reads what a drill found.
pub(crate) fn read_drilled(said: &str) -> Result<Drilled, Unable> {
    let lines = answer(said)?;
    Ok(Drilled {
        digest: digest(&lines, "digest")?,
        keys: number(&lines, "count")?,
        revision: number(&lines, "at")?,
    })
}

/// The lines of an answer that was told to its end.
fn answer(said: &str) -> Result<Vec<&str>, Unable> {
    let lines: Vec<&str> = said.lines().skip_while(|line| *line != "begin").collect();
    if lines.last() != Some(&"end") {
        return Err(Unable::Unread("it did not say all that was asked".into()));
    }
    let failed = lines.iter().find_map(|line| line.strip_prefix("failed "));
    let Some((what, complaint)) = failed.map(|line| line.split_once(' ').unwrap_or((line, "")))
    else {
        return Ok(lines);
    };
    Err(match what {
        "no-etcdctl" => Unable::Lacks("etcdctl"),
        "no-etcdutl" => Unable::Lacks("etcdutl"),
        "no-etcd" => Unable::Lacks("etcd"),
        what => Unable::Failed(plain(what, 32), plain(complaint.trim(), COMPLAINT)),
    })
}

fn told<'a>(lines: &[&'a str], name: &str) -> &'a str {
    let mut lines = lines.iter();
    let told = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    told.unwrap_or_default().trim()
}

fn json<T: for<'a> Deserialize<'a>>(lines: &[&str], name: &str) -> Result<T, Unable> {
    serde_json::from_str(told(lines, name)).map_err(|error| {
        Unable::Unread(format!(
            "what its etcd says ({name}) cannot be read: {error}"
        ))
    })
}

fn number(lines: &[&str], name: &str) -> Result<u64, Unable> {
    let number = told(lines, name).parse::<u64>();
    number.map_err(|_| unread(&format!("the number of its {name}")))
}

fn unread(what: &str) -> Unable {
    Unable::Unread(format!("it does not say {what}"))
}

fn digest(lines: &[&str], name: &str) -> Result<String, Unable> {
    let digest = told(lines, name);
    if is_digest(digest) {
        return Ok(digest.to_owned());
    }
    Err(Unable::Unread(format!(
        "it does not say the digest of the {name}"
    )))
}

fn version(text: &str) -> Result<String, Unable> {
    let numbers: Vec<_> = text.split('.').collect();
    let is_number =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() <= 32 && numbers.len() == 3 && numbers.iter().take(2).all(is_number) {
        return Ok(plain(text, 32));
    }
    Err(Unable::Unread(format!(
        "its etcd says that it has version {:?}",
        plain(text, 32)
    )))
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Status")]
    status: EndpointStatus,
}

#[derive(Deserialize)]
struct EndpointStatus {
    header: Header,
    version: String,
}

#[derive(Deserialize)]
struct Header {
    cluster_id: u64,
}

#[derive(Deserialize)]
struct Status {
    revision: u64,
    #[serde(rename = "totalKey")]
    total_key: u64,
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    use super::*;

    fn said() -> String {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        format!(
            "Welcome\nbegin\n\
             endpoint [{{\"Endpoint\":\"https://127.0.0.1:2379\",\"Status\":{{\"header\":{{\"cluster_id\":14841639068965178418,\"revision\":9}},\"version\":\"3.6.4\"}}}}]\n\
             status {{\"hash\":3,\"revision\":8,\"totalKey\":17,\"totalSize\":20480,\"version\":\"3.6.0\"}}\n\
             checker etcdutl\ndigest {a}\nsize 20512\nauthority {b}\n\
             at 9\ncount 5\nend\n"
        )
    }

    #[test]
    fn what_a_member_says_of_a_snapshot_is_read_strictly() {
        let saved = read_saved(&said()).unwrap();
        assert_eq!(
            (saved.revision, saved.keys, saved.entries, saved.size),
            (8, 5, 17, 20512)
        );
        assert_eq!(saved.cluster_id, "cdf818194e3a8c32");
        assert_eq!(
            (&*saved.etcd_version, &*saved.checked_by),
            ("3.6.4", "etcdutl")
        );
        for (from, to) in [
            ("\nend\n", "\n"),
            (&*"a".repeat(64), "x"),
            (&*"b".repeat(64), ""),
            ("size 20512", "size many"),
            ("size 20512", "size 9663676417"),
            ("checker etcdutl", "checker sh"),
            ("\"version\":\"3.6.4\"", "\"version\":\"$(id)\""),
            ("\"revision\":8", "\"revision\":-8"),
            ("count 5", "count -5"),
        ] {
            let altered = said().replace(from, to);
            let refused = read_saved(&altered);
            assert!(
                matches!(refused, Err(Unable::Unread(_))),
                "{to}: {refused:?}"
            );
        }
    }

    #[test]
    fn nothing_is_left_of_what_nobody_hears_to_its_end() {
        let root = tempfile::tempdir().unwrap();
        let there = root.path().join("windlass");
        let directory = there.to_str().unwrap();
        let run = |script: &str, input: &str| {
            let mut shell = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            shell
                .stdin
                .take()
                .unwrap()
                .write_all(input.as_bytes())
                .unwrap();
            shell.wait().unwrap().success()
        };
        for (input, whole) in [("etcd", true), ("etc", false), ("etcds", false)] {
            assert_eq!(run(&take(directory, 4), input), whole, "{input}");
            assert_eq!(there.join("snapshot.db").exists(), whole, "{input}");
            assert_eq!(there.exists(), whole, "{input}");
        }
        // As much as no pipe takes, and nobody who reads it.
        for heard in [true, false] {
            assert!(run(&take(directory, 1 << 20), &"x".repeat(1 << 20)));
            let place = Place::new(None);
            let script = print(&place).replace(&place.of(SAVED), directory);
            let mut shell = Command::new("sh")
                .args(["-c", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = shell.stdout.take().unwrap();
            let mut bytes = vec![0; if heard { 1 << 20 } else { 10 }];
            output.read_exact(&mut bytes).unwrap();
            drop(output);
            assert_eq!(shell.wait().unwrap().success(), heard);
            assert!(!there.exists());
        }
    }

    #[test]
    fn a_script_that_outlived_its_runner_removes_nothing_of_another() {
        let root = tempfile::tempdir().unwrap();
        let below = |script: &str| script.replace(BELOW, root.path().to_str().unwrap());
        let shell = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &below(script)]).stdout(Stdio::piped());
            shell
        };
        let (killed, next) = (Place::new(Some("a-1")), Place::new(Some("a-1")));
        let there = |place: &Place, what| std::path::PathBuf::from(below(&place.of(what)));
        // What the killed one is in the middle of.
        let mut taking = shell(&take_for_drill(&killed, 4));
        let mut taking = taking.stdin(Stdio::piped()).spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !there(&killed, DRILLED).join("snapshot.part").exists() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::fs::create_dir(there(&killed, SAVED)).unwrap();
        std::fs::write(there(&killed, SAVED).join("snapshot.db"), "old").unwrap();
        for what in [SAVED, DRILLED] {
            std::fs::create_dir(there(&next, what)).unwrap();
            std::fs::write(there(&next, what).join("snapshot.db"), "new").unwrap();
        }
        drop(taking.stdin.take());
        assert!(!taking.wait().unwrap().success());
        assert!(!there(&killed, DRILLED).exists());
        let printed = shell(&print(&killed)).output().unwrap();
        assert_eq!(printed.stdout, b"old");
        assert!(!there(&killed, SAVED).exists());
        assert!(there(&next, SAVED).exists() && there(&next, DRILLED).exists());
    }

    #[test]
    fn what_is_left_is_cleared_of_the_run_at_once_and_of_others_when_it_is_old() {
        let root = tempfile::tempdir().unwrap();
        let below = |script: &str| script.replace(BELOW, root.path().to_str().unwrap());
        let make = |place: &Place, what| {
            let there = std::path::PathBuf::from(below(&place.of(what)));
            std::fs::create_dir(&there).unwrap();
            std::fs::write(there.join("snapshot.db"), "etcd").unwrap();
            there
        };
        let old = |there: std::path::PathBuf| {
            let ago = std::time::Duration::from_mins(u64::from(LEFT) + 2);
            let then = std::time::SystemTime::now() - ago;
            std::fs::File::open(&there)
                .unwrap()
                .set_modified(then)
                .unwrap();
            there
        };
        let of = |run: &str| Place::new(Some(run));
        let own = of("a-1");
        let gone = [
            make(&own, SAVED),
            make(&of("a-1"), DRILLED),
            old(make(&of("b"), SAVED)),
            old(make(&of("b"), DRILLED)),
        ];
        let etcd = root.path().join("etcd-1-from-store");
        std::fs::create_dir(&etcd).unwrap();
        let stay = [
            make(&of("a-11"), SAVED),
            make(&of("b"), DRILLED),
            make(&Place::new(None), SAVED),
            old(etcd),
        ];
        let cleared = Command::new("sh")
            .args(["-c", &below(&clear(&own))])
            .output()
            .unwrap();
        assert!(cleared.status.success() && cleared.stderr.is_empty());
        assert!(gone.iter().all(|there| !there.exists()), "{gone:?}");
        assert!(stay.iter().all(|there| there.exists()), "{stay:?}");
    }

    #[test]
    fn what_a_run_is_called_is_no_script() {
        let place = Place::new(Some("a b;$(id)/../*"));
        assert_eq!(place.run, "abid");
        assert_ne!(Place::new(None).run, Place::new(None).run);
    }

    #[test]
    fn what_a_host_lacks_or_fails_at_is_told() {
        for (line, expected) in [
            ("failed no-etcdutl ", Unable::Lacks("etcdutl")),
            ("failed no-etcdctl ", Unable::Lacks("etcdctl")),
            ("failed no-etcd", Unable::Lacks("etcd")),
            (
                "failed save no space\u{1b}[2J left",
                Unable::Failed("save".into(), "no space [2J left".into()),
            ),
        ] {
            let said = format!("begin\n{line}\nend\n");
            let refused = read_saved(&said).unwrap_err();
            match (&refused, &expected) {
                (Unable::Failed(what, complaint), Unable::Failed(expected, _)) => {
                    assert_eq!(what, expected);
                    assert!(complaint.contains("left") && !complaint.contains('\u{1b}'));
                }
                _ => assert_eq!(refused, expected),
            }
        }
    }

    #[test]
    fn a_drill_and_a_host_are_read() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let drilled = read_drilled(&format!("begin\ndigest {a}\nat 8\ncount 0\nend"));
        let expected = Drilled {
            digest: a,
            keys: 0,
            revision: 8,
        };
        assert_eq!(drilled, Ok(expected));
        let here = read_about(&format!("begin\nauthority {b}\nversion 3.5.21\nend"));
        assert_eq!(here.unwrap().etcd_version, "3.5.21");
        assert!(read_about(&format!("begin\nauthority {b}\nversion \nend")).is_err());
    }
}
