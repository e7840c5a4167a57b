//! Ways through a Keystone in memory, which answers as the real one does.

use std::sync::Mutex;

use api::openstack::IdentitySeed;

use super::*;

const OWNER: &str = "windlass cloud/people of cluster u";

/// A Keystone in memory: what it has by kinds, what stands at paths alone, and the passwords of users.
#[derive(Default)]
struct Fake(Mutex<World>);

#[derive(Default)]
struct World {
    things: BTreeMap<String, Vec<Value>>,
    grants: Vec<String>,
    writes: Vec<String>,
    logins: usize,
}

fn not_found(path: &str) -> Error {
    Error::Status {
        asked: format!("GET {path}"),
        status: StatusCode::NOT_FOUND,
        said: String::new(),
    }
}

impl World {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        if *method != Method::GET {
            self.writes.push(format!("{method} {path}"));
        }
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<_> = place.split('/').collect();
        let kind = parts[0].trim_end_matches('s');
        match (method.as_str(), parts.as_slice()) {
            ("GET", [collection]) => {
                let url = Url::parse(&format!("http://k/?{query}")).unwrap();
                let all = self.things.get(*collection).cloned().unwrap_or_default();
                let is_meant = |one: &Value| {
                    url.query_pairs().all(|(field, value)| {
                        let has = one[&*field].as_str().unwrap_or_default();
                        has.to_lowercase() == value.to_lowercase()
                    })
                };
                let found: Vec<_> = all.into_iter().filter(is_meant).collect();
                Ok(json!({*collection: found}))
            }
            ("POST", [collection]) => {
                let all = self.things.entry((*collection).to_owned()).or_default();
                let mut made = body.unwrap()[kind].clone();
                if made["id"].is_null() {
                    made["id"] = json!(format!("{kind}-{}", all.len() + 1));
                }
                if made["enabled"].is_null() {
                    made["enabled"] = json!(true);
                }
                all.push(made.clone());
                Ok(json!({kind: made}))
            }
            (method, [collection, id]) => {
                let all = self.things.entry((*collection).to_owned()).or_default();
                let at = all.iter().position(|one| one["id"] == *id);
                let at = at.ok_or_else(|| not_found(path))?;
                match method {
                    "PATCH" => {
                        for (field, value) in body.unwrap()[kind].as_object().unwrap() {
                            all[at][field] = value.clone();
                        }
                    }
                    "DELETE" => {
                        let gone = all.remove(at);
                        self.grants.retain(|grant| !grant.contains(id));
                        return Ok(gone);
                    }
                    _ => {}
                }
                Ok(json!({kind: all[at]}))
            }
            ("PUT", _) => {
                self.grants.push(place.to_owned());
                Ok(Value::Null)
            }
            ("DELETE", _) => {
                self.grants.retain(|grant| grant != place);
                Ok(Value::Null)
            }
            _ if self.grants.iter().any(|grant| grant == place) => Ok(Value::Null),
            _ => Err(not_found(path)),
        }
    }
}

impl Keystone for Fake {
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        self.0.lock().unwrap().answer(&method, path, body)
    }

    async fn knows(&self, user: &str, password: &str) -> Result<bool, Error> {
        let mut world = self.0.lock().unwrap();
        world.logins += 1;
        let found = world.things["users"].iter().find(|one| one["id"] == user);
        Ok(found.is_some_and(|user| user["password"] == password && user["enabled"] != false))
    }
}

impl Fake {
    fn new() -> Self {
        let fake = Self::default();
        fake.add(
            "domains",
            json!({"id": "default", "name": "Default", "enabled": true}),
        );
        fake.add("roles", json!({"id": "admin", "name": "admin"}));
        fake
    }

    fn add(&self, collection: &str, thing: Value) {
        let mut world = self.0.lock().unwrap();
        world
            .things
            .entry(collection.to_owned())
            .or_default()
            .push(thing);
    }

    /// Somebody changes something by hand.
    fn set(&self, collection: &str, name: &str, field: &str, value: Value) {
        let mut world = self.0.lock().unwrap();
        let mut all = world.things.get_mut(collection).unwrap().iter_mut();
        all.find(|one| one["name"] == name).unwrap()[field] = value;
    }

    fn get(&self, collection: &str, name: &str) -> Value {
        let world = self.0.lock().unwrap();
        let all = world.things.get(collection).cloned().unwrap_or_default();
        let mut all = all.into_iter();
        all.find(|one| one["name"] == name).unwrap_or_default()
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }
}

fn seed(spec: &Value) -> Inputs {
    let mut spec = spec.clone();
    spec["cloud"] = json!("one");
    let seed: IdentitySeed = serde_json::from_value(json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "IdentitySeed",
        "metadata": {"name": "people", "namespace": "cloud"}, "spec": spec,
    }))
    .unwrap();
    Inputs::of(&seed)
}

fn whole() -> Value {
    json!({
        "domains": [{"name": "science", "description": "of the institute"}],
        "roles": ["reader"],
        "projects": [{"name": "genes", "domain": "science"}],
        "users": [{"name": "ada", "domain": "science", "passwordSecret": {"name": "ada"}}],
        "groups": [{"name": "lab", "domain": "science", "users": [{"name": "ada"}]}],
        "assignments": [
            {"role": "reader", "user": {"name": "ada", "domain": "science"}, "project": {"name": "genes", "domain": "science"}},
            {"role": "admin", "group": {"name": "lab", "domain": "science"}, "domain": "science"},
        ],
        "services": [{"name": "swift", "type": "object-store", "endpoints": [
            {"interface": "public", "url": "https://swift.example"}]}],
    })
}

fn passwords(seed: &Inputs) -> BTreeMap<usize, String> {
    let places = 0..seed.users.len();
    places.map(|place| (place, "right".to_owned())).collect()
}

/// As the steps of a run go, and what they noted.
async fn mend_as(keystone: &Fake, seed: &Inputs, owner: &str) -> Result<Vec<String>, Wrong> {
    let noted = Mutex::new(Vec::new());
    let note: Box<Note> = Box::new(|_: &str| Ok(()));
    for sort in Sort::ALL {
        let mut walk = Walk::looking(keystone, seed, owner, passwords(seed)).mending(&*note);
        walk.go(sort).await?;
        noted.lock().unwrap().append(&mut walk.differs);
    }
    Ok(noted.into_inner().unwrap())
}

async fn mend(keystone: &Fake, seed: &Inputs) -> Vec<String> {
    mend_as(keystone, seed, OWNER).await.unwrap()
}

/// As a look at rest goes.
async fn look(keystone: &Fake, seed: &Inputs) -> (Vec<String>, Vec<String>) {
    let mut walk = Walk::looking(keystone, seed, OWNER, passwords(seed));
    for sort in Sort::ALL {
        walk.go(sort).await.unwrap();
    }
    assert_eq!(
        keystone.writes(),
        Vec::<String>::new(),
        "a look writes nothing"
    );
    let refused = walk.refused.iter().map(Problem::to_string).collect();
    (walk.differs, refused)
}

fn planned(seed: &Inputs) -> Vec<String> {
    let words = Sort::ALL.into_iter();
    let words = words.flat_map(|sort| super::super::words(seed, sort));
    words.map(|(word, _)| word).collect()
}

#[tokio::test]
async fn what_is_planned_is_what_a_look_misses_and_what_a_run_makes() {
    let keystone = Fake::new();
    let seed = seed(&whole());
    let (mut missing, refused) = look(&keystone, &seed).await;
    // Of a user that is not there no password differs.
    missing.push("password of user ada of domain science".to_owned());
    missing.sort();
    let mut planned = planned(&seed);
    planned.sort();
    assert_eq!(missing, planned);
    assert_eq!(refused, Vec::<String>::new());
    let mut made = mend(&keystone, &seed).await;
    made.sort();
    assert_eq!(made, planned);
    assert!(!keystone.writes().is_empty());
    let domain = keystone.get("domains", "science");
    assert_eq!(domain["description"], format!("{OWNER}: of the institute"));
    assert_eq!(look(&keystone, &seed).await.0, Vec::<String>::new());
    assert_eq!(mend(&keystone, &seed).await, Vec::<String>::new());
    assert_eq!(keystone.writes(), Vec::<String>::new(), "once is enough");
}

#[tokio::test]
async fn what_people_change_is_mended_and_a_password_only_where_a_login_fails() {
    let keystone = Fake::new();
    let seed = seed(&whole());
    mend(&keystone, &seed).await;
    keystone.writes();
    let ada = "user ada of domain science";
    keystone.set("users", "ada", "enabled", json!(false));
    keystone.set("users", "ada", "password", json!("another"));
    keystone.set("domains", "science", "description", json!(OWNER));
    keystone.0.lock().unwrap().grants.clear();
    let url = |url: &str| {
        let mut world = keystone.0.lock().unwrap();
        let mut endpoints = world.things.get_mut("endpoints").unwrap().iter_mut();
        endpoints.next().unwrap()["url"] = json!(url);
    };
    url("https://elsewhere.example");
    let logins = keystone.0.lock().unwrap().logins;
    let (differs, _) = look(&keystone, &seed).await;
    let expected = [
        "description of domain science".to_owned(),
        format!("{ada} enabled"),
        format!("{ada} in group lab of domain science"),
        "role reader for user ada of domain science on project genes of domain science".to_owned(),
        "role admin for group lab of domain science on domain science".to_owned(),
        "endpoint public of service swift of type object-store in region RegionOne".to_owned(),
    ];
    assert_eq!(differs, expected);
    // Who is disabled is not tried: it would prove nothing.
    assert_eq!(keystone.0.lock().unwrap().logins, logins);
    let mended = mend(&keystone, &seed).await;
    assert!(mended.contains(&format!("password of {ada}")), "{mended:?}");
    assert_eq!(mended.len(), expected.len() + 1, "{mended:?}");
    assert_eq!(keystone.get("users", "ada")["password"], "right");
    keystone.writes();
    assert_eq!(look(&keystone, &seed).await.0, Vec::<String>::new());
    assert_eq!(mend(&keystone, &seed).await, Vec::<String>::new());
}

#[tokio::test]
async fn nobody_of_a_domain_that_others_disabled_gets_another_password() {
    let keystone = Fake::new();
    let spec =
        json!({"users": [{"name": "ada", "domain": "others", "passwordSecret": {"name": "ada"}}]});
    keystone.add(
        "domains",
        json!({"id": "o", "name": "others", "enabled": false}),
    );
    let user =
        json!({"id": "u", "name": "ada", "domain_id": "o", "description": OWNER, "password": "x"});
    keystone.add("users", user);
    let refused = mend_as(&keystone, &seed(&spec), OWNER).await.unwrap_err();
    assert!(
        refused.to_string().contains("the domain is disabled"),
        "{refused}"
    );
    assert_eq!(keystone.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_known_to_be_the_seed_s_is_refused_or_adopted() {
    let keystone = Fake::new();
    let mut spec = json!({"projects": [{"name": "genes"}, {"name": "other"}]});
    keystone.add("projects", json!({"id": "p", "name": "genes", "domain_id": "default", "description": "by hand", "enabled": true}));
    let refused = mend_as(&keystone, &seed(&spec), OWNER).await.unwrap_err();
    let refused = refused.to_string();
    for part in ["IdentitySeed spec.projects[genes]", "by hand", "Adopt"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(keystone.writes(), Vec::<String>::new());
    // A look goes on.
    let (differs, told) = look(&keystone, &seed(&spec)).await;
    assert_eq!((differs.len(), told.len()), (1, 1), "{differs:?} {told:?}");
    spec["existing"] = json!("Adopt");
    mend(&keystone, &seed(&spec)).await;
    let adopted = keystone.get("projects", "genes");
    assert_eq!(adopted["description"], format!("{OWNER}: by hand"));

    // Another seed does not get it by adopting: they would change it in turn.
    keystone.writes();
    let second = mend_as(&keystone, &seed(&spec), "windlass cloud/two of cluster u").await;
    let second = second.unwrap_err().to_string();
    assert!(second.contains("take it out there"), "{second}");
    assert_eq!(keystone.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_named_may_be_there_already_and_what_is_nowhere_is_said() {
    let keystone = Fake::new();
    let user =
        json!({"id": "x", "name": "grace", "domain_id": "default", "description": "by hand"});
    keystone.add("users", user);
    let spec = |role: &str| {
        json!({"projects": [{"name": "genes"}], "assignments": [
            {"role": role, "user": {"name": "Grace"}, "project": {"name": "genes"}}]})
    };
    mend(&keystone, &seed(&spec("admin"))).await;
    assert_eq!(keystone.0.lock().unwrap().grants.len(), 1);
    let unknown = seed(&spec("amdin"));
    let (_, refused) = look_at(&keystone, &unknown).await;
    let run = mend_as(&keystone, &unknown, OWNER).await.unwrap_err();
    for told in [refused.join(""), run.to_string()] {
        for part in [
            "spec.assignments[role amdin for user Grace on project genes].role",
            "role amdin is not in Keystone",
            "add it to spec.roles",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}

async fn look_at(keystone: &Fake, seed: &Inputs) -> (Vec<String>, Vec<String>) {
    keystone.writes();
    look(keystone, seed).await
}

#[tokio::test]
async fn what_is_named_no_longer_is_told_and_removed_only_where_it_is_the_seed_s() {
    let keystone = Fake::new();
    let former = seed(&whole());
    mend(&keystone, &former).await;
    keystone.writes();
    let mut spec = whole();
    spec["users"] = json!([]);
    spec["groups"] = json!([]);
    spec["assignments"] = json!([]);
    spec["services"][0]["endpoints"] = json!([]);
    let now = seed(&spec);
    let mut walk = Walk::looking(&keystone, &now, OWNER, BTreeMap::new());
    let left = walk.left(&[former], &[]).await.unwrap();
    let what: Vec<_> = left.iter().map(|left| left.what.as_str()).collect();
    let last = "group lab of domain science";
    assert_eq!(what.len(), 6, "{what:?}");
    assert_eq!(
        what.last(),
        Some(&last),
        "what needs others goes before them"
    );
    assert!(walk.remove(&left).await.unwrap().is_empty());
    assert_eq!(walk.differs.len(), 6);
    assert_eq!(
        keystone.writes(),
        Vec::<String>::new(),
        "a look removes nothing"
    );

    // Somebody took the user over, and it is remembered where the others are.
    keystone.set("users", "ada", "description", json!("of the institute now"));
    let note: Box<Note> = Box::new(|_: &str| Ok(()));
    let mut walk = Walk::looking(&keystone, &now, OWNER, BTreeMap::new()).mending(&*note);
    let left = walk.left(&[], &left).await.unwrap();
    walk.remove(&left).await.unwrap();
    assert_eq!(keystone.get("users", "ada")["name"], "ada");
    assert_eq!(keystone.get("groups", "lab"), Value::Null);
    assert_eq!(keystone.get("services", "swift")["name"], "swift");
    assert!(walk.left(&[], &left).await.unwrap().is_empty());
}

#[tokio::test]
async fn all_of_a_seed_goes_and_a_domain_with_something_of_others_stays() {
    let keystone = Fake::new();
    let all = seed(&whole());
    mend(&keystone, &all).await;
    let user =
        json!({"id": "x", "name": "grace", "domain_id": "domain-2", "description": "by hand"});
    keystone.add("users", user);
    let none = Inputs::default();
    let note: Box<Note> = Box::new(|_: &str| Ok(()));
    let remove = async || {
        let mut walk = Walk::looking(&keystone, &none, OWNER, BTreeMap::new()).mending(&*note);
        let left = walk.left(std::slice::from_ref(&all), &[]).await.unwrap();
        walk.remove(&left).await.unwrap()
    };
    let stays = remove().await;
    assert_eq!(stays, ["domain science stays: grace of its users is there"]);
    for (collection, name) in [
        ("users", "ada"),
        ("projects", "genes"),
        ("services", "swift"),
    ] {
        assert_eq!(keystone.get(collection, name), Value::Null, "{name}");
    }
    assert_eq!(keystone.get("roles", "reader")["name"], "reader");
    assert_eq!(keystone.get("domains", "science")["enabled"], true);
    keystone
        .0
        .lock()
        .unwrap()
        .things
        .get_mut("users")
        .unwrap()
        .clear();
    keystone.writes();
    assert!(remove().await.is_empty());
    let writes = keystone.writes();
    assert_eq!(
        writes,
        ["PATCH domains/domain-2", "DELETE domains/domain-2"]
    );
    assert!(remove().await.is_empty(), "what is gone is gone");
}
