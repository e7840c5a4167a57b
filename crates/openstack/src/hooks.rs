//! Hooks: what a spec asks to be run before, after or instead of steps of a service, and what is wrong with it. Pure.
//!
//! A plan carries all of each hook, so what was shown is what runs, and another hook is another plan. Those of operations that a plan is
//! not of are not in it: changing one of them changes nothing.

use std::collections::BTreeSet;

use api::{
    Duration,
    openstack::{
        Contract, OpenStackService, ServiceHook as Hook, ServiceHookImage as Image,
        ServiceOperation,
    },
    run::{Action as StepAction, Approve, OnFailure, Step},
};
use controller::{Problem, problem::nearest};

use crate::{
    action::{Action, HookJob},
    definition::Definition,
    kolla,
    wish::Operation,
};

/// How long a hook may take that says nothing.
const TIMEOUT: Duration = Duration::from_seconds(300);
/// The longest that it may say.
const LONGEST: Duration = Duration::from_seconds(86_400);
/// How long all hooks may be as JSON, in bytes: a Run holds its plan and what became of it, and the API stores no more than 1.5 MiB.
const MOST: usize = 262_144;
/// What the names of Windlass' own variables begin with.
const OWN: &str = "WINDLASS_";
/// What the ids of steps begin with that stand before or after a step.
pub const PREFIX: &str = "hook/";

/// A hook, as plans have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// At which side of its step it stands.
    pub side: Side,
    /// That step.
    pub at: String,
    /// The operations in whose runs it stands. Empty: all.
    pub operations: Vec<ServiceOperation>,
    /// The step that it is.
    pub step: Step,
}

/// A side of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Before it.
    Before,
    /// After it.
    After,
    /// In its place.
    Instead,
}

impl Side {
    /// The field of a hook that names its step.
    const fn field(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Instead => "instead",
        }
    }
}

impl Placed {
    fn is_of(&self, operation: ServiceOperation) -> bool {
        self.operations.is_empty() || self.operations.contains(&operation)
    }
}

/// The steps of an operation, with its hooks: one after the other, as those of services are.
pub fn woven(steps: &[Step], hooks: &[Placed], operation: Operation) -> Vec<Step> {
    let operation = match operation {
        Operation::Install => ServiceOperation::Install,
        Operation::Update => ServiceOperation::Update,
        Operation::Upgrade => ServiceOperation::Upgrade,
        _ => return steps.to_vec(),
    };
    weave(steps, hooks, |hook| hook.is_of(operation))
}

/// All steps that a person may name: those of an installation, and the hooks of other operations at their places.
pub fn every(steps: &[Step], hooks: &[Placed]) -> Vec<Step> {
    weave(steps, hooks, |hook| {
        hook.side != Side::Instead || hook.is_of(ServiceOperation::Install)
    })
}

fn weave(steps: &[Step], hooks: &[Placed], is_of: impl Fn(&Placed) -> bool) -> Vec<Step> {
    let hooks: Vec<_> = hooks.iter().filter(|hook| is_of(hook)).collect();
    if hooks.is_empty() {
        return steps.to_vec();
    }
    let mut woven: Vec<Step> = Vec::new();
    for step in steps {
        let at = |side| {
            let hooks = hooks.iter();
            hooks.filter(move |hook| hook.side == side && hook.at == step.id)
        };
        woven.extend(at(Side::Before).map(|hook| hook.step.clone()));
        let stands = at(Side::Instead).next();
        woven.push(stands.map_or(step, |hook| &hook.step).clone());
        woven.extend(at(Side::After).map(|hook| hook.step.clone()));
    }
    let mut before: Option<String> = None;
    for step in &mut woven {
        step.depends_on = before.into_iter().collect();
        before = Some(step.id.clone());
    }
    woven
}

/// Whether a step stands in the place of one of the service's own: then it may do what that would have done.
pub fn is_instead(step: &Step) -> bool {
    match Action::of(step) {
        Some(Action::Hook(hook)) => hook.is_instead,
        _ => matches!(step.action, StepAction::Approve(_)) && !step.id.starts_with(PREFIX),
    }
}

/// The hooks of a service, in their order.
///
/// # Errors
///
/// All that is wrong with them.
pub fn resolved(
    service: &OpenStackService,
    definition: &Definition,
) -> Result<Vec<Placed>, Vec<Problem>> {
    let mut definition = definition.clone();
    // Where the service has none, its variables are free.
    definition.messaging = definition
        .messaging
        .filter(|_| service.spec.messaging.is_some());
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    let mut replaced: Vec<&Hook> = Vec::new();
    let mut placed = Vec::new();
    for hook in service.spec.hooks.iter().flatten() {
        if !names.insert(&hook.name) {
            problems.push(of(
                hook,
                "name",
                &hook.name,
                "each hook has a name of its own",
                "give one of them another name",
            ));
        }
        if let Some(step) = &hook.instead {
            let mut others = replaced.iter();
            if let Some(other) = others.find(|other| meet(other, hook)) {
                problems.push(of(
                    hook,
                    "instead",
                    step,
                    format!(
                        "hook {} stands instead of that step, and one alone can",
                        other.name
                    ),
                    "leave one of them out, let one of them do both, or name operations that differ",
                ));
            }
            replaced.push(hook);
        }
        if service.spec.contract == Some(Contract::Kolla) {
            problems.extend(not_of_kolla(hook));
        }
        match one(hook, &definition) {
            Ok(hook) => placed.push(hook),
            Err(problem) => problems.push(problem),
        }
    }
    let length = serde_json::to_string(&service.spec.hooks).map_or(0, |text| text.len());
    if length > MOST {
        problems.push(Problem::new(
            "OpenStackService spec.hooks",
            format!("{} KiB", length.div_ceil(1024)),
            "every run carries all hooks of its plan, so they are 256 KiB at most, together",
            "put long files into an image, and name that",
        ));
    }
    if problems.is_empty() {
        Ok(placed)
    } else {
        Err(problems)
    }
}

/// Whether two hooks stand instead of one step in the runs of one operation.
fn meet(one: &Hook, other: &Hook) -> bool {
    let any = |hook: &Hook| hook.operations.iter().flatten().next().is_none();
    let of_other = || other.operations.iter().flatten();
    let mut of_one = one.operations.iter().flatten();
    one.instead == other.instead
        && (any(one) || any(other) || of_one.any(|own| of_other().any(|theirs| own == theirs)))
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
    let field = format!("OpenStackService spec.hooks[name={name}].{field}");
    Problem::new(field, value, rule, remedy)
}

fn one(hook: &Hook, definition: &Definition) -> Result<Placed, Problem> {
    let (side, at) = place(hook)?;
    let index = known(hook, side, at, definition)?;
    if side == Side::Instead {
        replaceable(hook, definition, index)?;
    }
    let step = match (&hook.image, &hook.approval) {
        (Some(image), None) => job(hook, image, (side, index), definition)?,
        (None, Some(question)) => asked(hook, question, (side, at))?,
        _ => {
            return Err(of(
                hook,
                "image",
                "",
                "a hook is an image or an approval",
                "set image or approval, one of the two",
            ));
        }
    };
    Ok(Placed {
        side,
        at: at.to_owned(),
        operations: hook.operations.clone().unwrap_or_default(),
        step,
    })
}

fn place(hook: &Hook) -> Result<(Side, &str), Problem> {
    match (&hook.before, &hook.after, &hook.instead) {
        (Some(step), None, None) => Ok((Side::Before, step)),
        (None, Some(step), None) => Ok((Side::After, step)),
        (None, None, Some(step)) => Ok((Side::Instead, step)),
        _ => Err(of(
            hook,
            "before",
            "",
            "a hook stands before a step, after one or instead of one",
            "set before, after or instead, one of the three",
        )),
    }
}

/// Which step of the service it stands at.
fn known(hook: &Hook, side: Side, at: &str, definition: &Definition) -> Result<usize, Problem> {
    let ids = || definition.steps.iter().map(|step| step.id.as_str());
    ids().position(|id| id == at).ok_or_else(|| {
        let remedy = match nearest(at, ids()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "name one of these".to_owned(),
        };
        let all: Vec<_> = ids().collect();
        of(
            hook,
            side.field(),
            at,
            format!(
                "{} has no such step, but {}",
                definition.name,
                all.join(", ")
            ),
            format!("{remedy} windlass openstack plan shows what each does"),
        )
    })
}

/// What may be done in another way: what a Job does, and what only looks.
fn replaceable(hook: &Hook, definition: &Definition, index: usize) -> Result<(), Problem> {
    let Some(step) = definition.steps.get(index) else {
        return Ok(());
    };
    let why = match &step.does {
        does if does.is_replaceable() => return Ok(()),
        Action::CheckOwner => "it keeps the service off a database that is somebody else's",
        Action::MakeSecrets => {
            "it makes passwords and key rings once, and never over those that are there"
        }
        Action::CreateDatabase => {
            "it notes whose the database is, and lets its user do what it needs and no more"
        }
        Action::SeedIdentity => {
            "it proves whose the user and the place in the catalogue are before it mends them"
        }
        Action::Deploy
        | Action::AwaitApi
        | Action::DeployComponent(_)
        | Action::AwaitComponent(_) => "what comes after it takes away what pods of before need",
        _ => "the steps after it count on what it found or made",
    };
    let may: Vec<_> = definition
        .steps
        .iter()
        .filter(|step| step.does.is_replaceable())
        .map(|step| step.id.as_str())
        .collect();
    Err(of(
        hook,
        "instead",
        &step.id,
        format!("that step may not be replaced: {why}"),
        format!("write before or after; {} may be replaced", may.join(", ")),
    ))
}

/// What tells where a hook stands, for people.
fn told(hook: &Hook, (side, at): (Side, &str)) -> String {
    let side = match side {
        Side::Instead => "instead of",
        side => side.field(),
    };
    let operations = hook.operations.iter().flatten();
    let operations: Vec<_> = operations
        .map(|operation| format!("{operation:?}"))
        .collect();
    let alone = match operations.as_slice() {
        [] => String::new(),
        some => format!(", in runs of {}", some.join(", ")),
    };
    format!("hook {}, {side} {at}{alone}", hook.name)
}

fn id(hook: &Hook, (side, at): (Side, &str)) -> String {
    match side {
        Side::Before | Side::After => format!("{PREFIX}{}", hook.name),
        // What waits for it, and whoever names it, means the step.
        Side::Instead => at.to_owned(),
    }
}

fn asked(hook: &Hook, question: &str, place: (Side, &str)) -> Result<Step, Problem> {
    for (field, is_set) in [
        ("timeout", hook.timeout.is_some()),
        ("onFailure", hook.on_failure.is_some()),
    ] {
        if is_set {
            return Err(of(
                hook,
                field,
                "",
                "an approval waits for a person for as long as that takes, and does not fail",
                "leave it out",
            ));
        }
    }
    if question.trim().is_empty() {
        return Err(of(
            hook,
            "approval",
            "",
            "whoever approves has to know what",
            "write what is to be looked at",
        ));
    }
    let title = format!("Wait for an approval: {}", told(hook, place));
    let action = StepAction::Approve(Approve {
        question: question.to_owned(),
    });
    Ok(Step {
        id: id(hook, place),
        title,
        depends_on: Vec::new(),
        action,
        groups: Vec::new(),
        timeout: None,
        retry: None,
        gate: None,
        on_failure: None,
        interrupt: api::run::Interrupt::AtTask,
        batch: None,
        weight: Some(1),
    })
}

fn job(
    hook: &Hook,
    image: &Image,
    (side, index): (Side, usize),
    definition: &Definition,
) -> Result<Step, Problem> {
    let at = definition.steps.get(index).map_or("", |step| &step.id);
    too_early(hook, (side, index), definition)?;
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
    unusable(hook, image, definition)?;
    let does = HookJob {
        name: hook.name.clone(),
        step: at.to_owned(),
        is_instead: side == Side::Instead,
        image: image.clone(),
        timeout,
    };
    let title = format!("Run {}", told(hook, (side, at)));
    let step = Action::Hook(does).step(&id(hook, (side, at)), &title, None);
    let mut step = step.map_err(|error| {
        of(
            hook,
            "image",
            "",
            format!("it cannot be written: {error}"),
            "tell whoever makes Windlass",
        )
    })?;
    step.on_failure = hook.on_failure.filter(|wanted| *wanted != OnFailure::Fail);
    Ok(step)
}

/// The pods of Jobs have what the first steps of a service make.
fn too_early(
    hook: &Hook,
    (side, index): (Side, usize),
    definition: &Definition,
) -> Result<(), Problem> {
    let makes = |step: &&crate::definition::StepDefinition| {
        matches!(step.does, Action::ApplyConfig | Action::MakeSecrets)
    };
    let Some((last, step)) = definition
        .steps
        .iter()
        .enumerate()
        .rfind(|(_, step)| makes(step))
    else {
        return Ok(());
    };
    if index > last || (index == last && side == Side::After) {
        return Ok(());
    }
    let at = definition.steps.get(index).map_or("", |step| &step.id);
    let makers: Vec<_> = definition.steps.iter().filter(makes).collect();
    let makers: Vec<_> = makers.iter().map(|step| step.id.as_str()).collect();
    Err(of(
        hook,
        side.field(),
        at,
        format!(
            "a Job is given the configuration files and the Secrets of the service, which {} make",
            makers.join(" and ")
        ),
        format!("write after: {}, or a step that comes later", step.id),
    ))
}

/// What is wrong with an image. Which there are nobody knows before it is pulled.
fn unusable(hook: &Hook, image: &Image, definition: &Definition) -> Result<(), Problem> {
    if image.name.is_none() && image.command.is_none() {
        return Err(of(
            hook,
            "image.command",
            "",
            "the image is that of the service, whose own entry point does nothing that ends",
            "write the command that runs, or the name of another image",
        ));
    }
    let mut names = BTreeSet::new();
    for variable in image.env.iter().flatten() {
        let name = &variable.name;
        let wrong = if name.starts_with(OWN) {
            Some(format!("variables that begin with {OWN} are Windlass' own"))
        } else if definition.environment.contains_key(name)
            || definition.memcached.environment.contains_key(name)
            || definition
                .messaging
                .iter()
                .any(|of| of.variables.contains(name))
        {
            Some("the service itself has it from its Secret".to_owned())
        } else if !names.insert(name) {
            Some("each variable stands once".to_owned())
        } else {
            None
        };
        if let Some(rule) = wrong {
            return Err(of(hook, "image.env", name, rule, "give it another name"));
        }
        if variable.value.is_some() == variable.secret_key_ref.is_some() {
            return Err(of(
                hook,
                "image.env",
                name,
                "a variable is a value, or a key of a Secret",
                "set value or secretKeyRef, one of the two",
            ));
        }
    }
    let is_file = |name: &&String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !name.is_empty()
            && name.len() <= 253
            && !name.starts_with("..")
            && name.bytes().all(is_plain)
            && *name != "."
    };
    match image.files.keys().find(|name| !is_file(name)) {
        Some(name) => Err(of(
            hook,
            "image.files",
            name,
            "a file is named by letters, digits, - _ and ., without a directory",
            "give it such a name",
        )),
        None => Ok(()),
    }
}

/// What a hook in the image of the service cannot be where that is one of Kolla's.
fn not_of_kolla(hook: &Hook) -> Option<Problem> {
    let image = hook.image.as_ref().filter(|image| image.name.is_none())?;
    let words = || {
        [&image.command, &image.args]
            .into_iter()
            .flatten()
            .flatten()
    };
    let length: usize = words().map(String::len).sum();
    if length > kolla::LONGEST {
        return Some(of(
            hook,
            "image.command",
            format!("{} KiB", length.div_ceil(1024)),
            "what an image of Kolla's runs stands in an annotation of its pod, so it is 48 KiB at most",
            "put long texts into image.files",
        ));
    }
    let own = image.env.iter().flatten();
    let mut own = own.filter(|variable| kolla::is_own(&variable.name));
    own.next().map(|variable| {
        of(
            hook,
            "image.env",
            &variable.name,
            "an image of Kolla's starts by it, and it is set",
            "leave it out",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{definition, wish::Wish as _};

    fn keystone(hooks: &Value) -> OpenStackService {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity", "namespace": "cloud"},
            "spec": {"service": "keystone", "image": "keystone:1", "hooks": hooks,
                "database": {"host": "db", "adminSecret": {"name": "admin"}}},
        }))
        .unwrap()
    }

    fn refused(hooks: &Value) -> String {
        controller::problem::text(&keystone(hooks).wanted().unwrap_err())
    }

    fn ids(hooks: &Value, operation: Operation) -> Vec<String> {
        let steps = keystone(hooks).wanted().unwrap().steps(operation);
        // Each waits for the one before, whoever wrote it.
        for pair in steps.windows(2) {
            assert_eq!(pair[1].depends_on, [pair[0].id.clone()]);
        }
        steps.into_iter().map(|step| step.id).collect()
    }

    #[test]
    fn hooks_stand_at_their_steps_in_the_order_of_the_list() {
        let run = json!({"command": ["true"]});
        let hooks = json!([
            {"name": "second", "after": "database/expand", "image": run},
            {"name": "third", "after": "database/expand", "image": run},
            {"name": "first", "before": "database/expand", "approval": "Is it saved?"},
            {"name": "own", "instead": "identity/bootstrap", "image": run},
            {"name": "look", "before": "database/contract", "operations": ["Upgrade"], "approval": "All well?"},
        ]);
        let install = ids(&hooks, Operation::Install);
        assert_eq!(
            install[5..11],
            [
                "database/create",
                "hook/first",
                "database/expand",
                "hook/second",
                "hook/third",
                "identity/bootstrap"
            ]
        );
        assert!(!install.contains(&"hook/look".to_owned()));
        let upgrade = ids(&hooks, Operation::Upgrade);
        let at = |id: &str| upgrade.iter().position(|known| known == id).unwrap();
        assert_eq!(at("hook/look") + 1, at("database/contract"));
        let steps = keystone(&hooks).wanted().unwrap().steps(Operation::Update);
        let instead: Vec<_> = steps.iter().filter(|step| is_instead(step)).collect();
        assert_eq!(instead.len(), 1);
        assert_eq!(
            instead[0].title,
            "Run hook own, instead of identity/bootstrap"
        );
        let every = keystone(&hooks).wanted().unwrap().every_step();
        assert!(every.iter().any(|step| step.id == "hook/look"));
    }

    #[test]
    fn a_plan_without_hooks_is_what_it_was() {
        let wanted = keystone(&json!(null)).wanted().unwrap();
        assert_eq!(wanted.steps(Operation::Install), wanted.install);
    }

    #[test]
    fn what_a_hook_cannot_be_is_refused_by_field_with_the_remedy() {
        let run = json!({"command": ["true"]});
        for (hooks, told) in [
            (
                json!([{"name": "a", "after": "database/expnd", "image": run}]),
                "spec.hooks[name=a].after is \"database/expnd\": keystone has no such step, but database/check, database/owner, config/apply,",
            ),
            (
                json!([{"name": "a", "after": "database/expnd", "image": run}]),
                "did you mean database/expand?",
            ),
            (
                json!([{"name": "a", "after": "keys/rotate", "image": run}]),
                "keystone has no such step",
            ),
            (
                json!([{"name": "a", "instead": "database/owner", "image": run}]),
                "spec.hooks[name=a].instead is \"database/owner\": that step may not be replaced: it keeps the service off a database that is somebody else's; write before or after; database/expand, identity/bootstrap, api/token, database/contract may be replaced",
            ),
            (
                json!([{"name": "a", "instead": "secrets/make", "approval": "?"}]),
                "it makes passwords and key rings once",
            ),
            (
                json!([{"name": "a", "instead": "database/create", "image": run}]),
                "it notes whose the database is",
            ),
            (
                json!([{"name": "a", "instead": "api/ready", "approval": "?"}]),
                "that step may not be replaced",
            ),
            (
                json!([{"name": "a", "instead": "database/expand", "image": run}, {"name": "b", "instead": "database/expand", "approval": "?"}]),
                "spec.hooks[name=b].instead is \"database/expand\": hook a stands instead of that step",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": run}, {"name": "a", "after": "api/deploy", "image": run}]),
                "spec.hooks[name=a].name is \"a\": each hook has a name of its own",
            ),
            (
                json!([{"name": "a", "image": run}]),
                "set before, after or instead, one of the three",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "after": "api/deploy", "image": run}]),
                "set before, after or instead, one of the three",
            ),
            (
                json!([{"name": "a", "before": "api/deploy"}]),
                "set image or approval, one of the two",
            ),
            (
                json!([{"name": "a", "before": "secrets/make", "image": run}]),
                "spec.hooks[name=a].before is \"secrets/make\": a Job is given the configuration files and the Secrets of the service, which config/apply and secrets/make make; write after: secrets/make",
            ),
            (
                json!([{"name": "a", "after": "config/apply", "image": run}]),
                "write after: secrets/make",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": run, "timeout": "0s"}]),
                "spec.hooks[name=a].timeout is \"0s\": a hook ends",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "approval": "?", "timeout": "5m"}]),
                "an approval waits for a person for as long as that takes",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "approval": " "}]),
                "whoever approves has to know what",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": {}}]),
                "write the command that runs, or the name of another image",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": {"command": ["a"], "env": [{"name": "WINDLASS_HOOK", "value": "b"}]}}]),
                "spec.hooks[name=a].image.env is \"WINDLASS_HOOK\"",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": {"command": ["a"], "env": [{"name": "OS_DATABASE__CONNECTION", "value": "b"}]}}]),
                "the service itself has it from its Secret",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": {"command": ["a"], "env": [{"name": "B"}]}}]),
                "set value or secretKeyRef, one of the two",
            ),
            (
                json!([{"name": "a", "before": "api/deploy", "image": {"command": ["a"], "files": {"../a": "b"}}}]),
                "spec.hooks[name=a].image.files is \"../a\"",
            ),
        ] {
            let refused = refused(&hooks);
            assert!(refused.contains(told), "{told}: {refused}");
        }
        // A question needs nothing of the service.
        assert_eq!(
            ids(
                &json!([{"name": "a", "before": "database/check", "approval": "Now?"}]),
                Operation::Install
            )[0],
            "hook/a"
        );
    }

    #[test]
    fn one_step_is_replaced_by_another_hook_in_runs_of_another_operation() {
        let run = json!({"command": ["true"]});
        let hooks = |first: &Value, second: &Value| {
            json!([
                {"name": "a", "instead": "database/expand", "operations": first, "image": run},
                {"name": "b", "instead": "database/expand", "operations": second, "image": run},
            ])
        };
        let apart = keystone(&hooks(&json!(["Install"]), &json!(["Upgrade"])));
        let wanted = apart.wanted().unwrap();
        for (operation, told) in [
            (
                Operation::Install,
                "Run hook a, instead of database/expand, in runs of Install",
            ),
            (
                Operation::Upgrade,
                "Run hook b, instead of database/expand, in runs of Upgrade",
            ),
        ] {
            let steps = wanted.steps(operation);
            assert!(steps.iter().any(|step| step.title == told), "{told}");
        }
        for other in [json!(["Install", "Update"]), json!(null)] {
            let refused = refused(&hooks(&other, &json!(["Update"])));
            assert!(
                refused.contains("hook a stands instead of that step"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_an_image_of_kolla_s_starts_by_is_not_set_and_what_it_runs_is_bounded() {
        let refused = |image: &Value| {
            let hooks = json!([{"name": "a", "before": "api/deploy", "image": image}]);
            let mut object = keystone(&hooks);
            object.spec.contract = Some(Contract::Kolla);
            let wanted = object.wanted();
            wanted.map_or_else(|why| controller::problem::text(&why), |_| String::new())
        };
        let variable = json!([{"name": "KOLLA_CONFIG_STRATEGY", "value": "COPY_ONCE"}]);
        let set = refused(&json!({"command": ["a"], "env": variable}));
        assert!(
            set.contains("image.env is \"KOLLA_CONFIG_STRATEGY\""),
            "{set}"
        );
        let long = refused(&json!({"command": ["sh", "-c", "a".repeat(60_000)]}));
        assert!(long.contains("48 KiB at most"), "{long}");
        // Of an image of one's own nothing of this is so.
        let other = json!({"name": "tools:1", "command": ["a".repeat(60_000)], "env": variable});
        assert_eq!(refused(&other), "");
    }

    #[test]
    fn hooks_that_no_run_could_carry_are_refused() {
        let image = json!({"command": ["a"], "files": {"a": "x".repeat(60_000)}});
        let hooks = (0..5).map(
            |number| json!({"name": format!("a{number}"), "after": "api/token", "image": image}),
        );
        let refused = refused(&hooks.collect());
        assert!(refused.contains("they are 256 KiB at most"), "{refused}");
    }

    /// A further service has to say it, too: what keeps it from harm is not replaced.
    #[test]
    fn of_every_service_only_jobs_and_questions_are_replaced() {
        let run = json!({"command": ["true"]});
        for name in definition::names() {
            let definition = definition::find(name).unwrap();
            for step in &definition.steps {
                let mut service =
                    keystone(&json!([{"name": "a", "instead": step.id, "image": run}]));
                service.spec.service = name.to_owned();
                let may = matches!(
                    step.does,
                    Action::Job(_) | Action::IssueToken | Action::Ask(_)
                );
                let resolved = resolved(&service, definition);
                assert_eq!(resolved.is_ok(), may, "{name} {}", step.id);
            }
        }
    }
}
