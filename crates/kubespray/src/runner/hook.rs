//! Hooks: a script or a playbook of a person's own, on the hosts of its step, or an image as a pod of the cluster.
//!
//! A script is a value: it lies in a file that Ansible carries to the hosts as it is, and what is told to it stands in its environment.
//! `timeout` ends it on the host itself, with what it has started. A playbook is a template and runs as those of the checkout do, in the
//! same view; its process is ended here when its time is over.

use std::path::{Path, PathBuf};

use ansible::{slice::Playbook, write_private};
use api::{
    run::{Failure, FailureClass, OnFailure, Step},
    text::{lines, plain},
};
use kube::ResourceExt;
use workflow::{StepContext, StepOutcome};

use super::{
    executor::{KubesprayExecutor, failed, succeeded},
    plays,
    work::ClusterWork,
    workspace::{disk, failure},
};
use crate::{
    action::{self, Action},
    hooks::{self, HookInput, Kind},
};

mod pod;

/// The code of the failure of a hook.
const FAILED: &str = "HookFailed";
/// The code of the failure of a hook that did not end in time.
const TIMED_OUT: &str = "HookTimedOut";
/// What the generated playbook says of a script that did not end in time.
const TOO_LONG: &str = "the script of the hook did not end in time";
/// How much longer than its script a process may take: it starts, and reaches each host.
const BESIDE: std::time::Duration = std::time::Duration::from_mins(2);

/// The hook of a step, if it is one.
pub(super) fn of<'a>(work: &'a ClusterWork, step: &Step) -> Option<&'a HookInput> {
    let Ok(Some(Action::Hook { name, .. })) = action::of(step) else {
        return None;
    };
    work.inputs.hooks.iter().find(|hook| hook.name == name)
}

/// How long the process of a hook may take.
pub(super) fn timeout(hook: &HookInput) -> std::time::Duration {
    let own = std::time::Duration::from(hook.timeout);
    match hook.kind {
        Kind::Script => own.saturating_add(BESIDE),
        Kind::Playbook | Kind::Image => own,
    }
}

/// The step at which a hook stands.
fn at(hook: &HookInput, step: &Step) -> String {
    match action::of(step) {
        Ok(Some(Action::Hook { step, .. })) => step,
        _ => hook.step.clone(),
    }
}

/// Runs a hook.
pub(crate) async fn run(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let Some(hook) = of(&executor.work, step) else {
        return failed(failure(
            FailureClass::Permanent,
            "UnexpectedAction",
            format!("step {} names a hook that the plan does not have", step.id),
            None,
        ));
    };
    let steps = std::slice::from_ref(step);
    let anywhere = hook.is_anywhere();
    if !anywhere && plays::nobody_left(executor, steps, context) {
        return succeeded(Some("nothing was done: its hosts do not answer".to_owned()));
    }
    if let Some(image) = &hook.image {
        let outcome = pod::run(executor, (hook, image), step, context).await;
        return judged(hook, step, outcome);
    }
    match plays::alone(executor, steps, context).await {
        Ok(()) => succeeded(None),
        Err(outcome) => judged(hook, step, outcome),
    }
}

/// What a hook that came to no good end is to its run.
fn judged(hook: &HookInput, step: &Step, outcome: StepOutcome) -> StepOutcome {
    let StepOutcome::Failed {
        failure,
        results,
        unreachable,
        remedies: _,
    } = outcome
    else {
        return outcome;
    };
    let ignored = step.on_failure == Some(OnFailure::Ignore);
    // What a host does not answer to is no word of the hook: the gate of the step that it stands at judges it.
    let failure = if unreachable.is_empty() || ignored {
        told(hook, failure)
    } else {
        failure
    };
    if ignored {
        let why = format!(
            "failed, which is ignored: {}: {}",
            failure.code, failure.message
        );
        return StepOutcome::Succeeded {
            results,
            unreachable: Vec::new(),
            detail: Some(plain(&why, 1024)),
        };
    }
    StepOutcome::Failed {
        failure,
        results,
        unreachable,
        remedies: Vec::new(),
    }
}

/// The failure of a hook, by its name.
fn told(hook: &HookInput, found: Failure) -> Failure {
    let whose = format!("hook {} ({})", hook.name, hook.place());
    let late = found.code == "TimedOut" || found.message.contains(TOO_LONG);
    let (code, message, remedy) = if late {
        (
            TIMED_OUT,
            match hook.kind {
                // What it waited for: a node, an image, its program.
                Kind::Image => format!(
                    "{whose} took longer than {} and was ended: {}",
                    hook.timeout, found.message
                ),
                _ => format!("{whose} took longer than {} and was ended", hook.timeout),
            },
            "see what it waits for (windlass logs --step), or give it more time (spec.hooks, timeout); then retry the run, or skip the \
             step with a reason",
        )
    } else {
        let of_kind = match found.code.as_str() {
            "TaskFailed" => String::new(),
            code => format!(" ({code})"),
        };
        (
            FAILED,
            format!("{whose}: {}{of_kind}", found.message),
            "see what it said (windlass logs --step); mend what it met and retry the run, or skip the step with a reason; another text \
             (spec.hooks) is for the next run",
        )
    };
    Failure {
        class: FailureClass::Permanent,
        code: code.to_owned(),
        message: lines(&message, 4096),
        remedy: Some(remedy.to_owned()),
        targets: found.targets,
    }
}

/// Writes what a hook runs into a view of the checkout, and says which step each of its plays belongs to.
pub(super) fn write(
    work: &ClusterWork,
    checkout: &Path,
    view: &Path,
    (hook, step): (&HookInput, &Step),
) -> Result<(PathBuf, Vec<Option<String>>), Failure> {
    let broken = |error: &dyn std::error::Error| {
        failure(
            FailureClass::Config,
            "PlaybooksUnusable",
            format!("hook {}: {}", hook.name, crate::chain(error)),
            Some("correct it in spec.hooks, then cancel the run: what it was for is planned anew"),
        )
    };
    let playbook = match hook.kind {
        Kind::Playbook => hooks::playbook(hook),
        Kind::Script | Kind::Image => {
            let name = format!("hook-{}", hook.name);
            Playbook::of_text(&name, &script_playbook(work, hook, step))
        }
    };
    let playbook = playbook.map_err(|error| broken(&error))?;
    let plays: Vec<_> = playbook.slices().iter().map(|slice| slice.index).collect();
    let written = playbook
        .write(checkout, view, &[&plays])
        .map_err(|error| broken(&error))?;
    if hook.kind == Kind::Script {
        let path = view.join(script_file(hook));
        write_private(&path, hook.text.as_bytes()).map_err(|error| disk(&path, &error))?;
    }
    let file = written.into_iter().next().ok_or_else(|| {
        failure(
            FailureClass::Permanent,
            "PlaybooksUnusable",
            format!("no file was written for hook {}", hook.name),
            None,
        )
    })?;
    let of_step = file.plays.iter().map(|_| Some(step.id.clone())).collect();
    Ok((file.path, of_step))
}

fn script_file(hook: &HookInput) -> String {
    format!("windlass-hook-{}.script", hook.name)
}

/// The playbook that has the hosts run a script. Everything in it is a name of a checked form, a number, or Ansible's own name of the
/// host; the script is not in it.
fn script_playbook(work: &ClusterWork, hook: &HookInput, step: &Step) -> String {
    let at = at(hook, step);
    format!(
        r#"- name: "Hook {name}"
  hosts: all
  gather_facts: false
  environment:
    WINDLASS_CLUSTER: "{cluster}"
    WINDLASS_HOOK: "{name}"
    WINDLASS_HOST: "{{{{ inventory_hostname }}}}"
    WINDLASS_OPERATION: "{operation}"
    WINDLASS_RUN: "{run}"
    WINDLASS_STEP: "{at}"
  tasks:
    - name: "Run the script of hook {name}"
      ansible.builtin.script: {file}
      args:
        executable: timeout -k 10 {seconds}
      register: windlass_hook
      failed_when: windlass_hook.rc | default(0) not in [0, 124]
    - name: "End hook {name}"
      ansible.builtin.fail:
        msg: {TOO_LONG}
      when: windlass_hook.rc | default(0) == 124
"#,
        name = hook.name,
        cluster = work.cluster(),
        operation = work.run.spec.operation,
        run = work.run.name_any(),
        file = script_file(hook),
        seconds = hook.timeout.seconds(),
    )
}

#[cfg(test)]
mod tests {
    use api::Duration;
    use serde_json::json;

    use super::*;
    use crate::hooks::Side;

    fn hook() -> HookInput {
        HookInput {
            name: "mark".into(),
            side: Side::Before,
            step: "etcd/install".into(),
            operations: Vec::new(),
            hosts: Vec::new(),
            kind: Kind::Script,
            text: "#!/bin/sh\n".into(),
            image: None,
            timeout: Duration::from_seconds(60),
            on_failure: OnFailure::Fail,
        }
    }

    fn step(on_failure: &str) -> Step {
        serde_json::from_value(json!({
            "id": "hook/mark", "onFailure": on_failure,
            "action": {"engine": {"name": "kubespray", "type": "Hook", "parameters": {"name": "mark", "step": "etcd/install"}}},
        }))
        .unwrap()
    }

    fn ended(code: &str, message: &str) -> StepOutcome {
        failed(failure(
            FailureClass::Transient,
            code,
            message.to_owned(),
            None,
        ))
    }

    #[test]
    fn what_a_hook_fails_with_is_told_by_its_name() {
        for (code, message, expected, words) in [
            (
                "TaskFailed",
                "a: run: non-zero",
                FAILED,
                "hook mark (before etcd/install): a: run: non-zero",
            ),
            ("DiskFull", "a: no space", FAILED, "(DiskFull)"),
            ("TimedOut", "killed", TIMED_OUT, "took longer than 1m"),
            (
                "TaskFailed",
                "a: end: the script of the hook did not end in time",
                TIMED_OUT,
                "took longer",
            ),
        ] {
            let outcome = judged(&hook(), &step("Fail"), ended(code, message));
            let StepOutcome::Failed { failure, .. } = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(failure.code, expected, "{message}");
            assert!(failure.message.contains(words), "{}", failure.message);
            assert!(crate::failures::named(&failure.code).is_some());
        }
    }

    #[test]
    fn a_failure_that_is_ignored_is_told_all_the_same() {
        let outcome = judged(&hook(), &step("Ignore"), ended("TaskFailed", "a: no"));
        let StepOutcome::Succeeded { detail, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let detail = detail.unwrap();
        assert!(
            detail.contains("ignored: HookFailed: hook mark"),
            "{detail}"
        );
        // A stop is none.
        let stopped = StepOutcome::Interrupted { detail: None };
        let outcome = judged(&hook(), &step("Ignore"), stopped);
        assert!(matches!(outcome, StepOutcome::Interrupted { .. }));
    }
}
