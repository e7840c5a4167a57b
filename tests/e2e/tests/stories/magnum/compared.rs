//! Windlass beside a real Magnum 23: both are asked the same, and have to answer the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::magnum::{CoeCluster, State};
use e2e::{
    MagnumService,
    compared::{
        self, Body, Case, Who, allowed,
        normal::{Answer, Names},
    },
    wait_until,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use lab::{MagnumRelease, progress::Terminal};
use reqwest::{Client as Http, Method};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{LIMIT, World, embedded};

/// Headers of an answer whose values clients read.
const READ: [&str; 5] = [
    "openstack-api-version",
    "openstack-api-minimum-version",
    "openstack-api-maximum-version",
    "vary",
    "location",
];
/// Headers of which only is compared whether they are there.
const THERE: [&str; 2] = ["x-openstack-request-id", "www-authenticate"];

#[test]
fn a_real_magnum_answers_as_windlass_does() {
    // Whoever comes first has chosen.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (world, address) = World::without_catalogue();
    world.keystone.people(&address).unwrap();
    let directory = world.directory.path();
    let other = directory.join("other");
    let objects = embedded(&world.runtime, &other, Vec::new());
    let magnum = MagnumService::start(
        &world.keystone,
        MagnumRelease::V23,
        &directory.join("magnum"),
        &other.join("kubeconfig"),
        &Terminal::default(),
    )
    .unwrap();
    let mut both = Both::new(&world, &magnum.address, &address);

    both.ask_all(&world.runtime, compared::before());
    let (theirs, ours) = (both.theirs.uuid("cluster"), both.ours.uuid("cluster"));
    world.pool(2);
    world.play_kubespray(&ours, 2);
    let made = world.told(&ours);
    tell(&world.runtime, &objects, &theirs, &made);
    for service in [&both.theirs, &both.ours] {
        wait_until("the cluster to be complete", LIMIT, || {
            let shown = Case::new("GET", "/v1/clusters/{cluster}");
            let (answer, _) = world.runtime.block_on(service.ask(&shown));
            Ok((answer.body["status"] == "CREATE_COMPLETE").then_some(()))
        })
        .unwrap();
    }
    both.ask_all(&world.runtime, compared::after());
    both.conclude();
}

impl World {
    /// Our cluster, when the operator has told that it is complete.
    fn told(&self, uuid: &str) -> CoeCluster {
        let clusters: Api<CoeCluster> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={uuid}"));
        wait_until("our cluster to be complete", LIMIT, || {
            let found = self.runtime.block_on(clusters.list(&named))?.items;
            let is_complete = |cluster: &CoeCluster| {
                let state = cluster.status.as_ref().and_then(|status| status.state);
                state.is_some_and(State::is_complete)
            };
            Ok(found.into_iter().find(is_complete))
        })
        .unwrap()
    }
}

/// Tells the driver in the real one of its cluster what is true of ours: nobody else looks after that one.
fn tell(runtime: &Runtime, objects: &Client, uuid: &str, ours: &CoeCluster) {
    let all: Api<CoeCluster> = Api::all(objects.clone());
    let named = ListParams::default().fields(&format!("metadata.name={uuid}"));
    let theirs = wait_until("the driver to write the cluster", LIMIT, || {
        Ok(runtime.block_on(all.list(&named))?.items.pop())
    })
    .unwrap();
    let uuid_of = |cluster: &CoeCluster, name: &str| {
        let mut groups = cluster.spec.node_groups.iter();
        groups
            .find(|group| group.name == name)
            .map(|group| group.uuid.clone())
    };
    let mut status = ours.status.clone().unwrap();
    status.observed_generation = theirs.metadata.generation;
    status.groups = BTreeMap::new();
    let was = ours.status.as_ref().unwrap();
    for group in &ours.spec.node_groups {
        let told = was.groups.get(&group.uuid).cloned();
        status
            .groups
            .extend(uuid_of(&theirs, &group.name).zip(told));
    }
    let namespaced: Api<CoeCluster> =
        Api::namespaced(objects.clone(), &theirs.namespace().unwrap());
    let patch = Patch::Merge(json!({"status": status}));
    runtime
        .block_on(namespaced.patch_status(uuid, &PatchParams::default(), &patch))
        .unwrap();
}

/// The two services, and what was found of them.
struct Both {
    theirs: Service,
    ours: Service,
    /// Differences that nothing allows, for people.
    found: Vec<String>,
    asked: usize,
    /// The kinds of differences that were met.
    met: BTreeSet<usize>,
}

impl Both {
    fn new(world: &World, theirs: &str, ours: &str) -> Self {
        let mut tokens = HashMap::from([(Who::Forger, "forged".to_owned())]);
        let mut names = Names::default();
        names.add(world.keystone.address.clone(), "keystone");
        for who in [Who::Ann, Who::Bob, Who::Eve, Who::Admin] {
            let account = who.account().unwrap();
            let token = world.keystone.token(account).unwrap();
            match who {
                Who::Ann => names.add(token.project, "demo"),
                Who::Eve => names.add(token.project, "others"),
                Who::Admin => names.add(token.project, "admins"),
                _ => {}
            }
            names.add(token.user, account);
            tokens.insert(who, token.id);
        }
        let service = |address: &str| {
            let base = address.trim_end_matches("/v1").to_owned();
            let mut names = names.clone();
            names.add(base.clone(), "base");
            Service {
                http: Http::builder().no_proxy().build().unwrap(),
                base,
                names,
                tokens: tokens.clone(),
                kept: HashMap::new(),
            }
        };
        Self {
            theirs: service(theirs),
            ours: service(ours),
            found: Vec::new(),
            asked: 0,
            met: BTreeSet::new(),
        }
    }

    fn ask_all(&mut self, runtime: &Runtime, cases: Vec<Case>) {
        for case in cases {
            let ((theirs, one), (ours, other)) = runtime
                .block_on(async { (self.theirs.ask(&case).await, self.ours.ask(&case).await) });
            if let Some(name) = case.keep {
                self.theirs.keep(name, &one);
                self.ours.keep(name, &other);
            }
            self.asked += 1;
            let differences = theirs.differences(&ours);
            if differences.is_empty() {
                continue;
            }
            match allowed::of(&case, &theirs, &ours) {
                Some(kind) => {
                    self.met.insert(kind);
                }
                None => self.found.push(format!(
                    "{case}\n    {}\n    theirs: {one:.300}\n    ours: {other:.300}",
                    differences.join("\n    ")
                )),
            }
        }
    }

    fn conclude(self) {
        assert!(self.asked >= 400, "{}", self.asked);
        assert!(
            self.found.is_empty(),
            "{} of {} differ:\n{}",
            self.found.len(),
            self.asked,
            self.found.join("\n")
        );
        let unmet = (0..allowed::ALL.len()).filter(|kind| !self.met.contains(kind));
        let unmet: Vec<_> = unmet.map(|kind| &allowed::ALL[kind]).collect();
        assert!(
            unmet.is_empty(),
            "no request met what is allowed: {unmet:?}"
        );
    }
}

struct Service {
    http: Http,
    base: String,
    names: Names,
    tokens: HashMap<Who, String>,
    kept: HashMap<&'static str, String>,
}

impl Service {
    /// What is compared of an answer, and its body as it came.
    async fn ask(&self, case: &Case) -> (Answer, String) {
        let address = format!("{}{}", self.base, self.names.filled(&case.path));
        let method = Method::from_bytes(case.method.as_bytes()).unwrap();
        let mut request = self.http.request(method, address);
        if let Some(token) = self.tokens.get(&case.who) {
            request = request.header("x-auth-token", token);
        }
        if let Some(version) = &case.version {
            request = request.header("openstack-api-version", version);
        }
        let (kind, body) = match &case.body {
            Body::None => (None, None),
            Body::Json(body) => (
                Some("application/json"),
                Some(self.names.filled(&body.to_string())),
            ),
            Body::Raw(kind, text) => (Some(*kind), Some((*text).to_owned())),
        };
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let mut headers = BTreeMap::new();
        for name in READ {
            let value = header(name).map(|value| self.names.named(&value));
            headers.extend(value.map(|value| (name.to_owned(), value)));
        }
        for name in THERE {
            let value = header(name).map(|_| (name.to_owned(), "is there".to_owned()));
            headers.extend(value);
        }
        let media = header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().to_owned();
        headers.insert("content-type".to_owned(), media);
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_else(|_| match text.trim() {
            "" => Value::Null,
            text => text.into(),
        });
        let body = self.names.body(&body);
        (
            Answer {
                status,
                headers,
                body,
            },
            text,
        )
    }

    fn keep(&mut self, name: &'static str, answered: &str) {
        let body: Value = serde_json::from_str(answered).unwrap_or_default();
        let uuid = body["uuid"].as_str();
        let uuid = uuid.unwrap_or_else(|| panic!("{name} was not made: {answered}"));
        self.names.add(uuid, name);
        self.kept.insert(name, uuid.to_owned());
    }

    fn uuid(&self, name: &str) -> String {
        self.kept[name].clone()
    }
}
