//! Plans that are bad on purpose: each is caught by the rule that is there for it. So is an operation that nobody has said anything of.

use std::panic::{AssertUnwindSafe, catch_unwind};

use api::{HostName, cluster::ClusterState, run::Step};
use kubespray::{
    action::Action,
    cluster::decision::{Decision, NewRun},
    operation::{AskedBy, Fails, Leaves, Operation, Order, Reaches, asked},
    request,
};
use serde_json::json;

use crate::{
    rules,
    story::{built, stored},
    world::{Kind, World},
};

/// A new operation of clusters that are built, of which no row of the model knows.
const NEW: Operation = Operation {
    name: "Defragment",
    state: ClusterState::Tending,
    reason: "Defragmenting",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: false,
    quiet: true,
    decide: |_| None,
    asked: AskedBy::Nobody,
    fails: Fails::Passes,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};
const NEW_OF_ORDER: Operation = Operation {
    order: Order::Moves,
    ..NEW
};
const NEW_OF_NONE: Operation = Operation {
    of_built: false,
    ..NEW
};

/// What the rules say of the run that starts next, once it was made bad.
fn caught(mut world: World, forge: impl FnOnce(&mut NewRun)) -> Option<String> {
    let planned = world.pass();
    let Decision::Start(new) = &planned.decision else {
        panic!("nothing starts: {:?}", planned.decision);
    };
    let mut new = (**new).clone();
    forge(&mut new);
    let run = stored(&world, &new);
    let judged = AssertUnwindSafe(|| rules::of_start(&world, &planned, &new, &run));
    let said = catch_unwind(judged).err()?;
    let said = said.downcast::<String>().map_or_else(
        |said| (*said.downcast::<&str>().unwrap()).to_owned(),
        |said| *said,
    );
    Some(said)
}

/// Three control planes that are members, and two workers.
fn standing() -> World {
    let kinds = [
        Kind::Master,
        Kind::Master,
        Kind::Master,
        Kind::Worker,
        Kind::Worker,
    ];
    built(&kinds).unwrap()
}

/// A worker joins.
fn scale() -> World {
    let mut world = standing();
    world.declare(Kind::Worker);
    world
}

/// Somebody asks for an operation.
fn asks(annotation: &str, value: &str) -> World {
    let mut world = standing();
    assert!(asked::all().any(|asked| asked.annotation == annotation));
    let annotations = world.cluster.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.to_owned(), value.to_owned());
    world
}

fn step<'a>(new: &'a mut NewRun, id: &str) -> &'a mut Step {
    let mut steps = new.plan.steps.iter_mut();
    steps.find(|step| step.id == id).unwrap()
}

/// The step of that name once more, of the same hosts and under another name.
fn again(new: &mut NewRun, id: &str, name: &str) -> usize {
    let mut step = step(new, id).clone();
    name.clone_into(&mut step.id);
    new.plan.steps.push(step);
    new.plan.steps.len() - 1
}

#[test]
fn what_is_as_it_is_planned_is_caught_by_nobody() {
    assert_eq!(caught(scale(), |_| {}), None);
    for (annotation, value) in [
        (request::COMPONENT, "etcd 1"),
        (request::COMPONENT, "container-engine 1"),
        (request::TOOLBOX, "restart etcd host-01,host-02 1"),
        (request::RENEW, "1"),
    ] {
        assert_eq!(caught(asks(annotation, value), |_| {}), None);
    }
}

#[test]
fn a_new_operation_is_told_to_say_what_it_does() {
    let words = [
        (&NEW, "say in `effect` what it does"),
        (&NEW_OF_ORDER, "may change who is first"),
        (&NEW_OF_NONE, "of clusters that are not built"),
    ];
    for (operation, words) in words {
        let said = caught(scale(), |new| new.operation = operation).unwrap();
        assert!(said.contains(words), "{said}");
    }
}

type Forge = fn(&mut NewRun);

#[test]
fn a_step_on_all_control_planes_is_caught() {
    let forged: [(&str, Forge); 4] = [
        ("a play over the group", |new| {
            again(new, "bootstrap/facts-of-others", "demo/all");
        }),
        ("a drain", |new| {
            let at = again(new, "bootstrap/facts-of-others", "demo/drain");
            new.plan.steps[at].action = Action::Drain { forced: Vec::new() }.into();
        }),
        ("no new pods", |new| {
            let at = again(new, "bootstrap/facts-of-others", "demo/cordon");
            new.plan.steps[at].action = Action::Cordon { lets_in: false }.into();
        }),
        ("nodes that are deleted", |new| {
            let at = again(new, "bootstrap/facts-of-others", "demo/forget");
            let forced: Vec<HostName> = Vec::new();
            new.plan.steps[at].action = Action::ForgetNodes { forced }.into();
        }),
    ];
    for (what, forge) in forged {
        let said = caught(scale(), forge).unwrap_or_default();
        assert!(
            said.contains("on 3 control planes at once"),
            "{what}: {said}"
        );
    }
}

#[test]
fn a_member_that_restarts_unasked_is_caught() {
    for (asked, id) in [
        ((request::COMPONENT, "etcd 1"), "etcd/before-2"),
        ((request::COMPONENT, "etcd 1"), "etcd/after-3"),
        ((request::COMPONENT, "container-engine 1"), "etcd/before-1"),
        (
            (request::TOOLBOX, "restart etcd host-01,host-02 1"),
            "etcd/after-1",
        ),
    ] {
        let world = asks(asked.0, asked.1);
        let said = caught(world, |new| new.plan.steps.retain(|step| step.id != id));
        let said = said.unwrap_or_default();
        assert!(said.contains("nobody asks etcd around"), "{id}: {said}");
    }
}

#[test]
fn inputs_that_say_more_than_was_wished_are_caught() {
    let forged: [(&str, Forge); 4] = [
        ("reorders etcd", |new| {
            let order = &mut new.plan.inputs["inventory"]["order"]["etcd"];
            order.as_array_mut().unwrap().swap(1, 2);
        }),
        ("reorders kube_control_plane", |new| {
            let order = &mut new.plan.inputs["inventory"]["order"]["kube_control_plane"];
            order.as_array_mut().unwrap().swap(0, 1);
        }),
        ("nobody asked for it", |new| {
            let leaves = ("leaving".to_owned(), json!(["host-04"]));
            new.plan.inputs.extend([leaves]);
        }),
        ("down to 1.30.0", |new| {
            let version = ("kubernetes".to_owned(), json!("1.30.0"));
            new.plan.inputs.extend([version]);
        }),
    ];
    for (words, forge) in forged {
        let said = caught(scale(), forge).unwrap_or_default();
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn batches_of_which_nobody_says_how_many_go_are_caught() {
    let said = caught(scale(), |new| {
        again(new, "prepare/probe", "gate/bootstrap/facts-of-others");
    });
    let said = said.unwrap_or_default();
    assert!(said.contains("which settings they keep to"), "{said}");
}
