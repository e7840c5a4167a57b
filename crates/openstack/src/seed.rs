//! A seed: what is to be in a Keystone, as a run works from it, and its steps. Pure, but for what its parts say.
//!
//! - [`thing`]: what a seed names, in words;
//! - [`walk`]: the way through Keystone, thing by thing: it tells what differs, and mends it where it may. A run and a look at rest go the
//!   same way, so that both mean the same by a difference;
//! - [`look`]: looks at rest, and what they showed last.

use std::collections::BTreeMap;

use api::{
    openstack::{
        IdentitySeed, OnDelete, SeedAssignment, SeedDomain, SeedEndpoint, SeedExisting, SeedGroup,
        SeedProject, SeedService, SeedUser, Standing,
    },
    run::Step,
};
use controller::Problem;
use kube::ResourceExt;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    action::{Action, OfSort, in_order},
    audit::{Expected, in_keystone},
    cloud, definition, identity, names,
    service::{self, is_in_clear},
    wish::{self, Wanted, Wish, map, unwritable},
};

pub mod look;
pub mod thing;
pub mod walk;

pub use thing::{Sort, Thing};

/// What the steps of a seed read.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// Where Keystone answers, as pods reach it.
    pub url: String,
    /// The Secret with its administrator.
    pub admin_secret: String,
    /// Domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<SeedDomain>,
    /// Roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<SeedProject>,
    /// Users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<SeedUser>,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SeedGroup>,
    /// Who has which role where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<SeedAssignment>,
    /// Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<SeedService>,
    /// Whether what is there already becomes the seed's.
    pub adopt: bool,
    /// Whether what it no longer names is removed.
    pub prune: bool,
    /// Whether what is the seed's goes with it.
    pub drop: bool,
}

impl Inputs {
    /// Of a seed, as it is written.
    pub fn of(seed: &IdentitySeed) -> Self {
        let spec = &seed.spec;
        let (url, admin_secret) = match (&spec.identity, &spec.cloud) {
            (Some(identity), _) => (identity.url.clone(), identity.admin_secret.name.clone()),
            (None, Some(cloud)) => of_cloud(cloud, &seed.namespace().unwrap_or_default()),
            (None, None) => (String::new(), String::new()),
        };
        Self {
            url,
            admin_secret,
            domains: spec.domains.clone(),
            roles: spec.roles.clone(),
            projects: spec.projects.clone(),
            users: spec.users.clone(),
            groups: spec.groups.clone(),
            assignments: spec.assignments.clone(),
            services: spec.services.clone(),
            adopt: spec.existing == Some(SeedExisting::Adopt),
            prune: spec.prune == Some(true),
            drop: spec.on_delete == Some(OnDelete::Delete),
        }
    }

    /// The sorts of which something is named.
    fn sorts(&self) -> impl Iterator<Item = Sort> {
        let has = |sort: Sort| match sort {
            Sort::Domains => !self.domains.is_empty(),
            Sort::Roles => !self.roles.is_empty(),
            Sort::Projects => !self.projects.is_empty(),
            Sort::Users => !self.users.is_empty(),
            Sort::Groups => !self.groups.is_empty(),
            Sort::Assignments => !self.assignments.is_empty(),
            Sort::Catalogue => !self.services.is_empty(),
        };
        Sort::ALL.into_iter().filter(move |sort| has(*sort))
    }
}

/// The Keystone of a cloud, and the Secret with its administrator.
fn of_cloud(name: &str, namespace: &str) -> (String, String) {
    let object = cloud::service_name(name, KEYSTONE);
    let url = definition::find(KEYSTONE).map(|keystone| {
        let url = service::internal_url(&object, namespace, keystone.port);
        format!("{url}{}", keystone.path)
    });
    (url.unwrap_or_default(), names::secret(&object, "admin"))
}

/// The service that is meant.
const KEYSTONE: &str = "keystone";

impl Wish for IdentitySeed {
    fn service(&self) -> Option<&str> {
        Some("seed")
    }

    fn wanted(&self) -> Result<Wanted, Vec<Problem>> {
        let problems = unfit(self);
        if !problems.is_empty() {
            return Err(problems);
        }
        let inputs = Inputs::of(self);
        let steps = || {
            Ok(Wanted {
                inputs: map(&inputs)?,
                install: install(&inputs)?,
                update: Vec::new(),
                hooks: Vec::new(),
                parallelism: 1,
                by_hand: Vec::new(),
                delete: delete(&inputs)?,
            })
        };
        let wanted: Wanted = steps().map_err(|error| unwritable(&error))?;
        let parts = wanted.inputs.iter();
        let parts: Vec<_> = parts
            .map(|(name, value)| (name.clone(), wish::bytes(value)))
            .collect();
        wanted.carried("IdentitySeed spec", parts, "make several seeds of it")
    }

    fn removal(&self, inputs: &Map<String, Value>) -> Option<Wanted> {
        let mut inputs: Inputs = wish::read(inputs)?;
        inputs.drop = self.spec.on_delete == Some(OnDelete::Delete);
        Some(Wanted {
            inputs: map(&inputs).ok()?,
            delete: delete(&inputs).ok()?,
            ..Wanted::default()
        })
    }

    fn standing(&self) -> Option<&Standing> {
        self.status.as_ref()
    }
}

fn install(inputs: &Inputs) -> Result<Vec<Step>, serde_json::Error> {
    let mut steps = vec![(
        KEYSTONE,
        "Wait until Keystone knows its administrator",
        Action::AwaitKeystone,
    )];
    let sorts = inputs.sorts();
    steps.extend(sorts.map(|sort| (sort.id(), sort.title(), Action::Seed(OfSort { sort }))));
    if inputs.prune {
        steps.push((
            "left",
            "Remove what is the seed's and no longer named",
            Action::RemoveLeft,
        ));
    }
    in_order(steps)
}

/// None where nothing goes.
fn delete(inputs: &Inputs) -> Result<Vec<Step>, serde_json::Error> {
    let step = (
        "seed/remove",
        "Remove what is the seed's",
        Action::RemoveSeed,
    );
    in_order(inputs.drop.then_some(step))
}

/// What the steps of a seed write where nothing of it is there.
pub fn written(inputs: &Inputs, steps: &[Step]) -> Vec<Expected> {
    let mut expected: Vec<Expected> = Vec::new();
    for step in steps {
        let Some(Action::Seed(of)) = Action::of(step) else {
            continue;
        };
        for (word, is_shared) in words(inputs, of.sort) {
            let what = in_keystone(&word);
            if !expected.iter().any(|write| write.what == what) {
                expected.push(Expected {
                    step: step.id.clone(),
                    what,
                    is_shared,
                });
            }
        }
    }
    expected
}

/// What is made of that sort, and whether others may have made it before.
fn words(inputs: &Inputs, sort: Sort) -> Vec<(String, bool)> {
    if sort == Sort::Roles {
        let roles = inputs.roles.iter();
        return roles.map(|role| (thing::role(role), true)).collect();
    }
    let things = thing::all(inputs);
    let of_sort = things.iter().filter(|thing| thing.sort() == sort);
    let words = of_sort.flat_map(|thing| match thing {
        Thing::User(_) => vec![
            (thing.what(), false),
            (thing::password(&thing.what()), false),
        ],
        Thing::Endpoint(_, endpoint) => vec![
            (thing::region(thing::region_of(endpoint)), true),
            (thing.what(), false),
        ],
        Thing::Assignment(_) | Thing::Member(..) => vec![(thing.what(), true)],
        _ => vec![(thing.what(), false)],
    });
    words.collect()
}

/// What cannot be of a seed.
fn unfit(seed: &IdentitySeed) -> Vec<Problem> {
    let mut problems = of_keystone(seed);
    let inputs = Inputs::of(seed);
    let things = thing::all(&inputs);
    let roles = inputs.roles.iter().map(|role| thing::role(role));
    let roles = roles.map(|what| ("IdentitySeed spec.roles".to_owned(), what));
    let named = things.iter().map(|thing| (thing.field(), thing.what()));
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (field, what) in roles.chain(named) {
        if seen.insert(thing::key(&what), field.clone()).is_some() {
            problems.push(Problem::new(
                field,
                what,
                "it stands there twice, and Keystone does not tell names apart by large and small letters",
                "name it once",
            ));
        }
    }
    for (service, endpoint) in things.iter().filter_map(|thing| match thing {
        Thing::Endpoint(service, endpoint) => Some((service, endpoint)),
        _ => None,
    }) {
        problems.extend(of_url(service, endpoint));
    }
    problems
}

/// Where clients are sent.
fn of_url(service: &SeedService, endpoint: &SeedEndpoint) -> Option<Problem> {
    let url = Url::parse(&endpoint.url);
    let is_web = url.is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    (!is_web).then(|| {
        Problem::new(
            format!("IdentitySeed spec.services[{}].endpoints url", service.name),
            &endpoint.url,
            "an endpoint is a URL of http or https",
            "write http:// or https://, and where the service answers",
        )
    })
}

/// Where the administrator's password goes.
fn of_keystone(seed: &IdentitySeed) -> Vec<Problem> {
    let spec = &seed.spec;
    match (&spec.identity, &spec.cloud) {
        (Some(identity), None)
            if is_in_clear(&identity.url, &seed.namespace().unwrap_or_default()) =>
        {
            vec![Problem::new(
                "IdentitySeed spec.identity.url",
                &identity.url,
                "passwords go there: outside of the namespace by https alone",
                "give its https address",
            )]
        }
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![Problem::new(
            "IdentitySeed spec",
            "",
            "a seed is for one Keystone",
            "give cloud, the name of an OpenStack with one of its own, or identity, one of the two",
        )],
    }
}

/// What a seed keeps to itself: whose something is, in front of what people say of it.
pub(crate) fn is_own(described: &str, owner: &str) -> bool {
    let rest = described.strip_prefix(owner);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// The description of what is a seed's, with what people say of it, or what was said of it before.
pub(crate) fn described(owner: &str, wanted: Option<&str>, before: &str) -> String {
    let said = wanted.unwrap_or_else(|| {
        if is_own(before, owner) {
            before[owner.len()..].trim_start_matches(": ")
        } else {
            before
        }
    });
    if said.is_empty() {
        owner.to_owned()
    } else {
        format!("{owner}: {said}")
    }
}

/// Why a way through Keystone ended.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// Keystone refused, or did not answer.
    #[error(transparent)]
    Keystone(#[from] identity::Error),
    /// What stands in the seed cannot be.
    #[error("{0}")]
    Refused(Problem),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seed(spec: &Value) -> IdentitySeed {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "IdentitySeed",
            "metadata": {"name": "people", "namespace": "cloud"}, "spec": spec,
        }))
        .unwrap()
    }

    fn refused(spec: &Value) -> String {
        controller::problem::text(&seed(spec).wanted().unwrap_err())
    }

    #[test]
    fn a_seed_has_a_step_for_each_sort_that_it_names_and_none_that_removes() {
        let ids = |spec: &Value| {
            let wanted = seed(spec).wanted().unwrap();
            let of = |steps: &[Step]| {
                let ids: Vec<_> = steps.iter().map(|step| step.id.clone()).collect();
                ids.join(" ")
            };
            (of(&wanted.install), of(&wanted.delete))
        };
        let user = json!({"name": "demo", "passwordSecret": {"name": "demo"}});
        let some = json!({"cloud": "one", "users": [user], "roles": ["reader"]});
        assert_eq!(ids(&some), ("keystone roles users".into(), String::new()));
        let all = json!({"cloud": "one", "domains": [{"name": "d"}], "prune": true, "onDelete": "Delete"});
        let (install, delete) = ids(&all);
        assert_eq!(install, "keystone domains left");
        assert_eq!(delete, "seed/remove");
    }

    #[test]
    fn a_cloud_has_a_keystone_and_an_administrator() {
        let inputs = Inputs::of(&seed(&json!({"cloud": "one"})));
        assert_eq!(inputs.url, "http://one-keystone.cloud.svc:5000/v3");
        assert_eq!(inputs.admin_secret, "one-keystone-admin");
    }

    #[test]
    fn what_cannot_be_is_refused_by_field_and_value() {
        let clear = json!({"identity": {"url": "http://keystone.example/v3", "adminSecret": {"name": "a"}}});
        assert!(refused(&clear).contains("by https alone"));
        assert!(refused(&json!({})).contains("one Keystone"));
        let twice = json!({"cloud": "one", "projects": [{"name": "demo"}, {"name": "Demo", "domain": "default"}]});
        let told = refused(&twice);
        assert!(
            told.contains("IdentitySeed spec.projects[Demo]") && told.contains("twice"),
            "{told}"
        );
        let service = json!({"name": "swift", "type": "object-store", "endpoints": [{"interface": "public", "url": "ftp://x"}]});
        let twice = json!({"cloud": "one", "services": [service, {"name": "swift", "type": "object-store"}]});
        let told = refused(&twice);
        assert!(
            told.contains("service swift of type object-store"),
            "{told}"
        );
        assert!(
            told.contains("ftp://x") && told.contains("http or https"),
            "{told}"
        );
        // One name in two domains, and one of two types, are two things.
        let two = json!({"cloud": "one", "projects": [{"name": "demo"}, {"name": "demo", "domain": "d"}],
            "services": [{"name": "cinder", "type": "volumev3"}, {"name": "cinder", "type": "block-storage"}]});
        assert!(seed(&two).wanted().is_ok());
    }

    #[test]
    fn a_plan_says_what_is_made_and_what_others_may_have_made() {
        let seed = seed(&json!({"cloud": "one", "roles": ["reader"],
            "users": [{"name": "demo", "passwordSecret": {"name": "demo"}}],
            "assignments": [{"role": "reader", "user": {"name": "demo"}, "project": {"name": "p", "domain": "d"}}],
            "services": [{"name": "swift", "type": "object-store", "endpoints": [
                {"interface": "public", "url": "https://swift.example/v1/AUTH_$(project_id)s"},
                {"interface": "internal", "url": "http://swift:8080"}]}]}));
        let wanted = seed.wanted().unwrap();
        let written = written(&Inputs::of(&seed), &wanted.install);
        let told: Vec<_> = written
            .iter()
            .map(|write| format!("{} {} {}", write.step, write.is_shared, write.what))
            .collect();
        assert_eq!(
            told,
            [
                "roles true Keystone role reader",
                "users false Keystone user demo",
                "users false Keystone password of user demo",
                "assignments true Keystone role reader for user demo on project p of domain d",
                "catalogue false Keystone service swift of type object-store",
                "catalogue true Keystone region RegionOne",
                "catalogue false Keystone endpoint public of service swift of type object-store in region RegionOne",
                "catalogue false Keystone endpoint internal of service swift of type object-store in region RegionOne",
            ]
        );
    }

    #[test]
    fn whose_something_is_stands_before_what_is_said_of_it() {
        let owner = "windlass cloud/people of cluster u";
        assert_eq!(described(owner, None, ""), owner);
        let said = described(owner, None, "made by hand");
        assert_eq!(said, format!("{owner}: made by hand"));
        assert_eq!(described(owner, None, &said), said);
        assert_eq!(described(owner, Some("b"), &said), format!("{owner}: b"));
        assert!(is_own(&said, owner) && is_own(owner, owner));
        assert!(!is_own("windlass cloud/people of cluster u2", owner));
        assert!(names::is_owner(&said));
    }
}
