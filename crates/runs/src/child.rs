//! Runs that are steps of other runs: how they are named, and how they come to be.
//!
//! A runner asks for a child in the status of its own run, and the operator plans and makes it. The subject and the operation of a
//! child stand in the plan of its parent, which nobody can change, and its own plan is the operator's. So the runner needs no right
//! to create runs, and whoever took it over has no say in what is done to another subject, and with which Secrets. Rights alone
//! would not do: they cannot bound what a new object holds, and an admission policy knows the plan of no other object.

use api::{
    Run,
    run::{Action, ChildRun, DesiredState, RunPhase, StepPhase, Subject},
};
use controller::chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Subjects, phase, presence::needs_runner};

/// How many children a step has at most, one after the other: each is followed by another when somebody ended it. The rights of
/// their parent's runner name them all.
pub(crate) const MOST: u32 = 8;

/// The names of a step's children: the same whoever asks.
pub(crate) fn names(parent: &str, step: &str) -> impl Iterator<Item = String> + use<> {
    let stem = format!("{parent}-{}", controller::digest(&[step], 8));
    (1..=MOST).map(move |number| format!("{stem}-{number}"))
}

/// The names that children of a run may have.
pub(crate) fn all_names(parent: &Run) -> impl Iterator<Item = String> {
    let name = parent.name_any();
    let steps = parent.spec.plan.steps.iter();
    let children = steps.filter(|step| matches!(step.action, Action::Run(_)));
    children.flat_map(move |step| names(&name, &step.id))
}

/// Whether a run was made as a step of another.
pub(crate) fn is_child(run: &Run, parent: &Run) -> bool {
    let mut owners = run.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == parent.uid().as_ref())
}

/// Whether a run was ended for good, so that its step may have another.
pub(crate) const fn is_ended(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::Cancelled | RunPhase::Superseded)
}

/// Why the child was not made that this attempt at a step asked for.
pub(crate) fn refusal<'a>(parent: &'a Run, step: &str, attempt: u32) -> Option<&'a str> {
    let told = parent.annotations().get(&refused(step))?;
    told.strip_prefix(&format!("{attempt}: "))
}

/// The annotation of the parent that tells why a child is not made.
fn refused(step: &str) -> String {
    format!("windlass.dev/not-made-{}", controller::digest(&[step], 8))
}

/// Makes the children that the runner of `parent` asks for. What cannot be planned is told in an annotation of `parent`, and its
/// step fails for it.
///
/// # Errors
///
/// The API refuses, or does not answer.
pub async fn make(
    client: &Client,
    parent: &Run,
    subjects: &impl Subjects,
) -> Result<(), kube::Error> {
    let runs = Api::<Run>::namespaced(client.clone(), &parent.namespace().unwrap_or_default());
    for Asked {
        step,
        attempt,
        wanted,
        name,
    } in asked(parent)
    {
        if !is_next(&runs, &parent.name_any(), step, name).await? {
            continue;
        }
        match planned(client, parent, subjects, wanted, name).await {
            Ok(child) => match runs.create(&PostParams::default(), &child).await {
                // Another operator was faster.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                made => drop(made?),
            },
            Err(why) => {
                let told = json!({"metadata": {"annotations": {
                    (refused(step)): format!("{attempt}: {why}"),
                }}});
                runs.patch(
                    &parent.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&told),
                )
                .await?;
            }
        }
    }
    Ok(())
}

/// A child that a runner asks for.
#[derive(Debug)]
struct Asked<'a> {
    step: &'a str,
    attempt: u32,
    wanted: &'a ChildRun,
    name: &'a str,
}

/// What a runner asks for, as far as its plan has it and nobody wants the end of the run.
fn asked(parent: &Run) -> impl Iterator<Item = Asked<'_>> {
    let control = parent.spec.control.as_ref();
    let state = control.and_then(|control| control.state);
    let goes = needs_runner(parent) && state != Some(DesiredState::Cancelled);
    let status = parent.status.as_ref().filter(|_| goes);
    let steps = status.into_iter().flat_map(|status| &status.steps);
    let running = steps.filter(|step| step.phase == StepPhase::Running);
    running.filter_map(|now| {
        let name = now.awaits.as_deref()?;
        let attempt = now.attempt.unwrap_or_default();
        if refusal(parent, &now.id, attempt).is_some() {
            return None;
        }
        let mut steps = parent.spec.plan.steps.iter();
        let step = steps.find(|step| step.id == now.id)?;
        let Action::Run(wanted) = &step.action else {
            return None;
        };
        Some(Asked {
            step: &step.id,
            attempt,
            wanted,
            name,
        })
    })
}

/// Whether that is the child to make now: all before it were ended for good.
async fn is_next(
    runs: &Api<Run>,
    parent: &str,
    step: &str,
    asked: &str,
) -> Result<bool, kube::Error> {
    for name in names(parent, step) {
        match runs.get_opt(&name).await? {
            None => return Ok(name == asked),
            Some(child) if is_ended(phase(&child)) => {}
            Some(_) => return Ok(false),
        }
    }
    Ok(false)
}

/// The child, or why it cannot be.
async fn planned(
    client: &Client,
    parent: &Run,
    subjects: &impl Subjects,
    wanted: &ChildRun,
    name: &str,
) -> Result<Run, String> {
    if same(&wanted.subject, &parent.spec.subject) {
        return Err("it would work on what this run works on, which holds its Lease".to_owned());
    }
    let spec = subjects.child(client, parent, wanted).await;
    let spec = spec.map_err(|why| chain(&*why))?;
    if !same(&spec.subject, &wanted.subject) || spec.operation != wanted.operation {
        return Err("its plan is of another subject or operation than the step names".to_owned());
    }
    let mut child = Run::new(name, spec);
    child.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: parent.namespace(),
        owner_references: parent.controller_owner_ref(&()).map(|owner| {
            vec![OwnerReference {
                block_owner_deletion: Some(true),
                ..owner
            }]
        }),
        ..ObjectMeta::default()
    };
    Ok(child)
}

pub(crate) fn same(one: &Subject, other: &Subject) -> bool {
    (&one.api_group, &one.kind, &one.name) == (&other.api_group, &other.kind, &other.name)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parent(control: &Value, annotations: &Value, awaits: &str, phase: &str) -> Run {
        let paint = json!({"subject": {"apiGroup": "example.com", "kind": "Paint", "name": "p"}, "operation": "Spray"});
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "first-make-1", "annotations": annotations},
            "spec": {
                "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "w"}, "operation": "Make", "generation": 1,
                "control": control,
                "plan": {"digest": "", "steps": [
                    {"id": "widget/paint", "action": {"run": paint}},
                    {"id": "widget/pack", "action": {"engine": {"name": "widgets", "type": "Work"}}},
                ]},
            },
            "status": {"phase": phase, "steps": [
                {"id": "widget/paint", "phase": "Running", "attempt": 2, "awaits": awaits},
                {"id": "widget/pack", "phase": "Running", "attempt": 1, "awaits": awaits},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn the_name_of_a_child_is_the_same_for_ever() {
        let names: Vec<_> = names("first-make-1", "widget/paint").collect();
        assert_eq!(names[1], "first-make-1-a9553f75-2");
        let run = parent(&Value::Null, &Value::Null, "", "Running");
        assert_eq!(all_names(&run).collect::<Vec<_>>(), names);
    }

    #[test]
    fn what_the_plan_does_not_have_is_asked_for_in_vain() {
        let none = Value::Null;
        let steps = |run: &Run| {
            let asked = asked(run).map(|asked| asked.step.to_owned());
            asked.collect::<Vec<_>>()
        };
        let wanted = ["widget/paint".to_owned()];
        assert_eq!(steps(&parent(&none, &none, "x", "Running")), wanted);
        for over in ["Succeeded", "Failed", "Cancelled", "Superseded"] {
            assert_eq!(steps(&parent(&none, &none, "x", over)), [""; 0], "{over}");
        }
        let cancelled = json!({"state": "Cancelled"});
        assert_eq!(steps(&parent(&cancelled, &none, "x", "Running")), [""; 0]);

        // What was refused is asked for anew by the next attempt.
        let told =
            |attempt: u32| json!({(refused("widget/paint")): format!("{attempt}: no paint")});
        let run = parent(&none, &told(2), "x", "Running");
        assert_eq!(steps(&run), [""; 0]);
        assert_eq!(refusal(&run, "widget/paint", 2), Some("no paint"));
        assert_eq!(refusal(&run, "widget/pack", 2), None);
        assert_eq!(steps(&parent(&none, &told(1), "x", "Running")), wanted);
    }
}
