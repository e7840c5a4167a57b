//! That a further service is a file and takes no code: one that nobody knows is planned, installed, updated, upgraded and removed.

use api::{
    Run,
    openstack::OpenStackService,
    run::{RunPhase, RunStatus, StepPhase, StepStatus},
};
use runs::object;
use serde_json::{Value, json};

use super::{Inputs, wanted};
use crate::{
    audit,
    definition::Definition,
    made::{Made, Release, Subject},
    subject::{Decision, Observed, Resolved, plan::decide},
    wish,
};

fn shelf() -> Definition {
    serde_saphyr::from_str(include_str!("further/shelf.yaml")).unwrap()
}

fn object_of(release: &str, image: &str, config: &Value) -> OpenStackService {
    serde_json::from_value(json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
        "metadata": {"name": "one-shelf", "namespace": "cloud", "uid": "u"},
        "spec": {"service": "shelf", "release": release, "image": image, "config": config, "onDelete": "Delete",
            "database": {"host": "db", "adminSecret": {"name": "admin"}},
            "identity": {"url": "https://keystone.example/v3", "adminSecret": {"name": "admin"}}},
    }))
    .unwrap()
}

/// Plans, and stores the run that is started as one that goes well.
fn planned(object: &OpenStackService, world: &mut Observed) -> String {
    let resolved = Resolved {
        wanted: wanted(object, &shelf()),
        rotations: Vec::new(),
    };
    match decide(object, &resolved, world).unwrap() {
        Decision::Start(new) => {
            let name = new.name.clone();
            let run = object::of(object, name, new.operation.name(), 1, new.plan.clone());
            world.runs.push(gone_well(run));
            new.operation.name().to_owned()
        }
        Decision::Stall(problems) => controller::problem::text(&problems),
        Decision::Keep(_) => "keep".to_owned(),
        other => format!("{other:?}"),
    }
}

fn gone_well(mut run: Run) -> Run {
    let steps = run.spec.plan.steps.iter().map(|step| StepStatus {
        id: step.id.clone(),
        phase: StepPhase::Succeeded,
        ..StepStatus::default()
    });
    run.status = Some(RunStatus {
        phase: RunPhase::Succeeded,
        steps: steps.collect(),
        ..RunStatus::default()
    });
    run
}

/// What the steps of the newest run make: the Helm releases with their images.
fn releases(world: &Observed) -> Vec<(String, Value)> {
    let plan = &world.runs.last().unwrap().spec.plan;
    let inputs: Inputs = wish::read(&plan.inputs).unwrap();
    let subject = Subject {
        name: "one-shelf".to_owned(),
        ..Subject::default()
    };
    let made = plan
        .steps
        .iter()
        .filter_map(|step| subject.of_service(&inputs, &shelf(), step));
    let releases = made.filter_map(|made| match made {
        Made::Release(Release { name, values, .. }) => Some((name, values["image"].clone())),
        Made::ConfigMaps(_) => None,
    });
    releases.collect()
}

#[test]
fn a_further_service_lives_from_its_file_alone() {
    let mut world = Observed::default();
    let none = json!({});
    let first = object_of("2026.1", "shelf:1", &none);
    assert_eq!(planned(&first, &mut world), "Install");
    let expected = [
        "one-shelf-config-check",
        "one-shelf-database-expand",
        "one-shelf-database-migrate",
        "one-shelf-keeper",
        "one-shelf-api",
        "one-shelf-database-contract",
    ];
    let made = |world: &Observed, image: &str| {
        let (names, images): (Vec<_>, Vec<_>) = releases(world).into_iter().unzip();
        assert_eq!(names, expected);
        assert!(images.iter().all(|found| *found == image), "{images:?}");
    };
    made(&world, "shelf:1");
    let run = world.runs.last().unwrap();
    let inputs: Inputs = wish::read(&run.spec.plan.inputs).unwrap();
    let address = "host = http://one-shelf.cloud.svc:9911\n";
    assert!(inputs.files["shelf.conf"].contains(address), "{inputs:?}");
    let place = ("one-shelf", "cloud");
    let writes = audit::of_service(place, (&inputs, &shelf()), &run.spec.plan.steps);
    let writes: Vec<_> = writes.into_iter().map(|write| write.what).collect();
    for what in [
        "SQL CREATE DATABASE IF NOT EXISTS `shelf`",
        "Keystone user shelf",
        "Deployment one-shelf-keeper",
    ] {
        assert!(
            writes.iter().any(|write| write.starts_with(what)),
            "{what}: {writes:?}"
        );
    }
    assert_eq!(planned(&first, &mut world), "keep");

    // Another image of the same release, then the next release: expand and migrate come before the pods, contract after they serve.
    assert_eq!(
        planned(&object_of("2026.1", "shelf:1.1", &none), &mut world),
        "Update"
    );
    made(&world, "shelf:1.1");
    let upgraded = object_of("2026.2", "shelf:2", &none);
    assert_eq!(planned(&upgraded, &mut world), "Upgrade");
    made(&world, "shelf:2");
    let steps = world.runs.last().unwrap().spec.plan.steps.iter();
    let ids: Vec<_> = steps.map(|step| step.id.as_str()).collect();
    let at = |id: &str| ids.iter().position(|found| *found == id).unwrap();
    let order = [
        "database/expand",
        "database/migrate",
        "keeper/ready",
        "api/deploy",
        "api/ask",
    ];
    let order = order.map(at);
    assert!(
        order.is_sorted() && order[4] < at("database/contract"),
        "{ids:?}"
    );
    assert_eq!(planned(&upgraded, &mut world), "keep");

    for (object, refused) in [
        (
            object_of("2026.1", "shelf:1", &none),
            "tables do not go back",
        ),
        (
            object_of("2028.1", "shelf:4", &none),
            "there is a way to 2027.1 alone",
        ),
        (
            object_of("2026.2", "shelf:2", &json!({"shelve.conf": ""})),
            "the files of shelf are shelf.conf",
        ),
    ] {
        let told = planned(&object, &mut world);
        assert!(told.contains(refused), "{told}");
    }

    let mut going = upgraded;
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
    going.metadata.deletion_timestamp = Some(now);
    assert_eq!(planned(&going, &mut world), "Delete");
    let steps = world.runs.last().unwrap().spec.plan.steps.iter();
    let ids: Vec<_> = steps.map(|step| step.id.as_str()).collect();
    let expected = [
        "releases/remove",
        "identity/remove",
        "database/drop",
        "secrets/remove",
    ];
    assert_eq!(ids, expected);
}
