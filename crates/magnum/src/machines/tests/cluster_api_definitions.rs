//! The goldens against the definitions of Cluster API, where somebody has them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kapi::Server;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};

use super::*;

/// Directories with definitions, with colons between them: `config/crd/bases` of Cluster API's core, of its kubeadm providers and of
/// the `OpenStack` provider.
const DIRECTORIES: &str = "WINDLASS_CLUSTER_API_DEFINITIONS";

#[tokio::test]
#[ignore = "needs definitions of Cluster API, named by WINDLASS_CLUSTER_API_DEFINITIONS"]
async fn objects_are_what_the_definitions_say() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::in_memory(&definitions()).await.unwrap();
    let client = Client::new(server.router(), "default");
    for (name, (cluster, template)) in cases() {
        for object in all(&objects(&cluster, &template, &ADDONS).unwrap()) {
            let kind = Kind::of(&object).unwrap();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), "default", &kind.resource());
            let mut object = object;
            object["metadata"]["namespace"] = json!("default");
            let stored = api
                .patch(
                    name_of(&object),
                    &PatchParams::apply("test").force(),
                    &Patch::Apply(&object),
                )
                .await;
            let stored = stored.unwrap_or_else(|error| panic!("{name}: {object}: {error}"));
            let stored = serde_json::to_value(stored).unwrap();
            // What a definition does not know is not kept.
            assert!(
                controller::apply::contains(&stored, &object),
                "{name}: applied {object}, kept {stored}"
            );
        }
    }
}

/// Those of the kinds that are written, with no version but ours: nothing converts here.
fn definitions() -> Vec<CustomResourceDefinition> {
    let directories =
        std::env::var_os(DIRECTORIES).expect("WINDLASS_CLUSTER_API_DEFINITIONS names directories");
    let files = std::env::split_paths(&directories)
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path());
    let mut definitions = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "yaml")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut definition: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        let spec = &mut definition.spec;
        let ours = |kind: &Kind| kind.word() == spec.names.kind && kind.group() == spec.group;
        let Some(kind) = Kind::ALL.into_iter().find(ours) else {
            continue;
        };
        spec.versions
            .retain(|version| version.name == kind.version());
        for version in &mut spec.versions {
            assert!(version.served, "{}", file.display());
            version.storage = true;
        }
        definitions.push(definition);
    }
    assert_eq!(
        definitions.len(),
        Kind::ALL.len(),
        "a definition for each kind"
    );
    definitions
}
