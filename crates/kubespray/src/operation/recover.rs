//! Recover: brings back a built cluster whose etcd lost its quorum, or rolls one that works back to a snapshot. Pure.
//!
//! It is asked for by the annotation [`request::RECOVER`], each value of which is [answered](super::asked) once. The value says what is
//! given up: all members of etcd but one, and control planes; and the data of that one, where a snapshot takes its place. Etcd is founded anew on the one that stays; the hosts that are given up leave the cluster, and those that are still declared
//! join it again as new ones, one a run. That the quorum is lost is asked of etcd, before anything is changed.
//!
//! To roll a cluster back no member is given up: all of them stop, have their data replaced by the snapshot, and start together.
//!
//! A run that was ended in the middle leaves a cluster that is neither what it was nor what it is to be: until it was taken up again,
//! nothing else is begun.

use api::{
    Cluster, HostName, Run,
    node::Role,
    run::{Plan, RunPhase, StepPhase},
};
use jiff::Timestamp;
use kube::ResourceExt;
use runs::phase;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use snapshots::{Name, manifest::InvalidName};

use super::{RECOVER, asked::Asked, remove::as_it_leaves, scale::manages_etcd};
use crate::{
    action::{FOUND, MemberChange, SET_ASIDE, Turn},
    cluster::{
        built::Built,
        compile::{self, Asks, Recovering},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        resolve::Resolved,
    },
    inputs::{Host, Inputs},
    playbooks::Checkout,
    problem::{self, Problem},
    request,
};

/// How much of a request is remembered, and how long it may be.
pub const LENGTH: usize = 512;
/// The longest name of a snapshot's file, in bytes.
const PATH_LENGTH: usize = 256;

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &RECOVER,
    annotation: request::RECOVER,
    length: LENGTH,
    answered: |status| status.recover.as_ref(),
    place: |status| &mut status.recover,
    wrong: |request| parsed(request).err().map(|problem| problem.to_string()),
    refusal: |cluster, _, built| {
        let problems = Wanted::read(cluster, built).err()?;
        Some(problem::text(&problems))
    },
    unbuilt: "there is nothing to bring back",
};

/// What the annotation holds, as JSON.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// What tells one request from others that say the same: the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The name of the cluster, written once more by who knows what is given up.
    pub confirm: String,
    /// The hosts whose members of etcd, and control planes, are given up.
    #[serde(default)]
    pub give_up: Vec<HostName>,
    /// A snapshot of etcd: the absolute path of a file on the host that stays, or the name of one in the store; what was written since is
    /// given up. None: the data of that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Whether all members are rolled back to the snapshot, though etcd has its quorum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub roll_back: bool,
}

/// Has the say about a cluster that somebody wants recovered, or whose recovery was begun.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let asked = ASKED.wanted(cluster, &observed.runs);
    let Some((asked, wanted)) = asked.and_then(|asked| {
        let wanted = Wanted::read(cluster, built).ok()?;
        Some((asked, wanted))
    }) else {
        return held(built, &observed.runs);
    };
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return Some(decision),
    };
    Some(
        match wanted.compiled(cluster, (&asked, observed.now), resolved, checkout) {
            Ok(plan) => Decision::Start(Box::new(NewRun {
                request: Some(asked),
                ..new_run(cluster, observed, &RECOVER, plan)
            })),
            Err(problem) => Decision::Stall(vec![problem]),
        },
    )
}

/// The newest recovery that changed something, where none has come to its end since: one that failed before it touched a host leaves
/// what another one had begun before it.
pub fn begun<'a>(runs: impl DoubleEndedIterator<Item = &'a Run>) -> Option<&'a Run> {
    let recoveries = runs.rev();
    let recoveries = recoveries.filter(|run| run.spec.operation == RECOVER.name);
    let mut ended =
        recoveries.take_while(|run| matches!(phase(run), RunPhase::Failed | RunPhase::Cancelled));
    ended.find(|run| {
        let mut steps = run.status.iter().flat_map(|status| &status.steps);
        steps.any(|step| {
            step.phase != StepPhase::Pending && [SET_ASIDE, FOUND].contains(&step.id.as_str())
        })
    })
}

/// What becomes of a cluster whose recovery was begun: nothing, until a person has said what.
fn held(built: &Built, runs: &[Run]) -> Option<Decision> {
    let run = begun(runs.iter())?;
    let built = Box::new(built.clone());
    Some(match phase(run) {
        RunPhase::Failed => Decision::Maintain(built, Box::new(run.clone())),
        _ => Decision::Keep(built),
    })
}

/// What there is to say of a recovery that somebody ended in the middle.
pub fn cancelled(runs: &[Run]) -> Option<String> {
    let run = begun(runs.iter()).filter(|run| phase(run) == RunPhase::Cancelled)?;
    Some(format!(
        "the recovery that run {} has begun: etcd may be one member already, and nothing else is begun before it is done; ask for it \
         again: windlass recover",
        run.name_any()
    ))
}

/// A request that can be carried out.
struct Wanted<'a> {
    before: &'a Inputs,
    /// The member that etcd is founded on; where it is rolled back, the first one.
    founder: MemberChange,
    given_up: Vec<Host>,
    snapshot: Option<Snapshot>,
    rolls_back: bool,
    /// When it was asked for, if somebody says it.
    at: Option<Timestamp>,
}

/// The snapshot that takes the place of data.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Snapshot {
    /// A file on the host that stays.
    File(String),
    /// One in the store.
    Stored(Name),
}

impl<'a> Wanted<'a> {
    /// What a cluster's annotation asks for, or all that is wrong with it.
    fn read(cluster: &Cluster, built: &'a Built) -> Result<Self, Vec<Problem>> {
        let text = cluster.annotations().get(request::RECOVER);
        let text = text.map(String::as_str).unwrap_or_default();
        let request = parsed(text).map_err(|problem| vec![problem])?;
        let before = built.inputs.as_ref().ok_or_else(|| {
            vec![Problem::new(
                FIELD,
                "",
                "the runs that know what the cluster was built with are gone",
                "declare the hosts as the cluster has them, and ask for windlass converge when etcd answers again",
            )]
        })?;
        Self::of(cluster, request, before)
    }

    fn of(cluster: &Cluster, request: Request, before: &'a Inputs) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        problems.extend(confirmed(cluster, &request, before));
        problems.extend(kubeadms_own(before));
        if request.roll_back {
            problems.extend(of_roll_back(&request));
        } else {
            problems.extend(of_hosts(&request.give_up, before));
        }
        let snapshot = request.snapshot.as_deref();
        let snapshot = snapshot.map(|written| of_snapshot(cluster, written));
        let snapshot = snapshot
            .transpose()
            .map_err(|problem| problems.push(problem));
        let founder = founder(&request, before).map_err(|problem| problems.push(problem));
        let (Ok(founder), Ok(snapshot), true) = (founder, snapshot, problems.is_empty()) else {
            return Err(problems);
        };
        let hosts = before.hosts.iter();
        let is_given_up = |host: &&Host| {
            request
                .give_up
                .iter()
                .any(|name| name.as_str() == host.name)
        };
        Ok(Self {
            before,
            founder,
            given_up: hosts.filter(is_given_up).cloned().collect(),
            snapshot,
            rolls_back: request.roll_back,
            at: request.at.and_then(|at| at.parse().ok()),
        })
    }

    fn compiled(
        &self,
        cluster: &Cluster,
        asked: (&str, Timestamp),
        resolved: &Resolved,
        checkout: &Checkout,
    ) -> Result<Plan, Problem> {
        if self.rolls_back {
            rolled_back(cluster, asked, self, resolved)
        } else {
            compiled(cluster, asked, self, resolved, checkout)
        }
    }

    /// The snapshot, if it lies in the store.
    fn stored(&self) -> Option<&Name> {
        match &self.snapshot {
            Some(Snapshot::Stored(name)) => Some(name),
            _ => None,
        }
    }
}

/// Where a request stands.
const FIELD: &str = "Cluster metadata.annotations kubespray.k8s.io/recover";

fn parsed(text: &str) -> Result<Request, Problem> {
    if text.chars().count() > LENGTH {
        return Err(Problem::new(
            FIELD,
            format!("{} characters", text.chars().count()),
            format!("a request has at most {LENGTH}"),
            "leave `at` out, or give the snapshot's file a shorter name",
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        Problem::new(
            FIELD,
            api::text::plain(text, LENGTH),
            format!("it is no request: {error}"),
            r#"write {"confirm": "CLUSTER", "giveUp": ["HOST"]}, or have windlass recover write it"#,
        )
    })
}

fn confirmed(cluster: &Cluster, request: &Request, before: &Inputs) -> Option<Problem> {
    let name = cluster.name_any();
    (request.confirm != name).then(|| {
        Problem::new(
            format!("{FIELD} confirm"),
            &request.confirm,
            format!(
                "it must be the cluster's name, by who knows what is given up: {}",
                loss(request, before)
            ),
            format!("write {name} (windlass recover: add --confirm {name}), if that may be lost"),
        )
    })
}

/// Why a request is not carried out for a cluster that was built with these inputs.
pub fn refusal(cluster: &Cluster, request: Request, before: &Inputs) -> Option<String> {
    let problems = Wanted::of(cluster, request, before).err()?;
    Some(problem::text(&problems))
}

/// What is given up, for people.
pub fn loss(request: &Request, before: &Inputs) -> String {
    let mut loss = Vec::new();
    if !request.give_up.is_empty() {
        let known = request.give_up.iter().filter_map(|name| before.host(name));
        let what: Vec<_> = known
            .map(|host| format!("{} ({})", host.name, host.part()))
            .collect();
        loss.push(format!(
            "what these hosts have and no other: {}; those that answer are reset, the others must be reset before they are switched on again",
            what.join(", ")
        ));
    }
    match &request.snapshot {
        Some(file) => loss.push(format!(
            "all that the cluster was told since the snapshot {file} was made: objects made since are gone, and those deleted since are back"
        )),
        None => loss.push("what was written last and no member that stays has".to_owned()),
    }
    loss.join("; ")
}

fn kubeadms_own(before: &Inputs) -> Option<Problem> {
    manages_etcd(before).then(|| {
        Problem::new(
            "Cluster spec.nodes.all.deploy.extraVars etcd_deployment_type",
            "kubeadm",
            "only etcd that runs as a service of its hosts can be founded anew",
            "recover it by hand as the documentation of etcd says, from /var/lib/etcd of a control plane",
        )
    })
}

fn of_hosts(given_up: &[HostName], before: &Inputs) -> Vec<Problem> {
    let mut problems = Vec::new();
    let field = format!("{FIELD} giveUp");
    for (at, name) in given_up.iter().enumerate() {
        let host = before.host(name);
        if given_up.iter().take(at).any(|earlier| earlier == name) {
            problems.push(Problem::new(
                &field,
                name,
                "it stands there twice",
                "write it once",
            ));
        } else if host.is_none() {
            let members: Vec<_> = before.group("etcd").iter().map(HostName::as_str).collect();
            problems.push(Problem::new(
                &field,
                name,
                "it is no host of the cluster",
                format!(
                    "write names of its hosts; those of etcd are {}",
                    members.join(", ")
                ),
            ));
        } else if !host.is_some_and(Host::is_member) {
            problems.push(Problem::new(
                &field,
                name,
                "only members of etcd and control planes are given up",
                format!("leave it out, and remove it when the cluster answers again: windlass node remove {name}"),
            ));
        }
    }
    let planes = before.group("kube_control_plane");
    if !planes.iter().any(|plane| !given_up.contains(plane)) {
        problems.push(Problem::new(
            &field,
            compile::listed(given_up),
            "one control plane must stay: with the last one the authorities of the cluster are lost",
            "leave one out; if none is left, bring back the files of one from a backup of the machine",
        ));
    }
    problems
}

fn of_roll_back(request: &Request) -> Vec<Problem> {
    let mut problems = Vec::new();
    if request.snapshot.is_none() {
        problems.push(Problem::new(
            format!("{FIELD} snapshot"),
            "",
            "a cluster is rolled back to a snapshot, and none is named",
            "name one (windlass recover: add --from-snapshot NAME); see which there are: windlass snapshots list",
        ));
    }
    if !request.give_up.is_empty() {
        problems.push(Problem::new(
            format!("{FIELD} giveUp"),
            compile::listed(&request.give_up),
            "no host is given up where all members of etcd are rolled back",
            "leave it out; a host that is dead is removed first: windlass node remove NAME",
        ));
    }
    problems
}

/// The one that stays of etcd; where all of them do, the first one.
fn founder(request: &Request, before: &Inputs) -> Result<MemberChange, Problem> {
    let field = format!("{FIELD} giveUp");
    let members = before.group("etcd");
    if let Some(first) = members.first().filter(|_| request.roll_back) {
        return Ok(change(first, before, Turn::Restarted));
    }
    let stays: Vec<HostName> = members
        .iter()
        .filter(|name| !request.give_up.contains(name))
        .cloned()
        .collect();
    let one = match stays.as_slice() {
        [one] => one,
        [] => {
            return Err(Problem::new(
                field,
                compile::listed(&request.give_up),
                "one member of etcd must stay, to be founded anew",
                "leave out the one that has its data, or that has the snapshot",
            ));
        }
        several => {
            return Err(Problem::new(
                field,
                compile::listed(&request.give_up),
                format!(
                    "etcd is founded anew on one member, and the others join it again: {} stay",
                    compile::listed(several)
                ),
                format!(
                    "give up all of them but one (windlass recover: add --give-up {last} if it is lost; --rejoin {last} if it is well, and \
                     it joins again by itself)",
                    last = several.last().map_or("HOST", HostName::as_str)
                ),
            ));
        }
    };
    if members.len() == 1 && request.snapshot.is_none() {
        return Err(Problem::new(
            format!("{FIELD} snapshot"),
            "",
            format!(
                "{one} is the only member of etcd, so that there is no quorum to lose but its data"
            ),
            "name a snapshot that takes the place of its data (windlass recover: add --from-snapshot FILE), or see why etcd does not run there",
        ));
    }
    Ok(change(one, before, Turn::Founds))
}

fn change(host: &HostName, before: &Inputs, turn: Turn) -> MemberChange {
    let member = before.inventory.etcd_member_names.get(host.as_str());
    MemberChange {
        host: host.clone(),
        member: member.map_or_else(|| host.to_string(), String::clone),
        turn,
    }
}

fn of_snapshot(cluster: &Cluster, written: &str) -> Result<Snapshot, Problem> {
    if !written.is_empty() && !written.contains('/') {
        return stored(cluster, written);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:".contains(&byte);
    let good = written.starts_with('/')
        && written.len() <= PATH_LENGTH
        && written.bytes().all(plain)
        && !written.split('/').any(|part| part == "..");
    if good {
        return Ok(Snapshot::File(written.to_owned()));
    }
    Err(Problem::new(
        format!("{FIELD} snapshot"),
        api::text::plain(written, PATH_LENGTH),
        format!(
            "it is the absolute path of a file on the host that stays: at most {PATH_LENGTH} letters, digits and / . _ - + :, without ..; \
             or the name of a snapshot in the store"
        ),
        "copy the snapshot to a path like /var/backups/snapshot.db on that host, or see which there are in the store: windlass snapshots list",
    ))
}

fn stored(cluster: &Cluster, written: &str) -> Result<Snapshot, Problem> {
    let field = format!("{FIELD} snapshot");
    let shown = api::text::plain(written, PATH_LENGTH);
    let etcd = cluster.spec.etcd.as_ref();
    if etcd.is_none_or(|etcd| etcd.snapshots.is_none()) {
        return Err(Problem::new(
            field,
            shown,
            "it is the name of a snapshot in the store, and spec.etcd.snapshots names no store",
            "write spec.etcd.snapshots.store, or name a file on the host by its absolute path",
        ));
    }
    let name = written.parse().map_err(|error: InvalidName| {
        let remedy = "see which there are: windlass snapshots list";
        Problem::new(field, "", error.to_string(), remedy)
    })?;
    Ok(Snapshot::Stored(name))
}

/// The plan that founds etcd anew, and has the rest follow.
fn compiled(
    cluster: &Cluster,
    asked: (&str, Timestamp),
    wanted: &Wanted<'_>,
    resolved: &Resolved,
    checkout: &Checkout,
) -> Result<Plan, Problem> {
    let name = cluster.name_any();
    let conduct = &resolved.recovery;
    let inputs = shrunk(asked, wanted, resolved)?;
    let left = inputs.clone().left();
    let mut needed = vec![wanted.founder.host.clone()];
    let head = left.group("kube_control_plane").first();
    needed.extend(head.filter(|head| **head != wanted.founder.host).cloned());
    let mut steps = compile::beginning(conduct, needed);
    let recovering = Recovering {
        cluster: &name,
        conduct,
        checkout,
        inputs: &inputs,
        founder: &wanted.founder,
        given_up: &wanted.given_up,
        snapshot: wanted.stored(),
    };
    compile::recovering(&recovering, &mut steps)?;
    steps.push(compile::healthy(conduct, &inputs));
    let question = format!("found etcd anew on {}", wanted.founder.host);
    let asks = Asks::Person(conduct, question);
    let reason = reason(wanted, &left);
    compile::finish(&RECOVER, Some(asked.0), &inputs, reason, asks, steps)
}

/// What the cluster was built with, and which hosts are given up. Whoever stays comes first where order is state.
fn shrunk(
    asked: (&str, Timestamp),
    wanted: &Wanted<'_>,
    resolved: &Resolved,
) -> Result<Inputs, Problem> {
    let before = wanted.before;
    let names: Vec<HostName> = wanted
        .given_up
        .iter()
        .filter_map(|host| host.name.parse().ok())
        .collect();
    let mut inputs = before.reached_as(&resolved.inputs);
    for hosts in inputs.inventory.order.values_mut() {
        hosts.retain(|host| !names.contains(host));
    }
    inputs.leaving.clone_from(&names);
    let left = compile::compiled(&inputs.clone().on_the_way().left())?;
    inputs.inventory = left.order().clone();
    for host in &mut inputs.hosts {
        if names.iter().any(|name| name.as_str() == host.name) {
            as_it_leaves(host);
        }
    }
    told(asked, wanted, resolved, &mut inputs);
    if let Some(head) = left_head(wanted, &names) {
        let addresses: Vec<_> = head.addresses().collect();
        let old = ("windlass_old_head_addresses".to_owned(), json!(addresses));
        inputs.operation_variables.extend([old]);
    }
    if !names.is_empty() {
        let nodes = wanted
            .given_up
            .iter()
            .filter(|host| host.roles != [Role::Etcd]);
        let nodes: Vec<_> = nodes.map(|host| host.name.as_str()).collect();
        inputs.operation_variables.extend([
            ("node".to_owned(), json!(nodes.join(","))),
            ("skip_confirmation".to_owned(), json!(true)),
            ("allow_ungraceful_removal".to_owned(), json!(true)),
        ]);
    }
    Ok(inputs.on_the_way())
}

/// What the playbooks and the runner are told of a request: its mark, its snapshot, and by how much revisions go up. That is the time in
/// microseconds: more than was ever written, also since an earlier one.
fn told(
    (asked, now): (&str, Timestamp),
    wanted: &Wanted<'_>,
    resolved: &Resolved,
    inputs: &mut Inputs,
) {
    let mark = hex::encode(Sha256::digest(asked));
    let mark: String = mark.chars().take(12).collect();
    let file = wanted.snapshot.as_ref().map(|snapshot| match snapshot {
        Snapshot::File(file) => file.clone(),
        Snapshot::Stored(_) => format!("{}/snapshot.db", compile::from_store(&mark)),
    });
    let variables = &mut inputs.operation_variables;
    variables.clear();
    variables.extend([("windlass_recover_mark".to_owned(), json!(mark))]);
    if let Some(file) = file {
        let bump = wanted.at.unwrap_or(now).as_microsecond();
        variables.extend([
            (crate::etcd::SNAPSHOT.to_owned(), json!(file)),
            ("windlass_recover_bump".to_owned(), json!(bump)),
        ]);
    }
    inputs.snapshots = wanted.stored().and_then(|_| resolved.store());
}

/// The plan that rolls all members of etcd back to a snapshot.
fn rolled_back(
    cluster: &Cluster,
    (asked, now): (&str, Timestamp),
    wanted: &Wanted<'_>,
    resolved: &Resolved,
) -> Result<Plan, Problem> {
    let conduct = &resolved.recovery;
    let mut inputs = wanted.before.reached_as(&resolved.inputs);
    told((asked, now), wanted, resolved, &mut inputs);
    let itself = json!({
        "namespace": cluster.namespace(), "name": cluster.name_any(), "uid": cluster.uid().unwrap_or_default(),
    });
    inputs.operation_variables.extend([
        ("windlass_roll_back".to_owned(), json!(true)),
        ("windlass_cluster".to_owned(), itself),
    ]);
    let members = inputs.group("etcd");
    let planes = inputs.group("kube_control_plane").iter();
    let others = planes.filter(|host| !members.contains(host));
    let needed = members.iter().chain(others).cloned().collect();
    let mut steps = compile::beginning(conduct, needed);
    let name = cluster.name_any();
    compile::rolling_back(
        (&name, conduct),
        &inputs,
        &wanted.founder,
        wanted.stored(),
        &mut steps,
    );
    steps.push(compile::healthy(conduct, &inputs));
    let members = compile::listed(inputs.group("etcd"));
    let question = format!("roll etcd back to a snapshot on {members}");
    let asks = Asks::Person(conduct, question);
    let snapshot = match &wanted.snapshot {
        Some(Snapshot::Stored(name)) => format!("the snapshot {name} of the store"),
        Some(Snapshot::File(file)) => format!("the snapshot {file} on each of them"),
        None => String::new(),
    };
    let reason = format!(
        "somebody asked for it: etcd is rolled back to {snapshot} on {members}, so that what was written since is lost; the data of each \
         is kept aside, and the API does not answer meanwhile"
    );
    compile::finish(&RECOVER, Some(asked), &inputs, reason, asks, steps)
}

/// The first control plane, if it is given up.
fn left_head<'a>(wanted: &Wanted<'a>, names: &[HostName]) -> Option<&'a Host> {
    let head = wanted.before.group("kube_control_plane").first()?;
    let head = names.contains(head).then_some(head)?;
    wanted.before.host(head)
}

fn reason(wanted: &Wanted<'_>, left: &Inputs) -> String {
    let founder = &wanted.founder.host;
    let mut reason = format!(
        "somebody asked for it: etcd has lost its quorum, and is founded anew on {founder} from {}",
        match &wanted.snapshot {
            Some(Snapshot::Stored(name)) => format!(
                "the snapshot {name} of the store, so that what was written since is lost; its data is kept aside"
            ),
            Some(Snapshot::File(file)) => format!(
                "the snapshot {file} there, so that what was written since is lost; its data is kept aside"
            ),
            None => "the data that it has, a copy of which is kept".to_owned(),
        }
    );
    let names: Vec<HostName> = wanted
        .given_up
        .iter()
        .filter_map(|host| host.name.parse().ok())
        .collect();
    if !names.is_empty() {
        reason.push_str(&format!(
            "; given up: {}, which join again as new hosts if they are declared when it is done",
            compile::listed(&names)
        ));
    }
    for (group, what) in [("kube_control_plane", "control planes"), ("etcd", "etcd")] {
        let (was, is) = (wanted.before.group(group), left.group(group));
        if was.first() != is.first() {
            reason.push_str(&format!(
                "; the first of {what} was {}, and is {} from then on",
                compile::listed(was.get(..1).unwrap_or_default()),
                compile::listed(is.get(..1).unwrap_or_default()),
            ));
        }
    }
    reason
}
