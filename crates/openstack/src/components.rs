//! The components of a service: which of them a spec asks for, what is wrong with that, and the steps that start them. Pure.
//!
//! Every service has `api`, whose files are those of its Jobs, of hooks and of all that reads a setting: what serves has the last word
//! on what keys seal. Others have pods and, where something is said for them alone, files of their own beside it.

pub mod order;

use std::collections::BTreeMap;

use api::openstack::OpenStackService;
use controller::{Problem, problem::nearest};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{
    action::{Action, OfComponent},
    definition::{API, Component, Definition, StepDefinition},
    names,
    service::{self, Inputs},
};

/// A component as a run makes it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// How many pods it has.
    pub replicas: u16,
    /// The ConfigMap with its files. None: it has those of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Its files, where it has its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// The components that a service is to have, in the order in which they start. Those with no pods are none of them.
///
/// # Errors
///
/// One is said that the service does not have, or what is said cannot be.
pub fn of(service: &OpenStackService, definition: &Definition) -> Result<Vec<Made>, Vec<Problem>> {
    let problems = unfit(service, definition);
    if !problems.is_empty() {
        return Err(problems);
    }
    let waits = waits(service, definition);
    let started = order::started(&waits).map_err(|circle| vec![each_other(definition, &circle)])?;
    let made = started.into_iter().map(|name| Made {
        name: name.to_owned(),
        replicas: replicas(service, definition, name),
        config: None,
        files: BTreeMap::new(),
    });
    Ok(made.collect())
}

/// Gives the components beside the API the files that are said for them alone.
///
/// # Errors
///
/// One is not written as such a file is.
pub fn with_files(
    components: &mut [Made],
    service: &OpenStackService,
    definition: &Definition,
) -> Result<(), Vec<Problem>> {
    for component in components {
        let name = &component.name;
        if !has_files(service, name) {
            continue;
        }
        component.files = service::texts(service, definition, name)?;
        let digest = service::digest(&component.files);
        component.config = Some(names::config_of(&service.name_any(), name, &digest));
    }
    Ok(())
}

/// Whether a component has other files than the API: something is said for one of the two alone.
pub fn has_files(service: &OpenStackService, name: &str) -> bool {
    let said = |name: &str| service.spec.components.get(name);
    let is_said = |name: &str| said(name).is_some_and(|said| !said.config.is_empty());
    name != API && (is_said(name) || is_said(API))
}

/// The definition with the steps of all these components, in their order, where it has those of the API.
#[must_use]
pub fn with_steps(definition: &Definition, components: &[Made]) -> Definition {
    let mut definition = definition.clone();
    for step in std::mem::take(&mut definition.steps) {
        match &step.does {
            Action::CheckConfig => {
                definition.steps.push(step);
                let own = components.iter().filter(|made| made.config.is_some());
                definition.steps.extend(own.map(check));
            }
            Action::Deploy => {
                let before = components.iter().take_while(|made| made.name != API);
                definition.steps.extend(before.flat_map(start));
                definition.steps.push(step);
            }
            Action::AwaitApi => {
                definition.steps.push(step);
                let after = components.iter().skip_while(|made| made.name != API);
                definition.steps.extend(after.skip(1).flat_map(start));
            }
            _ => definition.steps.push(step),
        }
    }
    definition
}

/// The step that looks at the files of a component.
pub fn check_id(component: &str) -> String {
    format!("{component}/check")
}

fn check(made: &Made) -> StepDefinition {
    let component = made.name.clone();
    StepDefinition {
        id: check_id(&component),
        title: format!("Hold the files of {component} against the schema of the release"),
        does: Action::CheckComponent(OfComponent { component }),
    }
}

fn start(made: &Made) -> [StepDefinition; 2] {
    let name = &made.name;
    let component = || OfComponent {
        component: name.clone(),
    };
    [
        StepDefinition {
            id: format!("{name}/deploy"),
            title: format!("Start the pods of {name}"),
            does: Action::DeployComponent(component()),
        },
        StepDefinition {
            id: format!("{name}/ready"),
            title: format!("Wait until the pods of {name} are at work"),
            does: Action::AwaitComponent(component()),
        },
    ]
}

impl Inputs {
    /// The components that there are, in the order in which they start.
    pub fn started(&self) -> Vec<&str> {
        if self.components.is_empty() {
            return vec![API];
        }
        let names = self.components.iter().map(|made| made.name.as_str());
        names.collect()
    }

    /// The place of a release of this object among those that are removed: pods of components first, those first that others do not wait for.
    pub fn teardown_rank(&self, object: &str, release: &str) -> usize {
        let mut ended = self.started().into_iter().rev();
        let place = ended.position(|component| names::component(object, component) == release);
        place.unwrap_or(usize::MAX)
    }

    /// What a component is made from.
    #[must_use]
    pub fn of_component(&self, name: &str) -> Self {
        let mut inputs = self.clone();
        let made = self.components.iter().find(|made| made.name == name);
        let Some(made) = made.filter(|_| name != API) else {
            return inputs;
        };
        inputs.replicas = made.replicas;
        if let Some(config) = &made.config {
            inputs.config.clone_from(config);
            inputs.files.clone_from(&made.files);
        }
        inputs
    }

    /// The same without a pod.
    #[must_use]
    pub fn stopped(&self) -> Self {
        let mut inputs = self.clone();
        inputs.replicas = 0;
        for made in &mut inputs.components {
            made.replicas = 0;
        }
        inputs
    }

    /// The ConfigMaps with the files of all components, and those files.
    pub fn configs(&self) -> Vec<(&String, &BTreeMap<String, String>)> {
        let own = self.components.iter();
        let own = own.filter_map(|made| Some((made.config.as_ref()?, &made.files)));
        std::iter::once((&self.config, &self.files))
            .chain(own)
            .collect()
    }
}

/// For whom each component waits that has pods.
fn waits<'a>(service: &'a OpenStackService, definition: &'a Definition) -> order::Waits<'a> {
    let components = definition.components.iter();
    let have_pods = components.filter(|(name, _)| replicas(service, definition, name) > 0);
    let waits = have_pods.map(|(name, is)| {
        let said = service.spec.components.get(name);
        let said = said.into_iter().flat_map(|said| &said.after);
        let after = is.after.iter().chain(said).map(String::as_str);
        (name.as_str(), after.collect())
    });
    waits.collect()
}

/// Components that wait for each other, and whose word each of it is.
fn each_other(definition: &Definition, circle: &[&str]) -> Problem {
    let is_built_in = |name: &str, other: &str| {
        let is = definition.components.get(name);
        is.is_some_and(|is| is.after.iter().any(|after| after == other))
    };
    let pairs = || circle.iter().zip(circle.iter().skip(1));
    let told = pairs().map(|(name, other)| {
        let whose = if is_built_in(name, other) {
            format!(" (services/{}.yaml)", definition.name)
        } else {
            String::new()
        };
        format!("{name} waits for {other}{whose}")
    });
    let told: Vec<_> = told.collect();
    let said = pairs().find(|(name, other)| !is_built_in(name, other));
    let (name, other) = said.unwrap_or((&API, &API));
    Problem::new(
        format!("OpenStackService spec.components[{name}].after"),
        *other,
        format!(
            "components that wait for each other never start: {}",
            told.join(", ")
        ),
        format!("take {other} out of it"),
    )
}

fn replicas(service: &OpenStackService, definition: &Definition, name: &str) -> u16 {
    if name == API {
        return service.spec.replicas.unwrap_or(1);
    }
    let said = service.spec.components.get(name);
    let is = definition.components.get(name);
    said.and_then(|said| said.replicas)
        .or_else(|| is.map(|is| is.replicas))
        .unwrap_or_default()
}

fn unfit(service: &OpenStackService, definition: &Definition) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in service.spec.components.keys() {
        match definition.components.get(name) {
            Some(is) => problems.extend(unfit_one(service, definition, (name, is))),
            None => problems.push(unknown(
                "OpenStackService spec.components",
                name,
                definition,
            )),
        }
    }
    problems
}

/// A component that the service does not have.
fn unknown(field: &str, name: &str, definition: &Definition) -> Problem {
    let known = || definition.components.keys().map(String::as_str);
    let remedy = match nearest(name, known()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "name one of them".to_owned(),
    };
    let all: Vec<_> = known().collect();
    Problem::new(
        field,
        api::text::plain(name, 64),
        format!(
            "the components of {} are {}",
            definition.name,
            all.join(", ")
        ),
        remedy,
    )
}

fn unfit_one(
    service: &OpenStackService,
    definition: &Definition,
    (name, is): (&String, &Component),
) -> Vec<Problem> {
    let Some(said) = service.spec.components.get(name) else {
        return Vec::new();
    };
    let field = |of: &str| format!("OpenStackService spec.components[{name}].{of}");
    let mut problems = service::unread(&field("config"), &said.config, definition);
    let has = replicas(service, definition, name);
    if name == API
        && let Some(replicas) = said.replicas
    {
        problems.push(Problem::new(
            field("replicas"),
            replicas.to_string(),
            "how many pods serve is said for the service",
            "write it as replicas of the service",
        ));
    }
    if let Some(most) = is.most.filter(|most| has > *most) {
        problems.push(Problem::new(
            field("replicas"),
            has.to_string(),
            format!("{name} has {most} pods at most: more would do the same work"),
            format!("write {most}"),
        ));
    }
    for other in &said.after {
        let field = field("after");
        if !definition.components.contains_key(other) {
            problems.push(unknown(&field, other, definition));
        } else if replicas(service, definition, other) == 0 {
            problems.push(Problem::new(
                field,
                other,
                format!("{other} has no pods, so there is nothing to wait for"),
                format!("write replicas: 1 of {other}, or take it out"),
            ));
        }
    }
    if has == 0 && said.replicas.is_none() && !said.config.is_empty() {
        problems.push(Problem::new(
            field("config"),
            "",
            format!("{name} has no pods unless somebody wants some, so nobody reads its files"),
            format!("write replicas: 1 of {name}, or leave its files out"),
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        audit, definition,
        made::{Made as MadeBy, Release, Subject},
        wish::{Operation, Wanted, Wish as _},
    };

    fn service(name: &str, spec: &Value) -> OpenStackService {
        let mut whole = json!({"service": name, "image": "i", "database": {"host": "db", "adminSecret": {"name": "a"}}});
        if name != "keystone" {
            whole["identity"] = json!({"url": "http://k:5000/v3", "adminSecret": {"name": "a"}});
        }
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": format!("one-{name}"), "namespace": "cloud"}, "spec": whole,
        }))
        .unwrap()
    }

    fn glance(components: &Value) -> OpenStackService {
        let config = json!({"glance-api.conf": "[DEFAULT]\nworkers = 3\nwakeup_time = 9\n"});
        let storage = json!({"size": "1Gi"});
        let spec = json!({"config": config, "storage": storage, "components": components});
        service("glance", &spec)
    }

    fn inputs(wanted: &Wanted) -> Inputs {
        serde_json::from_value(Value::Object(wanted.inputs.clone())).unwrap()
    }

    fn ids(wanted: &Wanted) -> Vec<String> {
        let steps = wanted.steps(Operation::Install).into_iter();
        steps.map(|step| step.id).collect()
    }

    fn made(wanted: &Wanted, step: &str) -> Release {
        let subject = Subject {
            name: "one-glance".to_owned(),
            ..Subject::default()
        };
        let steps = wanted.steps(Operation::Install);
        let step = steps.iter().find(|found| found.id == step).unwrap();
        let definition = definition::find("glance").unwrap();
        match subject.of_service(&inputs(wanted), definition, step) {
            Some(MadeBy::Release(release)) => release,
            made => panic!("{made:?}"),
        }
    }

    fn scrubber() -> Wanted {
        let said =
            json!({"replicas": 1, "config": {"glance-api.conf": "[DEFAULT]\nwakeup_time = 60\n"}});
        glance(&json!({"scrubber": said})).wanted().unwrap()
    }

    #[test]
    fn a_component_has_files_of_its_own_on_top_of_those_of_the_service() {
        let wanted = scrubber();
        let inputs = inputs(&wanted);
        let own = inputs.of_component("scrubber");
        let (of_api, of_own) = (
            &inputs.files["glance-api.conf"],
            &own.files["glance-api.conf"],
        );
        assert!(
            of_api.contains("workers = 3\nwakeup_time = 9\n"),
            "{of_api}"
        );
        assert!(
            of_own.contains("workers = 3\nwakeup_time = 60\n"),
            "{of_own}"
        );
        assert!(own.config.starts_with("one-glance-scrubber-config-"));
        // Jobs, and whatever reads a setting, have those of what serves.
        for (step, config) in [
            ("database/expand", &inputs.config),
            ("config/check", &inputs.config),
            ("api/deploy", &inputs.config),
            ("scrubber/check", &own.config),
            ("scrubber/deploy", &own.config),
        ] {
            assert_eq!(
                made(&wanted, step).values["config"]["name"],
                **config,
                "{step}"
            );
        }
        let place = ("one-glance", "cloud");
        let definition = definition::find("glance").unwrap();
        let writes = audit::of_service(place, (&inputs, definition), &wanted.install);
        let of = |step: &str| {
            let of_step = writes.iter().filter(|write| write.step == step);
            of_step.map(|write| write.what.clone()).collect::<Vec<_>>()
        };
        let maps = [&inputs.config, &own.config].map(|name| format!("ConfigMap {name}"));
        assert_eq!(of("config/apply"), maps);
        assert_eq!(
            of("scrubber/deploy"),
            [
                "Helm release one-glance-scrubber",
                "Deployment one-glance-scrubber"
            ]
        );
    }

    #[test]
    fn what_is_said_for_the_api_alone_is_what_its_jobs_have() {
        let said = json!({"config": {"keystone.conf": "[token]\nexpiration = 60\n"}});
        let spec = json!({
            "config": {"keystone.conf": "[token]\nexpiration = 70\n"}, "components": {"api": said},
        });
        let wanted = service("keystone", &spec).wanted().unwrap();
        let inputs = inputs(&wanted);
        assert!(inputs.files["keystone.conf"].contains("expiration = 60\n"));
        assert!(inputs.components.is_empty() && inputs.started() == [API]);
    }

    #[test]
    fn a_component_has_pods_that_nobody_is_sent_to_and_the_volume_of_the_api() {
        let wanted = scrubber();
        let all = ids(&wanted);
        let at = all.iter().position(|id| id == "api/deploy").unwrap();
        assert_eq!(
            all[at..at + 5],
            [
                "api/deploy",
                "api/ready",
                "scrubber/deploy",
                "scrubber/ready",
                "api/ask"
            ]
        );
        let of_api = made(&wanted, "api/deploy").values;
        let Release { name, values, .. } = made(&wanted, "scrubber/deploy");
        assert_eq!(
            (name.as_str(), &values["replicas"]),
            ("one-glance-scrubber", &json!(1))
        );
        assert_eq!(
            (&values["port"], &values["service"]),
            (&Value::Null, &Value::Null)
        );
        assert_ne!(values["labels"], of_api["labels"]);
        assert_eq!(values["volume"]["claim"], "one-glance-api");
        let near =
            &values["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(near["labelSelector"]["matchLabels"], of_api["labels"]);
        assert_eq!(values["environment"], of_api["environment"]);
        let stopped = inputs(&wanted).stopped();
        assert_eq!(
            (stopped.replicas, stopped.of_component("scrubber").replicas),
            (0, 0)
        );
    }

    #[test]
    fn components_end_before_those_that_they_waited_for_and_jobs_after_them() {
        let inputs = inputs(&scrubber());
        let releases = [
            "one-glance-api",
            "one-glance-database-expand",
            "one-glance-scrubber",
        ];
        let mut ended = releases.to_vec();
        ended.sort_by_key(|release| inputs.teardown_rank("one-glance", release));
        assert_eq!(ended, [releases[2], releases[0], releases[1]]);
    }

    #[test]
    fn a_service_without_such_words_is_planned_as_ever() {
        let plain = glance(&json!({})).wanted().unwrap();
        assert!(!plain.inputs.contains_key("components"));
        assert!(!ids(&plain).iter().any(|id| id.starts_with("scrubber")));
        assert_eq!(made(&plain, "api/deploy").values["affinity"], Value::Null);
        let none = glance(&json!({"scrubber": {"replicas": 0}}));
        assert_eq!(none.wanted().unwrap(), plain);
        let same = glance(&json!({"scrubber": {"replicas": 1}}))
            .wanted()
            .unwrap();
        assert_eq!(
            inputs(&same).of_component("scrubber").config,
            inputs(&plain).config
        );
        assert!(!ids(&same).contains(&"scrubber/check".to_owned()));
    }

    #[test]
    fn components_start_in_the_order_in_which_they_wait() {
        let mut definition = definition::find("glance").unwrap().clone();
        // As it would be with a component that the API waits for.
        let mut before = definition.components["scrubber"].clone();
        before.after.clear();
        definition.components.insert("before".to_owned(), before);
        let of = |definition: &Definition, components: Value| {
            let made = of(&glance(&components), definition).unwrap();
            let steps = with_steps(definition, &made).steps.into_iter();
            let ids = steps.map(|step| step.id);
            ids.filter(|id| id.ends_with("/deploy")).collect::<Vec<_>>()
        };
        let both = json!({"scrubber": {"replicas": 1}, "before": {"replicas": 1}});
        let expected = ["api/deploy", "before/deploy", "scrubber/deploy"];
        assert_eq!(of(&definition, both.clone()), expected);
        let mut said = both;
        said["api"] = json!({"after": ["before"]});
        let expected = ["before/deploy", "api/deploy", "scrubber/deploy"];
        assert_eq!(of(&definition, said), expected);
        // One without pods is waited for by nobody.
        definition.components.get_mut(API).unwrap().after = vec!["before".to_owned()];
        assert_eq!(of(&definition, json!({})), ["api/deploy"]);
    }

    #[test]
    fn components_that_wait_for_each_other_are_refused_and_named() {
        let components = json!({"scrubber": {"replicas": 1}, "api": {"after": ["scrubber"]}});
        let refused = controller::problem::text(&glance(&components).wanted().unwrap_err());
        for word in [
            "spec.components[api].after is \"scrubber\"",
            "api waits for scrubber, scrubber waits for api (services/glance.yaml)",
            "take scrubber out of it",
        ] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
    }

    #[test]
    fn hooks_stand_at_components_that_there_are() {
        let hook = json!([{"name": "a", "before": "scrubber/deploy", "approval": "Shall it?"}]);
        let of = |components: Value| {
            let spec = json!({"hooks": hook, "components": components});
            service("glance", &spec).wanted()
        };
        assert!(
            ids(&of(json!({"scrubber": {"replicas": 1}})).unwrap()).contains(&"hook/a".to_owned())
        );
        let refused = controller::problem::text(&of(json!({})).unwrap_err());
        assert!(refused.contains("glance has no such step"), "{refused}");
    }

    #[test]
    fn nobody_waits_for_what_is_not_there() {
        for (components, words) in [
            (
                json!({"api": {"after": ["scruber"]}}),
                ["glance are api, scrubber", "did you mean scrubber?"],
            ),
            (
                json!({"api": {"after": ["scrubber"]}}),
                ["scrubber has no pods", "replicas: 1 of scrubber"],
            ),
        ] {
            let refused = controller::problem::text(&glance(&components).wanted().unwrap_err());
            for word in words.into_iter().chain(["spec.components[api].after is"]) {
                assert!(refused.contains(word), "{word}: {refused}");
            }
        }
    }

    #[test]
    fn what_a_component_cannot_be_is_refused_by_field() {
        let file = json!({"glance-api.conf": ""});
        for (components, words) in [
            (
                json!({"scruber": {}}),
                [
                    "spec.components is \"scruber\"",
                    "glance are api, scrubber",
                    "did you mean scrubber?",
                ],
            ),
            (
                json!({"scrubber": {"replicas": 2}}),
                [
                    "spec.components[scrubber].replicas",
                    "\"2\"",
                    "1 pods at most",
                ],
            ),
            (
                json!({"api": {"replicas": 2}}),
                [
                    "spec.components[api].replicas",
                    "\"2\"",
                    "replicas of the service",
                ],
            ),
            (
                json!({"scrubber": {"config": file}}),
                [
                    "spec.components[scrubber].config",
                    "has no pods",
                    "replicas: 1",
                ],
            ),
            (
                json!({"api": {"config": {"glance.conf": ""}}}),
                [
                    "spec.components[api].config",
                    "glance.conf",
                    "the files of glance are",
                ],
            ),
            (
                json!({"scrubber": {"replicas": 1, "config": {"glance-api.conf": "a"}}}),
                [
                    "spec.components[scrubber].config[glance-api.conf]",
                    "line 1",
                    "KEY = VALUE",
                ],
            ),
            (
                json!({"scrubber": {"replicas": 1, "config": {"policy.yaml": "a: [b"}}}),
                [
                    "spec.components[scrubber].config[policy.yaml]",
                    "no map of rules",
                    "NAME",
                ],
            ),
        ] {
            let refused = controller::problem::text(&glance(&components).wanted().unwrap_err());
            for word in words {
                assert!(refused.contains(word), "{word}: {refused}");
            }
        }
    }
}
