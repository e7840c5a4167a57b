//! What the API refuses to the operator, as the object tells it: the log of the operator is read by nobody who can help.

use kube::core::Status;
use runs::{calls::is_too_large, control};

use super::Error;

/// The reason while the API refuses what a pass needs.
pub(crate) const REFUSED: &str = "Refused";

/// What was refused, by what word, and what helps. None: the API did not answer, or it passes by itself.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let (operation, status) = refused(error)?;
    let remedy = remedy(status)?;
    Some(format!(
        "the API refuses to {operation}: {}; {remedy}, it is tried again",
        status.message
    ))
}

fn refused(error: &Error) -> Option<(String, &Status)> {
    let (operation, source) = match error {
        Error::Api(operation, source) => ((*operation).to_owned(), source),
        Error::Control(error) => match error {
            control::Error::Api { source, .. } => (error.to_string(), &**source),
            control::Error::NoReason { .. } => return None,
        },
        // A status that is refused cannot be told by one.
        Error::Apply(_) | Error::Plan(_) => return None,
    };
    match source {
        kube::Error::Api(status) => Some((operation, status)),
        _ => None,
    }
}

/// What helps against a refusal that does not pass by itself.
fn remedy(status: &Status) -> Option<&'static str> {
    match status.code {
        403 if status.message.contains("exceeded quota") => {
            Some("raise the quota of the namespace, or free what it counts")
        }
        // It goes, and the object with it.
        403 if status.message.contains("being terminated") => None,
        403 => Some("give the operator this right, as its chart does, or have the policy allow it"),
        400 | 422 if status.message.contains("admission webhook") => {
            Some("have the webhook allow it")
        }
        400 | 422 => Some("install the CustomResourceDefinitions of this version of Windlass"),
        _ if status.message.contains("webhook") => Some("see that the webhook answers"),
        _ if is_too_large(status) => Some(LESS),
        _ => None,
    }
}

const LESS: &str = "say less in its spec: each run carries that, and the files that it gives";

#[cfg(test)]
pub(super) mod tests {
    use std::{sync::Arc, time::Duration};

    use api::{
        Run,
        openstack::{OpenStackService, Phase},
    };
    use controller::{Events, conditions};
    use kapi::{
        Server,
        fault::{Fault, Faults},
    };
    use kube::{
        Api, Client, Resource, ResourceExt,
        api::{ListParams, PostParams},
        core::DeserializeGuard,
        runtime::{
            controller::Action,
            reflector::{self, Store},
            watcher::Event,
        },
    };
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use tower::Layer as _;

    use super::*;
    use crate::subject::{Context, HEALTH_LOOK, Meanings, reconcile};

    /// A store that has read that there is nothing.
    pub(in crate::subject) fn empty<K>() -> Store<DeserializeGuard<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
    {
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        store
    }

    /// After which time an object is looked at again, if nothing wakes it. Kube shows it in no other way.
    pub(in crate::subject) fn wait(action: &Action) -> Option<Duration> {
        let shown = format!("{action:?}");
        let (_, wait) = shown.split_once("Some(")?;
        let (number, unit) = wait.split_once(')')?.0.split_once('s')?;
        assert_eq!(unit, "", "{shown}");
        Some(Duration::from_secs_f64(number.parse().unwrap()))
    }

    #[tokio::test]
    async fn a_run_that_the_api_refuses_is_told_by_what_was_ready() {
        let mut definitions = api::custom_resource_definitions();
        definitions.extend(api::openstack::definitions());
        let server = Server::in_memory(&definitions).await.unwrap();
        let faults = Faults::when(|request| {
            let is_run = request.uri.path().ends_with("/runs");
            (is_run && request.method == "POST").then_some(Fault::Invalid)
        });
        let client = Client::new(faults.layer(server.router()), "default");
        let services = Api::<OpenStackService>::namespaced(client.clone(), "default");
        let service = json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity"},
            "spec": {"service": "keystone", "image": "k",
                "database": {"host": "db", "adminSecret": {"name": "admin"}}},
        });
        let service = serde_json::from_value(service).unwrap();
        services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        let mut made = services.get("identity").await.unwrap();
        let ready = json!({"phase": "Ready", "observedGeneration": 1, "conditions": [{"type": "Ready",
            "status": "True", "reason": "Serves", "message": "everything of it serves",
            "lastTransitionTime": "2026-11-28T10:00:00Z", "observedGeneration": 1}]});
        made.status = serde_json::from_value(ready).unwrap();
        let made = services
            .replace_status("identity", &PostParams::default(), &made)
            .await
            .unwrap();
        let context = Arc::new(Context {
            client: client.clone(),
            own: empty(),
            services: empty(),
            runs: empty(),
            events: Events::new(client.clone(), "openstack"),
            meanings: Meanings::default(),
            probes: crate::health::Probes::default(),
            looks: crate::seed::look::Looks::default(),
        });
        let pass = |made: OpenStackService| {
            let made = Arc::new(DeserializeGuard(Ok(made)));
            Box::pin(reconcile(made, Arc::clone(&context)))
        };
        let again = pass(made).await.unwrap();
        assert!(
            wait(&again).is_some_and(|wait| wait <= HEALTH_LOOK.0 * 2),
            "{again:?}"
        );
        let told = services.get("identity").await.unwrap();
        let status = told.status.clone().unwrap();
        assert_eq!(status.phase, Some(Phase::Stalled));
        assert!(!conditions::is_true(&status.conditions, conditions::READY));
        let mut stalled = status.conditions.iter();
        let stalled = stalled.find(|found| found.type_ == conditions::STALLED);
        let stalled = stalled.unwrap();
        assert_eq!(stalled.reason, REFUSED);
        for part in ["refuses to store the run", "it is tried again"] {
            assert!(stalled.message.contains(part), "{}", stalled.message);
        }
        // Nothing is written a second time.
        pass(told.clone()).await.unwrap();
        let again = services.get("identity").await.unwrap();
        assert_eq!(again.resource_version(), told.resource_version());
        faults.end();
        pass(told).await.unwrap();
        let runs = Api::<Run>::namespaced(client, "default");
        assert_eq!(
            runs.list(&ListParams::default()).await.unwrap().items.len(),
            1
        );
        let status = services.get("identity").await.unwrap().status.unwrap();
        assert!(!conditions::is_true(
            &status.conditions,
            conditions::STALLED
        ));
    }

    fn answer(code: u16, message: &str) -> Error {
        let status = Status {
            code,
            ..Status::failure(message, "Why")
        };
        Error::Api("store the run", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_refusal_is_told_with_what_helps() {
        for (code, message, helps) in [
            (403, "exceeded quota: objects", "raise the quota"),
            (
                403,
                "runs is forbidden: User \"w\" cannot create",
                "give the operator this right",
            ),
            (
                422,
                "Run \"r\" is invalid: spec.plan: too long",
                "CustomResourceDefinitions",
            ),
            (
                400,
                "admission webhook \"w\" denied the request",
                "webhook allow",
            ),
            (
                500,
                "failed calling webhook \"w\": timeout",
                "webhook answers",
            ),
            (500, "etcdserver: request is too large", "say less"),
            (413, "limit is 3145728", "say less"),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3000145 vs. 2097152)",
                "say less",
            ),
        ] {
            let told = refusal(&answer(code, message)).unwrap();
            for part in ["refuses to store the run", message, helps] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn what_passes_by_itself_is_no_refusal() {
        for code in [404, 409, 429, 500, 503, 504] {
            assert_eq!(refusal(&answer(code, "the server is busy")), None, "{code}");
        }
        let gone = kube::Error::Service("connection refused".into());
        assert_eq!(refusal(&Error::Api("store the run", gone)), None);
    }
}
