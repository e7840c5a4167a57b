//! Objects of somebody else in the embedded API, which keeps track of fields as Kubernetes does.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    api::{ApiResource, PostParams},
};

use super::*;
use crate::engine::objects::{Effect, Put, apply};

struct World {
    api: Api<DynamicObject>,
    _server: kapi::Server,
}

impl World {
    async fn start() -> Self {
        let server = kapi::Server::in_memory(&[]).await.unwrap();
        let client = Client::new(server.router(), "default");
        let resource = ApiResource::erase::<ConfigMap>(&());
        Self {
            api: Api::namespaced_with(client, "default", &resource),
            _server: server,
        }
    }

    /// Somebody makes it: server-side, or by a request that has all of it.
    async fn installed(&self, manager: &str, operation: &str, data: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(settings(data)).unwrap();
        let made = if operation == APPLY {
            let parameters = PatchParams::apply(manager);
            let patch = Patch::Apply(&object);
            self.api.patch("settings", &parameters, &patch).await
        } else {
            let parameters = PostParams {
                field_manager: Some(manager.to_owned()),
                ..PostParams::default()
            };
            self.api.create(&parameters, &object).await
        };
        made.unwrap()
    }

    async fn apply(&self, data: &Value, released: Option<&Value>) -> Put {
        let object = |data: &Value| Object::new(settings(data)).unwrap();
        let released = released.map(object);
        let put = apply(&self.api, &object(data), released.as_ref()).await;
        put.unwrap()
    }

    async fn now(&self) -> DynamicObject {
        self.api.get("settings").await.unwrap()
    }
}

fn settings(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default", "labels": {"cluster.x-k8s.io/provider": "cluster-api"}},
        "data": data,
    })
}

#[tokio::test]
async fn what_is_right_is_not_written_whoever_installed_it() {
    let (right, other) = (json!({"level": "1"}), json!({"level": "2"}));
    for (manager, operation) in [
        ("clusterctl", "Update"),
        ("capi-operator", APPLY),
        ("mine", APPLY),
    ] {
        let world = World::start().await;
        let before = world.installed(manager, operation, &right).await;
        for (wanted, released) in [
            (&right, None),
            (&right, Some(&other)),
            (&other, Some(&right)),
        ] {
            let put = world.apply(wanted, released).await;
            assert_eq!(put.effect, Effect::Unchanged, "{manager}");
            assert_eq!(put.taken, [""; 0], "{manager}");
            // With the version of the object and with whose its fields are.
            assert_eq!(world.now().await, before, "{manager}");
        }
    }
}

#[tokio::test]
async fn what_is_not_right_is_taken_over_with_what_is_to_go() {
    for (manager, operation) in [("clusterctl", "Update"), ("capi-operator", APPLY)] {
        let world = World::start().await;
        let old = json!({"level": "1", "gone": "soon", "same": "yes"});
        world.installed(manager, operation, &old).await;
        let somebody = PatchParams {
            field_manager: Some("somebody".to_owned()),
            ..PatchParams::default()
        };
        let added = json!({"metadata": {"labels": {"team": "platform"}}});
        let patch = Patch::Merge(&added);
        world
            .api
            .patch("settings", &somebody, &patch)
            .await
            .unwrap();

        let wanted = json!({"level": "2", "same": "yes"});
        let put = world.apply(&wanted, None).await;
        assert_eq!(put.effect, Effect::Changed, "{manager}");
        assert_eq!(put.taken, ["data.level"], "{manager}");
        let now = world.now().await;
        assert_eq!(now.data["data"], wanted, "{manager}");
        assert_eq!(now.metadata.labels.as_ref().unwrap()["team"], "platform");
        assert!(is_ours(&now.metadata), "{manager}");
        // From then on it is as any other.
        let again = world.apply(&wanted, Some(&old)).await;
        assert_eq!(again.effect, Effect::Unchanged, "{manager}");
        assert_eq!(world.now().await, now, "{manager}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_made() {
    let world = World::start().await;
    let put = world.apply(&json!({"level": "1"}), None).await;
    assert_eq!(put.effect, Effect::Created);
    assert!(is_ours(&put.stands.metadata));
}

#[test]
fn what_somebody_else_keeps_is_not_the_providers() {
    let provider = Subject {
        api_group: "operator.cluster.x-k8s.io".to_owned(),
        kind: "CoreProvider".to_owned(),
        name: "cluster-api".to_owned(),
        uid: None,
    };
    let owner = |group: &str, kind: &str, name: &str| json!({"ownerReferences": [{"apiVersion": format!("{group}/v1"), "kind": kind, "name": name, "uid": "u"}]});
    let managed = |manager: &str, operation: &str| {
        json!({"managedFields": [{
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
        }]})
    };
    let cases = [
        ("nobody", json!({}), None),
        (
            "the provider owns it",
            owner("operator.cluster.x-k8s.io", "CoreProvider", "cluster-api"),
            None,
        ),
        (
            "another provider owns it",
            owner("operator.cluster.x-k8s.io", "CoreProvider", "other"),
            Some("CoreProvider other"),
        ),
        (
            "a kind of that name in another group owns it",
            owner("example.com", "CoreProvider", "cluster-api"),
            Some("CoreProvider cluster-api"),
        ),
        ("clusterctl", managed("clusterctl", "Update"), None),
        (
            "the existing operator",
            managed("capi-operator", APPLY),
            None,
        ),
        (
            "somebody who edits",
            managed("kubectl-edit", "Update"),
            None,
        ),
        (
            "somebody who applies",
            managed("kustomize-controller", APPLY),
            Some("kustomize-controller"),
        ),
        (
            "a chart",
            json!({"annotations": {HELM_RELEASE: "monitoring"}}),
            Some("Helm release monitoring"),
        ),
        ("Windlass", managed(COMPONENTS_MANAGER, APPLY), None),
    ];
    for (name, mut meta, expected) in cases {
        let read = |meta: &Value| serde_json::from_value::<ObjectMeta>(meta.clone()).unwrap();
        for known in [Known::Nothing, Known::Applied] {
            let found = keeper(&read(&meta), &provider, known);
            assert_eq!(found.as_deref(), expected, "{name}");
        }
        // Beside Windlass each is who it is.
        let own = managed(COMPONENTS_MANAGER, APPLY)["managedFields"][0].clone();
        match meta["managedFields"].as_array_mut() {
            Some(entries) => entries.insert(0, own),
            None => meta["managedFields"] = json!([own]),
        }
        assert_eq!(
            keeper(&read(&meta), &provider, Known::Others),
            None,
            "{name}"
        );
        let found = keeper_beside(&read(&meta), &provider);
        assert_eq!(found.as_deref(), expected, "{name}");
    }
}

#[test]
fn what_kubectl_applied_is_the_providers_where_a_run_has_noted_it() {
    let provider = Subject::default();
    let written = |manager: &str, operation: &str| -> ObjectMeta {
        let entry = json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
        });
        serde_json::from_value(json!({"managedFields": [entry]})).unwrap()
    };
    let kubectl = Some("kubectl".to_owned());
    let applied = written("kubectl", APPLY);
    assert_eq!(keeper(&applied, &provider, Known::Nothing), kubectl);
    assert_eq!(keeper(&applied, &provider, Known::Others), kubectl);
    assert_eq!(keeper(&applied, &provider, Known::Applied), None);
    // Where all that is of the release is noted, nothing else is of it, whoever wrote it.
    let made = written("clusterctl", "Update");
    assert_eq!(keeper(&made, &provider, Known::Nothing), None);
    assert_eq!(
        keeper(&made, &provider, Known::Others),
        Some("clusterctl".to_owned())
    );
    let ours = written(COMPONENTS_MANAGER, APPLY);
    assert_eq!(keeper(&ours, &provider, Known::Others), None);
}
