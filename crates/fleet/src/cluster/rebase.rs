//! A Cluster of a topology is brought to another ClusterClass when Cluster API has taken that class up. Pure.
//!
//! Its webhook refuses a Cluster that goes to a class which is not there, and holds the variables against a class only when that is
//! reconciled: until then a trial says nothing of whether the Cluster may be written.

use api::inventory::FleetHealth;
use serde_json::Value;

use super::{
    part::{Part, Parts},
    vault::Waits,
};

/// The class that the cluster is brought to from another one, where Cluster API has not taken it up.
pub(super) fn awaited<'a>(parts: &'a Parts, there: &[Option<Value>]) -> Option<&'a Part> {
    let main = parts.main()?;
    let live = there.last()?.as_ref()?;
    let wanted = named(&main.value);
    let is_class = |part: &Part| {
        part.is_class()
            && wanted["name"] == *part.name
            && wanted["namespace"].as_str().unwrap_or(&main.namespace) == part.namespace
    };
    let place = parts.objects.iter().position(is_class)?;
    let is_rebased = named(live)["name"] != wanted["name"];
    let is_taken_up = there.get(place)?.as_ref().is_some_and(|class| {
        class["status"]["observedGeneration"] == class["metadata"]["generation"]
    });
    (is_rebased && !is_taken_up).then(|| &parts.objects[place])
}

/// What is told while a class is awaited.
pub(super) fn waits(class: &Part) -> Waits {
    let message = format!(
        "{} waits for Cluster API to take it up, and its Cluster stays as it is until then: if this lasts, is the feature gate \
         ClusterTopology on, and what do the ClusterClass and the log of core's manager say?",
        class.title()
    );
    (FleetHealth::AtWork, message)
}

/// Which class the topology of a Cluster names: v1beta1 has its parts beside each other.
fn named(cluster: &Value) -> Value {
    let topology = &cluster["spec"]["topology"];
    match &topology["class"] {
        Value::String(name) => {
            serde_json::json!({"name": name, "namespace": topology["classNamespace"]})
        }
        _ => topology["classRef"].clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::part, *};

    const CORE: &str = "cluster.x-k8s.io";

    /// The class that is awaited, where a Cluster is brought from one class to another.
    fn waits_for(topology: &Value, live: &Value, class: Option<Value>) -> Option<String> {
        let version = match topology["class"] {
            Value::Null => "v1beta2",
            _ => "v1beta1",
        };
        let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": format!("{CORE}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec});
        let cluster = object("Cluster", "shop", json!({"topology": topology}));
        let objects = [object("ClusterClass", "other", json!({})), cluster];
        let parts = part::parts("fleet", "shop", "r", &objects).unwrap();
        let there = [
            class,
            (!live.is_null()).then(|| json!({"spec": {"topology": live}})),
        ];
        awaited(&parts, &there).map(Part::title)
    }

    #[test]
    fn a_cluster_waits_for_the_class_that_it_goes_to() {
        let class = |seen: Option<u32>| {
            Some(json!({"metadata": {"generation": 1}, "status": {"observedGeneration": seen}}))
        };
        let (old, new) = (
            json!({"classRef": {"name": "one"}}),
            json!({"classRef": {"name": "other"}}),
        );
        let waits = Some("ClusterClass/fleet/other".to_owned());
        assert_eq!(waits_for(&new, &old, None), waits);
        assert_eq!(waits_for(&new, &old, class(None)), waits);
        assert_eq!(waits_for(&new, &old, class(Some(1))), None);
        // A version before, with the class as a word, and one of another namespace.
        let (old, new) = (json!({"class": "one"}), json!({"class": "other"}));
        assert_eq!(waits_for(&new, &old, None), waits);
        let elsewhere = json!({"class": "other", "classNamespace": "elsewhere"});
        assert_eq!(waits_for(&elsewhere, &old, None), None);
        // It is born, or was of that class before.
        assert_eq!(waits_for(&new, &Value::Null, None), None);
        assert_eq!(waits_for(&new, &new, class(None)), None);
    }
}
