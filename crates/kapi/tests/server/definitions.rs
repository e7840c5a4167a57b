//! Definitions of other people: registered, served, changed and removed while the server runs, and after it was started again.

use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{Api, MAPS, closed, killed, rewrite, tell, to_be_killed};

#[tokio::test(start_paused = true)]
async fn a_kind_is_served_as_soon_as_it_is_registered() {
    let api = Api::without_definitions().await;
    let (code, created) = api.post(DEFINITIONS, gadgets()).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(created["spec"]["names"]["listKind"], "GadgetList");

    let (_, stored) = api.get(GADGETS_DEFINITION).await;
    assert_eq!(stored["status"]["acceptedNames"]["kind"], "Gadget");
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(condition(&stored, "NamesAccepted"), ("True", "NoConflicts"));
    assert_eq!(
        condition(&stored, "Established"),
        ("True", "InitialNamesAccepted")
    );

    let (_, list) = api.get("/apis/example.org/v1").await;
    assert_eq!(list["resources"][0]["name"], "gadgets");
    let (_, groups) = api.get("/apis").await;
    let is_there = |group: &Value| group["name"] == "example.org";
    assert!(groups["groups"].as_array().unwrap().iter().any(is_there));
    let (code, _) = api.get("/openapi/v3/apis/example.org/v1").await;
    assert_eq!(code, StatusCode::OK);

    let (code, made) = api
        .post(GADGETS, gadget("a", json!({"size": 1, "other": 1})))
        .await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(
        made["spec"],
        json!({"size": 1, "mode": "slow"}),
        "pruned and with defaults"
    );
    let (code, refused) = api.post(GADGETS, gadget_of("b", "size", json!("x"))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    let (code, refused) = api.post(GADGETS, gadget("b", json!({"size": 101}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused["message"].as_str().unwrap().contains("too large"),
        "{refused}"
    );
    let (_, list) = api
        .get(&format!("{GADGETS}?fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["kind"], "GadgetList");
    let (_, table) = api.table(GADGETS).await;
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
    assert_eq!(table["rows"][0]["cells"][1], 1);
    let status = json!({"status": {"phase": "Up"}});
    let (code, gadget) = api.merge(&format!("{GADGETS}/a/status"), status).await;
    assert_eq!(
        (code, &gadget["status"]["phase"]),
        (StatusCode::OK, &json!("Up"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_may_be_applied() {
    let api = Api::without_definitions().await;
    let (code, created) = api.apply(GADGETS_DEFINITION, gadgets()).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    let (code, again) = api.apply(GADGETS_DEFINITION, gadgets()).await;
    assert_eq!(code, StatusCode::OK, "{again}");
    let (_, stored) = api.get(GADGETS_DEFINITION).await;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        stored["metadata"]["resourceVersion"]
    );
    let (code, _) = api.post(GADGETS, gadget("a", json!({}))).await;
    assert_eq!(code, StatusCode::CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_changed_schema_holds_at_once_and_for_what_is_there() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    api.post(GADGETS, gadget("a", json!({"size": 1}))).await;
    let (_, before) = api.get(&format!("{GADGETS}/a")).await;
    let mut watch = api.watch(GADGETS).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");

    let (code, _) = api
        .json_patch(
            GADGETS_DEFINITION,
            json!([
                {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color", "value": {"type": "string", "default": "red"}},
                {"op": "replace", "path": "/spec/versions/0/selectableFields", "value": [{"jsonPath": ".spec.color"}]},
                {"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]},
            ]),
        )
        .await;
    assert_eq!(code, StatusCode::OK);
    assert!(
        watch.next().await.is_none(),
        "a watch of the kind as it was ends"
    );

    let (_, gadget) = api.get(&format!("{GADGETS}/a")).await;
    assert_eq!(
        gadget["spec"],
        json!({"size": 1, "mode": "slow", "color": "red"})
    );
    assert_eq!(
        gadget["metadata"], before["metadata"],
        "nothing was written"
    );
    let (_, list) = api
        .get(&format!("{GADGETS}?fieldSelector=spec.color%3Dred"))
        .await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (code, _) = api
        .get(&format!("{GADGETS}?fieldSelector=spec.size%3D1"))
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let (_, table) = api.table(GADGETS).await;
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]));
    let (_, definition) = api.get(GADGETS_DEFINITION).await;
    assert_eq!(definition["metadata"]["generation"], 2);

    // A watch from before the change selects by the fields as they are now.
    let from = before["metadata"]["resourceVersion"].as_str().unwrap();
    api.merge(&format!("{GADGETS}/a"), json!({"spec": {"color": "blue"}}))
        .await;
    let path = format!("{GADGETS}?fieldSelector=spec.color%3Dred&resourceVersion={from}");
    let mut watch = api.watch(&path).await;
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
}

/// Reading prunes and fills in, and writes nothing: the next schema reads what was written.
#[tokio::test(start_paused = true)]
async fn what_a_schema_leaves_out_comes_back_with_it() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    api.post(GADGETS, gadget("a", json!({"size": 1, "mode": "fast"})))
        .await;
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let color = format!("{properties}/color");
    let mode = format!("{properties}/mode");
    let changes = [
        json!([
            {"op": "remove", "path": mode},
            {"op": "add", "path": color, "value": {"type": "string", "default": "red"}},
        ]),
        json!([
            {"op": "add", "path": mode, "value": {"type": "string"}},
            {"op": "remove", "path": color},
        ]),
    ];
    let mut seen = Vec::new();
    for change in changes {
        api.json_patch(GADGETS_DEFINITION, change).await;
        let (_, gadget) = api.get(&format!("{GADGETS}/a")).await;
        seen.push(gadget["spec"].clone());
    }
    let expected = [
        json!({"size": 1, "color": "red"}),
        json!({"size": 1, "mode": "fast"}),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn with_a_definition_go_its_objects_and_then_the_kind() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    api.post(GADGETS, gadget("a", json!({}))).await;
    let mut held = gadget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    api.post(GADGETS, held).await;
    let mut watch = api.watch(GADGETS).await;
    for _ in 0..2 {
        assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    }

    let (code, marked) = api.delete(GADGETS_DEFINITION).await;
    assert_eq!(code, StatusCode::OK);
    let cleanup = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(marked["metadata"]["finalizers"], json!([cleanup]));
    assert_eq!(
        condition(&marked, "Terminating"),
        ("True", "InstanceDeletionPending")
    );
    // No new objects, although the kind is there.
    let (code, refused) = api.post(GADGETS, gadget("late", json!({}))).await;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED, "{refused}");
    let kinds = api.get("/apis/example.org/v1").await.1;
    let verbs = kinds["resources"][0]["verbs"].as_array().unwrap();
    assert!(
        !verbs.contains(&json!("create")) && verbs.contains(&json!("delete")),
        "{verbs:?}"
    );

    let mut ended = Vec::new();
    while ended.len() < 2 {
        let event = watch.next().await.unwrap();
        ended.push((
            event["type"].clone(),
            event["object"]["metadata"]["name"].clone(),
        ));
    }
    ended.sort_by_key(|(_, name)| name.to_string());
    assert_eq!(
        ended,
        [
            (json!("DELETED"), json!("a")),
            (json!("MODIFIED"), json!("held"))
        ]
    );
    let waiting =
        |definition: &Value| condition(definition, "Terminating").1 == "InstanceDeletionInProgress";
    api.until(GADGETS_DEFINITION, waiting).await;

    api.merge(
        &format!("{GADGETS}/held"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
    assert!(watch.next().await.is_none(), "the watch ends with the kind");
    api.gone(GADGETS_DEFINITION).await;
    for path in [GADGETS, "/apis/example.org/v1", "/apis/example.org"] {
        assert_eq!(api.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }

    let (code, _) = api.post(DEFINITIONS, gadgets()).await;
    assert_eq!(code, StatusCode::CREATED);
    let (_, list) = api.get(GADGETS).await;
    assert_eq!(list["items"], json!([]), "the kind begins anew");
    assert_eq!(
        api.post(GADGETS, gadget("a", json!({}))).await.0,
        StatusCode::CREATED
    );
}

#[tokio::test(start_paused = true)]
async fn all_definitions_of_clients_may_be_deleted_at_once() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    api.post(GADGETS, gadget("a", json!({}))).await;
    let (code, answer) = api.delete(DEFINITIONS).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    api.gone(GADGETS_DEFINITION).await;
    api.post(DEFINITIONS, gadgets()).await;
    assert_eq!(
        api.get(&format!("{GADGETS}/a")).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_until_a_name_of_another_is_free() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    let mut second = renamed("gizmos", "Gizmo");
    second["spec"]["names"]["shortNames"] = json!(["gd"]);
    let (code, _) = api.post(DEFINITIONS, second).await;
    assert_eq!(code, StatusCode::CREATED);
    let path = format!("{DEFINITIONS}/gizmos.example.org");
    let (_, stored) = api.get(&path).await;
    assert_eq!(
        condition(&stored, "NamesAccepted"),
        ("False", "ShortNamesConflict")
    );
    assert_eq!(condition(&stored, "Established"), ("False", "NotAccepted"));
    let gizmos = "/apis/example.org/v1/namespaces/default/gizmos";
    assert_eq!(api.get(gizmos).await.0, StatusCode::NOT_FOUND);

    api.delete(GADGETS_DEFINITION).await;
    api.until(&path, |stored| condition(stored, "Established").0 == "True")
        .await;
    assert_eq!(api.get(gizmos).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn names_that_change_are_served_and_a_conflict_keeps_those_before() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    api.post(DEFINITIONS, renamed("gizmos", "Gizmo")).await;
    let short = |name: &str| json!({"spec": {"names": {"shortNames": [name]}}});
    api.merge(&format!("{DEFINITIONS}/gizmos.example.org"), short("gz"))
        .await;
    let shown = |list: &Value| {
        let resources = list["resources"].as_array().unwrap().clone();
        let gizmos = resources
            .into_iter()
            .find(|resource| resource["name"] == "gizmos");
        gizmos.unwrap()["shortNames"].clone()
    };
    assert_eq!(
        shown(&api.get("/apis/example.org/v1").await.1),
        json!(["gz"])
    );
    api.merge(&format!("{DEFINITIONS}/gizmos.example.org"), short("gd"))
        .await;
    assert_eq!(
        shown(&api.get("/apis/example.org/v1").await.1),
        json!(["gz"])
    );
    let (_, stored) = api.get(&format!("{DEFINITIONS}/gizmos.example.org")).await;
    assert_eq!(condition(&stored, "NamesAccepted").0, "False");
    assert_eq!(condition(&stored, "Established").0, "True");
}

#[tokio::test(start_paused = true)]
async fn versions_differ_as_without_a_webhook() {
    let api = Api::without_definitions().await;
    let mut definition = gadgets();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mode"]["default"] =
        json!("fast");
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(second);
    let (code, answer) = api.post(DEFINITIONS, definition).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let v2 = GADGETS.replace("/v1/", "/v2/");
    let (_, group) = api.get("/apis/example.org").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");

    let mut new = gadget("new", json!({"size": 2}));
    new["apiVersion"] = json!("example.org/v2");
    let (code, created) = api.post(&v2, new).await;
    assert_eq!(code, StatusCode::CREATED, "{created}");
    assert_eq!(created["apiVersion"], "example.org/v2");
    assert_eq!(created["spec"], json!({"size": 2, "mode": "fast"}));
    let (_, first) = api.get(&format!("{GADGETS}/new")).await;
    assert_eq!(first["apiVersion"], "example.org/v1");
    assert_eq!(first["spec"], created["spec"]);
    assert_eq!(
        first["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );

    let (code, patched) = api
        .merge(&format!("{v2}/new"), json!({"spec": {"size": 3}}))
        .await;
    assert_eq!(
        (code, &patched["apiVersion"]),
        (StatusCode::OK, &json!("example.org/v2"))
    );
    let (_, same) = api
        .merge(&format!("{v2}/new"), json!({"spec": {"size": 3}}))
        .await;
    assert_eq!(
        same["metadata"], patched["metadata"],
        "a write without a change is none"
    );
    let (_, list) = api.get(&v2).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.org/v2");
    let mut watch = api.watch(&v2).await;
    assert_eq!(
        watch.next().await.unwrap()["object"]["apiVersion"],
        "example.org/v2"
    );
    let (_, applied) = api
        .apply(&format!("{v2}/new"), json!({"apiVersion": "example.org/v2", "kind": "Gadget", "metadata": {"name": "new"}, "spec": {"size": 3}}))
        .await;
    assert_eq!(applied["apiVersion"], "example.org/v2", "{applied}");
    let (_, selected) = api.get(&format!("{v2}?fieldSelector=spec.size%3D3")).await;
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);

    // The other version becomes the one that is stored.
    let (code, _) = api
        .json_patch(
            GADGETS_DEFINITION,
            json!([
                {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
                {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
                {"op": "replace", "path": "/spec/versions/0/served", "value": false},
            ]),
        )
        .await;
    assert_eq!(code, StatusCode::OK);
    let (_, stored) = api.get(GADGETS_DEFINITION).await;
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(api.get(GADGETS).await.0, StatusCode::NOT_FOUND);
    let (_, after) = api.get(&format!("{v2}/new")).await;
    assert_eq!(after["spec"], json!({"size": 3, "mode": "fast"}));
    let gone = json!({"spec": {"versions": [stored["spec"]["versions"][1]]}});
    let (code, refused) = api.merge(GADGETS_DEFINITION, gone).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(causes(&refused), ["status.storedVersions[0]"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_names_the_field() {
    let api = Api::without_definitions().await;
    let version = "/spec/versions/0";
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let table: &[(&str, Value, &[&str])] = &[
        (
            "/metadata/name",
            json!("others.example.org"),
            &["metadata.name"],
        ),
        (
            "/spec/group",
            json!("example"),
            &["metadata.name", "spec.group"],
        ),
        (
            "/spec/group",
            json!("coordination.k8s.io"),
            &[
                "metadata.name",
                "metadata.annotations[api-approved.kubernetes.io]",
                "spec.group",
            ],
        ),
        ("/spec/scope", json!("Everywhere"), &["spec.scope"]),
        (
            "/spec/names/plural",
            json!("Gadgets"),
            &["metadata.name", "spec.names.plural"],
        ),
        (
            "/spec/names/kind",
            json!("Gad get"),
            &[
                "spec.names.singular",
                "spec.names.kind",
                "spec.names.listKind",
            ],
        ),
        (
            "/spec/names/listKind",
            json!("Gadget"),
            &["spec.names.listKind"],
        ),
        (
            "/spec/names/shortNames/0",
            json!("G"),
            &["spec.names.shortNames[0]"],
        ),
        (
            "/spec/versions/0/name",
            json!("1"),
            &["spec.versions[0].name", "spec.version"],
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            &["spec.versions", "status.storedVersions"],
        ),
        (
            version,
            json!({"name": "v1", "served": true, "storage": true}),
            &["spec.versions[0].schema.openAPIV3Schema"],
        ),
        (
            schema,
            json!({"type": "string"}),
            &[
                "spec.validation.openAPIV3Schema.type",
                "spec.selectableFields[0].jsonPath",
            ],
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size",
            json!({}),
            &[
                "spec.validation.openAPIV3Schema.properties[spec].properties[size].type",
                "spec.selectableFields[0].jsonPath",
            ],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/type",
            json!("text"),
            &["spec.additionalPrinterColumns[0].type"],
        ),
        (
            "/spec/versions/0/additionalPrinterColumns/0/jsonPath",
            json!("spec"),
            &["spec.additionalPrinterColumns[0].JSONPath"],
        ),
        (
            "/spec/versions/0/selectableFields/0/jsonPath",
            json!(".spec"),
            &["spec.selectableFields[0].jsonPath"],
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Webhook"}),
            &["spec.conversion.strategy"],
        ),
        (
            "/spec/preserveUnknownFields",
            json!(true),
            &["spec.preserveUnknownFields"],
        ),
    ];
    for (pointer, value, fields) in table {
        let mut definition = gadgets();
        put(&mut definition, pointer, value.clone());
        let (code, refused) = api.post(DEFINITIONS, definition).await;
        assert_eq!(
            code,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{pointer}: {refused}"
        );
        assert_eq!(causes(&refused), *fields, "{pointer}: {refused}");
    }
    assert_eq!(
        api.get("/apis/example.org/v1").await.0,
        StatusCode::NOT_FOUND
    );

    api.post(DEFINITIONS, gadgets()).await;
    for (pointer, value, field) in [
        ("/spec/scope", "Cluster", "spec.scope"),
        ("/spec/names/kind", "Other", "spec.names.kind"),
    ] {
        let patch = json!([{"op": "replace", "path": pointer, "value": value}]);
        let (code, refused) = api.json_patch(GADGETS_DEFINITION, patch).await;
        assert_eq!(
            code,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{pointer}: {refused}"
        );
        assert_eq!(causes(&refused), [field], "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_definitions_of_the_program_are_not_for_clients() {
    let api = Api::new().await;
    let path = format!("{DEFINITIONS}/clusters.kubespray.k8s.io");
    let (_, definition) = api.get(&path).await;
    assert_eq!(condition(&definition, "Established").0, "True");
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    for (code, answer) in [
        api.merge(&path, annotated.clone()).await,
        api.merge(&format!("{path}/status"), json!({"status": {}}))
            .await,
        api.apply(&path, definition.clone()).await,
        api.put(&path, definition.clone()).await,
        api.delete(&path).await,
        api.delete(DEFINITIONS).await,
    ] {
        assert_eq!(code, StatusCode::FORBIDDEN, "{answer}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .contains("part of this program")
        );
    }
    assert_eq!(api.get(&path).await.1, definition);
    // Another kind in the same group is fine, but not under the same name.
    let mut other = renamed("clusters", "Cluster");
    other["metadata"]["name"] = json!("others.kubespray.k8s.io");
    other["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    other["spec"]["group"] = json!("kubespray.k8s.io");
    other["spec"]["names"] = json!({"plural": "others", "kind": "Cluster"});
    assert_eq!(api.post(DEFINITIONS, other).await.0, StatusCode::CREATED);
    let (_, other) = api
        .get(&format!("{DEFINITIONS}/others.kubespray.k8s.io"))
        .await;
    assert_eq!(condition(&other, "NamesAccepted").0, "False");
    assert_eq!(
        condition(&other, "KubernetesAPIApprovalPolicyConformant"),
        ("False", "UnapprovedAnnotation")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_their_objects_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let before = {
        let api = Api::open(directory.path()).await;
        api.post(DEFINITIONS, gadgets()).await;
        let mut cluster_wide = renamed("gizmos", "Gizmo");
        cluster_wide["spec"]["scope"] = json!("Cluster");
        api.post(DEFINITIONS, cluster_wide).await;
        let (code, _) = api.post(GADGETS, gadget("a", json!({"size": 1}))).await;
        assert_eq!(code, StatusCode::CREATED);
        let gizmo = json!({"apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": {"name": "g"}, "spec": {}});
        let (code, _) = api.post("/apis/example.org/v1/gizmos", gizmo).await;
        assert_eq!(code, StatusCode::CREATED);
        let patch = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color", "value": {"type": "string", "default": "red"}}]);
        api.json_patch(GADGETS_DEFINITION, patch).await;
        state(&api).await
    };
    let api = Api::open(directory.path()).await;
    assert_eq!(state(&api).await, before);
    let from = before[2]["metadata"]["resourceVersion"].as_str().unwrap();
    api.merge(&format!("{GADGETS}/a"), json!({"spec": {"size": 2}}))
        .await;
    let mut watch = api
        .watch(&format!("{GADGETS}?resourceVersion={from}"))
        .await;
    assert_eq!(
        watch.next().await.unwrap()["object"]["spec"],
        json!({"size": 2, "mode": "slow", "color": "red"})
    );
}

/// A deletion that was interrupted goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    {
        let api = Api::open(directory.path()).await;
        api.post(DEFINITIONS, gadgets()).await;
        let mut held = gadget("held", json!({}));
        held["metadata"]["finalizers"] = json!(["example.org/hold"]);
        api.post(GADGETS, held).await;
        api.delete(GADGETS_DEFINITION).await;
    }
    let api = Api::open(directory.path()).await;
    let (code, _) = api.post(GADGETS, gadget("late", json!({}))).await;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
    api.merge(
        &format!("{GADGETS}/held"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    api.gone(GADGETS_DEFINITION).await;
    api.gone(GADGETS).await;
}

/// A definition that this program cannot serve (another one wrote it) is told so, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_definition_that_cannot_be_served_says_why() {
    let directory = tempfile::tempdir().unwrap();
    {
        let api = Api::open(directory.path()).await;
        api.post(DEFINITIONS, gadgets()).await;
        api.post(GADGETS, gadget("a", json!({"size": 1}))).await;
    }
    drop(Api::open(directory.path()).await);
    let replace = |from: &str, to: &str| {
        let kind = "customresourcedefinitions.apiextensions.k8s.io";
        rewrite(directory.path(), kind, |json| json.replace(from, to));
    };
    let (good, bad) = ("\"integer\",\"minimum\"", "\"quantum\",\"minimum\"");
    closed(directory.path()).await;
    replace(good, bad);
    {
        let api = Api::open(directory.path()).await;
        let (_, definition) = api.get(GADGETS_DEFINITION).await;
        assert_eq!(
            condition(&definition, "Established"),
            ("False", "InvalidDefinition")
        );
        let text = definition["status"].to_string();
        assert!(
            text.contains("properties[size].type") && text.contains("quantum"),
            "{text}"
        );
        assert_eq!(api.get(GADGETS).await.0, StatusCode::NOT_FOUND);
        // It can still be looked after.
        let (code, _) = api
            .merge(
                GADGETS_DEFINITION,
                json!({"metadata": {"labels": {"a": "b"}}}),
            )
            .await;
        assert_eq!(code, StatusCode::OK);
    }
    closed(directory.path()).await;
    replace(bad, good);
    let api = Api::open(directory.path()).await;
    let (_, definition) = api.get(GADGETS_DEFINITION).await;
    assert_eq!(condition(&definition, "Established").0, "True");
    let (_, gadget) = api.get(&format!("{GADGETS}/a")).await;
    assert_eq!(gadget["spec"]["size"], 1);
}

/// Kinds come and go while others read, write and watch: no request fails otherwise than by the kind being there or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kinds_come_and_go_beside_other_requests() {
    let api = Api::without_definitions().await;
    let writers = tokio::spawn({
        let api = api.clone();
        async move {
            for index in 0..400 {
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{index}")}});
                let (code, answer) = api.post("/api/v1/namespaces/default/configmaps", map).await;
                assert_eq!(code, StatusCode::CREATED, "{answer}");
                let name = format!("g{index}");
                let (code, answer) = api.post(GADGETS, gadget(&name, json!({}))).await;
                let legal = [
                    StatusCode::CREATED,
                    StatusCode::NOT_FOUND,
                    StatusCode::METHOD_NOT_ALLOWED,
                ];
                assert!(legal.contains(&code), "{code}: {answer}");
            }
        }
    });
    for _ in 0..10 {
        assert_eq!(
            api.post(DEFINITIONS, gadgets()).await.0,
            StatusCode::CREATED
        );
        api.post(GADGETS, gadget("here", json!({}))).await;
        assert_eq!(api.delete(GADGETS_DEFINITION).await.0, StatusCode::OK);
        api.gone(GADGETS_DEFINITION).await;
    }
    writers.await.unwrap();
    api.post(DEFINITIONS, gadgets()).await;
    let (_, list) = api.get(GADGETS).await;
    assert_eq!(list["items"], json!([]), "nothing outlives its definition");
}

/// The objects of a kind that is gone cannot be looked up any more; what they owned goes all the same.
#[tokio::test(start_paused = true)]
async fn what_the_objects_of_a_kind_owned_goes_with_them() {
    let api = Api::without_definitions().await;
    api.post(DEFINITIONS, gadgets()).await;
    let (_, owner) = api.post(GADGETS, gadget("a", json!({}))).await;
    let reference = json!({
        "apiVersion": "example.org/v1", "kind": "Gadget", "name": "a", "uid": owner["metadata"]["uid"],
    });
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owned", "ownerReferences": [reference]},
    });
    let (code, _) = api.post(MAPS, owned).await;
    assert_eq!(code, StatusCode::CREATED);
    api.delete(GADGETS_DEFINITION).await;
    api.gone(GADGETS_DEFINITION).await;
    api.gone(&format!("{MAPS}/owned")).await;
}

/// A client that goes away right after its write leaves a definition that is served all the same.
#[tokio::test(start_paused = true)]
async fn a_definition_of_a_client_that_went_away_is_served() {
    let api = Api::without_definitions().await;
    let polls = 1..40;
    for polls in polls {
        let mut request = Box::pin(api.post(DEFINITIONS, gadgets()));
        for _ in 0..polls {
            if futures::poll!(&mut request).is_ready() {
                break;
            }
        }
        drop(request);
        if api.get(GADGETS_DEFINITION).await.0 == StatusCode::OK {
            let is_served = |stored: &Value| condition(stored, "Established").0 == "True";
            api.until(GADGETS_DEFINITION, is_served).await;
            api.delete(GADGETS_DEFINITION).await;
            api.gone(GADGETS_DEFINITION).await;
        }
    }
}

/// Kills a process that registers and removes kinds, three times over: what it was told is there, or goes on going.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let lives = killed(
        "definitions::registering_process",
        directory.path(),
        3,
        |round| 15 + round * 7,
    );
    // What was done with the last one was perhaps not told.
    let cut_off: Vec<_> = lives
        .iter()
        .filter_map(|told| Some(told.last()?.split_once(' ')?.1))
        .collect();
    let said: Vec<_> = lives
        .iter()
        .flatten()
        .filter_map(|told| told.split_once(' '))
        .collect();
    let api = Api::open(directory.path()).await;
    let mut kept = 0;
    for &(word, plural) in &said {
        let definition = format!("{DEFINITIONS}/{plural}.example.org");
        let objects = format!("/apis/example.org/v1/namespaces/default/{plural}");
        if word == "delete" {
            api.gone(&definition).await;
            api.gone(&objects).await;
        } else if word == "create"
            && !said.contains(&("delete", plural))
            && !cut_off.contains(&plural)
        {
            let (_, stored) = api.get(&definition).await;
            assert_eq!(condition(&stored, "Established").0, "True", "{stored}");
            let (code, answer) = api.get(&format!("{objects}/a")).await;
            assert_eq!(code, StatusCode::OK, "{answer}");
            kept += 1;
        }
    }
    assert!(kept > 5, "{said:?}");
}

/// Not a test of its own: the process that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by nothing_acknowledged_is_lost_by_a_kill"]
async fn registering_process() {
    let Some((directory, round)) = to_be_killed() else {
        return;
    };
    let api = Api::open(&directory).await;
    for index in 0..1000 {
        let plural = format!("k{round}x{index}s");
        let kind = format!("K{round}x{index}");
        let (code, answer) = api.post(DEFINITIONS, renamed(&plural, &kind)).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        tell(&format!("define {plural}"));
        let object = json!({"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {}});
        let objects = format!("/apis/example.org/v1/namespaces/default/{plural}");
        let (code, answer) = api.post(&objects, object).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        tell(&format!("create {plural}"));
        if index % 2 == 0 {
            let path = format!("{DEFINITIONS}/{plural}.example.org");
            assert_eq!(api.delete(&path).await.0, StatusCode::OK);
            tell(&format!("delete {plural}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_tightened_definition_can_still_be_deleted() {
    let api = Api::without_definitions().await;
    let (code, _) = api.post(DEFINITIONS, gadgets()).await;
    assert_eq!(code, StatusCode::CREATED);
    let mut held = gadget("held", json!({"size": 50}));
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    let (code, _) = api.post(GADGETS, held).await;
    assert_eq!(code, StatusCode::CREATED);
    let tighter = json!([
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/required", "value": ["color"]},
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/color", "value": {"type": "string"}},
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 10},
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations",
         "value": [{"rule": "self.size < 5"}]},
    ]);
    let (code, answer) = api.json_patch(GADGETS_DEFINITION, tighter).await;
    assert_eq!(code, StatusCode::OK, "{answer}");

    let path = format!("{GADGETS}/held");
    let (code, refused) = api.merge(&path, json!({"spec": {"size": 51}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    let status = json!({"status": {"phase": "Down"}});
    let (code, answer) = api.merge(&format!("{path}/status"), status).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let wrong = json!({"status": {"phase": 1}});
    let (_, refused) = api.merge(&format!("{path}/status"), wrong).await;
    assert_eq!(causes(&refused)[0], "status.phase");
    let (code, _) = api.delete(&path).await;
    assert_eq!(code, StatusCode::OK);
    let free = json!({"metadata": {"finalizers": null}});
    let (code, answer) = api.merge(&path, free).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(api.get(&path).await.0, StatusCode::NOT_FOUND);
}

/// What a restart must not change.
async fn state(api: &Api) -> Vec<Value> {
    let mut state = Vec::new();
    for path in [
        DEFINITIONS,
        "/apis/example.org/v1",
        &format!("{GADGETS}/a"),
        "/apis/example.org/v1/gizmos/g",
    ] {
        let (code, value) = api.get(path).await;
        assert_eq!(code, StatusCode::OK, "{path}: {value}");
        state.push(value);
    }
    let list = &mut state[0]["metadata"];
    list["resourceVersion"] = Value::Null;
    state
}

fn gadgets() -> Value {
    renamed("gadgets", "Gadget")
}

fn renamed(plural: &str, kind: &str) -> Value {
    let short = if plural == "gadgets" {
        json!(["gd"])
    } else {
        json!([])
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": short},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "minimum": 0, "x-kubernetes-validations": [
                            {"rule": "self <= 100", "message": "too large"},
                        ]},
                        "mode": {"type": "string", "default": "slow"},
                    }},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                }}},
            }],
        },
    })
}

fn gadget(name: &str, spec: Value) -> Value {
    let mut gadget =
        json!({"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": name}});
    gadget["spec"] = spec;
    gadget
}

fn gadget_of(name: &str, field: &str, value: Value) -> Value {
    let mut spec = json!({});
    spec[field] = value;
    gadget(name, spec)
}

/// The status and the reason of a condition.
fn condition<'a>(definition: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let conditions = definition["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    let text = |name: &str| {
        found
            .and_then(|condition| condition[name].as_str())
            .unwrap_or_default()
    };
    (text("status"), text("reason"))
}

fn causes(refused: &Value) -> Vec<&str> {
    let causes = refused["details"]["causes"].as_array();
    let fields = causes.into_iter().flatten();
    fields.filter_map(|cause| cause["field"].as_str()).collect()
}

fn put(value: &mut Value, pointer: &str, new: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap();
    match name.parse::<usize>() {
        Ok(index) => parent[index] = new,
        Err(_) => parent[name] = new,
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS_DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.org";
const GADGETS: &str = "/apis/example.org/v1/namespaces/default/gadgets";
