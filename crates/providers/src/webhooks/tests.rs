//! Webhooks that answer and that do not, as an API server tells of them. The API itself is a script: the embedded one has no webhooks.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// The API: what it has by path, what it says of what is tried by resource, and what was tried.
#[derive(Clone, Default)]
struct Api {
    lists: Arc<Mutex<BTreeMap<&'static str, Vec<Value>>>>,
    says: Arc<Mutex<BTreeMap<&'static str, (u16, &'static str)>>>,
    tried: Arc<Mutex<Vec<String>>>,
}

impl Api {
    fn client(&self) -> Client {
        let api = self.clone();
        let answer = move |request: Request<Body>| {
            let (code, body) = api.answer(request.method(), request.uri());
            let response = Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(response.unwrap()) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn answer(&self, method: &Method, uri: &http::Uri) -> (u16, Value) {
        let last = uri.path().rsplit('/').next().unwrap_or_default();
        if *method == Method::GET && uri.path().contains("/customresourcedefinitions/") {
            let definitions = fleet_definitions().into_iter();
            let mut found = definitions.filter(|one| one.name_any() == last);
            return (200, serde_json::to_value(found.next().unwrap()).unwrap());
        }
        if *method == Method::GET {
            let lists = self.lists.lock().unwrap();
            let found = lists.iter().find(|(resource, _)| **resource == last);
            let items = found.map(|(_, items)| items.clone()).unwrap_or_default();
            return (200, json!({"metadata": {}, "items": items}));
        }
        assert_eq!(*method, Method::PATCH);
        let query = uri.query().unwrap_or_default();
        assert!(query.contains("dryRun=All"), "nothing is stored: {query}");
        assert_eq!(last, NAME);
        self.tried.lock().unwrap().push(uri.path().to_owned());
        let says = self.says.lock().unwrap();
        let said = says
            .iter()
            .find(|(resource, _)| uri.path().contains(*resource));
        match said {
            Some((_, (code, said))) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": said, "code": code});
                (*code, status)
            }
            None => (
                201,
                json!({"apiVersion": "boat.example/v1", "kind": "Boat", "metadata": {"name": NAME}}),
            ),
        }
    }

    fn say(&self, resource: &'static str, code: u16, said: &'static str) {
        self.says.lock().unwrap().insert(resource, (code, said));
    }

    fn have(&self, resource: &'static str, items: Vec<Value>) {
        self.lists.lock().unwrap().insert(resource, items);
    }

    fn tried(&self) -> Vec<String> {
        std::mem::take(&mut *self.tried.lock().unwrap())
    }
}

/// A definition of these plurals; the versions in the order of their age, of which the last one is stored.
fn definition(
    plural: &str,
    scope: &str,
    versions: &[&str],
    converts: bool,
) -> CustomResourceDefinition {
    let last = versions.last();
    let versions = versions.iter().map(|version| {
        json!({"name": version, "served": true, "storage": Some(version) == last, "schema": {"openAPIV3Schema": {"type": "object"}}})
    });
    let call =
        json!({"service": {"namespace": "boat-system", "name": "converter", "path": "/convert"}});
    let conversion = if converts {
        json!({"strategy": "Webhook", "webhook": {"clientConfig": call, "conversionReviewVersions": ["v1"]}})
    } else {
        json!({"strategy": "None"})
    };
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.boat.example"), "generation": 1},
        "spec": {
            "group": "boat.example", "scope": scope, "names": {"kind": plural, "plural": plural},
            "versions": versions.collect::<Vec<_>>(), "conversion": conversion,
        },
    }))
    .unwrap()
}

fn webhook(name: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent",
        "clientConfig": {"service": {"namespace": "boat-system", "name": "webhook", "port": 443}},
        "rules": [{"apiGroups": ["boat.example"], "apiVersions": ["v1"], "operations": operations, "resources": resources, "scope": "*"}],
    })
}

fn configuration(version: &str, webhooks: &[Value]) -> Value {
    json!({"metadata": {"name": "boat", "resourceVersion": version}, "webhooks": webhooks})
}

/// A fleet: boats that are judged when they are made, sails when they are changed and made, buoys of the whole cluster that are converted.
fn fleet() -> (Api, Found) {
    let api = Api::default();
    let changing = [webhook("default.boats", &["boats"], &["CREATE", "UPDATE"])];
    api.have(
        "mutatingwebhookconfigurations",
        vec![configuration("1", &changing)],
    );
    let judging = [
        webhook("validation.boats", &["boats"], &["*"]),
        webhook("validation.sails", &["sails"], &["CREATE"]),
        webhook("scale.boats", &["boats/scale"], &["UPDATE"]),
    ];
    api.have(
        "validatingwebhookconfigurations",
        vec![configuration("1", &judging)],
    );
    let found = Found {
        definitions: fleet_definitions().iter().map(Outline::from).collect(),
        ..Found::default()
    };
    (api, found)
}

fn fleet_definitions() -> [CustomResourceDefinition; 4] {
    [
        definition("boats", "Namespaced", &["v1"], false),
        definition("buoys", "Cluster", &["v1alpha1", "v1"], true),
        definition("sails", "Namespaced", &["v1"], false),
        // Nobody is asked about these.
        definition("anchors", "Namespaced", &["v1"], false),
    ]
}

fn provider() -> Provider {
    Provider::new(clusterctl::ProviderType::Infrastructure, "boat").unwrap()
}

async fn look(memory: &Memory, api: &Api, found: &Found) -> Verdict {
    let whose = ("boat-system/boat", "boat-system");
    memory.look(&api.client(), whose, &provider(), found).await
}

#[tokio::test]
async fn each_kind_is_tried_once_and_whoever_answers_at_an_address_answers_for_it() {
    let (api, found) = fleet();
    let verdict = look(&Memory::default(), &api, &found).await;
    let expected = Verdict {
        // Also the one that no object that is made is given to.
        answering: 5,
        ..Verdict::default()
    };
    assert_eq!(verdict, expected);
    assert_eq!(
        api.tried(),
        [
            "/apis/boat.example/v1/namespaces/boat-system/boats/windlass-webhook-check",
            // Not the version that is stored: somebody has to convert it.
            "/apis/boat.example/v1alpha1/buoys/windlass-webhook-check",
            "/apis/boat.example/v1/namespaces/boat-system/sails/windlass-webhook-check",
        ]
    );
}

#[tokio::test]
async fn a_refusal_is_an_answer_too() {
    let (api, found) = fleet();
    for (resource, code, said) in [
        (
            "boats",
            403,
            "admission webhook \"validation.boats\" denied the request: it has no sail",
        ),
        (
            "buoys",
            500,
            "conversion webhook for boat.example/v1alpha1, Kind=buoys failed: no such chain",
        ),
        (
            "sails",
            422,
            "sails.boat.example \"windlass-webhook-check\" is invalid: spec.size: Required value",
        ),
    ] {
        api.say(resource, code, said);
    }
    let verdict = look(&Memory::default(), &api, &found).await;
    let expected = Verdict {
        answering: 5,
        ..Verdict::default()
    };
    assert_eq!(verdict, expected);
}

#[tokio::test]
async fn who_does_not_answer_is_named_once_with_why_and_is_not_waited_for_again() {
    let (api, found) = fleet();
    let said = "Internal error occurred: failed calling webhook \"default.boats\": failed to call webhook: Post \
         \"https://webhook.boat-system.svc:443/mutate?timeout=10s\": no endpoints available for service \"webhook\"";
    api.say("boats", 500, said);
    let verdict = look(&Memory::default(), &api, &found).await;
    assert_eq!(
        verdict.silent,
        [
            "Service boat-system/webhook does not answer: no endpoints available for service \"webhook\" (default.boats and 3 more webhooks)"
        ]
    );
    assert_eq!((verdict.answering, verdict.unknown), (1, None));
    let tried = api.tried();
    assert_eq!(
        tried.len(),
        2,
        "the sails are judged at the same address: {tried:?}"
    );

    let said = "conversion webhook for boat.example/v1alpha1, Kind=buoys failed: Post \
         \"https://converter.boat-system.svc:443/convert?timeout=30s\": context deadline exceeded";
    api.say("buoys", 500, said);
    let verdict = look(&Memory::default(), &api, &found).await;
    let [converter, _] = verdict.silent.as_slice() else {
        panic!("{verdict:?}")
    };
    let expected = "Service boat-system/converter does not answer: context deadline exceeded (the conversion of buoys.boat.example)";
    assert_eq!(converter, expected);
}

#[tokio::test]
async fn nobody_is_asked_while_nothing_changes_that_an_answer_depends_on() {
    let (api, mut found) = fleet();
    let memory = Memory::default();
    let slice =
        |version: &str| json!({"metadata": {"name": "webhook-abc", "resourceVersion": version}});
    api.have("endpointslices", vec![slice("1")]);
    let first = look(&memory, &api, &found).await;
    assert_eq!(api.tried().len(), 3);
    assert_eq!(look(&memory, &api, &found).await, first);
    assert_eq!(api.tried(), [""; 0], "at rest");

    let said = "Internal error occurred: failed calling webhook \"default.boats\": failed to call webhook: Post \"https://webhook\": \
         dial tcp 10.0.0.7:9443: connect: connection refused";
    api.say("boats", 500, said);
    assert_eq!(
        look(&memory, &api, &found).await,
        first,
        "nothing tells of it"
    );
    api.have("endpointslices", vec![slice("2")]);
    let silent = look(&memory, &api, &found).await;
    assert_eq!((silent.silent.len(), api.tried().len()), (1, 2));
    assert_eq!(
        look(&memory, &api, &found).await,
        silent,
        "not at once again"
    );
    assert_eq!(api.tried(), [""; 0]);

    api.says.lock().unwrap().clear();
    let judging = [webhook("validation.boats", &["boats"], &["CREATE"])];
    api.have(
        "validatingwebhookconfigurations",
        vec![configuration("2", &judging)],
    );
    assert_eq!(look(&memory, &api, &found).await.answering, 3);
    found.definitions[0].metadata.generation = Some(2);
    look(&memory, &api, &found).await;
    assert_eq!(api.tried().len(), 4, "two kinds, twice");
    memory.forget("boat-system/boat");
    look(&memory, &api, &found).await;
    assert_eq!(api.tried().len(), 2, "another provider of that name");
}

#[tokio::test]
async fn what_comes_up_is_asked_again_within_seconds_however_long_it_was_silent_before() {
    let (api, found) = fleet();
    let memory = Memory::default();
    let said = "Internal error occurred: failed calling webhook \"default.boats\": failed to call webhook: Post \"https://webhook\": \
         dial tcp 10.0.0.7:9443: connect: connection refused";
    api.say("boats", 500, said);
    for version in ["1", "2", "3", "4", "5"] {
        let slice = json!({"metadata": {"name": "webhook-abc", "resourceVersion": version}});
        api.have("endpointslices", vec![slice]);
        let verdict = look(&memory, &api, &found).await;
        assert_eq!(verdict.silent.len(), 1);
        assert_eq!(verdict.again, Some(Duration::from_secs(5)), "{version}");
    }
    api.says.lock().unwrap().clear();
    api.have("endpointslices", Vec::new());
    assert_eq!(look(&memory, &api, &found).await.again, None, "at rest");
}

#[tokio::test]
async fn where_the_api_or_a_webhook_of_others_is_busy_it_is_asked_again_within_seconds() {
    let (api, found) = fleet();
    let foreign = "Internal error occurred: failed calling webhook \"policy.example\": failed to call webhook: Post \"https://policy\": \
         context deadline exceeded";
    for (code, said, told) in [
        (429, "too many requests", "too many requests"),
        (
            500,
            foreign,
            "policy.example does not answer: context deadline exceeded",
        ),
    ] {
        for kind in ["boats", "sails"] {
            api.say(kind, code, said);
        }
        let verdict = look(&Memory::default(), &api, &found).await;
        assert_eq!((verdict.answering, verdict.silent.len()), (1, 0));
        let expected = format!(
            "4 webhooks could not be asked yet (default.boats, validation.boats, validation.sails, 1 more): {told}"
        );
        assert_eq!(verdict.unknown, Some(expected));
        assert_eq!(verdict.again, Some(Duration::from_secs(5)));
    }
    // Whoever answers at the same address answers for it.
    api.says.lock().unwrap().remove("sails");
    let verdict = look(&Memory::default(), &api, &found).await;
    assert_eq!((verdict.answering, verdict.again), (5, None));
}

#[tokio::test]
async fn without_the_right_to_ask_it_is_told_how_to_have_it() {
    let (api, found) = fleet();
    let said = "boats.boat.example \"windlass-webhook-check\" is forbidden: User \"windlass\" cannot create resource \"boats\" in API group \"boat.example\"";
    api.say("boats", 403, said);
    let verdict = look(&Memory::default(), &api, &found).await;
    assert_eq!((verdict.answering, verdict.silent.len()), (0, 0));
    let unknown = verdict.unknown.unwrap();
    for told in [
        "5 webhooks are not asked, as boats.boat.example",
        "`windlass providers rights infrastructure-boat`",
    ] {
        assert!(unknown.contains(told), "{told}: {unknown}");
    }
    assert_eq!(api.tried().len(), 1, "the others would be forbidden too");
}

#[tokio::test]
async fn what_is_heeded_only_where_it_answers_is_never_known_to_have_been_asked() {
    let (api, found) = fleet();
    let with = |field: &str, value: Value| {
        let mut webhook = webhook("default.boats", &["boats"], &["CREATE"]);
        webhook[field] = value;
        webhook
    };
    api.have("validatingwebhookconfigurations", Vec::new());
    for webhook in [
        with("failurePolicy", json!("Ignore")),
        with("namespaceSelector", json!({"matchLabels": {"a": "b"}})),
        with(
            "objectSelector",
            json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        ),
        with(
            "matchConditions",
            json!([{"name": "a", "expression": "false"}]),
        ),
    ] {
        api.have(
            "mutatingwebhookconfigurations",
            vec![configuration("1", &[webhook])],
        );
        let verdict = look(&Memory::default(), &api, &found).await;
        assert_eq!(verdict.answering, 1, "who converts");
        let unknown = verdict.unknown.unwrap();
        assert!(unknown.contains("(default.boats)"), "{unknown}");
    }
}

#[tokio::test]
async fn the_smallest_object_fits_its_schema_and_nothing_is_left_of_it() {
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": {
            "type": "object", "required": ["name", "size", "sails", "kind", "version", "port", "tags", "filled"], "properties": {
                "name": {"type": "string", "minLength": 12, "maxLength": 20},
                "size": {"type": "integer", "minimum": 3, "exclusiveMinimum": true},
                "sails": {"type": "array", "minItems": 1, "items": {
                    "type": "object", "required": ["area"], "properties": {"area": {"type": "number", "minimum": 0.5}},
                }},
                "kind": {"type": "string", "enum": ["Sloop", "Ketch"]},
                "version": {"type": "string", "pattern": "^v[0-9]+\\.[0-9]+\\.[0-9]+$"},
                "port": {"x-kubernetes-int-or-string": true},
                "tags": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}},
                "filled": {"type": "boolean", "default": true},
                "more": {"type": "object", "required": ["never"], "properties": {"never": {"type": "string"}}},
            },
        }},
    });
    let mut of_kind = definition("boats", "Namespaced", &["v1"], false);
    let schema = json!({"openAPIV3Schema": schema});
    of_kind.spec.versions[0].schema = Some(serde_json::from_value(schema).unwrap());
    of_kind.spec.names.kind = "Boat".to_owned();
    let server = kapi::Server::in_memory(&[of_kind.clone()]).await.unwrap();
    let client = Client::new(server.router(), "default");
    let (_, found) = fleet();
    let mut webhooks: Vec<_> = found
        .definitions
        .iter()
        .filter_map(webhook::converting)
        .collect();
    let judging = configuration("1", &[webhook("validation.boats", &["boats"], &["CREATE"])]);
    webhooks.extend(webhook::validating(
        &serde_json::from_value(judging).unwrap(),
    ));
    let definitions = [Outline::from(&of_kind)];
    let asked = questions(&webhooks, &definitions);
    let [question] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    let tried = put(&client, "default", question).await;
    let object = question.object(&client).await.unwrap();
    assert_eq!(tried, Answer::Passed, "{object}");
    let boats = kube::Api::<DynamicObject>::all_with(client, &question.resource);
    assert_eq!(boats.list(&ListParams::default()).await.unwrap().items, []);
}
