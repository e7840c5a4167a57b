//! What the members of etcd say of themselves, and whether one of them may join or leave. Pure.
//!
//! The answer comes from a host, so it is data: it is read strictly, and only numbers of it come back to a shell.

use api::{HostName, text::plain};
use serde::Deserialize;

use crate::{
    action::{MemberChange, Turn},
    inputs::Inputs,
};

/// The variable with the file of the snapshot that a recovery is from.
pub(crate) const SNAPSHOT: &str = "windlass_recover_snapshot";

/// Asks the member of a host who the members are and how each of them is. etcd's own settings name its certificates: those by which
/// members know each other, and its unit where its programs are (`bin_dir`).
pub(crate) const ASK: &str = r#"
LC_ALL=C; PATH=$PATH:/usr/local/bin:/usr/local/sbin:/opt/bin
program=$(systemctl show --property=ExecStart --value etcd 2>/dev/null | sed -n 's/.*path=\([^ ;]*\).*/\1/p')
[ -z "$program" ] || PATH=$PATH:$(dirname "$program")
value() { sed -n "s/^$1=//p" /etc/etcd.env | tail -n 1; }
ETCDCTL_API=3; ETCDCTL_ENDPOINTS=https://127.0.0.1:2379
ETCDCTL_CACERT=$(value ETCD_PEER_TRUSTED_CA_FILE)
ETCDCTL_CERT=$(value ETCD_PEER_CERT_FILE)
ETCDCTL_KEY=$(value ETCD_PEER_KEY_FILE)
export LC_ALL PATH ETCDCTL_API ETCDCTL_ENDPOINTS ETCDCTL_CACERT ETCDCTL_CERT ETCDCTL_KEY
say() { name=$1; shift; printf '%s ' "$name"; "$@" 2>/dev/null | tr -d '\n'; echo; }
"#;
const TELL: &str = r"
echo begin
say members etcdctl member list --write-out=json
say health etcdctl endpoint health --cluster --write-out=json
echo end
";

/// What a member alone says of itself, and its service.
const TELL_ALONE: &str = r"
echo begin
say service systemctl is-active etcd
say alone etcdctl endpoint health --write-out=json
say members etcdctl member list --write-out=json
say health etcdctl endpoint health --cluster --write-out=json
echo end
";

/// The longest name that is shown, in bytes, and the most members that are read: etcd recommends seven at most.
const NAME_LIMIT: usize = 64;
const MEMBERS: usize = 64;

/// The script that asks.
pub(crate) fn question() -> String {
    format!("{ASK}{TELL}")
}

/// The script that asks whether etcd has lost its quorum.
pub(crate) fn question_of_loss() -> String {
    format!("{ASK}{TELL_ALONE}")
}

/// The script that takes a member out, and asks then.
pub(crate) fn removal(member: u64) -> String {
    format!("{ASK}etcdctl member remove {member:x} >/dev/null 2>&1\n{TELL}")
}

/// One member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Member {
    /// Its number.
    pub(crate) id: u64,
    /// Its name; none: it has not started yet.
    pub(crate) name: Option<String>,
    addresses: Vec<String>,
    /// Whether it has no vote yet.
    learner: bool,
    /// Whether it answers, with a quorum behind it.
    healthy: bool,
}

impl Member {
    /// The hosts of the addresses at which others reach it.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }
}

/// Reads what a member told; an error says why that is no answer.
pub(crate) fn read(said: &str) -> Result<Vec<Member>, String> {
    let lines = lines(said)?;
    let members = told(&lines, "members");
    if members.is_empty() {
        return Err(
            "its etcd does not tell the members: it does not run, or has no quorum".to_owned(),
        );
    }
    of_list(members, &endpoints(told(&lines, "health"))?)
}

/// What the etcd of one host says of its quorum.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Quorum {
    /// It answers, or says that it has none; with the members that it tells of.
    Told(Vec<Member>),
    /// It does not run or is alone with itself, for that reason.
    None(String),
}

/// Reads what a host says of etcd's quorum. That nothing was heard proves no loss: an error says what was not heard.
pub(crate) fn read_of_loss(said: &str) -> Result<Quorum, String> {
    let lines = lines(said)?;
    let service = told(&lines, "service");
    let alone = endpoints(told(&lines, "alone"))?;
    let health = endpoints(told(&lines, "health"))?;
    let answers = |endpoint: &Endpoint| endpoint.health;
    let proof = if !service.is_empty() && service != "active" {
        Some(format!(
            "its service etcd is {}",
            plain(service, NAME_LIMIT)
        ))
    } else {
        let silent = alone.iter().find(|endpoint| !endpoint.health);
        silent.map(|silent| {
            let why = silent.error.as_deref().unwrap_or("it says no more");
            format!("its etcd has no quorum: {}", plain(why, NAME_LIMIT))
        })
    };
    let members = told(&lines, "members");
    if !members.is_empty() && (health.iter().any(answers) || proof.is_some()) {
        return Ok(Quorum::Told(of_list(members, &health)?));
    }
    let unheard = "it does not say whether etcd has its quorum: etcdctl was not found there, or its certificates cannot be read";
    proof.map(Quorum::None).ok_or_else(|| unheard.to_owned())
}

/// The lines of an answer that is whole.
fn lines(said: &str) -> Result<Vec<&str>, String> {
    let lines: Vec<&str> = said.lines().skip_while(|line| *line != "begin").collect();
    if lines.last() != Some(&"end") {
        return Err("it did not say all that was asked".to_owned());
    }
    Ok(lines)
}

fn told<'a>(lines: &[&'a str], name: &str) -> &'a str {
    let mut lines = lines.iter();
    let told = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    told.unwrap_or_default().trim()
}

fn endpoints(health: &str) -> Result<Vec<Endpoint>, String> {
    match health {
        "" => Ok(Vec::new()),
        health => serde_json::from_str(health).map_err(|error| unread(&error)),
    }
}

/// Reads a list of members alone, as `etcdctl member list --write-out=json` prints it: none of them counts as one that answers.
pub(crate) fn listed(text: &str) -> Result<Vec<Member>, String> {
    of_list(text, &[])
}

fn of_list(members: &str, health: &[Endpoint]) -> Result<Vec<Member>, String> {
    let list: List = serde_json::from_str(members).map_err(|error| unread(&error))?;
    if list.members.is_empty() || list.members.len() > MEMBERS {
        return Err(format!("its etcd tells of {} members", list.members.len()));
    }
    let member = |told: Told| {
        let answers = |url: &String| {
            let mut health = health.iter();
            health.any(|endpoint| endpoint.health && endpoint.url == *url)
        };
        Member {
            id: told.id,
            healthy: told.client_urls.iter().any(answers),
            addresses: told
                .peer_urls
                .iter()
                .filter_map(|url| host_of(url))
                .collect(),
            name: (!told.name.is_empty()).then(|| plain(&told.name, NAME_LIMIT)),
            learner: told.is_learner,
        }
    };
    Ok(list.members.into_iter().map(member).collect())
}

fn unread(error: &serde_json::Error) -> String {
    format!("what its etcd says cannot be read: {error}")
}

/// The host of a URL.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?;
    Some(
        host.trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
    )
}

#[derive(Deserialize)]
struct List {
    members: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "ID")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "clientURLs")]
    client_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "endpoint")]
    url: String,
    health: bool,
    #[serde(default)]
    error: Option<String>,
}

/// What the members say to a change of one of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// It may be; says how things stand then.
    Yes(String),
    /// It may not.
    No(Refusal),
}

/// Why a change may not be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    /// A constant in CamelCase.
    pub(crate) code: &'static str,
    /// Why, for people.
    pub(crate) message: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// Judges a change by what the members say.
pub(crate) fn judge(members: &[Member], change: &MemberChange, inputs: &Inputs) -> Answer {
    let own = own(members, change, inputs);
    let others: Vec<&Member> = members
        .iter()
        .filter(|member| own.is_none_or(|own| own.id != member.id))
        .collect();
    match change.turn {
        Turn::Joins => joins(&others, change, inputs),
        Turn::Joined | Turn::Restarted => joined(own, &others, change, inputs),
        Turn::Restarts => restarts(own, &others, change, inputs),
        Turn::AllRestart => all_restart(members, inputs),
        Turn::Leaves => leaves(own, &others, members, change, inputs),
        Turn::Founds => founds(own, members, change, inputs),
        Turn::Founded => founded(own, &others, change),
    }
}

/// Judges whether the members are those that the inventory names, each at its host.
pub(crate) fn named(members: &[Member], inputs: &Inputs) -> Answer {
    let names = &inputs.inventory.etcd_member_names;
    let hosts = inputs.group("etcd");
    let mut differs = Vec::new();
    for host in hosts {
        let own = members.iter().find(|member| is_at(member, host, inputs));
        let meant = names.get(host.as_str());
        match own.map(|own| own.name.as_ref()) {
            None => differs.push(format!("etcd has no member at {host}")),
            Some(name) if name == meant => {}
            Some(name) => {
                let told =
                    |name: Option<&String>| name.map_or("nothing", String::as_str).to_owned();
                differs.push(format!(
                    "the member at {host} is called {}, and the inventory calls it {}",
                    told(name),
                    told(meant)
                ));
            }
        }
    }
    let is_unknown = |member: &&Member| !hosts.iter().any(|host| is_at(member, host, inputs));
    let unknown = members.iter().filter(is_unknown);
    differs.extend(unknown.map(|member| {
        format!(
            "member {} at {} is of no host of the group etcd",
            member.name.as_deref().unwrap_or("without a name"),
            member.addresses.join(", ")
        )
    }));
    if differs.is_empty() {
        return Answer::Yes(format!(
            "the {} members of etcd are those that the inventory names",
            members.len()
        ));
    }
    no(
        "MembersDiffer",
        format!("the inventory contradicts etcd: {}", differs.join("; ")),
        "write what etcd says into the ClusterNodes (spec.inventory.etcd_member_name, ip), and declare hosts that are missing: what \
         the spec says then is planned anew",
    )
}

/// The member that a change is of, if etcd knows it: the one of its name, else one at its address that is no other host's by its name.
pub(crate) fn own<'a>(
    members: &'a [Member],
    change: &MemberChange,
    inputs: &Inputs,
) -> Option<&'a Member> {
    let names = &inputs.inventory.etcd_member_names;
    let is_of_another = |name: &String| {
        let mut others = names
            .iter()
            .filter(|(host, _)| **host != *change.host.as_str());
        others.any(|(_, its)| its == name)
    };
    let named = |member: &&Member| member.name.as_deref() == Some(&change.member);
    members.iter().find(named).or_else(|| {
        let mut free = members
            .iter()
            .filter(|member| !member.name.as_ref().is_some_and(is_of_another));
        free.find(|member| is_at(member, &change.host, inputs))
    })
}

fn is_at(member: &Member, host: &HostName, inputs: &Inputs) -> bool {
    let host = inputs.host(host);
    let known = |address: &str| member.addresses.iter().any(|own| own == address);
    host.is_some_and(|host| host.addresses().any(known))
}

fn no(code: &'static str, message: String, remedy: impl Into<String>) -> Answer {
    Answer::No(Refusal {
        code,
        message,
        remedy: remedy.into(),
    })
}

/// Another member joins only beside members that all work: until it has started, it counts as one that does not.
fn joins(others: &[&Member], change: &MemberChange, inputs: &Inputs) -> Answer {
    let down = down(others, inputs);
    let host = &change.host;
    if !down.is_empty() {
        return no(
            "EtcdUnhealthy",
            format!(
                "{host} does not join etcd while these members of {} do not answer: {}",
                others.len(),
                down.join(", ")
            ),
            "bring them back, or remove them (windlass node remove NAME), then retry the run",
        );
    }
    let lost = lost(others, change, inputs);
    if !lost.is_empty() {
        return no(
            "MemberMissing",
            format!(
                "etcd does not know {}, which the cluster was built with: with {host} more than one would join at a time",
                lost.join(", ")
            ),
            "bring it back (windlass converge) or remove it (windlass node remove NAME), then retry the run",
        );
    }
    let members = others.len().saturating_add(1);
    Answer::Yes(format!(
        "all {} members of etcd answer; with {host} it has {members}, of which {} must",
        others.len(),
        quorum(members)
    ))
}

/// The hosts of etcd, but for the one that joins, whose members are not there: a removal that was given up may have taken them out.
fn lost(others: &[&Member], change: &MemberChange, inputs: &Inputs) -> Vec<String> {
    let mut lost = unknown(others, inputs);
    lost.retain(|host| *host != change.host.as_str());
    lost
}

/// The hosts of etcd whose members are not among these.
fn unknown(members: &[&Member], inputs: &Inputs) -> Vec<String> {
    let names = &inputs.inventory.etcd_member_names;
    let is_of = |member: &Member, host: &HostName| {
        is_at(member, host, inputs) || member.name.as_ref() == names.get(host.as_str())
    };
    let hosts = inputs.group("etcd").iter();
    hosts
        .filter(|host| !members.iter().any(|member| is_of(member, host)))
        .map(ToString::to_string)
        .collect()
}

fn joined(
    own: Option<&Member>,
    others: &[&Member],
    change: &MemberChange,
    inputs: &Inputs,
) -> Answer {
    let host = &change.host;
    let mut missing = down(others, inputs);
    match own {
        Some(own) if own.healthy && !own.learner => {}
        Some(_) => missing.push(host.to_string()),
        None => missing.push(format!("{host}, which etcd does not know")),
    }
    if missing.is_empty() {
        let members = others.len().saturating_add(1);
        return Answer::Yes(format!("all {members} members of etcd answer"));
    }
    no(
        "EtcdUnhealthy",
        format!(
            "these members of etcd do not answer: {}",
            missing.join(", ")
        ),
        "look at the log of etcd on them (journalctl -u etcd), then retry the run",
    )
}

/// A member restarts only while all others answer: one that does not come back is then the only one. Whether it answers itself is no
/// matter: what it is restarted with may be what brings it back.
fn restarts(
    own: Option<&Member>,
    others: &[&Member],
    change: &MemberChange,
    inputs: &Inputs,
) -> Answer {
    let host = &change.host;
    let mut missing = down(others, inputs);
    if own.is_none() {
        missing.push(format!("{host}, which etcd does not know"));
    }
    if missing.is_empty() {
        return Answer::Yes(match others.len() {
            0 => format!("{host} is all of etcd: it does not answer while it restarts"),
            others => format!("all {others} other members of etcd answer"),
        });
    }
    no(
        "EtcdUnhealthy",
        format!(
            "{host} does not restart etcd while these members do not answer: {}",
            missing.join(", ")
        ),
        "bring them back (journalctl -u etcd tells why they do not answer), then retry the run",
    )
}

/// Members restart by the play of a release, fewer than half at a time, only while all answer: one that is silent already is one more
/// than etcd can do without.
fn all_restart(members: &[Member], inputs: &Inputs) -> Answer {
    let all: Vec<&Member> = members.iter().collect();
    let mut missing = down(&all, inputs);
    let unknown = unknown(&all, inputs).into_iter();
    missing.extend(unknown.map(|host| format!("{host}, which etcd does not know")));
    if missing.is_empty() {
        return Answer::Yes(match all.len() {
            1 => "the one member of etcd answers".to_owned(),
            all => format!("all {all} members of etcd answer"),
        });
    }
    no(
        "EtcdUnhealthy",
        format!(
            "members of etcd do not restart, some at a time, while these do not answer: {}",
            missing.join(", ")
        ),
        "bring them back (journalctl -u etcd tells why they do not answer), then retry the run; windlass component upgrade etcd restarts \
         one after the other, also one that is down (an upgrade that has touched no host yet waits for it with the former version in the \
         spec), and windlass node remove NAME takes one out, also one whose removal was given up",
    )
}

/// A member leaves only if enough of the others work to be a quorum of what is left.
fn leaves(
    own: Option<&Member>,
    others: &[&Member],
    members: &[Member],
    change: &MemberChange,
    inputs: &Inputs,
) -> Answer {
    let host = &change.host;
    if own.is_none() {
        return Answer::Yes(format!("{host} is no member of etcd any more"));
    }
    let working = |members: &[&Member]| members.iter().filter(|member| member.healthy).count();
    let all: Vec<&Member> = members.iter().collect();
    let (now, need) = (working(&all), quorum(all.len()));
    if now < need {
        return no(
            "QuorumLost",
            format!(
                "etcd has no quorum: {now} of {} members answer, and {need} must; these do not: {}",
                all.len(),
                down(&all, inputs).join(", ")
            ),
            "bring members back, then retry the run; if they are lost for good: windlass recover founds etcd anew on one that is left",
        );
    }
    let (then, need) = (working(others), quorum(others.len()));
    if then < need {
        let down = down(others, inputs);
        let first = down.first().cloned().unwrap_or_default();
        return no(
            "QuorumWouldBeLost",
            format!(
                "without {host} etcd has {} members, of which {need} must answer, and {then} would; these do not: {}",
                others.len(),
                down.join(", ")
            ),
            format!(
                "remove what does not answer first (windlass node remove {first}, and for now windlass node keep {host}), or bring it \
                 back, then retry the run"
            ),
        );
    }
    Answer::Yes(format!(
        "without {host} etcd has {} members, of which {need} must answer, and {then} do",
        others.len()
    ))
}

/// Etcd is founded anew only where no quorum answers. Where its only member is the one that founds it, an earlier attempt has done it,
/// or a snapshot takes the place of what it has: the mark on the host tells which.
fn founds(
    own: Option<&Member>,
    members: &[Member],
    change: &MemberChange,
    inputs: &Inputs,
) -> Answer {
    let host = &change.host;
    let (working, all) = (
        members.iter().filter(|member| member.healthy),
        members.len(),
    );
    let working = working.count();
    if working == 0 {
        return Answer::Yes(format!(
            "etcd has no quorum: it tells of {all} members, and none answers a question that needs one"
        ));
    }
    if all == 1 && own.is_some() && !inputs.leaving.is_empty() {
        return Answer::Yes(if inputs.operation_variables.contains_key(SNAPSHOT) {
            format!(
                "{host} is all of etcd, and answers with what it has; the snapshot takes the place of that, unless it has already"
            )
        } else {
            format!("{host} is all of etcd already, and answers")
        });
    }
    no(
        "QuorumIntact",
        format!(
            "etcd has its quorum: {working} of {all} members answer, so nothing is given up, and nothing was touched"
        ),
        "remove the hosts that are dead (windlass node remove NAME); to roll a cluster that works back to a snapshot: windlass recover \
         --roll-back --from-snapshot NAME",
    )
}

fn founded(own: Option<&Member>, others: &[&Member], change: &MemberChange) -> Answer {
    let host = &change.host;
    match own {
        Some(own) if own.healthy && others.is_empty() => {
            Answer::Yes(format!("{host} is all of etcd, and answers"))
        }
        _ => no(
            "EtcdNotFounded",
            format!(
                "etcd is not {host} alone: it tells of {} other members, and {host} {}",
                others.len(),
                match own {
                    Some(own) if own.healthy => "answers",
                    Some(_) => "does not answer",
                    None => "is not one of them",
                }
            ),
            format!("look at the log of etcd on {host} (journalctl -u etcd), then retry the run"),
        ),
    }
}

const fn quorum(members: usize) -> usize {
    members / 2 + 1
}

/// The members that do not work, by their hosts where those are known.
fn down(members: &[&Member], inputs: &Inputs) -> Vec<String> {
    let down = members
        .iter()
        .filter(|member| !member.healthy || member.learner);
    down.map(|member| shown(member, inputs)).collect()
}

fn shown(member: &Member, inputs: &Inputs) -> String {
    let names = inputs
        .hosts
        .iter()
        .filter_map(|host| host.name.parse().ok());
    let mut names = names.filter(|name| is_at(member, name, inputs));
    let name = names.next().map(|host: HostName| host.to_string());
    name.or_else(|| member.name.clone())
        .unwrap_or_else(|| format!("member {:x}", member.id))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inputs() -> Inputs {
        let host = |number: u8| {
            json!({
                "name": format!("m{number}"), "roles": ["control-plane", "etcd"],
                "variables": {"ansible_host": format!("10.0.0.{number}")},
            })
        };
        serde_json::from_value(json!({
            "kubespray": "2.30.0", "source": {"origin": "", "digest": ""}, "renew": "1d",
            "ssh": {"user": "root", "port": 22, "connectTimeout": "5s"},
            "hosts": (1..=6).map(host).collect::<Value>(),
        }))
        .unwrap()
    }

    /// As etcdctl prints it: of each member whether it works; the ones from `unstarted` on have not started yet.
    fn said(works: &[bool], unstarted: usize) -> String {
        let members = (1..).zip(works).map(|(number, _)| {
            let started = number <= unstarted;
            let mut member = json!({
                "ID": 1000 + number, "peerURLs": [format!("https://10.0.0.{number}:2380")],
            });
            if started {
                member["name"] = format!("etcd{number}").into();
                member["clientURLs"] = json!([format!("https://10.0.0.{number}:2379")]);
            }
            member
        });
        let health = (1..).zip(works).map(|(number, works)| {
            json!({"endpoint": format!("https://10.0.0.{number}:2379"), "health": works, "took": "5ms"})
        });
        format!(
            "Welcome\nbegin\nmembers {}\nhealth {}\nend\n",
            json!({"header": {}, "members": members.collect::<Value>()}),
            health.collect::<Value>(),
        )
    }

    fn change(number: u8, turn: Turn) -> MemberChange {
        MemberChange {
            host: format!("m{number}").parse().unwrap(),
            member: format!("etcd{number}"),
            turn,
        }
    }

    /// The code of the refusal, if it is one.
    fn judged(works: &[bool], unstarted: usize, change: &MemberChange) -> Option<&'static str> {
        let members = read(&said(works, unstarted)).unwrap();
        match judge(&members, change, &inputs()) {
            Answer::Yes(_) => None,
            Answer::No(refusal) => Some(refusal.code),
        }
    }

    #[test]
    fn members_are_given_up_only_where_there_is_no_quorum() {
        let judge_of = |works: &[bool], leaving: &[&str]| {
            let mut inputs = inputs();
            inputs.leaving = leaving.iter().map(|name| name.parse().unwrap()).collect();
            let members = read(&said(works, 9)).unwrap();
            match judge(&members, &change(1, Turn::Founds), &inputs) {
                Answer::Yes(_) => None,
                Answer::No(refusal) => Some(refusal.code),
            }
        };
        let intact = Some("QuorumIntact");
        let given_up = &["m2", "m3"][..];
        for (works, leaving, refused) in [
            (&[true, true, false][..], given_up, intact),
            // One answers for a quorum, whatever became of the question to the other.
            (&[true, false, false], given_up, intact),
            (&[false, false, false], given_up, None),
            // An earlier attempt has come so far.
            (&[true], given_up, None),
            (&[true], &[], intact),
            (&[false], &[], None),
        ] {
            assert_eq!(judge_of(works, leaving), refused, "{works:?} {leaving:?}");
        }
    }

    #[test]
    fn a_member_that_answers_is_not_said_to_be_what_a_snapshot_makes_of_it() {
        let mut inputs = inputs();
        inputs.leaving = vec!["m2".parse().unwrap()];
        let members = read(&said(&[true], 9)).unwrap();
        let says = |inputs: &Inputs| match judge(&members, &change(1, Turn::Founds), inputs) {
            Answer::Yes(said) => said,
            Answer::No(refusal) => refusal.message,
        };
        assert!(says(&inputs).contains("already, and answers"));
        let file = (SNAPSHOT.to_owned(), json!("/srv/snapshot.db"));
        inputs.operation_variables.extend([file]);
        assert!(says(&inputs).contains("the snapshot takes the place"));
    }

    #[test]
    fn etcd_is_founded_when_it_is_one_member_that_answers() {
        for (works, number, good) in [
            (&[true][..], 1, true),
            (&[false], 1, false),
            (&[true, true], 1, false),
            (&[true], 2, false),
        ] {
            let refused = judged(works, 9, &change(number, Turn::Founded));
            assert_eq!(refused.is_none(), good, "{works:?} {number}: {refused:?}");
        }
    }

    #[test]
    fn a_member_leaves_only_if_the_rest_is_a_quorum() {
        let (lost, would_be) = (Some("QuorumLost"), Some("QuorumWouldBeLost"));
        for (works, leaves, refused) in [
            (&[true, true, true][..], 3, None),
            (&[true, true], 2, None),
            (&[true, true, false], 3, None),
            (&[true, true, false], 2, would_be),
            (&[true, false, true], 3, would_be),
            (&[true, false], 2, lost),
            (&[true, false, false], 3, lost),
            (&[true, true, true, false, false], 5, None),
            (&[true, true, true, false, false], 3, would_be),
            (&[true, true, true, true, false], 2, None),
            (&[true], 1, would_be),
            // Gone already: an earlier attempt did it.
            (&[true, true], 3, None),
        ] {
            let change = change(leaves, Turn::Leaves);
            assert_eq!(
                judged(works, 9, &change),
                refused,
                "{works:?} without {leaves}"
            );
        }
    }

    #[test]
    fn a_member_joins_only_where_all_work() {
        let unhealthy = Some("EtcdUnhealthy");
        for (works, unstarted, joins, refused) in [
            (&[true][..], 9, 2, None),
            (&[true, true, true], 9, 4, None),
            (&[true, false, true], 9, 4, unhealthy),
            // It was added by an earlier attempt, and has not started.
            (&[true, true, false], 2, 3, None),
            (&[true, false, false], 2, 3, unhealthy),
        ] {
            let change = change(joins, Turn::Joins);
            assert_eq!(
                judged(works, unstarted, &change),
                refused,
                "{works:?} and {joins}"
            );
        }
        // The second was taken out by a removal that was given up: with it two would join.
        let mut grown = inputs();
        let hosts = [1, 2, 3].map(|number| format!("m{number}").parse().unwrap());
        grown
            .inventory
            .order
            .insert("etcd".to_owned(), hosts.to_vec());
        let members = read(&said(&[true], 9)).unwrap();
        let Answer::No(refusal) = judge(&members, &change(3, Turn::Joins), &grown) else {
            panic!("it may join");
        };
        assert_eq!(refusal.code, "MemberMissing");
        assert!(refusal.message.contains("m2"), "{}", refusal.message);
        let members = read(&said(&[true, true], 9)).unwrap();
        let answer = judge(&members, &change(3, Turn::Joins), &grown);
        assert!(matches!(answer, Answer::Yes(_)));
        let joined = change(3, Turn::Joined);
        assert_eq!(judged(&[true, true, true], 9, &joined), None);
        assert_eq!(judged(&[true, true, false], 2, &joined), unhealthy);
        assert_eq!(judged(&[true, true], 9, &joined), unhealthy);
        assert_eq!(judged(&[true, false, true], 9, &joined), unhealthy);
    }

    #[test]
    fn members_of_an_adopted_cluster_are_those_that_its_inventory_names() {
        let mut adopted = inputs();
        let hosts = [1, 2].map(|number| format!("m{number}").parse().unwrap());
        let order = &mut adopted.inventory.order;
        order.insert("etcd".to_owned(), hosts.to_vec());
        let names = [("m1", "etcd1"), ("m2", "etcd2")];
        let names = names.map(|(host, name)| (host.to_owned(), name.to_owned()));
        adopted.inventory.etcd_member_names = names.into();
        let judged = |works: &[bool], inputs: &Inputs| match named(
            &read(&said(works, 9)).unwrap(),
            inputs,
        ) {
            Answer::Yes(said) => said,
            Answer::No(refusal) => refusal.message,
        };
        let yes = judged(&[true, false], &adopted);
        assert!(yes.starts_with("the 2 members of etcd are those"), "{yes}");
        let fewer = judged(&[true], &adopted);
        assert!(fewer.contains("etcd has no member at m2"), "{fewer}");
        let more = judged(&[true, true, true], &adopted);
        assert!(more.contains("member etcd3 at 10.0.0.3"), "{more}");
        let names = &mut adopted.inventory.etcd_member_names;
        names.insert("m2".to_owned(), "m2".to_owned());
        let other = judged(&[true, true], &adopted);
        let expected = "the member at m2 is called etcd2, and the inventory calls it m2";
        assert!(other.contains(expected), "{other}");
    }

    #[test]
    fn a_member_restarts_only_where_all_others_work() {
        let unhealthy = Some("EtcdUnhealthy");
        for (works, restarts, refused) in [
            (&[true][..], 1, None),
            (&[true, true, true], 2, None),
            // Itself it may be down: that may be why.
            (&[true, true, false], 3, None),
            (&[true, true, false], 2, unhealthy),
            (&[true, false], 1, unhealthy),
            (&[true, true], 3, unhealthy),
        ] {
            let change = change(restarts, Turn::Restarts);
            assert_eq!(judged(works, 9, &change), refused, "{works:?}, {restarts}");
        }
        let restarted = change(2, Turn::Restarted);
        assert_eq!(judged(&[true, true, true], 9, &restarted), None);
        assert_eq!(judged(&[true, false, true], 9, &restarted), unhealthy);
    }

    #[test]
    fn a_member_of_another_name_is_not_taken_for_one_at_the_same_address() {
        let members = read(&said(&[true, true, true], 9)).unwrap();
        let mut moved = inputs();
        moved.hosts[3].variables.access_ip = Some("10.0.0.2".to_owned());
        let fourth = change(4, Turn::Leaves);
        assert_eq!(own(&members, &fourth, &moved).map(|own| own.id), Some(1002));
        let names = &mut moved.inventory.etcd_member_names;
        names.insert("m2".to_owned(), "etcd2".to_owned());
        assert_eq!(own(&members, &fourth, &moved), None);
    }

    #[test]
    fn members_restart_some_at_a_time_only_while_all_work() {
        let mut two = inputs();
        let hosts = [1, 2].map(|number| format!("m{number}").parse().unwrap());
        let order = &mut two.inventory.order;
        order.insert("etcd".to_owned(), hosts.to_vec());
        let unhealthy = Some("EtcdUnhealthy");
        for (works, refused) in [
            (&[true, true, true][..], None),
            (&[true, false, true], unhealthy),
            (&[false, true, true], unhealthy),
            // The second host of the inventory has none.
            (&[true], unhealthy),
        ] {
            let members = read(&said(works, 9)).unwrap();
            let code = match judge(&members, &change(1, Turn::AllRestart), &two) {
                Answer::Yes(_) => None,
                Answer::No(refusal) => Some(refusal.code),
            };
            assert_eq!(code, refused, "{works:?}");
        }
    }

    #[test]
    fn a_refusal_names_hosts_numbers_and_the_way_out() {
        let members = read(&said(&[true, false, true], 9)).unwrap();
        let Answer::No(refusal) = judge(&members, &change(3, Turn::Leaves), &inputs()) else {
            panic!("it may leave");
        };
        assert_eq!(
            refusal.message,
            "without m3 etcd has 2 members, of which 2 must answer, and 1 would; these do not: m2"
        );
        assert!(
            refusal.remedy.contains("windlass node remove m2"),
            "{}",
            refusal.remedy
        );
    }

    #[test]
    fn that_nothing_was_heard_proves_no_loss() {
        let of = |service: &str, alone: &str, members: &str, health: &str| {
            read_of_loss(&format!(
                "begin\nservice {service}\nalone {alone}\nmembers {members}\nhealth {health}\nend\n"
            ))
        };
        let silent = r#"[{"endpoint":"https://127.0.0.1:2379","health":false,"took":"5s","error":"context deadline exceeded"}]"#;
        let well = r#"[{"endpoint":"https://127.0.0.1:2379","health":true,"took":"5ms"}]"#;
        let list = r#"{"members": [{"ID": 1, "name": "etcd1", "clientURLs": ["https://127.0.0.1:2379"]}]}"#;
        for (answer, expected) in [
            // etcdctl is not where it is looked for, or may not read its certificates.
            (of("active", "", "", ""), "Err"),
            (of("", "", "", ""), "Err"),
            // etcd up to 3.4 tells the members without a quorum.
            (of("active", "", list, ""), "Err"),
            (of("active", well, "", ""), "Err"),
            (of("active", silent, "", ""), "no quorum: context deadline"),
            (of("activating", "", "", ""), "is activating"),
            (of("inactive", "", "", ""), "is inactive"),
            (of("active", silent, list, ""), "1 members"),
            (of("active", well, list, well), "1 members"),
            (read_of_loss("begin\nservice inactive"), "Err"),
        ] {
            let told = match answer {
                Err(_) => "Err".to_owned(),
                Ok(Quorum::None(why)) => why,
                Ok(Quorum::Told(members)) => format!("{} members", members.len()),
            };
            assert!(told.contains(expected), "{told}, not {expected}");
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let whole = said(&[true], 9);
        for (said, why) in [
            ("begin\nmembers \nhealth \nend\n", "has no quorum"),
            ("members {}\nend\n", "did not say all"),
            (
                "begin\nmembers {\"members\": 1}\nhealth \nend\n",
                "cannot be read",
            ),
            (
                "begin\nmembers {\"members\": []}\nhealth \nend\n",
                "0 members",
            ),
            (whole.trim_end_matches("end\n"), "did not say all"),
        ] {
            let error = read(said).unwrap_err();
            assert!(error.contains(why), "{said}: {error}");
        }
        let learner = r#"begin
members {"members": [{"ID": 18446744073709551615, "name": "e\u001b[1m", "peerURLs": ["https://[fd00::1]:2380", "/x"], "isLearner": true}]}
health
end"#;
        let member = read(learner).unwrap().remove(0);
        assert_eq!((member.id, member.learner), (u64::MAX, true));
        assert_eq!(member.addresses, ["fd00::1"]);
        assert!(!member.name.unwrap().contains('\u{1b}'));
        assert!(removal(member.id).contains("member remove ffffffffffffffff "));
    }
}
