//! Machines of workers: MachineDeployments, MachineSets, and Machines alone.
//!
//! A MachineDeployment replaces its Machines when the version, the reference to a template or the failure domain in its own template is
//! another one. All else of that template is brought to Machines where they are. Replacing begins when somebody deletes them, where the
//! strategy is OnDelete. A MachineSet of nobody replaces nothing.

use serde_json::Value;

use super::{
    Bound, Edit, Edits, Effect, Happens, Live, What, autoscaler,
    fields::{self, Fields},
    group::{Change, Group, Outdated},
};
use crate::problem::Object;

pub(super) fn deployment(
    object: &Object,
    edit: Edit<'_>,
    all: &Edits<'_>,
    live: Option<&Live>,
) -> Vec<Effect> {
    let machines = live
        .map(|live| live.labelled(&object.namespace, None, DEPLOYMENT_NAME, Some(&object.name)));
    let group = Group {
        of: object,
        part: None,
        machines,
    };
    let (before, after) = match of_both(&group, edit) {
        Ok(both) => both,
        Err(effects) => return effects,
    };
    let is_on_delete = {
        let spec = &after["spec"];
        let kinds = [&spec["rollout"]["strategy"], &spec["strategy"]];
        kinds
            .into_iter()
            .any(|strategy| strategy["type"] == "OnDelete")
    };
    let happens = if is_on_delete {
        Happens::Outdated
    } else {
        Happens::Replaced
    };
    let wanted = rolled(&after["spec"]["template"]);
    let mut outdated = Outdated::all(
        happens,
        fields::differing(&rolled(&before["spec"]["template"]), &wanted),
    );
    if outdated.because.is_empty() {
        outdated = late(all, object, after).unwrap_or(outdated);
    } else if let (Some(live), Some(machines)) = (live, &group.machines) {
        // A change back to what some of them still are replaces the others alone.
        let is_old = |machine: &&&Value| {
            let set = live.set(machine);
            set.is_none_or(|set| rolled(&set["spec"]["template"]) != wanted)
        };
        outdated.only = Some(machines.iter().filter(is_old).copied().collect());
    }
    if outdated.because.is_empty()
        && let Some(restart) = restart(before, after)
    {
        outdated = Outdated {
            bound: Bound::AtMost,
            ..Outdated::all(happens, vec![restart])
        };
    }
    group.changed(Change {
        size: size(before, after, group.there()),
        outdated,
        in_place: in_place(before, after),
    })
}

pub(super) fn set(
    object: &Object,
    edit: Edit<'_>,
    all: &Edits<'_>,
    live: Option<&Live>,
) -> Vec<Effect> {
    let group = Group {
        of: object,
        part: None,
        machines: live.map(|live| live.controlled(object)),
    };
    let (before, after) = match of_both(&group, edit) {
        Ok(both) => both,
        Err(effects) => return effects,
    };
    let because = fields::differing(
        &rolled(&before["spec"]["template"]),
        &rolled(&after["spec"]["template"]),
    );
    let outdated = Outdated::all(Happens::Outdated, because);
    let outdated = if outdated.because.is_empty() {
        late(all, object, after).unwrap_or(outdated)
    } else {
        outdated
    };
    group.changed(Change {
        size: size(before, after, group.there()),
        outdated,
        in_place: in_place(before, after),
    })
}

pub(super) fn machine(object: &Object, edit: Edit<'_>) -> Vec<Effect> {
    let happens = match (edit.before, edit.after) {
        (None, _) => Happens::Added,
        (_, None) => Happens::Removed,
        (Some(before), Some(after)) if before == after => return Vec::new(),
        _ => Happens::Updated,
    };
    vec![Effect {
        of: object.clone(),
        part: None,
        what: What::Machine,
        happens,
        count: Some(1),
        bound: Bound::Exactly,
        names: vec![object.name.clone()],
        because: Vec::new(),
    }]
}

/// The two of an object that stays; else what comes of its coming or going.
pub(super) fn of_both<'a>(
    group: &Group<'_>,
    edit: Edit<'a>,
) -> Result<(&'a Value, &'a Value), Vec<Effect>> {
    match (edit.before, edit.after) {
        (Some(before), Some(after)) => Ok((before, after)),
        (None, Some(after)) => Err(group.born(autoscaler::at_birth(sized(after)))),
        (Some(before), None) => {
            let count = sized(before).0.as_u64();
            Err(group.gone(count.and_then(|count| count.try_into().ok())))
        }
        (None, None) => Err(Vec::new()),
    }
}

/// How many there are to be.
pub(super) fn size(before: &Value, after: &Value, there: Option<u32>) -> autoscaler::Size {
    autoscaler::size(sized(before), sized(after), there)
}

/// What says how many machines an object keeps: its replicas, or its metadata.
fn sized(object: &Value) -> (&Value, &Value) {
    (&object["spec"]["replicas"], &object["metadata"])
}

/// A time after which all Machines that are older are replaced, if it is another one.
pub(super) fn restart(before: &Value, after: &Value) -> Option<String> {
    let paths = ["/spec/rollout/after", "/spec/rolloutAfter"];
    let mut paths = paths.into_iter();
    let path = paths.find(|path| {
        let now = after.pointer(path);
        now.is_some_and(Value::is_string) && now != before.pointer(path)
    })?;
    Some(path.trim_start_matches('/').replace('/', "."))
}

/// What is declared under the name of a template is another thing: that alone moves nothing.
fn late<'a>(all: &Edits<'_>, object: &Object, after: &Value) -> Option<Outdated<'a>> {
    under_its_name(all, object, &named(after))
}

/// What the template of Machines names that they are made from.
pub(super) fn named(object: &Value) -> [&Value; 2] {
    let spec = &object["spec"]["template"]["spec"];
    [&spec["bootstrap"]["configRef"], &spec["infrastructureRef"]]
}

/// Those of the references that name a template which was changed under its name.
pub(super) fn under_its_name<'a>(
    all: &Edits<'_>,
    object: &Object,
    references: &[&Value],
) -> Option<Outdated<'a>> {
    let named = Edits::named(&object.namespace, references);
    let changed = all.changed(&named).into_iter();
    let because: Vec<_> = changed
        .map(|what| format!("{what} under its name"))
        .collect();
    (!because.is_empty()).then(|| Outdated::all(Happens::Outdated, because))
}

/// The fields of a template of Machines by which they are replaced.
pub(super) fn rolled(template: &Value) -> Fields {
    let spec = &template["spec"];
    let bootstrap = &spec["bootstrap"];
    let at = |path: &str| format!("spec.template.spec.{path}");
    [
        (at("version"), fields::version(&spec["version"])),
        (
            at("bootstrap.configRef"),
            fields::reference(&bootstrap["configRef"]),
        ),
        (
            at("bootstrap.dataSecretName"),
            fields::text(&bootstrap["dataSecretName"]),
        ),
        (
            at("infrastructureRef"),
            fields::reference(&spec["infrastructureRef"]),
        ),
        (at("failureDomain"), fields::text(&spec["failureDomain"])),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_null())
    .collect()
}

/// The other fields of the template, which are brought to Machines where they are.
fn in_place(before: &Value, after: &Value) -> Vec<String> {
    let of = |object: &Value| {
        let template = &object["spec"]["template"];
        let spec = fields::without(&template["spec"], &ROLLED);
        (template["metadata"].clone(), spec)
    };
    let (before, after) = (of(before), of(after));
    let mut paths = fields::keys("spec.template.metadata", &before.0, &after.0);
    paths.extend(fields::keys("spec.template.spec", &before.1, &after.1));
    paths
}

/// By which Machines are replaced, and what never changes.
const ROLLED: [&str; 6] = [
    "version",
    "bootstrap",
    "infrastructureRef",
    "failureDomain",
    "clusterName",
    "providerID",
];
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
