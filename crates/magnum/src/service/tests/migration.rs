//! What another Magnum had, as it is shown and kept here.

use api::magnum::{CoeClusterTemplate, CoeQuota};
use kube::{ResourceExt as _, api::ListParams};

use super::*;
use crate::migration::{
    Carried,
    tests::{CERTIFICATE, CLUSTER, MASTERS, TEMPLATE, made, renamed, tables},
    there::{Standing, There},
};

mod real;

impl World {
    /// One pass of a migration.
    async fn migrate(&self, wanted: &Carried) -> Result<(), crate::migration::there::Error> {
        let there = There::new(self.client.clone());
        there.keeps_imported().await?;
        let compared = there.compare(wanted).await?;
        there.apply(wanted, &compared).await
    }

    async fn compared(&self, wanted: &Carried) -> Vec<Standing> {
        let there = There::new(self.client.clone());
        let compared = there.compare(wanted).await.unwrap();
        [compared.quotas, compared.templates, compared.clusters].concat()
    }

    /// Fails the call of this number that writes.
    fn fail_write(&self, number: usize) -> Option<()> {
        let calls = self.calls.lock().unwrap();
        let mut writes = calls.iter().filter(|call| !call.starts_with("GET "));
        let call = writes.nth(number)?;
        let (method, uri) = call.split_once(' ')?;
        let method = ["POST", "PATCH", "PUT", "DELETE"]
            .into_iter()
            .find(|known| *known == method)?;
        *self.failing.lock().unwrap() = Some((method, uri.trim_end_matches('?').to_owned()));
        Some(())
    }
}

#[tokio::test]
async fn a_cluster_of_another_magnum_is_shown_as_it_was_and_refuses_changes() {
    let (world, operating) = World::operated(&api::magnum::definitions()).await;
    let wanted = made(&tables());
    world.migrate(&wanted).await.unwrap();
    assert_eq!(world.compared(&wanted).await, vec![Standing::Same; 3]);

    let path = format!("/v1/clusters/{CLUSTER}");
    let shown = world.get(MEMBER, &path).await.body;
    for (member, value) in [
        ("name", json!("first")),
        ("status", json!("UPDATE_COMPLETE")),
        ("status_reason", json!("Stack UPDATE completed")),
        ("cluster_id", json!("first-abc")),
        ("health_status", json!("HEALTHY")),
        ("container_version", json!("1.7")),
        ("coe_version", json!("v1.34.3")),
        ("api_address", json!("https://203.0.113.7:6443")),
        ("node_addresses", json!(["10.0.0.5", "10.0.0.6"])),
        ("master_addresses", json!(["10.0.0.4"])),
        ("node_count", json!(2)),
        ("labels_added", json!({"mine": "1"})),
        ("created_at", json!("2024-03-04T05:06:07+00:00")),
        ("updated_at", json!("2024-03-04T06:07:08+00:00")),
    ] {
        assert_eq!(shown[member], value, "{member}: {shown}");
    }
    let group = world
        .get(MEMBER, &format!("{path}/nodegroups/{MASTERS}"))
        .await;
    assert_eq!(group.body["stack_id"], "first-masters");
    assert_eq!(group.body["status"], "CREATE_COMPLETE");
    let template = format!("/v1/clustertemplates/{TEMPLATE}");
    let shown = world.get(ADMIN, &template).await.body;
    assert_eq!(shown["driver"], "k8s_capi_helm_v1");
    assert_eq!(shown["created_at"], "2024-02-03T04:05:06+00:00");
    let quota = world.get(ADMIN, "/v1/quotas/p1/Cluster").await.body;
    assert_eq!((&quota["id"], &quota["hard_limit"]), (&json!(7), &json!(5)));

    // Its kubeconfig can be had: the authority is shown, and signs, with the key that Magnum had sealed.
    let authority = world
        .get("p1:ann:member", &format!("/v1/certificates/{CLUSTER}"))
        .await;
    assert_eq!(authority.body["pem"], CERTIFICATE);
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default();
    let request = request.serialize_request(&key).unwrap().pem().unwrap();
    let body = json!({"cluster_uuid": CLUSTER, "csr": request});
    let signed = world.ask(MEMBER, "POST", "/v1/certificates", body).await;
    assert_eq!(signed.status, 201, "{signed:?}");

    for (method, path, body) in [
        (
            "POST",
            format!("{path}/actions/resize"),
            json!({"node_count": 3}),
        ),
        (
            "POST",
            format!("{path}/actions/upgrade"),
            json!({"cluster_template": TEMPLATE}),
        ),
        (
            "PATCH",
            path.clone(),
            json!([{"op": "replace", "path": "/node_count", "value": 3}]),
        ),
        (
            "POST",
            format!("{path}/nodegroups"),
            json!({"name": "more"}),
        ),
        ("PATCH", format!("/v1/certificates/{CLUSTER}"), Value::Null),
        ("PATCH", format!("/v1/credentials/{CLUSTER}"), Value::Null),
        ("DELETE", path.clone(), Value::Null),
    ] {
        let token = if path.ends_with("upgrade") {
            "p1:root:admin"
        } else {
            MEMBER
        };
        let told = world.ask(token, method, &path, body).await;
        assert_eq!(told.status, 400, "{method} {path}: {told:?}");
        assert!(told.body.to_string().contains("another Magnum"), "{told:?}");
    }
    // It can still be hidden no more, or be called something else.
    let patch = json!([{"op": "replace", "path": "/name", "value": "old"}]);
    let told = world.ask("p1:root:admin", "PATCH", &template, patch).await;
    assert_eq!(
        (told.status, &told.body["driver"]),
        (200, &json!("k8s_capi_helm_v1")),
        "{told:?}"
    );
    // Nobody builds it.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    assert!(
        namespaces
            .get_opt(&format!("coe-{CLUSTER}"))
            .await
            .unwrap()
            .is_none()
    );
    operating.abort();
}

#[tokio::test]
async fn a_migration_that_was_broken_off_at_any_write_goes_on() {
    let whole = World::new().await;
    let wanted = made(&tables());
    whole.migrate(&wanted).await.unwrap();
    let mut broken = 0;
    // Each write of a whole one, in a world of its own.
    for number in 0.. {
        if whole.fail_write(number).is_none() {
            break;
        }
        let world = World::new().await;
        *world.failing.lock().unwrap() = whole.failing.lock().unwrap().take();
        // That a Secret has an owner is only told where it fails.
        broken += usize::from(world.migrate(&wanted).await.is_err());
        world.migrate(&wanted).await.unwrap();
        assert_eq!(
            world.compared(&wanted).await,
            vec![Standing::Same; 3],
            "{number}"
        );
    }
    assert!(broken >= 5, "{broken}");
}

#[tokio::test]
async fn authorities_that_are_found_later_are_added_and_none_is_lost() {
    let world = World::new().await;
    let first = made(&tables());
    world.migrate(&first).await.unwrap();
    let mut more = made(&tables());
    let keys = more.authorities.get_mut(CLUSTER).unwrap();
    let authority = keys[0].1.clone();
    keys.push((crate::authority::Purpose::Etcd, authority));
    assert_eq!(world.compared(&more).await[2], Standing::Undone);
    world.migrate(&more).await.unwrap();
    let fewer = made(&tables().with(crate::migration::rows::Table::KeyPairs, Vec::new()));
    for wanted in [&more, &first, &fewer] {
        world.migrate(wanted).await.unwrap();
        assert_eq!(world.compared(wanted).await[2], Standing::Same);
    }
    let path = format!("/v1/certificates/{CLUSTER}?ca_cert_type=etcd");
    let kept = world.get("p1:ann:member", &path).await;
    assert_eq!(kept.body["pem"], CERTIFICATE);

    let keys = more.authorities.get_mut(CLUSTER).unwrap();
    keys[1].1.certificate.push('\n');
    let differs = Standing::Differs(vec!["authorities".to_owned()]);
    assert_eq!(world.compared(&more).await[2], differs);
}

#[tokio::test]
async fn what_is_there_is_named_and_left() {
    let world = World::new().await;
    world.migrate(&made(&tables())).await.unwrap();
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
    let before = clusters.get(CLUSTER).await.unwrap();
    let writes = || {
        let calls = world.calls.lock().unwrap();
        calls
            .iter()
            .filter(|call| !call.starts_with("GET "))
            .count()
    };
    let written = writes();
    let other = made(&renamed());
    world.migrate(&other).await.unwrap();
    assert_eq!(writes(), written);
    let differs = Standing::Differs(vec!["name".to_owned()]);
    assert_eq!(world.compared(&other).await[2], differs);
    let after = clusters.get(CLUSTER).await.unwrap();
    assert_eq!(json!(after), json!(before));

    // One stays imported: nothing makes servers for it by an edit.
    let patch = kube::api::Patch::Merge(json!({"spec": {"imported": null}}));
    let edited = clusters
        .patch(CLUSTER, &kube::api::PatchParams::default(), &patch)
        .await;
    let refused = edited.unwrap_err().to_string();
    assert!(refused.contains("stays imported"), "{refused}");
}

#[tokio::test]
async fn an_api_that_would_forget_where_a_cluster_is_from_gets_none() {
    let mut definitions = api::magnum::definitions();
    let mut text = serde_json::to_value(&definitions[1]).unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let spec = text.pointer_mut(path).unwrap().as_object_mut().unwrap();
    spec.shift_remove("x-kubernetes-validations");
    let properties = spec["properties"].as_object_mut().unwrap();
    assert!(properties.shift_remove("imported").is_some());
    definitions[1] = serde_json::from_value(text).unwrap();
    let world = World::with(&definitions).await;
    let refused = world.migrate(&made(&tables())).await.unwrap_err();
    assert!(
        refused.to_string().contains("windlass crds --magnum"),
        "{refused}"
    );
    let all = ListParams::default();
    let templates: Api<CoeClusterTemplate> = Api::all(world.client.clone());
    let quotas: Api<CoeQuota> = Api::all(world.client.clone());
    assert!(templates.list(&all).await.unwrap().items.is_empty());
    assert!(quotas.list(&all).await.unwrap().items.is_empty());
    assert!(definitions[1].name_any().starts_with("coeclusters."));
}
