//! How one object stands, by what it says of itself.

use api::text::plain;
use serde_json::Value;

use super::{
    Condition, Fact, Listing, Looked, NAME, Node, Reference, Replicas, Role, State, WORD,
    condition::time,
};

impl Node {
    /// An object, with nothing below it.
    pub(super) fn of(object: &Value, role: Option<Role>) -> Self {
        let meta = &object["metadata"];
        let conditions = Condition::all(object);
        let replicas = replicas(object);
        let (state, waits_for, since) = stands(object, role, &conditions, replicas);
        // What has never changed stands so since it was made.
        let since = since.or_else(|| time(&meta["creationTimestamp"]));
        Self {
            role,
            api_version: text(&object["apiVersion"], WORD),
            kind: text(&object["kind"], WORD).unwrap_or_default(),
            names: text(&meta["name"], NAME).into_iter().collect(),
            state,
            replicas,
            since,
            waits_for,
            conditions,
            children: Vec::new(),
        }
    }

    /// What a reference leads to. None where there is none.
    pub(super) fn referred(
        reference: Option<Result<Reference, String>>,
        role: Role,
        looked: impl Fn(&Reference) -> Option<Looked>,
    ) -> Option<Self> {
        let reference = match reference? {
            Ok(reference) => reference,
            Err(problem) => {
                let kind = match role {
                    Role::Infrastructure => "infrastructureRef",
                    Role::ControlPlane => "controlPlaneRef",
                    Role::Bootstrap => "configRef",
                };
                return Some(Self {
                    role: Some(role),
                    ..Self::lacking(kind, State::Missing, &problem)
                });
            }
        };
        let lacking = |state, message: &str| Self {
            role: Some(role),
            names: vec![reference.name.clone()],
            ..Self::lacking(&reference.kind, state, message)
        };
        Some(match looked(&reference) {
            Some(Looked::Found(object)) => Self::of(&object, Some(role)),
            Some(Looked::Missing) => lacking(State::Missing, "it is referred to and not there"),
            Some(Looked::Unread(problem)) => lacking(State::Unread, &unread(&problem)),
            None => lacking(State::Unread, "it was not looked for"),
        })
    }

    /// The place of objects that could not be listed.
    pub(super) fn unlisted(kind: &str, listing: &Listing) -> Option<Self> {
        let problem = listing.lack.as_deref()?;
        Some(Self::lacking(kind, State::Unread, &unread(problem)))
    }

    /// The place of an object that there is nothing to say of but why.
    pub(super) fn lacking(kind: &str, state: State, message: &str) -> Self {
        Self {
            role: None,
            api_version: None,
            kind: plain(kind, WORD),
            names: Vec::new(),
            state,
            replicas: None,
            since: None,
            waits_for: Some(Fact::new(message)),
            conditions: Vec::new(),
            children: Vec::new(),
        }
    }
}

impl Fact {
    /// One that no condition says.
    pub(super) fn new(message: &str) -> Self {
        Self {
            condition: None,
            reason: None,
            message: super::message(message),
        }
    }

    fn of(condition: &Condition) -> Self {
        let message = condition.message.clone().unwrap_or_else(|| {
            let status = condition.status.to_lowercase();
            format!("{} is {status}", condition.kind)
        });
        Self {
            condition: Some(condition.kind.clone()),
            reason: condition.reason.clone(),
            message,
        }
    }
}

type Stands = (State, Option<Fact>, Option<jiff::Timestamp>);

fn stands(
    object: &Value,
    role: Option<Role>,
    conditions: &[Condition],
    replicas: Option<Replicas>,
) -> Stands {
    let (meta, status) = (&object["metadata"], &object["status"]);
    let of = |state, condition: &Condition| (state, Some(Fact::of(condition)), condition.since);
    let made = time(&meta["creationTimestamp"]);
    let goes = time(&meta["deletionTimestamp"]);
    // Controllers ask for it before all else: it holds a deletion as well, whatever is left of what was said of that.
    if let Some(by) = paused(object) {
        let since = conditions.iter().find(|one| one.kind == "Paused");
        let since = since.and_then(|one| one.since);
        let deleted = goes.map_or("", |_| "it is to be deleted, but ");
        let fact = Fact::new(&format!("{deleted}nothing is done while {by}"));
        return (State::Paused, Some(fact), since);
    }
    if goes.is_some() {
        return (State::Deleting, Some(deletion(meta, conditions)), goes);
    }
    if let Some(fact) = failure(status) {
        let summary = conditions.iter().find(|one| one.is_summary());
        return (State::Failed, Some(fact), summary.and_then(|one| one.since));
    }
    let mut bad: Vec<_> = conditions.iter().filter(|one| !one.is_good()).collect();
    let mut summaries = conditions.iter().filter(|one| one.is_summary()).peekable();
    // What calls itself ready need not explain what else it says, in whatever polarity, but for what comes and goes.
    let is_summed_up = summaries.peek().is_some() && summaries.all(Condition::is_good);
    if is_summed_up {
        bad.retain(|one| one.is_at_work());
    }
    bad.sort_by_key(|one| one.rank());
    if let Some(error) = bad.iter().find(|one| one.is_error()) {
        return of(State::Failed, error);
    }
    let is_silent = status.as_object().is_none_or(serde_json::Map::is_empty);
    if is_silent {
        let fact = Fact::new("its controller has said nothing of it yet");
        return (State::Silent, Some(fact), made);
    }
    let seen = status["observedGeneration"].as_i64();
    if seen.is_some() && seen < meta["generation"].as_i64() {
        let fact = Fact::new("its controller has not seen its last change yet");
        return (State::Waiting, Some(fact), None);
    }
    if let Some(first) = bad.first() {
        return of(State::Waiting, first);
    }
    let since = conditions.iter().filter(|one| one.is_summary());
    let since = since.filter_map(|one| one.since).max();
    match role.map(|role| (contract(role, status), role)) {
        Some((Some(false), role)) => {
            let fact = Fact::new(&format!("{} is not true yet", contract_field(role)));
            return (State::Waiting, Some(fact), None);
        }
        Some((None, role)) if !is_summed_up => {
            let fact = format!("it has neither Ready nor {}", contract_field(role));
            return (State::Silent, Some(Fact::new(&fact)), made);
        }
        _ => {}
    }
    if let Some(Replicas { ready, wanted }) = replicas.filter(|one| one.ready < one.wanted) {
        let fact = Fact::new(&format!("{ready} of {wanted} are ready"));
        return (State::Waiting, Some(fact), None);
    }
    (State::Ready, None, since)
}

/// What a deletion waits for.
fn deletion(meta: &Value, conditions: &[Condition]) -> Fact {
    let said = conditions.iter().find(|one| one.kind == "Deleting");
    if let Some(said) = said.filter(|one| one.status == "True" && one.message.is_some()) {
        return Fact::of(said);
    }
    let finalizers = meta["finalizers"].as_array().into_iter().flatten();
    let finalizers = finalizers.filter_map(Value::as_str).take(FINALIZERS);
    let finalizers: Vec<_> = finalizers.collect();
    Fact::new(&match finalizers.as_slice() {
        [] => "it is being deleted".to_owned(),
        [one] => format!("it is being deleted; finalizer: {one}"),
        many => format!("it is being deleted; finalizers: {}", many.join(", ")),
    })
}

/// By what an object is paused itself. That its cluster is stands at the cluster.
fn paused(object: &Value) -> Option<&'static str> {
    let annotation = &object["metadata"]["annotations"]["cluster.x-k8s.io/paused"];
    if annotation.is_string() {
        return Some("it has the annotation cluster.x-k8s.io/paused");
    }
    (object["spec"]["paused"] == true).then_some("spec.paused is true")
}

/// The last word of an object that has given up, as the contract of v1beta1 has it.
fn failure(status: &Value) -> Option<Fact> {
    let places = [status, &status["deprecated"]["v1beta1"]];
    places.into_iter().find_map(|place| {
        let reason = text(&place["failureReason"], WORD);
        let message = place["failureMessage"].as_str().map(super::message);
        let told = message.clone().or_else(|| reason.clone())?;
        Some(Fact {
            condition: None,
            reason: reason.filter(|_| message.is_some()),
            message: told,
        })
    })
}

/// Whether an object has done what Cluster API waits for, by the fields of either contract. None: it has none of them.
fn contract(role: Role, status: &Value) -> Option<bool> {
    let first = &status["initialization"];
    let fields = match role {
        Role::Infrastructure => [&first["provisioned"], &status["ready"]],
        Role::Bootstrap => [&first["dataSecretCreated"], &status["ready"]],
        Role::ControlPlane => [&first["controlPlaneInitialized"], &status["initialized"]],
    };
    fields.into_iter().find_map(Value::as_bool)
}

fn contract_field(role: Role) -> &'static str {
    match role {
        Role::Infrastructure => "status.initialization.provisioned or status.ready",
        Role::Bootstrap => "status.initialization.dataSecretCreated or status.ready",
        Role::ControlPlane => "status.initialization.controlPlaneInitialized or status.initialized",
    }
}

fn replicas(object: &Value) -> Option<Replicas> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let of = |wanted: &Value, ready: &Value| {
        let wanted = wanted.as_u64()?;
        // Zero is left out of objects.
        let ready = ready.as_u64().unwrap_or_default();
        Some(Replicas { ready, wanted })
    };
    of(&spec["replicas"], &status["readyReplicas"])
        .or_else(|| of(&status["expectedMachines"], &status["currentHealthy"]))
}

fn unread(problem: &str) -> String {
    format!("it cannot be read: {problem}")
}

fn text(value: &Value, limit: usize) -> Option<String> {
    let text = value.as_str().map(|text| plain(text, limit));
    text.filter(|text| !text.is_empty())
}

/// So many are named.
const FINALIZERS: usize = 4;
