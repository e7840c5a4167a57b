//! What a seed names, in the words of plans, audits and conditions. The same word is the same thing.

use api::openstack::{
    SeedAssignment, SeedDomain, SeedEndpoint, SeedGroup, SeedInterface, SeedNamed, SeedProject,
    SeedService, SeedUser,
};
use serde::{Deserialize, Serialize};

use super::Inputs;

/// A sort of things: a step is for one.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Sort {
    /// Domains.
    Domains,
    /// Roles.
    Roles,
    /// Projects.
    Projects,
    /// Users, with their passwords.
    Users,
    /// Groups, and who is in them.
    Groups,
    /// Who has which role where.
    Assignments,
    /// Services and endpoints.
    Catalogue,
}

impl Sort {
    /// All of them, in the order in which they need each other.
    pub const ALL: [Self; 7] = [
        Self::Domains,
        Self::Roles,
        Self::Projects,
        Self::Users,
        Self::Groups,
        Self::Assignments,
        Self::Catalogue,
    ];

    /// The id of its step.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Domains => "domains",
            Self::Roles => "roles",
            Self::Projects => "projects",
            Self::Users => "users",
            Self::Groups => "groups",
            Self::Assignments => "assignments",
            Self::Catalogue => "catalogue",
        }
    }

    /// The title of its step.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Domains => "Make the domains, and mend them",
            Self::Roles => "Make the roles that are missing",
            Self::Projects => "Make the projects, and mend them",
            Self::Users => "Make the users, and mend them",
            Self::Groups => "Make the groups, and mend them",
            Self::Assignments => "Give the roles that are missing",
            Self::Catalogue => "Make services and endpoints, and mend them",
        }
    }
}

/// Something that a seed names. Roles are none: nobody owns one.
#[derive(Clone, Copy, Debug)]
pub enum Thing<'a> {
    /// A domain.
    Domain(&'a SeedDomain),
    /// A project.
    Project(&'a SeedProject),
    /// A user.
    User(&'a SeedUser),
    /// A group.
    Group(&'a SeedGroup),
    /// Somebody in a group.
    Member(&'a SeedGroup, &'a SeedNamed),
    /// A role that somebody has somewhere.
    Assignment(&'a SeedAssignment),
    /// A service.
    Service(&'a SeedService),
    /// Where one answers.
    Endpoint(&'a SeedService, &'a SeedEndpoint),
}

impl Thing<'_> {
    /// What it is.
    pub fn what(&self) -> String {
        match self {
            Self::Domain(domain) => named("domain", &domain.name, None),
            Self::Project(project) => named("project", &project.name, project.domain.as_deref()),
            Self::User(user) => named("user", &user.name, user.domain.as_deref()),
            Self::Group(group) => named("group", &group.name, group.domain.as_deref()),
            Self::Member(group, user) => {
                let domain = user.domain.as_deref().or(group.domain.as_deref());
                let user = named("user", &user.name, domain);
                format!("{user} in {}", Thing::Group(group).what())
            }
            Self::Assignment(assignment) => assigned(assignment),
            Self::Service(service) => format!("service {} of type {}", service.name, service.type_),
            Self::Endpoint(service, endpoint) => format!(
                "endpoint {} of {} in region {}",
                interface(endpoint.interface),
                Thing::Service(service).what(),
                region_of(endpoint)
            ),
        }
    }

    /// Where it stands in the seed.
    pub fn field(&self) -> String {
        let (list, name) = match self {
            Self::Domain(domain) => ("domains", domain.name.clone()),
            Self::Project(project) => ("projects", project.name.clone()),
            Self::User(user) => ("users", user.name.clone()),
            Self::Group(group) => ("groups", group.name.clone()),
            Self::Member(group, _) => {
                return format!("IdentitySeed spec.groups[{}].users", group.name);
            }
            Self::Assignment(assignment) => ("assignments", assigned(assignment)),
            Self::Service(service) => ("services", service.name.clone()),
            Self::Endpoint(service, _) => {
                return format!("IdentitySeed spec.services[{}].endpoints", service.name);
            }
        };
        format!("IdentitySeed spec.{list}[{name}]")
    }

    /// The sort whose step makes it.
    pub const fn sort(&self) -> Sort {
        match self {
            Self::Domain(_) => Sort::Domains,
            Self::Project(_) => Sort::Projects,
            Self::User(_) => Sort::Users,
            Self::Group(_) | Self::Member(..) => Sort::Groups,
            Self::Assignment(_) => Sort::Assignments,
            Self::Service(_) | Self::Endpoint(..) => Sort::Catalogue,
        }
    }
}

/// All that a seed names, in the order in which it is made.
pub fn all(inputs: &Inputs) -> Vec<Thing<'_>> {
    let mut all: Vec<_> = inputs.domains.iter().map(Thing::Domain).collect();
    all.extend(inputs.projects.iter().map(Thing::Project));
    all.extend(inputs.users.iter().map(Thing::User));
    for group in &inputs.groups {
        all.push(Thing::Group(group));
        let users = group.users.iter();
        all.extend(users.map(|user| Thing::Member(group, user)));
    }
    all.extend(inputs.assignments.iter().map(Thing::Assignment));
    for service in &inputs.services {
        all.push(Thing::Service(service));
        let endpoints = service.endpoints.iter();
        all.extend(endpoints.map(|endpoint| Thing::Endpoint(service, endpoint)));
    }
    all
}

/// What tells things apart as Keystone does.
pub fn key(what: &str) -> String {
    what.to_lowercase()
}

/// A role.
pub fn role(name: &str) -> String {
    format!("role {name}")
}

/// A region.
pub fn region(name: &str) -> String {
    format!("region {name}")
}

/// The password of a user, as something that is set.
pub fn password(user: &str) -> String {
    format!("password of {user}")
}

/// The region of an endpoint.
pub fn region_of(endpoint: &SeedEndpoint) -> &str {
    endpoint.region.as_deref().unwrap_or("RegionOne")
}

/// An interface, as Keystone has it.
pub const fn interface(interface: SeedInterface) -> &'static str {
    match interface {
        SeedInterface::Public => "public",
        SeedInterface::Internal => "internal",
        SeedInterface::Admin => "admin",
    }
}

/// The domain of that name. None: the one that is there from the beginning.
pub fn domain_of(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.eq_ignore_ascii_case("default"))
}

/// Something of a domain.
pub fn named(kind: &str, name: &str, domain: Option<&str>) -> String {
    match domain_of(domain) {
        Some(domain) => format!("{kind} {name} of domain {domain}"),
        None => format!("{kind} {name}"),
    }
}

fn assigned(assignment: &SeedAssignment) -> String {
    let of = |kind: &str, one: &Option<SeedNamed>| {
        one.as_ref()
            .map(|one| named(kind, &one.name, one.domain.as_deref()))
    };
    let who = of("user", &assignment.user).or_else(|| of("group", &assignment.group));
    let domain = assignment.domain.as_deref();
    let place = of("project", &assignment.project)
        .or_else(|| domain.map(|domain| named("domain", domain, None)));
    format!(
        "role {} for {} on {}",
        assignment.role,
        who.unwrap_or_default(),
        place.unwrap_or_default()
    )
}
