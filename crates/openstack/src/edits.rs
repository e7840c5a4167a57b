//! What people changed by hand in what a release of Helm is made of, and the next upgrade of it would undo. Pure.
//!
//! Helm merges three ways: what the chart does not say stays as people have it, and what it says is set again, whoever wrote it since.
//! So the fields that the chart says are looked at, one by one, in three states: as they are about to be written, as they were written
//! last, and as they are. One is somebody's own where it is neither of the first two and somebody else is known to have written it. The API
//! sets defaults and writes some values in another way, which is why a difference alone proves nothing.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

/// By which items of a list are told apart, as Kubernetes merges them.
const KEYS: [&str; 4] = ["name", "mountPath", "containerPort", "port"];
/// Which versions of Secrets pods have: only a step can know.
const STATE: &str = "metadata.annotations[openstack.windlass.dev/state]";
/// How many are told.
const TOLD: usize = 8;
/// Who writes by Helm.
const HELM: &str = "helm";

/// A field that somebody changed and that is about to be changed back. Its value is nobody's business.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Edit {
    /// The object.
    pub object: String,
    /// The field. Empty: the object itself.
    pub field: String,
    /// Who changed it, by the name that they have in the API.
    pub by: String,
    /// What tells this change from a later one of the same field.
    pub at: String,
}

/// What was changed in an object since it was written last; none: it was not written by us.
pub fn in_object(
    wanted: &Value,
    before: Option<&Value>,
    now: &Value,
    is_ours: impl Fn(&str) -> bool,
) -> Vec<Edit> {
    let managed = now["metadata"]["managedFields"].clone();
    let managed: Vec<ManagedFieldsEntry> = serde_json::from_value(managed).unwrap_or_default();
    let others: Vec<_> = managed
        .iter()
        .filter_map(|entry| Owner::of(entry, &now["metadata"]["generation"]))
        .filter(|owner| !is_ours(&owner.name))
        .collect();
    let mut walk = Walk {
        object: named(wanted),
        by: By::Fields(&others),
        found: Vec::new(),
    };
    let shares = others.iter().map(|owner| Share {
        owner,
        fields: owner.fields,
    });
    let states = States {
        wanted: Some(wanted),
        before,
        now: Some(now),
    };
    walk.look("", states, &shares.collect::<Vec<_>>());
    walk.found
}

/// What was changed in a release by Helm: in its objects as they stand in its last revision, since the last one of ours; none: that is gone.
pub fn in_release(
    wanted: &[Value],
    before: Option<&[Value]>,
    now: &[Value],
    revision: u64,
) -> Vec<Edit> {
    let all = wanted.iter().chain(before.unwrap_or_default()).chain(now);
    let names: BTreeSet<_> = all.map(named).collect();
    let mut found = Vec::new();
    for name in names {
        let states = States {
            wanted: called(wanted, &name),
            before: before.and_then(|objects| called(objects, &name)),
            now: called(now, &name),
        };
        let mut walk = Walk {
            object: name,
            by: By::Helm(revision),
            found: Vec::new(),
        };
        walk.look("", states, &[]);
        found.extend(walk.found);
    }
    found
}

/// What an object is called, with its kind.
pub fn named(object: &Value) -> String {
    let text = |value: &Value| api::text::plain(value.as_str().unwrap_or_default(), 253);
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    format!("{kind} {name}")
}

/// The object that is called so.
pub fn called<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| named(object) == name)
}

/// What names exactly these changes: whoever lets them be overwritten has said nothing of later ones.
pub fn token(edits: &[Edit]) -> String {
    let parts: Vec<_> = edits
        .iter()
        .flat_map(|edit| [&edit.object, &edit.field, &edit.by, &edit.at])
        .map(String::as_str)
        .collect();
    controller::digest(&parts, 10)
}

/// Them for people.
pub fn told(edits: &[Edit]) -> String {
    let line = |edit: &Edit| {
        let Edit {
            object, field, by, ..
        } = edit;
        if field.is_empty() {
            return format!("{object} (by {by})");
        }
        format!("{object} {field} (by {by})")
    };
    let mut lines: Vec<_> = edits.iter().take(TOLD).map(line).collect();
    let further = edits.len().saturating_sub(TOLD);
    if further > 0 {
        lines.push(format!("and {further} more"));
    }
    lines.join(", ")
}

/// Somebody who wrote fields of an object.
struct Owner<'a> {
    name: String,
    at: String,
    fields: &'a Value,
}

impl<'a> Owner<'a> {
    /// Nobody owns what controllers tell of how an object stands.
    ///
    /// Of who scales something the API does not say when. Of that the generation is told, which each change makes another one.
    fn of(entry: &'a ManagedFieldsEntry, generation: &Value) -> Option<Self> {
        if entry.subresource.as_deref() == Some("status") {
            return None;
        }
        let at = match &entry.time {
            Some(time) => serde_json::to_string(time).unwrap_or_default(),
            None => format!("generation {generation}"),
        };
        Some(Self {
            name: entry.manager.clone().unwrap_or_default(),
            at,
            fields: &entry.fields_v1.as_ref()?.0,
        })
    }
}

/// What tells who changed something.
enum By<'a> {
    /// Those who wrote fields of the object, but for us.
    Fields(&'a [Owner<'a>]),
    /// Helm, with this revision.
    Helm(u64),
}

/// What somebody wrote, from some field on downwards.
#[derive(Clone, Copy)]
struct Share<'a> {
    owner: &'a Owner<'a>,
    fields: &'a Value,
}

impl<'a> Share<'a> {
    /// What they wrote in a part of it. Who wrote it as one value wrote all of it.
    fn below(self, part: impl Fn(&'a Map<String, Value>) -> Option<&'a Value>) -> Option<Self> {
        let fields = self.fields.as_object()?;
        let fields = if fields.is_empty() {
            self.fields
        } else {
            part(fields)?
        };
        Some(Self { fields, ..self })
    }
}

/// A field as it is about to be written, as it was written last, and as it is.
#[derive(Clone, Copy)]
struct States<'a> {
    wanted: Option<&'a Value>,
    before: Option<&'a Value>,
    now: Option<&'a Value>,
}

impl<'a> States<'a> {
    fn map(self, of: impl Fn(&'a Value) -> Option<&'a Value>) -> Self {
        Self {
            wanted: self.wanted.and_then(&of),
            before: self.before.and_then(&of),
            now: self.now.and_then(&of),
        }
    }

    /// Of what it is made, where it is there and is compared with something.
    fn parts(self) -> Option<Parts> {
        let States {
            wanted,
            before,
            now,
        } = self;
        let others: Vec<_> = [wanted, before].into_iter().flatten().collect();
        let all = [&others[..], &[now?]].concat();
        if others.is_empty() {
            return None;
        }
        if all.iter().all(|state| state.is_object()) {
            return Some(Parts::Fields);
        }
        let lists: Vec<_> = all
            .iter()
            .map(|state| state.as_array())
            .collect::<Option<_>>()?;
        let items = || lists.iter().flat_map(|list| list.iter());
        let has = |key: &&str| items().all(|item| value_of(item, key).is_some());
        if let Some(key) = KEYS.into_iter().find(has) {
            return Some(Parts::Items(key));
        }
        let length = lists.first().map_or(0, |list| list.len());
        let is_even = lists.iter().all(|list| list.len() == length);
        (is_even && items().all(Value::is_object)).then_some(Parts::Places)
    }
}

/// What something is made of.
#[derive(Clone, Copy)]
enum Parts {
    /// Fields by their names.
    Fields,
    /// Items of a list, by the value of that field.
    Items(&'static str),
    /// Items of a list, by their places.
    Places,
}

impl Parts {
    fn names(self, of: &Value) -> BTreeSet<String> {
        let list = of.as_array().into_iter().flatten();
        match self {
            Self::Fields => {
                let map = of.as_object().into_iter().flatten();
                map.map(|(name, _)| name.clone()).collect()
            }
            Self::Items(key) => list.filter_map(|item| value_of(item, key)).collect(),
            Self::Places => list
                .enumerate()
                .map(|(place, _)| place.to_string())
                .collect(),
        }
    }

    fn part<'a>(self, of: &'a Value, name: &str) -> Option<&'a Value> {
        match self {
            Self::Fields => of.get(name),
            Self::Items(key) => {
                let mut list = of.as_array()?.iter();
                list.find(|item| value_of(item, key).as_deref() == Some(name))
            }
            Self::Places => of.get(name.parse::<usize>().ok()?),
        }
    }

    fn path(self, path: &str, name: &str) -> String {
        match self {
            Self::Fields if name.contains(['.', '/']) => format!("{path}[{name}]"),
            Self::Fields if path.is_empty() => name.to_owned(),
            Self::Fields => format!("{path}.{name}"),
            Self::Items(key) => format!("{path}[{key}={name}]"),
            Self::Places => format!("{path}[{name}]"),
        }
    }

    /// What somebody wrote of a part, which is now like that.
    fn share<'a>(self, of: Share<'a>, name: &str, now: Option<&Value>) -> Option<Share<'a>> {
        match self {
            Self::Fields => of.below(|fields| fields.get(&format!("f:{name}"))),
            Self::Items(_) => of.below(|fields| {
                let mut fields = fields.iter();
                let found = fields.find(|(key, _)| is_key_of(key, now));
                found.map(|(_, fields)| fields)
            }),
            Self::Places => of.below(|_| None),
        }
    }
}

/// Whether the API means that item of a list: it knows it by the values of some of its fields.
fn is_key_of(key: &str, item: Option<&Value>) -> bool {
    let key = key.strip_prefix("k:").unwrap_or_default();
    let values: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
    let has = |(name, value)| item.and_then(|item| item.get(name)) == Some(value);
    !values.is_empty() && values.iter().all(has)
}

fn value_of(item: &Value, key: &str) -> Option<String> {
    match item.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

struct Walk<'a> {
    object: String,
    by: By<'a>,
    found: Vec<Edit>,
}

impl Walk<'_> {
    fn look(&mut self, path: &str, states: States<'_>, shares: &[Share<'_>]) {
        let States {
            wanted,
            before,
            now,
        } = states;
        if now == wanted || now == before || path == STATE {
            return;
        }
        let Some(parts) = states.parts() else {
            self.found.extend(self.edit(path, states, shares));
            return;
        };
        let mut said: Vec<_> = [wanted, before].into_iter().flatten().collect();
        // What is not said any more goes, where Helm knows of it.
        said.extend(now.filter(|_| matches!(self.by, By::Helm(_))));
        let names: BTreeSet<_> = said.iter().flat_map(|state| parts.names(state)).collect();
        for name in names {
            let states = states.map(|state| parts.part(state, &name));
            let shares = shares.iter();
            let shares = shares.filter_map(|share| parts.share(*share, &name, states.now));
            let shares: Vec<_> = shares.collect();
            self.look(&parts.path(path, &name), states, &shares);
        }
    }

    fn edit(&self, path: &str, states: States<'_>, shares: &[Share<'_>]) -> Option<Edit> {
        let (by, at) = match self.by {
            By::Helm(revision) => (format!("{HELM}, revision {revision}"), revision.to_string()),
            By::Fields(others) => {
                let owners: Vec<_> = match (states.before, states.now) {
                    (_, Some(_)) => shares.iter().map(|share| share.owner).collect(),
                    // Nobody is known to have written what is not there. What says nothing may go by itself.
                    (Some(before), None) if !is_nothing(before) => others.iter().collect(),
                    _ => Vec::new(),
                };
                if owners.is_empty() {
                    return None;
                }
                let names: Vec<_> = owners.iter().map(|owner| owner.name.as_str()).collect();
                let times: Vec<_> = owners.iter().map(|owner| owner.at.as_str()).collect();
                (api::text::plain(&names.join(" or "), 256), times.join(" "))
            }
        };
        Some(Edit {
            object: self.object.clone(),
            field: path.to_owned(),
            by,
            at,
        })
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the chart makes, in small.
    fn chart(replicas: u32, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "one-keystone-api", "labels": {"a": "b"}},
            "spec": {
                "replicas": replicas,
                "template": {
                    "metadata": {"annotations": {"openstack.windlass.dev/state": "1"}},
                    "spec": {
                        "securityContext": {},
                        "containers": [{
                            "name": "api", "image": image, "command": ["uwsgi", "--http"],
                            "env": [{"name": "HOME", "value": "/tmp"}, {"name": "OS_A", "value": "a"}],
                            "ports": [{"name": "api", "containerPort": 5000}],
                            "resources": {"limits": {"memory": "1024Mi"}},
                        }],
                    },
                },
            },
        })
    }

    /// What the API makes of it: defaults, another way of writing, who wrote it, and what a controller noted.
    fn stored(chart: &Value, by: &str) -> Value {
        let mut stored = chart.clone();
        stored["metadata"]["uid"] = json!("1");
        stored["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
        stored["status"] = json!({"replicas": 1});
        stored["spec"]["strategy"] = json!({"type": "RollingUpdate"});
        let container = &mut stored["spec"]["template"]["spec"]["containers"][0];
        container["imagePullPolicy"] = json!("IfNotPresent");
        container["ports"][0]["protocol"] = json!("TCP");
        container["resources"]["limits"]["memory"] = json!("1Gi");
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"api\"}": {
                    ".": {}, "f:image": {}, "f:name": {}, "f:command": {},
                    "f:env": {
                        "k:{\"name\":\"HOME\"}": {".": {}, "f:name": {}, "f:value": {}},
                        "k:{\"name\":\"OS_A\"}": {".": {}, "f:name": {}, "f:value": {}},
                    },
                    "f:ports": {"k:{\"containerPort\":5000,\"protocol\":\"TCP\"}": {"f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:memory": {}}},
                }}}},
            },
        });
        let controllers = json!({
            "f:metadata": {"f:annotations": {"f:deployment.kubernetes.io/revision": {}}}, "f:status": {"f:replicas": {}},
        });
        stored["metadata"]["managedFields"] = json!([
            {"manager": by, "operation": "Update", "time": "2026-11-28T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": controllers},
        ]);
        stored
    }

    /// Somebody writes that field.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    fn writes(object: &mut Value, by: &str, fields: Value) {
        let managed = object["metadata"]["managedFields"].as_array_mut().unwrap();
        managed.push(json!({
            "manager": by, "operation": "Update", "time": "2026-11-28T11:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }));
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    fn container(fields: Value) -> Value {
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"api\"}": fields}}}}})
    }

    fn is_ours(manager: &str) -> bool {
        manager == "helm"
    }

    fn seen(wanted: &Value, before: Option<&Value>, now: &Value) -> Vec<String> {
        let found = in_object(wanted, before, now, is_ours);
        found
            .iter()
            .map(|edit| format!("{} by {}", edit.field, edit.by))
            .collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn what_nobody_changed_may_become_anything() {
        let before = chart(1, "keystone:1");
        let mut now = stored(&before, "helm");
        let mut wanted = chart(2, "keystone:2");
        // Another Windlass has another chart, too.
        wanted["spec"]["template"]["metadata"]["annotations"] =
            json!({"openstack.windlass.dev/state": "2"});
        wanted["spec"]["paused"] = json!(true);
        assert_eq!(seen(&wanted, Some(&before), &now), NONE);
        // What is of others is not the chart's: Helm leaves it.
        now["metadata"]["annotations"]["person"] = json!("is here");
        let env = &mut now["spec"]["template"]["spec"]["containers"][0]["env"];
        env.as_array_mut()
            .unwrap()
            .push(json!({"name": "MINE", "value": "1"}));
        writes(
            &mut now,
            "kubectl-edit",
            json!({"f:metadata": {"f:annotations": {"f:person": {}}}}),
        );
        writes(
            &mut now,
            "kubectl-edit",
            container(json!({"f:env": {"k:{\"name\":\"MINE\"}": {"f:value": {}}}})),
        );
        assert_eq!(seen(&wanted, Some(&before), &now), NONE);
    }

    #[test]
    fn what_somebody_changed_is_named() {
        let before = chart(1, "keystone:1");
        let mut now = stored(&before, "helm");
        now["spec"]["replicas"] = json!(3);
        let scale = json!({"f:spec": {"f:replicas": {}}});
        writes(&mut now, "kubectl", scale);
        now["metadata"]["managedFields"][2]["subresource"] = json!("scale");
        let containers = &mut now["spec"]["template"]["spec"]["containers"][0];
        containers["image"] = json!("keystone:mine");
        containers["env"][1]["value"] = json!("b");
        containers["env"].as_array_mut().unwrap().remove(0);
        containers["command"] = json!(["uwsgi"]);
        let fields = json!({"f:image": {}, "f:command": {}, "f:env": {"k:{\"name\":\"OS_A\"}": {"f:value": {}}}});
        writes(&mut now, "kubectl-edit", container(fields));
        let of = "spec.template.spec.containers[name=api]";
        let all = [
            "spec.replicas by kubectl".to_owned(),
            format!("{of}.command by kubectl-edit"),
            format!("{of}.env[name=HOME] by kubectl or kubectl-edit"),
            format!("{of}.env[name=OS_A].value by kubectl-edit"),
            format!("{of}.image by kubectl-edit"),
        ];
        assert_eq!(seen(&before, Some(&before), &now), all);
        // Whoever writes the same into the spec is no longer asked for it.
        let wanted = chart(3, "keystone:mine");
        assert_eq!(seen(&wanted, Some(&before), &now), all[1..4]);
    }

    #[test]
    fn what_people_applied_is_taken_up_where_it_is_what_is_made() {
        let wanted = chart(1, "keystone:1");
        let mut plain = wanted.clone();
        let mut now = stored(&wanted, "kubectl");
        // A quantity that a person writes in another way than the API is the one difference that is theirs without being one.
        plain["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
        assert_eq!(seen(&plain, None, &now), NONE);
        now["spec"]["replicas"] = json!(2);
        assert_eq!(seen(&plain, None, &now), ["spec.replicas by kubectl"]);
    }

    #[test]
    fn items_without_a_name_are_told_apart_by_their_places() {
        let claims = |kind: Option<&str>, size: &str| {
            let mut claim = json!({"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}});
            if let Some(kind) = kind {
                claim["kind"] = json!(kind);
                claim["status"] = json!({"phase": "Pending"});
            }
            json!({"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"volumeClaimTemplates": [claim]}})
        };
        let wanted = claims(None, "1Gi");
        for (size, told) in [("1Gi", 0), ("2Gi", 1)] {
            let mut now = claims(Some("PersistentVolumeClaim"), size);
            now["metadata"]["managedFields"] = json!([]);
            writes(
                &mut now,
                "kubectl",
                json!({"f:spec": {"f:volumeClaimTemplates": {}}}),
            );
            assert_eq!(seen(&wanted, None, &now).len(), told, "{size}");
        }
    }

    #[test]
    fn what_helm_changed_since_is_named_with_its_revision() {
        let before = [chart(1, "keystone:1")];
        let mut now = [chart(2, "keystone:1")];
        now[0]["metadata"]["annotations"] = json!({"mine": "1"});
        let wanted = [chart(1, "keystone:2")];
        let found = in_release(&wanted, Some(&before), &now, 6);
        assert_eq!(
            told(&found),
            "Deployment one-keystone-api metadata.annotations (by helm, revision 6), \
             Deployment one-keystone-api spec.replicas (by helm, revision 6)"
        );
        assert_eq!(
            in_release(&before, Some(&before), &before, 6),
            Vec::<Edit>::new()
        );
        // Where the last one of ours is gone, all that is another is told.
        assert_eq!(in_release(&wanted, None, &now, 6).len(), 3);
        let further = json!({"kind": "Ingress", "metadata": {"name": "mine"}});
        let [deployment] = before.clone();
        let found = in_release(&before, Some(&before), &[deployment, further], 6);
        assert_eq!(told(&found), "Ingress mine (by helm, revision 6)");
    }

    #[test]
    fn consent_to_a_scale_is_none_to_the_next_one_though_neither_has_a_time() {
        let scaled = |generation: u32| {
            let mut now = chart(3, "a");
            now["metadata"]["generation"] = json!(generation);
            now["metadata"]["managedFields"] = json!([{
                "manager": "kubectl", "operation": "Update", "subresource": "scale",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }]);
            let before = chart(2, "a");
            token(&in_object(&before, Some(&before), &now, |by| by == "helm"))
        };
        assert_eq!(scaled(4), scaled(4));
        assert_ne!(scaled(4), scaled(6));
    }

    #[test]
    fn consent_is_to_what_was_told_and_to_nothing_later() {
        let edit = |at: &str| {
            vec![Edit {
                object: "Deployment a".to_owned(),
                field: "spec.replicas".to_owned(),
                by: "kubectl".to_owned(),
                at: at.to_owned(),
            }]
        };
        assert_eq!(token(&edit("1")), token(&edit("1")));
        assert_ne!(token(&edit("1")), token(&edit("2")));
        let many: Vec<_> = (0..10).flat_map(|at| edit(&at.to_string())).collect();
        assert!(
            told(&many).ends_with("(by kubectl), and 2 more"),
            "{}",
            told(&many)
        );
    }
}
