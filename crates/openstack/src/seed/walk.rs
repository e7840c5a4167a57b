//! The way of a seed through Keystone: what is there is held against what is named, thing by thing, and what differs is told. With
//! somebody who notes it, it is mended, too.
//!
//! Domains, projects, users, groups and services have a description, whose beginning says whose they are. Of roles, assignments and regions
//! nobody says that: they are made where they are missing, and stay. What a seed no longer names is found again by its path.

use std::{collections::BTreeMap, io};

use api::openstack::{
    SeedAssignment, SeedDomain, SeedEndpoint, SeedGroup, SeedLeft, SeedNamed, SeedProject,
    SeedService, SeedUser,
};
use controller::Problem;
use reqwest::{Method, StatusCode, Url};
use serde_json::{Map, Value, json};

use super::{
    Inputs, Sort, Thing, Wrong, described, is_own,
    thing::{self, domain_of},
};
use crate::{
    identity::{Error, Session},
    names,
};

/// A Keystone, as an administrator meets it.
pub trait Keystone: Sync {
    /// Asks for something, or has something done.
    fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Whether a user of that id has that password.
    fn knows(&self, user: &str, password: &str)
    -> impl Future<Output = Result<bool, Error>> + Send;
}

impl Keystone for Session {
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        Self::call(self, method, path, body).await
    }

    async fn knows(&self, user: &str, password: &str) -> Result<bool, Error> {
        Self::knows(self, user, password).await
    }
}

/// Hears of each thing before it is changed.
pub type Note<'a> = dyn Fn(&str) -> io::Result<()> + Send + Sync + 'a;

/// A way through a Keystone.
pub struct Walk<'a, K> {
    keystone: &'a K,
    seed: &'a Inputs,
    owner: &'a str,
    /// None: nothing is changed.
    note: Option<&'a Note<'a>>,
    /// The passwords of users that are tried, by the places of the users in the seed.
    passwords: BTreeMap<usize, String>,
    /// What was found, by what was looked for: None is of the seed, and not there.
    ids: BTreeMap<String, Option<String>>,
    /// What differed.
    pub differs: Vec<String>,
    /// What cannot be as it is named.
    pub refused: Vec<Problem>,
}

/// The domain that is there from the beginning.
const DEFAULT: &str = "default";

/// Something that says whose it is.
struct Marked<'t> {
    kind: &'static str,
    what: String,
    field: String,
    name: &'t str,
    description: Option<&'t str>,
    /// What tells it from others of its kind.
    place: Vec<(&'static str, String)>,
    /// The password of a user that is made.
    password: Option<&'t str>,
}

/// What became of it.
struct Found {
    id: String,
    /// Whether it was there, and could be used.
    was_in_use: bool,
}

impl<'a, K: Keystone> Walk<'a, K> {
    /// One that changes nothing.
    pub fn looking(
        keystone: &'a K,
        seed: &'a Inputs,
        owner: &'a str,
        passwords: BTreeMap<usize, String>,
    ) -> Self {
        Self {
            keystone,
            seed,
            owner,
            note: None,
            passwords,
            ids: BTreeMap::new(),
            differs: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// One that mends what differs.
    #[must_use]
    pub fn mending(mut self, note: &'a Note<'a>) -> Self {
        self.note = Some(note);
        self
    }

    /// Goes through everything of a sort.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer; or, where it mends, something cannot be as it is named.
    pub async fn go(&mut self, sort: Sort) -> Result<(), Wrong> {
        let seed = self.seed;
        if sort == Sort::Roles {
            for role in &seed.roles {
                let done = self.role(role).await;
                self.told(done)?;
            }
            return Ok(());
        }
        for thing in thing::all(seed) {
            if thing.sort() == sort {
                let done = self.thing(thing).await;
                self.told(done)?;
            }
        }
        Ok(())
    }

    async fn thing(&mut self, thing: Thing<'_>) -> Result<(), Wrong> {
        match thing {
            Thing::Domain(domain) => self.domain(domain).await,
            Thing::Project(project) => self.project(project).await,
            Thing::User(user) => self.user(user).await,
            Thing::Group(group) => self.group(group).await,
            Thing::Member(group, user) => self.member(group, user).await,
            Thing::Assignment(assignment) => self.assignment(assignment).await,
            Thing::Service(service) => self.service(service).await.map(drop),
            Thing::Endpoint(service, endpoint) => self.endpoint(service, endpoint).await,
        }
    }

    /// Whoever only looks wants to hear of everything.
    fn told(&mut self, done: Result<(), Wrong>) -> Result<(), Wrong> {
        match done {
            Err(Wrong::Refused(problem)) if self.note.is_none() => {
                self.refused.push(problem);
                Ok(())
            }
            done => done,
        }
    }

    /// Notes what differs. Whether it is to be mended.
    fn differs(&mut self, word: String) -> Result<bool, Wrong> {
        if let Some(note) = self.note {
            note(&word).map_err(Error::Note)?;
        }
        self.differs.push(word);
        Ok(self.note.is_some())
    }

    async fn role(&mut self, name: &str) -> Result<(), Wrong> {
        let there = self.find("role", &[("name", name.to_owned())]).await?;
        if there.is_none() && self.differs(thing::role(name))? {
            self.make("role", &json!({"name": name})).await?;
        }
        Ok(())
    }

    async fn domain(&mut self, domain: &SeedDomain) -> Result<(), Wrong> {
        let thing = Thing::Domain(domain);
        self.marked(Marked {
            kind: "domain",
            what: thing.what(),
            field: thing.field(),
            name: &domain.name,
            description: domain.description.as_deref(),
            place: vec![("name", domain.name.clone())],
            password: None,
        })
        .await
        .map(drop)
    }

    async fn project(&mut self, project: &SeedProject) -> Result<(), Wrong> {
        let thing = Thing::Project(project);
        let domain = project.domain.as_deref();
        let of = (
            project.name.as_str(),
            domain,
            project.description.as_deref(),
        );
        self.of_domain("project", thing, of, None).await.map(drop)
    }

    async fn user(&mut self, user: &SeedUser) -> Result<(), Wrong> {
        let thing = Thing::User(user);
        let place = self.seed.users.iter().position(|other| other == user);
        let password = place.and_then(|place| self.passwords.remove(&place));
        let domain = user.domain.as_deref();
        let of = (user.name.as_str(), domain, user.description.as_deref());
        let found = self
            .of_domain("user", thing, of, password.as_deref())
            .await?;
        let (Some(found), Some(password)) = (found, password) else {
            return Ok(());
        };
        // Nobody who is disabled can log in, whatever the password.
        if !found.was_in_use && self.note.is_none() {
            return Ok(());
        }
        self.in_use(domain, &thing.field()).await?;
        if self.keystone.knows(&found.id, &password).await? {
            return Ok(());
        }
        if self.differs(thing::password(&thing.what()))? {
            let body = json!({"user": {"password": password}});
            let path = format!("users/{}", found.id);
            self.keystone
                .call(Method::PATCH, &path, Some(&body))
                .await?;
        }
        Ok(())
    }

    /// A domain that is disabled lets nobody in, so that a login proves nothing.
    async fn in_use(&mut self, domain: Option<&str>, field: &str) -> Result<(), Wrong> {
        let Some(id) = self.domain_id(domain, field).await? else {
            return Ok(());
        };
        let found = self.look(&format!("domains/{id}")).await?;
        if found.is_some_and(|found| found["domain"]["enabled"] == false) {
            return Err(Wrong::Refused(Problem::new(
                format!("{field}.domain"),
                domain.unwrap_or(DEFAULT),
                "the domain is disabled, and not by this seed: nobody of it can log in",
                "enable it: openstack domain set --enable",
            )));
        }
        Ok(())
    }

    async fn group(&mut self, group: &SeedGroup) -> Result<(), Wrong> {
        let thing = Thing::Group(group);
        let domain = group.domain.as_deref();
        let of = (group.name.as_str(), domain, group.description.as_deref());
        self.of_domain("group", thing, of, None).await.map(drop)
    }

    async fn member(&mut self, group: &SeedGroup, user: &SeedNamed) -> Result<(), Wrong> {
        let thing = Thing::Member(group, user);
        let path = self.member_path(group, user, &thing.field()).await?;
        self.ensured(path, thing.what()).await
    }

    async fn member_path(
        &mut self,
        group: &SeedGroup,
        user: &SeedNamed,
        field: &str,
    ) -> Result<Option<String>, Wrong> {
        let of_group = group.domain.as_deref();
        let domain = user.domain.as_deref().or(of_group);
        let group = self.named("group", (&group.name, of_group), field).await?;
        let user = self.named("user", (&user.name, domain), field).await?;
        Ok(group
            .zip(user)
            .map(|(group, user)| format!("groups/{group}/users/{user}")))
    }

    async fn assignment(&mut self, assignment: &SeedAssignment) -> Result<(), Wrong> {
        let thing = Thing::Assignment(assignment);
        let path = self.assignment_path(assignment, &thing.field()).await?;
        self.ensured(path, thing.what()).await
    }

    async fn assignment_path(
        &mut self,
        assignment: &SeedAssignment,
        field: &str,
    ) -> Result<Option<String>, Wrong> {
        let role = (assignment.role.as_str(), None);
        let role = self.named("role", role, &format!("{field}.role")).await?;
        let of = |one: &'_ SeedNamed| (one.name.clone(), one.domain.clone());
        let (kind, (name, domain)) = match (&assignment.user, &assignment.group) {
            (Some(user), _) => ("user", of(user)),
            (None, Some(group)) => ("group", of(group)),
            (None, None) => return Ok(None),
        };
        let named = (name.as_str(), domain.as_deref());
        let who = self.named(kind, named, &format!("{field}.{kind}")).await?;
        let who = who.map(|who| format!("{kind}s/{who}"));
        let place = if let Some(project) = &assignment.project {
            let named = (project.name.as_str(), project.domain.as_deref());
            let field = format!("{field}.project");
            let project = self.named("project", named, &field).await?;
            project.map(|project| format!("projects/{project}"))
        } else {
            let field = format!("{field}.domain");
            let domain = self.domain_id(assignment.domain.as_deref(), &field).await?;
            domain.map(|domain| format!("domains/{domain}"))
        };
        let all = place.zip(who).zip(role);
        Ok(all.map(|((place, who), role)| format!("{place}/{who}/roles/{role}")))
    }

    /// What is there or not, and nothing between. None: what it is of is not there yet.
    async fn ensured(&mut self, path: Option<String>, what: String) -> Result<(), Wrong> {
        if let Some(path) = &path
            && self.look(path).await?.is_some()
        {
            return Ok(());
        }
        if self.differs(what)?
            && let Some(path) = path
        {
            self.keystone.call(Method::PUT, &path, None).await?;
        }
        Ok(())
    }

    async fn service(&mut self, service: &SeedService) -> Result<Option<Found>, Wrong> {
        let thing = Thing::Service(service);
        self.marked(Marked {
            kind: "service",
            what: thing.what(),
            field: thing.field(),
            name: &service.name,
            description: service.description.as_deref(),
            place: service_place(service),
            password: None,
        })
        .await
    }

    async fn endpoint(
        &mut self,
        service: &SeedService,
        endpoint: &SeedEndpoint,
    ) -> Result<(), Wrong> {
        let what = Thing::Endpoint(service, endpoint).what();
        let found = self.find("service", &service_place(service)).await?;
        // What is another's is refused with its service, and its endpoints are not touched.
        if let Some(found) = &found
            && !is_own(description(found), self.owner)
        {
            return Ok(());
        }
        let region = thing::region_of(endpoint);
        self.region(region).await?;
        let Some(service) = found.as_ref().and_then(id) else {
            return self.differs(what).map(drop);
        };
        let place = endpoint_place(&service, endpoint);
        let url = endpoint.url.as_str();
        match self.find("endpoint", &place).await? {
            Some(there) if there["url"] == url && there["enabled"] != false => {}
            Some(there) => {
                let path = id(&there).map(|id| format!("endpoints/{id}"));
                if self.differs(what)?
                    && let Some(path) = path
                {
                    let body = json!({"endpoint": {"url": url, "enabled": true}});
                    self.keystone
                        .call(Method::PATCH, &path, Some(&body))
                        .await?;
                }
            }
            None => {
                if self.differs(what)? {
                    let mut body = fields(&place);
                    body.insert("url".to_owned(), json!(url));
                    self.make("endpoint", &Value::Object(body)).await?;
                }
            }
        }
        Ok(())
    }

    async fn region(&mut self, name: &str) -> Result<(), Wrong> {
        let path = format!("regions/{name}");
        if self.ids.contains_key(&path) {
            return Ok(());
        }
        if self.look(&path).await?.is_none() && self.differs(thing::region(name))? {
            self.make("region", &json!({"id": name})).await?;
        }
        self.ids.insert(path, Some(name.to_owned()));
        Ok(())
    }

    async fn of_domain(
        &mut self,
        kind: &'static str,
        thing: Thing<'_>,
        (name, domain, description): (&str, Option<&str>, Option<&str>),
        password: Option<&str>,
    ) -> Result<Option<Found>, Wrong> {
        let field = thing.field();
        let domain = self.domain_id(domain, &format!("{field}.domain")).await?;
        let Some(domain) = domain else {
            self.differs(thing.what())?;
            return Ok(None);
        };
        self.marked(Marked {
            kind,
            what: thing.what(),
            field,
            name,
            description,
            place: vec![("name", name.to_owned()), ("domain_id", domain)],
            password,
        })
        .await
    }

    /// Something that says whose it is. None: it is not there, and is not made.
    async fn marked(&mut self, marked: Marked<'_>) -> Result<Option<Found>, Wrong> {
        let kind = marked.kind;
        let Some(there) = self.find(kind, &marked.place).await? else {
            return self.missing(marked).await;
        };
        self.owned(&marked, &there)?;
        let id = id(&there).ok_or_else(|| unusable(kind))?;
        let mut body = Map::new();
        let before = description(&there);
        let wanted = described(self.owner, marked.description, before);
        let mut mends = false;
        if before != wanted {
            mends |= self.differs(format!("description of {}", marked.what))?;
            body.insert("description".to_owned(), json!(wanted));
        }
        let was_in_use = there["enabled"] != false;
        if !was_in_use {
            mends |= self.differs(format!("{} enabled", marked.what))?;
            body.insert("enabled".to_owned(), json!(true));
        }
        if mends {
            let path = format!("{kind}s/{id}");
            let body = json!({kind: body});
            self.keystone
                .call(Method::PATCH, &path, Some(&body))
                .await?;
        }
        Ok(Some(Found { id, was_in_use }))
    }

    async fn missing(&mut self, marked: Marked<'_>) -> Result<Option<Found>, Wrong> {
        let mut body = fields(&marked.place);
        let description = described(self.owner, marked.description, "");
        body.insert("description".to_owned(), json!(description));
        let mut mends = self.differs(marked.what.clone())?;
        if let Some(password) = marked.password {
            mends &= self.differs(thing::password(&marked.what))?;
            body.insert("password".to_owned(), json!(password));
        }
        if !mends {
            return Ok(None);
        }
        let id = self.make(marked.kind, &Value::Object(body)).await?;
        let was_in_use = true;
        Ok(Some(Found { id, was_in_use }))
    }

    /// That something may be changed.
    fn owned(&self, marked: &Marked<'_>, found: &Value) -> Result<(), Wrong> {
        let described = description(found);
        let is_others = names::is_owner(described);
        if is_own(described, self.owner) || (self.seed.adopt && !is_others) {
            return Ok(());
        }
        let remedy = if is_others {
            "name another one, or take it out there: two objects would change it in turn"
        } else {
            "remove it, name another one, or set spec.existing to Adopt to take it over with what is in it"
        };
        Err(Wrong::Refused(Problem::new(
            &marked.field,
            marked.name,
            format!(
                "{} is there already, and is described as {:?}, not as {:?}",
                marked.what,
                api::text::lines(described, 200),
                self.owner
            ),
            remedy,
        )))
    }

    async fn domain_id(
        &mut self,
        name: Option<&str>,
        field: &str,
    ) -> Result<Option<String>, Wrong> {
        match domain_of(name) {
            None => Ok(Some(DEFAULT.to_owned())),
            Some(name) => {
                let what = thing::named("domain", name, None);
                let place = [("name", name.to_owned())];
                self.known("domain", what, &place, field).await
            }
        }
    }

    /// The id of something that is named. None: it is of the seed, and not there.
    async fn named(
        &mut self,
        kind: &'static str,
        (name, domain): (&str, Option<&str>),
        field: &str,
    ) -> Result<Option<String>, Wrong> {
        let mut place = vec![("name", name.to_owned())];
        if !["domain", "role"].contains(&kind) {
            let field = format!("{field}.domain");
            match self.domain_id(domain, &field).await? {
                Some(domain) => place.push(("domain_id", domain)),
                None => return Ok(None),
            }
        }
        let what = thing::named(kind, name, domain);
        self.known(kind, what, &place, field).await
    }

    async fn known(
        &mut self,
        kind: &'static str,
        what: String,
        place: &[(&'static str, String)],
        field: &str,
    ) -> Result<Option<String>, Wrong> {
        if let Some(known) = self.ids.get(&what) {
            return Ok(known.clone());
        }
        let found = self.find(kind, place).await?;
        let found = found.as_ref().and_then(id);
        if found.is_none() && (self.note.is_some() || !self.is_named(&what)) {
            let name = place.first().map_or("", |(_, name)| name);
            return Err(Wrong::Refused(Problem::new(
                field,
                name,
                format!("{what} is not in Keystone"),
                format!("add it to spec.{kind}s, or name one that is there"),
            )));
        }
        self.ids.insert(what, found.clone());
        Ok(found)
    }

    /// Whether the seed makes it.
    fn is_named(&self, what: &str) -> bool {
        let key = thing::key(what);
        let mut roles = self.seed.roles.iter();
        roles.any(|role| thing::key(&thing::role(role)) == key)
            || thing::all(self.seed)
                .iter()
                .any(|thing| thing::key(&thing.what()) == key)
    }

    /// The one of that kind with these fields.
    async fn find(
        &self,
        kind: &str,
        place: &[(&'static str, String)],
    ) -> Result<Option<Value>, Wrong> {
        let query = Url::parse_with_params("http://keystone/", place);
        let query = query.map_err(|_| unusable(kind))?;
        let path = format!("{kind}s?{}", query.query().unwrap_or_default());
        let mut answer = self.keystone.call(Method::GET, &path, None).await?;
        let Value::Array(found) = answer[format!("{kind}s")].take() else {
            return Err(unusable(kind));
        };
        // Names are as one in Keystone that differ in large and small letters alone.
        let is_meant = |one: &Value| {
            place.iter().all(|(field, wanted)| {
                let has = one[*field].as_str().unwrap_or_default();
                has == wanted || (*field == "name" && has.to_lowercase() == wanted.to_lowercase())
            })
        };
        let mut found = found.into_iter();
        Ok(found.find(|one| id(one).is_some() && is_meant(one)))
    }

    /// Makes one, and returns its id.
    async fn make(&self, kind: &str, fields: &Value) -> Result<String, Wrong> {
        let body = json!({kind: fields});
        let path = format!("{kind}s");
        let made = self.keystone.call(Method::POST, &path, Some(&body)).await?;
        id(&made[kind]).ok_or_else(|| unusable(kind))
    }

    /// What is there. None: nothing is.
    async fn look(&self, path: &str) -> Result<Option<Value>, Wrong> {
        match self.keystone.call(Method::GET, path, None).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Of what the seed named once, or is told to have left, what it no longer names and is there still, and its own.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer.
    pub async fn left(
        &mut self,
        former: &[Inputs],
        told: &[SeedLeft],
    ) -> Result<Vec<SeedLeft>, Wrong> {
        let mut left: BTreeMap<String, SeedLeft> = BTreeMap::new();
        for before in told {
            let key = thing::key(&before.what);
            if !self.is_named(&before.what) && self.is_ours(&before.path).await? {
                left.insert(key, before.clone());
            }
        }
        for thing in former.iter().flat_map(thing::all) {
            let what = thing.what();
            let key = thing::key(&what);
            if left.contains_key(&key) || self.is_named(&what) {
                continue;
            }
            if let Some(path) = self.path(thing).await?
                && self.is_ours(&path).await?
            {
                left.insert(key, SeedLeft { what, path });
            }
        }
        let mut left: Vec<_> = left.into_values().collect();
        left.sort_by_key(|one| order(&one.path));
        Ok(left)
    }

    /// Where something is. None: it is not there.
    async fn path(&mut self, thing: Thing<'_>) -> Result<Option<String>, Wrong> {
        let field = thing.field();
        let of_domain = match thing {
            Thing::Domain(one) => Some(("domain", &one.name, None)),
            Thing::Project(one) => Some(("project", &one.name, one.domain.as_deref())),
            Thing::User(one) => Some(("user", &one.name, one.domain.as_deref())),
            Thing::Group(one) => Some(("group", &one.name, one.domain.as_deref())),
            _ => None,
        };
        let found = match (of_domain, thing) {
            (Some((kind, name, domain)), _) => {
                let found = self.named(kind, (name, domain), &field).await;
                found.map(|found| found.map(|id| format!("{kind}s/{id}")))
            }
            (_, Thing::Member(group, user)) => self.member_path(group, user, &field).await,
            (_, Thing::Assignment(assignment)) => self.assignment_path(assignment, &field).await,
            (_, Thing::Service(service)) => {
                let found = self.find("service", &service_place(service)).await?;
                Ok(found
                    .as_ref()
                    .and_then(id)
                    .map(|id| format!("services/{id}")))
            }
            (_, Thing::Endpoint(service, endpoint)) => {
                let found = self.find("service", &service_place(service)).await?;
                let Some(service) = found.as_ref().and_then(id) else {
                    return Ok(None);
                };
                let place = endpoint_place(&service, endpoint);
                let found = self.find("endpoint", &place).await?;
                Ok(found
                    .as_ref()
                    .and_then(id)
                    .map(|id| format!("endpoints/{id}")))
            }
            _ => Ok(None),
        };
        match found {
            // What it is of is gone.
            Err(Wrong::Refused(_)) => Ok(None),
            found => found,
        }
    }

    /// Whether what is at a path is there, and the seed's: by itself, or by the user, the group or the service that it is of.
    async fn is_ours(&self, path: &str) -> Result<bool, Wrong> {
        let Some(found) = self.look(path).await? else {
            return Ok(false);
        };
        let parts: Vec<_> = path.split('/').collect();
        let of = match parts.as_slice() {
            ["endpoints", _] => {
                let Some(service) = found["endpoint"]["service_id"].as_str() else {
                    return Ok(false);
                };
                format!("services/{service}")
            }
            [collection, id] | ["projects" | "domains", _, collection, id, "roles", _] => {
                format!("{collection}/{id}")
            }
            ["groups", id, "users", _] => format!("groups/{id}"),
            _ => return Ok(false),
        };
        let found = self.look(&of).await?.unwrap_or_default();
        let kind = of.split('/').next().unwrap_or_default();
        let kind = kind.trim_end_matches('s');
        Ok(is_own(description(&found[kind]), self.owner))
    }

    /// Removes what is the seed's, in this order; what holds something of others stays, and is told.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer.
    pub async fn remove(&mut self, left: &[SeedLeft]) -> Result<Vec<String>, Wrong> {
        let mut stays = Vec::new();
        for one in left {
            if !self.is_ours(&one.path).await? {
                continue;
            }
            if let Some(holds) = self.holds(&one.path).await? {
                stays.push(format!("{} stays: {holds}", one.what));
                continue;
            }
            if !self.differs(format!("removal of {}", one.what))? {
                continue;
            }
            if one.path.starts_with("domains/") && one.path.matches('/').count() == 1 {
                let body = json!({"domain": {"enabled": false}});
                let call = self.keystone.call(Method::PATCH, &one.path, Some(&body));
                call.await?;
            }
            match self.keystone.call(Method::DELETE, &one.path, None).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(stays)
    }

    /// What would go along with it.
    async fn holds(&self, path: &str) -> Result<Option<String>, Wrong> {
        let (collections, field): (&[&str], _) = match path.split_once('/') {
            Some(("domains", id)) if !id.contains('/') => {
                (&["projects", "users", "groups"], ("domain_id", id))
            }
            Some(("services", id)) => (&["endpoints"], ("service_id", id)),
            _ => return Ok(None),
        };
        for collection in collections {
            let path = format!("{collection}?{}={}", field.0, field.1);
            let found = self.keystone.call(Method::GET, &path, None).await?;
            let first = found[*collection].as_array().and_then(|all| all.first());
            if let Some(first) = first {
                let name = first["name"].as_str().or_else(|| first["url"].as_str());
                let name = api::text::plain(name.unwrap_or_default(), 64);
                return Ok(Some(format!("{name} of its {collection} is there")));
            }
        }
        Ok(None)
    }
}

/// What goes before what.
fn order(path: &str) -> usize {
    let parts: Vec<_> = path.split('/').collect();
    match parts.as_slice() {
        ["endpoints", _] => 1,
        ["services", _] => 2,
        ["users", _] => 3,
        ["groups", _] => 4,
        ["projects", _] => 5,
        ["domains", _] => 6,
        _ => 0,
    }
}

fn service_place(service: &SeedService) -> Vec<(&'static str, String)> {
    vec![
        ("name", service.name.clone()),
        ("type", service.type_.clone()),
    ]
}

fn endpoint_place(service: &str, endpoint: &SeedEndpoint) -> Vec<(&'static str, String)> {
    vec![
        ("service_id", service.to_owned()),
        ("interface", thing::interface(endpoint.interface).to_owned()),
        ("region_id", thing::region_of(endpoint).to_owned()),
    ]
}

fn fields(place: &[(&'static str, String)]) -> Map<String, Value> {
    let fields = place.iter();
    fields
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect()
}

fn description(found: &Value) -> &str {
    found["description"].as_str().unwrap_or_default()
}

/// Ids come into paths: what is none leads nowhere.
fn id(found: &Value) -> Option<String> {
    let id = found["id"].as_str()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    (!id.is_empty() && id.chars().all(is_plain) && !id.starts_with('.')).then(|| id.to_owned())
}

fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Status { status, .. } if *status == StatusCode::NOT_FOUND)
}

fn unusable(kind: &str) -> Wrong {
    Wrong::Keystone(Error::Answer {
        asked: format!("look for a {kind}"),
        what: "nobody can use the answer",
    })
}

#[cfg(test)]
mod tests;
