//! One project never sees another's: random callers ask for random things of two projects that have the same.

use std::collections::BTreeMap;

use ::api::magnum::CoeClusterTemplate;
use kube::{ResourceExt as _, api::ListParams};
use proptest::{
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, RngSeed, TestRunner},
};
use tokio::runtime::Runtime;

use super::*;

const PROJECTS: [&str; 2] = ["p1", "p2"];
/// What is in everything that a project has, and nowhere else.
const WORDS: [&str; 2] = ["amber", "cobalt"];
const ROLES: [&str; 3] = ["reader", "member", "service"];

/// The idents of what a project has: cluster, template, group, by UUID and by name.
struct Owned {
    clusters: Vec<String>,
    templates: Vec<String>,
    groups: Vec<String>,
}

async fn fill(world: &World, project: &str, word: &str) -> Owned {
    let token = format!("{project}:{word}-user:member");
    let template = world
        .template(&token, json!({"name": format!("{word}-template")}))
        .await;
    let body = json!({"name": format!("{word}-cluster"), "cluster_template_id": template, "labels": {"of": word}});
    let made = world.ask(&token, "POST", "/v1/clusters", body).await;
    let cluster = made.body["uuid"].as_str().unwrap().to_owned();
    let path = format!("/v1/clusters/{cluster}/nodegroups");
    let group = json!({"name": format!("{word}-group"), "node_count": 1});
    let api: Api<CoeCluster> = Api::namespaced(world.client.clone(), &format!("magnum-{project}"));
    let done = json!({"status": {"state": "CREATE_COMPLETE", "observedGeneration": 1, "apiAddress": "https://192.0.2.9:6443"}});
    let patch = kube::api::Patch::Merge(done);
    let parameters = kube::api::PatchParams::default();
    api.patch_status(&cluster, &parameters, &patch)
        .await
        .unwrap();
    let made = world.ask(&token, "POST", &path, group).await;
    assert_eq!(made.status, 202, "{made:?}");
    let group = made.body["uuid"].as_str().unwrap().to_owned();
    Owned {
        clusters: vec![cluster, format!("{word}-cluster")],
        templates: vec![template, format!("{word}-template")],
        groups: vec![group, format!("{word}-group"), "default-worker".to_owned()],
    }
}

/// Each object of a project by its version, which changes with it.
async fn versions(world: &World, project: &str) -> BTreeMap<String, Option<String>> {
    let namespace = format!("magnum-{project}");
    let all = ListParams::default();
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), &namespace);
    let templates: Api<CoeClusterTemplate> = Api::namespaced(world.client.clone(), &namespace);
    let clusters = clusters.list(&all).await.unwrap();
    let templates = templates.list(&all).await.unwrap();
    let clusters = clusters
        .iter()
        .map(|object| (object.name_any(), object.resource_version()));
    let templates = templates
        .iter()
        .map(|object| (object.name_any(), object.resource_version()));
    clusters.chain(templates).collect()
}

/// Who asks for what. Numbers choose among what there is of a project.
#[derive(Clone, Debug)]
struct Call {
    project: usize,
    role: &'static str,
    of: usize,
    template_of: usize,
    path: &'static str,
    method: &'static str,
    idents: [Index; 3],
}

fn calls() -> impl Strategy<Value = Call> {
    let paths = select(vec![
        "clusters",
        "clusters/detail",
        "clusters/CLUSTER",
        "clusters/CLUSTER/actions/resize",
        "clusters/CLUSTER/actions/upgrade",
        "clusters/CLUSTER/nodegroups",
        "clusters/CLUSTER/nodegroups/GROUP",
        "clustertemplates",
        "clustertemplates/TEMPLATE",
        "certificates",
        "certificates/CLUSTER",
        "credentials/CLUSTER",
        "quotas",
        "quotas/PROJECT/Cluster",
        "stats",
        "stats?project_id=PROJECT",
        "mservices",
    ]);
    let methods = select(vec!["GET", "POST", "PATCH", "DELETE"]);
    let idents = any::<[Index; 3]>();
    let roles = select(ROLES.to_vec());
    (
        0..2_usize,
        roles,
        0..2_usize,
        0..2_usize,
        paths,
        methods,
        idents,
    )
        .prop_map(
            |(project, role, of, template_of, path, method, idents)| Call {
                project,
                role,
                of,
                template_of,
                path,
                method,
                idents,
            },
        )
}

impl Call {
    fn token(&self) -> String {
        format!(
            "{}:{}-user:{}",
            PROJECTS[self.project], WORDS[self.project], self.role
        )
    }

    fn asked(&self, owned: &[Owned; 2]) -> (String, Value) {
        let of = &owned[self.of];
        let [cluster, template, group] = &self.idents;
        let cluster: &String = cluster.get(&of.clusters);
        let wanted: &String = template.get(&of.templates);
        let group: &String = group.get(&of.groups);
        let path = self
            .path
            .replace("CLUSTER", cluster)
            .replace("TEMPLATE", wanted)
            .replace("GROUP", group)
            .replace("PROJECT", PROJECTS[self.of]);
        let named = template.get(&owned[self.template_of].templates);
        let body = match (self.method, self.path) {
            ("GET" | "DELETE", _) => Value::Null,
            ("PATCH", "clusters/CLUSTER") => {
                json!([{"op": "replace", "path": "/node_count", "value": 2}])
            }
            ("PATCH", "clustertemplates/TEMPLATE") => {
                json!([{"op": "replace", "path": "/image_id", "value": "x"}])
            }
            ("PATCH", path) if path.ends_with("GROUP") => {
                json!([{"op": "replace", "path": "/max_node_count", "value": 9}])
            }
            (_, "clusters") => json!({"name": "more", "cluster_template_id": named}),
            (_, "clustertemplates") => super::template(json!({"name": "more"})),
            (_, path) if path.ends_with("resize") => json!({"node_count": 2}),
            (_, path) if path.ends_with("upgrade") => json!({"cluster_template": named}),
            (_, path) if path.ends_with("nodegroups") => json!({"name": "more"}),
            (_, "certificates") => json!({"cluster_uuid": cluster, "csr": "x"}),
            _ => json!({"project_id": PROJECTS[self.of], "hard_limit": 9}),
        };
        (format!("/v1/{path}"), body)
    }

    /// Words that only who belongs to the other project may read, but for those that the caller wrote.
    fn hidden(&self, owned: &[Owned; 2], written: &str) -> Vec<String> {
        let other = 1 - self.project;
        let Owned {
            clusters,
            templates,
            groups,
        } = &owned[other];
        let all = [clusters.as_slice(), templates, groups].concat();
        let own = all.into_iter().filter(|ident| ident != "default-worker");
        let words = own.chain([format!("{}-user", WORDS[other])]);
        words
            .filter(|word| !written.contains(word.as_str()))
            .collect()
    }
}

#[test]
fn no_call_shows_or_changes_what_is_of_another_project() {
    let runtime = Runtime::new().unwrap();
    let (world, owned) = runtime.block_on(async {
        let world = World::new().await;
        let owned = [
            fill(&world, PROJECTS[0], WORDS[0]).await,
            fill(&world, PROJECTS[1], WORDS[1]).await,
        ];
        (world, owned)
    });
    let config = Config {
        cases: 400,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(19),
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&calls(), |call| {
        let (path, body) = call.asked(&owned);
        let (before, told, after) = runtime.block_on(async {
            let before = [versions(&world, "p1").await, versions(&world, "p2").await];
            let told = world
                .ask(&call.token(), call.method, &path, body.clone())
                .await;
            let after = [versions(&world, "p1").await, versions(&world, "p2").await];
            (before, told, after)
        });
        let other = 1 - call.project;
        prop_assert_eq!(&before[other], &after[other], "{:?}", told);
        let shown = format!("{:?} {}", told.headers, told.body);
        for word in call.hidden(&owned, &format!("{path} {body}")) {
            prop_assert!(!shown.contains(&word), "{} in {:?}", word, told);
        }
        let writes = call.method != "GET";
        if call.role == "service" || (call.role == "reader" && writes) {
            prop_assert_eq!(told.status, 403, "{:?}", told);
            prop_assert_eq!(&before, &after, "{:?}", told);
        }
        // What is of another project is as if it were not.
        if call.of == other
            && call.path.contains('/')
            && !call.path.contains("PROJECT")
            && call.path != "clusters/detail"
        {
            prop_assert!(told.status >= 400, "{:?}", told);
        }
        Ok(())
    });
    tried.unwrap();
}
