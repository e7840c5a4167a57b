//! Hooks: what a spec asks to be run before and after steps, and what is wrong with it. Pure but for [`look`].
//!
//! A plan carries the text of each of its hooks, as it was when the plan was made: what was shown is what runs, a runner needs no right to
//! read ConfigMaps, and a changed text is another plan. So a text stands in a Run, where more people may read it than may read Secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use ansible::slice::Playbook;
use api::{
    Cluster, Duration,
    hook::{ConfigMapKeyRef, Hook, HookImage, HookOperation, HookText, IMAGE},
    run::OnFailure,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use regex::Regex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    action,
    inputs::Host,
    operation::Operation,
    playbooks::Checkout,
    problem::{Problem, nearest},
};

/// How long a hook may take that says nothing.
const TIMEOUT: Duration = Duration::from_seconds(300);
/// The longest that it may say.
const LONGEST: Duration = Duration::from_seconds(86_400);
/// How long a text may be, in bytes.
const MOST: usize = 65_536;
/// What the names of Windlass' own variables begin with.
const OWN: &str = "WINDLASS_";
/// How many steps a refusal names.
const NAMED: usize = 60;

/// A hook, as a plan carries it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookInput {
    /// Its name.
    pub name: String,
    /// At which side of its step it stands.
    pub side: Side,
    /// The step.
    pub step: String,
    /// The operations in whose plans it stands. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<HookOperation>,
    /// Groups and hosts. Empty: those of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What its text is.
    pub kind: Kind,
    /// Its text; empty of an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The image, of one that is an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<HookImage>,
    /// How long it may take.
    pub timeout: Duration,
    /// What happens when it fails.
    pub on_failure: OnFailure,
}

/// A side of a step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Side {
    /// Before it.
    Before,
    /// After it.
    After,
}

/// What a hook is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Kind {
    /// A program for hosts; a value.
    Script,
    /// Plays; a template.
    Playbook,
    /// A pod of the cluster; a value.
    Image,
}

impl Side {
    /// The field of a hook that names its step.
    const fn field(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

impl HookInput {
    /// Where it stands, for people.
    pub fn place(&self) -> String {
        format!("{} {}", self.side.field(), self.step)
    }

    /// What it is, for people.
    pub fn told(&self) -> String {
        match (self.kind, &self.image) {
            (Kind::Script, _) => "a script".to_owned(),
            (Kind::Playbook, _) => "a playbook".to_owned(),
            (Kind::Image, image) => {
                let name = image.as_ref().map_or("", |image| &image.name);
                let moves = if name.contains('@') {
                    ""
                } else {
                    " (a tag, which may come to mean another image: write its digest)"
                };
                format!("image {name}{moves}")
            }
        }
    }

    /// Whether it runs where its hosts are not named: in the cluster, on any node.
    pub fn is_anywhere(&self) -> bool {
        self.kind == Kind::Image && self.hosts.is_empty()
    }

    /// Whether it stands in plans of an operation.
    pub fn is_of(&self, operation: &Operation) -> bool {
        self.operations.is_empty()
            || self
                .operations
                .iter()
                .any(|listed| word(*listed) == operation.name)
    }

    /// Whether it stands at a step: that of its id, or a batch of it.
    pub fn stands_at(&self, id: &str) -> bool {
        let batch = id.strip_prefix(self.step.as_str());
        let batch = batch.and_then(|rest| rest.strip_prefix('/'));
        self.step == id || batch.is_some_and(is_number)
    }
}

/// The text that a reference to a ConfigMap leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Text {
    /// It is there.
    Held(String),
    /// There is no such ConfigMap.
    NoConfigMap,
    /// The ConfigMap has no such key, but these.
    NoKey(Vec<String>),
}

/// What was found of all references, by the name of the ConfigMap and the key. One that is missing: nothing is known of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Texts(BTreeMap<(String, String), Text>);

impl Texts {
    /// Whether each that was looked for is there.
    pub fn is_usable(&self) -> bool {
        self.0.values().all(|text| matches!(text, Text::Held(_)))
    }

    fn of(&self, reference: &ConfigMapKeyRef) -> Option<&Text> {
        self.0.get(&(reference.name.clone(), reference.key.clone()))
    }
}

/// Reads the ConfigMaps that the hooks of a cluster refer to.
///
/// # Errors
///
/// The API refuses or does not answer. That a ConfigMap is missing is no error.
pub async fn look(
    client: &Client,
    namespace: &str,
    cluster: &Cluster,
) -> Result<Texts, kube::Error> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let mut found: BTreeMap<String, Option<ConfigMap>> = BTreeMap::new();
    for reference in references(cluster) {
        if !found.contains_key(&reference.name) {
            found.insert(reference.name.clone(), api.get_opt(&reference.name).await?);
        }
    }
    Ok(judge(cluster, |name| {
        found.get(name).map(|found| found.as_ref())
    }))
}

/// What references lead to. `config_map` gives each ConfigMap: what it is, none, or that nothing is known of it.
pub fn judge<'a>(
    cluster: &Cluster,
    config_map: impl Fn(&str) -> Option<Option<&'a ConfigMap>>,
) -> Texts {
    let mut texts = Texts::default();
    for reference in references(cluster) {
        let Some(known) = config_map(&reference.name) else {
            continue;
        };
        let text = known.map_or(Text::NoConfigMap, |held| {
            let data = held.data.as_ref();
            let keys = || data.into_iter().flatten().map(|(key, _)| key.clone());
            match data.and_then(|data| data.get(&reference.key)) {
                Some(text) => Text::Held(text.clone()),
                None => Text::NoKey(keys().collect()),
            }
        });
        texts
            .0
            .insert((reference.name.clone(), reference.key.clone()), text);
    }
    texts
}

fn references(cluster: &Cluster) -> impl Iterator<Item = &ConfigMapKeyRef> {
    let hooks = cluster.spec.hooks.iter().flatten();
    let texts = hooks.flat_map(|hook| [&hook.script, &hook.playbook]);
    texts
        .flatten()
        .filter_map(|text| text.config_map_key_ref.as_ref())
}

/// The hooks of a wish, with everything that is wrong with them.
pub(crate) fn resolved(
    cluster: &Cluster,
    texts: &Texts,
    checkout: Option<&Checkout>,
    hosts: &[Host],
    problems: &mut Vec<Problem>,
) -> Vec<HookInput> {
    let mut names = BTreeSet::new();
    let mut resolved = Vec::new();
    for hook in cluster.spec.hooks.iter().flatten() {
        if !names.insert(&hook.name) {
            problems.push(of(
                hook,
                "name",
                &hook.name,
                "each hook has a name of its own",
                "give one of them another name",
            ));
        }
        match one(hook, texts) {
            Ok(input) => {
                problems.extend(checkout.and_then(|checkout| unknown_step(hook, &input, checkout)));
                problems.extend(checkout.and_then(|checkout| without_api(hook, &input, checkout)));
                problems.extend(unknown_host(hook, &input, hosts));
                problems.extend(broken(hook, &input));
                resolved.push(input);
            }
            Err(problem) => problems.push(problem),
        }
    }
    resolved
}

fn of(
    hook: &Hook,
    field: &str,
    value: impl std::fmt::Display,
    rule: impl Into<String>,
    remedy: impl Into<String>,
) -> Problem {
    let name = api::text::plain(&hook.name, 64);
    let value = api::text::plain(&value.to_string(), 256);
    let field = format!("Cluster spec.hooks[name={name}].{field}");
    Problem::new(field, value, rule, remedy)
}

/// A hook with its defaults, and its text.
fn one(hook: &Hook, texts: &Texts) -> Result<HookInput, Problem> {
    let (side, step) = match (&hook.before, &hook.after) {
        (Some(step), None) => (Side::Before, step),
        (None, Some(step)) => (Side::After, step),
        _ => {
            return Err(of(
                hook,
                "before",
                "",
                "a hook stands before a step or after one",
                "set before or after, one of the two",
            ));
        }
    };
    let (kind, written) = match (&hook.script, &hook.playbook, &hook.image) {
        (Some(text), None, None) => (Kind::Script, Some(text)),
        (None, Some(text), None) => (Kind::Playbook, Some(text)),
        (None, None, Some(_)) => (Kind::Image, None),
        _ => {
            return Err(of(
                hook,
                "script",
                "",
                "a hook runs a script, a playbook or an image",
                "set script, playbook or image, one of the three",
            ));
        }
    };
    let timeout = hook.timeout.unwrap_or(TIMEOUT);
    if timeout.seconds() == 0 || timeout > LONGEST {
        return Err(of(
            hook,
            "timeout",
            timeout,
            "a hook ends: it takes 1s at least and 24h at most",
            "write how long it may take, for example 5m",
        ));
    }
    if let Some(problem) = hook.image.as_ref().and_then(|image| unusable(hook, image)) {
        return Err(problem);
    }
    let field = match kind {
        Kind::Script => "script",
        Kind::Playbook => "playbook",
        Kind::Image => "image",
    };
    let text = match written {
        Some(written) => text(hook, field, written, texts)?,
        None => String::new(),
    };
    Ok(HookInput {
        name: hook.name.clone(),
        side,
        step: step.clone(),
        operations: hook.operations.clone().unwrap_or_default(),
        hosts: hook.hosts.clone().unwrap_or_default(),
        kind,
        text,
        image: hook.image.clone(),
        timeout,
        on_failure: hook.on_failure.unwrap_or_default(),
    })
}

/// What is wrong with an image. Which there are nobody knows before it is pulled.
fn unusable(hook: &Hook, image: &HookImage) -> Option<Problem> {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(IMAGE).ok());
    let is_name = NAME.as_ref().is_some_and(|name| name.is_match(&image.name));
    if !is_name || image.name.len() > 512 {
        return Some(of(
            hook,
            "image.name",
            &image.name,
            "an image is named as REGISTRY/PATH@sha256:DIGEST or REGISTRY/PATH:TAG, with at most 512 characters",
            "write for example registry.example.com/checks@sha256:... (crictl inspecti IMAGE, or the registry, tells the digest)",
        ));
    }
    let mut variables = image.env.iter().flatten();
    let own = variables.find(|variable| variable.name.starts_with(OWN))?;
    Some(of(
        hook,
        "image.env",
        &own.name,
        format!("variables that begin with {OWN} are Windlass' own"),
        "give it another name",
    ))
}

/// The text; empty where nothing is known of its ConfigMap, which happens to who plans from files alone.
fn text(hook: &Hook, field: &str, written: &HookText, texts: &Texts) -> Result<String, Problem> {
    let (field, text) = match (&written.inline, &written.config_map_key_ref) {
        (Some(inline), None) => (format!("{field}.inline"), inline),
        (None, Some(reference)) => {
            let field = format!("{field}.configMapKeyRef");
            match referred(hook, &field, reference, texts)? {
                Some(text) => (field, text),
                None => return Ok(String::new()),
            }
        }
        _ => {
            return Err(of(
                hook,
                field,
                "",
                "its text stands in one place",
                "set inline or configMapKeyRef, one of the two",
            ));
        }
    };
    if text.trim().is_empty() || text.len() > MOST || text.contains('\0') {
        return Err(of(
            hook,
            &field,
            "",
            format!(
                "the text of a hook has 1 to {MOST} bytes and no NUL, and this one has {} bytes",
                text.len()
            ),
            "write what is to run; what is long belongs into a file that the hook fetches or calls",
        ));
    }
    Ok(text.clone())
}

fn referred<'a>(
    hook: &Hook,
    field: &str,
    reference: &ConfigMapKeyRef,
    texts: &'a Texts,
) -> Result<Option<&'a String>, Problem> {
    let ConfigMapKeyRef { name, key, sha256 } = reference;
    let text = match texts.of(reference) {
        None => return Ok(None),
        Some(Text::Held(text)) => text,
        Some(Text::NoConfigMap) => {
            return Err(of(
                hook,
                &format!("{field}.name"),
                name,
                "there is no such ConfigMap in the namespace of the Cluster",
                format!("create it: kubectl create configmap {name} --from-file={key}=FILE"),
            ));
        }
        Some(Text::NoKey(keys)) => {
            return Err(of(
                hook,
                &format!("{field}.key"),
                key,
                format!("ConfigMap {name} has the keys {}", keys.join(", ")),
                "name one of these, or add it to the ConfigMap",
            ));
        }
    };
    let digest = hex::encode(Sha256::digest(text));
    if sha256.as_ref().is_some_and(|wanted| *wanted != digest) {
        return Err(of(
            hook,
            &format!("{field}.sha256"),
            sha256.as_deref().unwrap_or_default(),
            format!("the text under {key} of ConfigMap {name} has another digest, {digest}"),
            "find out who changed the ConfigMap; if the new text is meant, write its digest",
        ));
    }
    Ok(Some(text))
}

/// What is wrong with what is to run.
fn broken(hook: &Hook, input: &HookInput) -> Option<Problem> {
    if input.text.is_empty() {
        return None;
    }
    match input.kind {
        Kind::Image => None,
        Kind::Script => (!input.text.starts_with("#!/")).then(|| {
            of(
                hook,
                "script",
                input.text.lines().next().unwrap_or_default(),
                "the first line of a script names its interpreter by its path",
                "begin it with #!/bin/sh, or with another interpreter that the hosts have",
            )
        }),
        Kind::Playbook => playbook(input).err().map(|error| {
            of(
                hook,
                "playbook",
                "",
                crate::chain(&error),
                "write a list of plays, each with hosts and tasks or roles, and without import_playbook",
            )
        }),
    }
}

/// The plays of a hook that is a playbook.
///
/// # Errors
///
/// It is none.
pub(crate) fn playbook(hook: &HookInput) -> Result<Playbook, ansible::slice::Error> {
    Playbook::of_text(&format!("hook-{}", hook.name), &hook.text)
}

fn unknown_host(hook: &Hook, input: &HookInput, hosts: &[Host]) -> Option<Problem> {
    let is_known = |name: &&String| {
        GROUPS.contains(&name.as_str()) || hosts.iter().any(|host| host.name == **name)
    };
    let unknown = input.hosts.iter().find(|name| !is_known(name))?;
    let mut names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(of(
        hook,
        "hosts",
        unknown,
        format!(
            "it is no ClusterNode of the cluster ({}{more}), and no group ({})",
            names.join(", "),
            GROUPS.join(", ")
        ),
        "name a host or a group of these",
    ))
}

/// The groups of every inventory.
const GROUPS: [&str; 5] = [
    "all",
    "k8s_cluster",
    "kube_control_plane",
    "kube_node",
    "etcd",
];

/// A step that no plan of its operations can have, or at which no hook may stand.
fn unknown_step(hook: &Hook, input: &HookInput, checkout: &Checkout) -> Option<Problem> {
    let field = input.side.field();
    let too_early = [action::APPROVE, action::SANDBOX].contains(&input.step.as_str())
        || (input.side == Side::Before && input.step == action::PROBE);
    if too_early {
        return Some(of(
            hook,
            field,
            &input.step,
            "nothing runs on hosts before a person has approved the plan and the hosts were asked whether they answer",
            format!("write after: {}", action::PROBE),
        ));
    }
    let operations: Vec<_> = match &*input.operations {
        [] => Vec::from(OPERATIONS),
        listed => listed.to_vec(),
    };
    let missing = operations.iter().find(|operation| {
        let listed = !input.operations.is_empty();
        listed && !has_step(&steps_of(**operation, checkout), &input.step)
    });
    let all: BTreeSet<String> = operations
        .iter()
        .flat_map(|operation| steps_of(*operation, checkout))
        .collect();
    let (of_what, steps) = match missing {
        Some(operation) => (
            format!("plans of {}", word(*operation)),
            steps_of(*operation, checkout),
        ),
        None if has_step(&all, &input.step) => return None,
        None => ("plans".to_owned(), all),
    };
    let meant = nearest(&input.step, steps.iter().map(String::as_str));
    let remedy = match meant {
        Some(meant) => format!(
            "did you mean {meant}? `windlass plan` shows the steps of a plan with their hosts"
        ),
        None => "name one of these; `windlass plan` shows the steps of a plan with their hosts"
            .to_owned(),
    };
    let more = match steps.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let steps: Vec<_> = steps.into_iter().take(NAMED).collect();
    Some(of(
        hook,
        field,
        &input.step,
        format!(
            "{of_what} by these playbooks have no such step, but {}{more}",
            steps.join(", ")
        ),
        remedy,
    ))
}

/// A step at which the cluster has no API that could run a pod.
fn without_api(hook: &Hook, input: &HookInput, checkout: &Checkout) -> Option<Problem> {
    if input.kind != Kind::Image {
        return None;
    }
    let stands = |operation: &&HookOperation| {
        input.operations.is_empty() && has_step(&steps_of(**operation, checkout), &input.step)
            || input.operations.contains(operation)
    };
    let (operation, places) = OPERATIONS
        .iter()
        .filter(stands)
        .find_map(|operation| Some((operation, places_with_api(*operation, input).err()?)))?;
    let word = word(*operation);
    Some(of(
        hook,
        input.side.field(),
        &input.step,
        format!(
            "an image runs as a pod, and a plan of {word} has the cluster's API {places} alone"
        ),
        format!(
            "write that, or operations without {word}; what must run elsewhere is a script or a playbook"
        ),
    ))
}

/// Whether the cluster's API answers where a hook stands in plans of an operation; no: where it does.
fn places_with_api(operation: HookOperation, hook: &HookInput) -> Result<(), &'static str> {
    let at_health = hook.step == action::HEALTH;
    let after = |step: &str| hook.side == Side::After && hook.step == step;
    let (answers, places) = match operation {
        HookOperation::Create | HookOperation::Recover => (
            at_health || after(action::KUBECONFIG),
            "after: kubeconfig/store, and before or after: health/check",
        ),
        HookOperation::Reset => (after(action::PROBE), "after: prepare/probe"),
        _ => (true, ""),
    };
    if answers { Ok(()) } else { Err(places) }
}

/// Whether a hook of an operation may stand at a step of its plans, by its id. What a plan has and this does not know is refused to
/// people who name it.
pub fn may_name(operation: &Operation, step: &str, checkout: &Checkout) -> bool {
    let mut operations = OPERATIONS.into_iter();
    let hooked = operations.find(|hooked| word(*hooked) == operation.name);
    hooked.is_some_and(|hooked| has_step(&steps_of(hooked, checkout), step))
}

/// Whether a step is known, or is one of several that are numbered.
fn has_step(known: &BTreeSet<String>, step: &str) -> bool {
    let plain = step.strip_prefix("gate/").unwrap_or(step);
    let unnumbered = |step: &str| {
        let (start, number) = step.rsplit_once(['/', '-'])?;
        is_number(number).then(|| start.to_owned())
    };
    known.contains(step)
        || [step, plain]
            .into_iter()
            .filter_map(unnumbered)
            .any(|start| known.contains(&start))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The steps that plans of an operation may have: those of its playbooks, and those of Windlass' own. Which of them one has follows from
/// its hosts.
fn steps_of(operation: HookOperation, checkout: &Checkout) -> BTreeSet<String> {
    use HookOperation as Of;
    let Checkout {
        create,
        scale,
        remove,
        upgrade,
        recover,
        reset,
        ..
    } = checkout;
    let create = Some(create);
    let playbooks: &[Option<&Playbook>] = match operation {
        Of::Create | Of::Converge | Of::Component | Of::Replace => &[create],
        Of::Scale => &[scale.as_ref(), create],
        Of::Remove => &[remove.as_ref(), create],
        Of::Upgrade => &[upgrade.as_ref()],
        Of::Recover => &[recover.as_ref(), remove.as_ref(), create],
        Of::Reset | Of::ResetHost => &[Some(reset)],
        Of::Adopt | Of::Renew | Of::Toolbox => &[],
    };
    let slices = playbooks
        .iter()
        .flatten()
        .flat_map(|playbook| playbook.slices());
    let of_playbooks = slices.map(|slice| slice.id.clone());
    let own: &[&str] = match operation {
        Of::Create => &[
            action::AUTHORITIES,
            "etcd/hosts",
            "etcd/members",
            action::KUBECONFIG,
            action::HEALTH,
        ],
        Of::Adopt => &[action::MEMBERS, action::KUBECONFIG, action::VERSIONS],
        Of::Converge => &[action::KUBECONFIG, action::HEALTH],
        Of::Scale | Of::Remove | Of::Replace => &[
            action::LEAVING,
            action::BUDGETS,
            action::DRAIN,
            action::QUORUM,
            action::QUORUM_AGAIN,
            action::JOINED,
            action::TAKE_OUT,
            action::FACTS_OF_OTHERS,
            action::FACTS_OF_STAYING,
            "endpoints/api-server",
            "endpoints/api-servers",
            "endpoints/control-plane",
            "endpoints/etcd",
            "endpoints/nodes",
            "endpoints/probe",
            "replace/endpoints",
            "replace/head",
            "forget/nodes",
            action::SAVE_SNAPSHOT,
            action::KEEP_SNAPSHOTS,
            action::KUBECONFIG,
            action::HEALTH,
        ],
        Of::Upgrade => &[
            "approve/canary",
            "gate/before",
            action::QUORUM,
            action::QUORUM_AGAIN,
            action::BUDGETS,
            action::SAVE_SNAPSHOT,
            action::KEEP_SNAPSHOTS,
            action::SNAPSHOT,
            action::KUBECONFIG,
            action::HEALTH,
        ],
        Of::Component => &[
            "approve/canary",
            "container-engine",
            "etcd/after",
            "etcd/before",
            "etcd/upgrade",
            "gate/before",
            "gate/etcd",
            "gate/network-plugin",
            "network-plugin/upgrade",
            action::BUDGETS,
            action::SAVE_SNAPSHOT,
            action::KEEP_SNAPSHOTS,
            action::SNAPSHOT,
            action::HEALTH,
        ],
        Of::Renew => &[
            "renew",
            "health",
            action::SAVE_SNAPSHOT,
            action::KEEP_SNAPSHOTS,
            action::SNAPSHOT,
            action::KUBECONFIG,
            action::HEALTH,
        ],
        Of::Recover => &[
            action::GIVEN_UP,
            action::LOST,
            action::SET_ASIDE,
            action::FOUND,
            action::FOUNDED,
            action::BRING_SNAPSHOT,
            action::CHECKED,
            "recover/kubeconfig",
            "recover/serve",
            "forget/nodes",
            action::FACTS_OF_STAYING,
            "endpoints/api-server",
            "endpoints/api-servers",
            "endpoints/control-plane",
            "endpoints/etcd",
            "endpoints/nodes",
            "endpoints/probe",
            action::KUBECONFIG,
            action::HEALTH,
        ],
        Of::Reset => &[],
        Of::ResetHost => &[action::QUORUM, action::TAKE_OUT, "forget/nodes"],
        Of::Toolbox => &[
            action::BUDGETS,
            action::DRAIN,
            "nodes/cordon",
            "nodes/uncordon",
            "restart",
            "etcd/after",
            "etcd/before",
            "token/make",
            "certificates/look",
            action::HEALTH,
        ],
    };
    let own = own.iter().map(|id| (*id).to_owned());
    of_playbooks
        .chain(own)
        .chain([action::PROBE.to_owned()])
        .collect()
}

/// All of them.
const OPERATIONS: [HookOperation; 13] = [
    HookOperation::Create,
    HookOperation::Adopt,
    HookOperation::Scale,
    HookOperation::Remove,
    HookOperation::Replace,
    HookOperation::Upgrade,
    HookOperation::Component,
    HookOperation::Renew,
    HookOperation::Converge,
    HookOperation::Recover,
    HookOperation::Reset,
    HookOperation::ResetHost,
    HookOperation::Toolbox,
];

/// The word of an operation.
const fn word(operation: HookOperation) -> &'static str {
    match operation {
        HookOperation::Create => "Create",
        HookOperation::Adopt => "Adopt",
        HookOperation::Scale => "Scale",
        HookOperation::Remove => "Remove",
        HookOperation::Replace => "Replace",
        HookOperation::Upgrade => "Upgrade",
        HookOperation::Component => "Component",
        HookOperation::Renew => "Renew",
        HookOperation::Converge => "Converge",
        HookOperation::Recover => "Recover",
        HookOperation::Reset => "Reset",
        HookOperation::ResetHost => "ResetHost",
        HookOperation::Toolbox => "Toolbox",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::ALL;

    #[test]
    fn every_operation_has_its_word() {
        let words: BTreeSet<_> = OPERATIONS.into_iter().map(word).collect();
        // What leaves the cluster alone has no hooks: a snapshot must not wait for a script.
        let loud = ALL.iter().filter(|operation| !operation.quiet);
        let names: BTreeSet<_> = loud.map(|operation| operation.name).collect();
        assert_eq!(words, names);
    }

    #[test]
    fn a_hook_stands_at_its_step_and_at_its_batches() {
        let hook = HookInput {
            name: "a".into(),
            side: Side::Before,
            step: "workers/upgrade".into(),
            operations: Vec::new(),
            hosts: Vec::new(),
            kind: Kind::Script,
            text: String::new(),
            image: None,
            timeout: TIMEOUT,
            on_failure: OnFailure::Fail,
        };
        for (id, expected) in [
            ("workers/upgrade", true),
            ("workers/upgrade/12", true),
            ("workers/upgrade/", false),
            ("workers/upgrade/1/2", false),
            ("workers/upgrade-2", false),
            ("gate/workers/upgrade/1", false),
        ] {
            assert_eq!(hook.stands_at(id), expected, "{id}");
        }
    }
}
