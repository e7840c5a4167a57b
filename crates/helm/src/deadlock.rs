//! Whether an installation of a chart can end: a proof over what the chart renders. Pure.
//!
//! Helm makes the objects of a release in stages: hooks that come before, one after the other; everything else at once, for which
//! it waits where it is told to; hooks that come after. An object that waits for one of a later stage is waited for by Helm before that
//! stage begins, so neither ever comes. Charts with such a knot are common: a Deployment whose init container waits for the Job that
//! makes the tables, which is a hook that comes after; and the twin, a hook that comes before and needs a server of the release.
//!
//! What a pod waits for is seen in what it refers to (volumes, environment, account), and in what the containers that come first are told: the name of
//! an object in their command, arguments or environment, as kubernetes-entrypoint, k8s-wait-for, `kubectl wait` and plain loops have it. What
//! a script in an image does is not seen: no finding is no promise.
//!
//! # Source
//! The order of hooks is that of `pkg/action` of Helm 3 and 4, and so is what a hook is waited for: Jobs and Pods until they are done.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

mod pod;

/// What waits for what cannot come before it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadlock {
    /// Who waits: kind and name.
    pub waiter: String,
    /// For what: kind and name.
    pub needs: String,
    /// When it holds an installation up.
    pub when: When,
}

/// When a knot holds an installation up.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum When {
    /// Always: Helm waits for a hook whether it is told to wait or not.
    Always,
    /// Where Helm is told to wait for what is no hook.
    Waiting,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waiter,
            needs,
            when,
        } = self;
        let order = match when {
            When::Always => "which Helm makes only after this hook has ended",
            When::Waiting => "a hook that Helm runs only after it has waited for the former",
        };
        write!(formatter, "{waiter} waits for {needs}, {order}")
    }
}

/// What was rendered cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("read what the chart renders")]
pub struct Unreadable(#[source] serde_saphyr::Error);

/// Why nobody should wait for an installation.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// What was rendered cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// It would hold itself up.
    #[error("wait for what cannot end: {}", told(.0))]
    Deadlocks(Vec<Deadlock>),
}

fn told(found: &[Deadlock]) -> String {
    let told: Vec<_> = found.iter().map(Deadlock::to_string).collect();
    told.join("; ")
}

/// That an installation which waits is not known to hold itself up.
#[derive(Debug)]
pub struct Proven(());

impl Proven {
    /// Of what a chart renders, with its hooks.
    ///
    /// # Errors
    ///
    /// It would hold itself up, or cannot be read.
    pub fn of(rendered: &str) -> Result<Self, Refused> {
        let found = deadlocks(rendered)?;
        if found.is_empty() {
            Ok(Self(()))
        } else {
            Err(Refused::Deadlocks(found))
        }
    }
}

/// When an object is made. The order is that of Helm.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    Before(i64),
    Main,
    After(i64),
}

/// An object of what is rendered.
struct Object<'a> {
    kind: &'a str,
    name: &'a str,
    stage: Stage,
    value: &'a Value,
}

/// The knots in an installation of what a chart renders, with its hooks: YAML documents, as `helm template` prints them.
///
/// # Errors
///
/// It is no YAML.
pub fn deadlocks(rendered: &str) -> Result<Vec<Deadlock>, Unreadable> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(rendered).map_err(Unreadable)?;
    let items = documents.iter().flat_map(|document| {
        let items = document["items"].as_array();
        items.map_or_else(|| vec![document], |items| items.iter().collect())
    });
    let objects: Vec<_> = items.filter_map(read).collect();
    // What stands in two stages is there from the first one on.
    let mut made: BTreeMap<(&str, &str), Stage> = BTreeMap::new();
    for object in &objects {
        made.entry((object.kind, object.name))
            .and_modify(|stage| *stage = object.stage.min(*stage))
            .or_insert(object.stage);
    }
    let mut found = Vec::new();
    for object in &objects {
        let Some(when) = waited_for(object) else {
            continue;
        };
        for ((kind, name), stage) in &made {
            let is_later = *stage > object.stage;
            if is_later && needs(object, kind, name) {
                found.push(Deadlock {
                    waiter: format!("{} {}", object.kind, object.name),
                    needs: format!("{kind} {name}"),
                    when,
                });
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// None: it is not made by an installation.
fn read(value: &Value) -> Option<Object<'_>> {
    let stage = match value["metadata"]["annotations"]["helm.sh/hook"].as_str() {
        None => Stage::Main,
        Some(hooks) => {
            let weight = &value["metadata"]["annotations"]["helm.sh/hook-weight"];
            let weight = weight.as_str().and_then(|weight| weight.parse().ok());
            let weight = weight.unwrap_or_default();
            let mut hooks = hooks.split(',').map(str::trim);
            hooks.find_map(|hook| match hook {
                "pre-install" => Some(Stage::Before(weight)),
                "post-install" => Some(Stage::After(weight)),
                _ => None,
            })?
        }
    };
    Some(Object {
        kind: value["kind"].as_str()?,
        name: value["metadata"]["name"].as_str()?,
        stage,
        value,
    })
}

/// When Helm waits for an object before it goes on to the next stage. None: it never does.
fn waited_for(object: &Object<'_>) -> Option<When> {
    match (object.stage, object.kind) {
        (Stage::Before(_) | Stage::After(_), "Job" | "Pod") => Some(When::Always),
        (
            Stage::Main,
            "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Pod" | "Job",
        ) => Some(When::Waiting),
        _ => None,
    }
}

fn needs(object: &Object<'_>, kind: &str, name: &str) -> bool {
    let Some(spec) = pod::spec(object.kind, object.value) else {
        return false;
    };
    if pod::refers(spec, kind, name) {
        return true;
    }
    let is_awaited = matches!(
        kind,
        "Job" | "Pod" | "Service" | "Deployment" | "StatefulSet" | "DaemonSet"
    );
    // A hook ends only when all its containers do; of the others Helm sees whether they are ready, which those that come first decide.
    let of_all = object.stage != Stage::Main || object.kind == "Job";
    is_awaited && pod::mentions(spec, of_all, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knots(rendered: &str) -> Vec<String> {
        let found = deadlocks(rendered).unwrap();
        found.iter().map(Deadlock::to_string).collect()
    }

    /// As openstack-helm writes it: the tables are made by hooks that come after, and the pods wait for them.
    const ENTRYPOINT: &str = "
apiVersion: batch/v1
kind: Job
metadata:
  name: keystone-db-sync
  annotations: {helm.sh/hook: 'post-install,post-upgrade', helm.sh/hook-weight: '-4'}
spec:
  template:
    spec:
      initContainers:
        - name: init
          image: entrypoint
          env: [{name: DEPENDENCY_JOBS, value: keystone-db-init}]
      containers: [{name: sync, image: keystone}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: keystone-api}
spec:
  template:
    spec:
      initContainers:
        - name: init
          image: entrypoint
          env: [{name: DEPENDENCY_JOBS, value: 'keystone-db-sync,keystone-credential-setup'}]
      containers: [{name: api, image: keystone}]
";

    #[test]
    fn pods_that_wait_for_a_hook_that_comes_after_are_found() {
        assert_eq!(
            knots(ENTRYPOINT),
            [
                "Deployment keystone-api waits for Job keystone-db-sync, a hook that Helm runs only after it has waited for the former"
            ]
        );
        // Without hooks nothing waits for what comes later.
        let plain = ENTRYPOINT.replace("helm.sh/hook:", "example.com/hook:");
        assert_eq!(knots(&plain), Vec::<String>::new());
        // Nor does it where the hook comes before.
        let before = ENTRYPOINT.replace("post-install,post-upgrade", "pre-install,pre-upgrade");
        assert_eq!(knots(&before), Vec::<String>::new());
        // A test, or what comes at an upgrade alone, is nothing of an installation.
        let test = ENTRYPOINT.replace("post-install,post-upgrade", "test");
        assert_eq!(knots(&test), Vec::<String>::new());
    }

    #[test]
    fn what_waits_in_the_order_of_weights_is_found_whether_helm_waits_or_not() {
        let earlier = ENTRYPOINT.replace("keystone-api", "keystone-ks").replace(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: keystone-ks}",
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: keystone-ks, annotations: {helm.sh/hook: post-install, helm.sh/hook-weight: '-5'}}",
        );
        let found = deadlocks(&earlier).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].when, When::Always);
        let later = earlier.replace("'-5'", "'-3'");
        assert_eq!(knots(&later), Vec::<String>::new());
    }

    /// The twin: a hook that comes before needs a server of the release.
    const TWIN: &str = "
apiVersion: v1
kind: Service
metadata: {name: app-postgresql}
spec: {selector: {app: postgresql}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: app-migrate
  annotations: {helm.sh/hook: pre-install}
spec:
  template:
    spec:
      containers:
        - name: migrate
          image: app
          env: [{name: DATABASE_URL, value: 'postgres://app@app-postgresql:5432/app'}]
";

    #[test]
    fn a_hook_that_comes_before_what_it_needs_is_found() {
        let found = deadlocks(TWIN).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].when, When::Always);
        assert!(
            found[0]
                .to_string()
                .starts_with("Job app-migrate waits for Service app-postgresql, which")
        );
        // A server elsewhere whose name holds that of the release's own.
        let elsewhere = TWIN.replace("@app-postgresql:", "@my-app-postgresql:");
        assert_eq!(knots(&elsewhere), Vec::<String>::new());
        assert_eq!(
            knots(&TWIN.replace("pre-install", "post-install")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_pods_refer_to_is_what_they_wait_for() {
        let of = |reference: &str, kind: &str| {
            knots(&format!(
                "
apiVersion: v1
kind: {kind}
metadata: {{name: made-late, annotations: {{helm.sh/hook: post-install}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: server}}
spec:
  template:
    spec: {reference}
"
            ))
        };
        let container = |what: &str| format!("{{containers: [{{name: a, image: a, {what}}}]}}");
        for (reference, kind) in [
            (
                "{volumes: [{name: v, secret: {secretName: made-late}}]}".to_owned(),
                "Secret",
            ),
            (
                "{volumes: [{name: v, configMap: {name: made-late}}]}".to_owned(),
                "ConfigMap",
            ),
            (
                "{volumes: [{name: v, projected: {sources: [{secret: {name: made-late}}]}}]}"
                    .to_owned(),
                "Secret",
            ),
            (
                "{volumes: [{name: v, persistentVolumeClaim: {claimName: made-late}}]}".to_owned(),
                "PersistentVolumeClaim",
            ),
            (
                "{serviceAccountName: made-late}".to_owned(),
                "ServiceAccount",
            ),
            (
                container("envFrom: [{secretRef: {name: made-late}}]"),
                "Secret",
            ),
            (
                container(
                    "env: [{name: E, valueFrom: {configMapKeyRef: {name: made-late, key: k}}}]",
                ),
                "ConfigMap",
            ),
        ] {
            assert_eq!(of(&reference, kind).len(), 1, "{reference}");
        }
        for reference in [
            "{volumes: [{name: v, secret: {secretName: made-late, optional: true}}]}".to_owned(),
            container("envFrom: [{secretRef: {name: made-late, optional: true}}]"),
            // What a container that serves says of others is its own business.
            container("args: [made-late]"),
        ] {
            assert_eq!(
                of(&reference, "Secret"),
                Vec::<String>::new(),
                "{reference}"
            );
        }
    }

    #[test]
    fn only_what_has_no_knot_is_proven() {
        assert!(Proven::of("").is_ok());
        let refused = Proven::of(ENTRYPOINT).unwrap_err();
        assert!(
            refused.to_string().contains("keystone-db-sync"),
            "{refused}"
        );
        let unreadable = Proven::of("a: [").unwrap_err();
        assert!(matches!(unreadable, Refused::Unreadable(_)), "{unreadable}");
    }
}
