//! Hooks, woven into a plan as steps of their own. Pure.

use std::collections::BTreeMap;

use api::{HostName, run::Step};

use super::{Placed, compiled, listed, step};
use crate::{
    action::{APPROVE, Action, SANDBOX},
    hooks::{HookInput, Side},
    inputs::Inputs,
    operation::Operation,
    problem::Problem,
};

/// What most hooks take, beside the plays of a release.
const WEIGHT: u32 = 5;

/// The steps with the hooks among them, each step saying after which it comes; and the hooks that stand somewhere.
pub(super) fn woven(
    operation: &Operation,
    inputs: &Inputs,
    placed: Vec<Placed>,
) -> Result<(Vec<Placed>, Vec<HookInput>), Problem> {
    let mut placed = in_order(placed);
    let hooks: Vec<_> = inputs
        .hooks
        .iter()
        .filter(|hook| hook.is_of(operation))
        .cloned()
        .collect();
    if hooks.is_empty() {
        return Ok((placed, hooks));
    }
    let groups = compiled(inputs)?.groups().clone();
    let stands = |hook: &HookInput, step: &Step| {
        ![APPROVE, SANDBOX].contains(&step.id.as_str()) && hook.stands_at(&step.id)
    };
    let counts: BTreeMap<String, usize> = hooks
        .iter()
        .map(|hook| {
            let at = placed.iter().filter(|placed| stands(hook, &placed.step));
            (hook.name.clone(), at.count())
        })
        .collect();
    let mut number: BTreeMap<String, usize> = BTreeMap::new();
    let mut id = |hook: &HookInput| {
        let number = number.entry(hook.name.clone()).or_default();
        *number = number.saturating_add(1);
        match counts.get(&hook.name) {
            Some(1) => format!("hook/{}", hook.name),
            _ => format!("hook/{}/{number}", hook.name),
        }
    };
    let mut all: Vec<Placed> = Vec::new();
    // What comes after a step comes after the hooks behind it.
    let mut behind: BTreeMap<String, String> = BTreeMap::new();
    for mut anchor in std::mem::take(&mut placed) {
        for before in &mut anchor.step.depends_on {
            if let Some(last) = behind.get(before) {
                before.clone_from(last);
            }
        }
        let at = |side: Side| {
            hooks
                .iter()
                .filter(move |hook| hook.side == side)
                .filter(|hook| stands(hook, &anchor.step))
                .collect::<Vec<_>>()
        };
        let (before, after) = (at(Side::Before), at(Side::After));
        for hook in before {
            let hosts = hosts(hook, &anchor, &groups, inputs);
            let id = id(hook);
            if hosts.is_empty() && !hook.is_anywhere() {
                continue;
            }
            let depends_on = std::mem::replace(&mut anchor.step.depends_on, vec![id.clone()]);
            all.push(own(hook, &id, depends_on, &anchor, hosts));
        }
        let mut last = anchor.step.id.clone();
        let mut following = Vec::new();
        for hook in after {
            let hosts = hosts(hook, &anchor, &groups, inputs);
            let id = id(hook);
            if hosts.is_empty() && !hook.is_anywhere() {
                continue;
            }
            let depends_on = vec![std::mem::replace(&mut last, id.clone())];
            following.push(own(hook, &id, depends_on, &anchor, hosts));
        }
        behind.insert(anchor.step.id.clone(), last);
        all.push(anchor);
        all.extend(following);
    }
    let stand = |hook: &HookInput| {
        let step = format!("hook/{}", hook.name);
        let is_its = |placed: &Placed| {
            let rest = placed.step.id.strip_prefix(&step);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        all.iter().any(is_its)
    };
    let standing = hooks.iter().filter(|hook| stand(hook)).cloned().collect();
    Ok((all, standing))
}

/// Each after the one before it, unless it says after which.
fn in_order(placed: Vec<Placed>) -> Vec<Placed> {
    let mut before: Option<String> = None;
    let placed = placed.into_iter().map(|mut placed| {
        let before = before.replace(placed.step.id.clone());
        if placed.step.depends_on.is_empty() {
            placed.step.depends_on = before.into_iter().collect();
        }
        placed
    });
    placed.collect()
}

/// The hosts of a hook at a step, of those that the plan knows.
fn hosts(
    hook: &HookInput,
    anchor: &Placed,
    groups: &BTreeMap<String, Vec<HostName>>,
    inputs: &Inputs,
) -> Vec<HostName> {
    let all = || {
        inputs
            .hosts
            .iter()
            .filter_map(|host| host.name.parse().ok())
    };
    if hook.is_anywhere() {
        return Vec::new();
    }
    if hook.hosts.is_empty() {
        return if anchor.hosts.is_empty() {
            all().collect()
        } else {
            anchor.hosts.clone()
        };
    }
    let is_named = |host: &HostName| {
        hook.hosts.iter().any(|name| {
            let of_group = groups.get(name);
            name == host.as_str() || of_group.is_some_and(|group| group.contains(host))
        })
    };
    all().filter(is_named).collect()
}

fn own(
    hook: &HookInput,
    id: &str,
    depends_on: Vec<String>,
    anchor: &Placed,
    hosts: Vec<HostName>,
) -> Placed {
    let side = match hook.side {
        Side::Before => "before",
        Side::After => "after",
    };
    let place = if hook.is_anywhere() {
        "in a pod of the cluster".to_owned()
    } else {
        format!("on {}", listed(&hosts))
    };
    let title = format!(
        "Hook {}: {} {side} {} {place}",
        hook.name,
        hook.told(),
        anchor.step.id,
    );
    let action = Action::Hook {
        name: hook.name.clone(),
        step: anchor.step.id.clone(),
    };
    Placed {
        step: Step {
            depends_on,
            batch: Some(id.to_owned()),
            // Of hosts that do not answer it makes what the step does that it stands at.
            gate: anchor.step.gate.clone().filter(|_| !hosts.is_empty()),
            on_failure: Some(hook.on_failure),
            weight: Some(WEIGHT),
            ..step(id, &title, action)
        },
        hosts,
    }
}
