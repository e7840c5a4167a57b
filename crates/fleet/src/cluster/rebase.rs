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

/// A class that is awaited.
pub(super) struct Awaited<'a> {
    class: &'a Part,
    live: Option<&'a Value>,
}

/// The class that the cluster is brought to from another one, where Cluster API has not taken it up.
pub(super) fn awaited<'a>(parts: &'a Parts, there: &'a [Option<Value>]) -> Option<Awaited<'a>> {
    let main = parts.main()?;
    let live = there.last()?.as_ref()?;
    let wanted = named(&main.value, main);
    let is_wanted = |part: &Part| {
        part.is_class() && wanted == Some((part.name.as_str(), part.namespace.as_str()))
    };
    let place = parts.objects.iter().position(is_wanted)?;
    let is_rebased = named(live, main) != wanted;
    let class = there.get(place)?.as_ref();
    let is_taken_up = class.is_some_and(|class| {
        class["status"]["observedGeneration"] == class["metadata"]["generation"]
    });
    (is_rebased && !is_taken_up).then(|| Awaited {
        class: &parts.objects[place],
        live: class,
    })
}

impl Awaited<'_> {
    /// What is told while it is awaited.
    pub(super) fn waits(&self) -> Waits {
        let title = self.class.title();
        let why = self.live.and_then(why).unwrap_or_else(|| {
            "if this lasts, is the feature gate ClusterTopology on, and what does the log of core's manager say?".to_owned()
        });
        let message = format!(
            "{title} waits for Cluster API to take it up, and its Cluster stays as it is until then: {why}"
        );
        (FleetHealth::AtWork, message)
    }
}

/// What a class says of why it is not taken up.
fn why(class: &Value) -> Option<String> {
    let conditions = class["status"]["conditions"].as_array()?;
    let mut conditions = conditions.iter().filter(|condition| {
        let bad = if condition["type"] == "Paused" {
            "True"
        } else {
            "False"
        };
        condition["status"] == bad || condition["status"] == "Unknown"
    });
    let condition = conditions.next()?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    let told = format!(
        "{} is {}: {}",
        text("type"),
        text("status"),
        text("message")
    );
    Some(api::text::plain(&told, 500))
}

/// Which class the topology of a Cluster names, and where that is.
fn named<'a>(cluster: &'a Value, main: &'a Part) -> Option<(&'a str, &'a str)> {
    let class = inventory::contract::class(cluster, &main.namespace);
    class.map(|class| (class.name, class.namespace))
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
        awaited(&parts, &there).map(|awaited| awaited.waits().1)
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
        let waits = |told: Option<String>| {
            told.is_some_and(|told| told.starts_with("ClusterClass/fleet/other waits"))
        };
        assert!(waits(waits_for(&new, &old, None)));
        assert!(waits(waits_for(&new, &old, class(None))));
        assert_eq!(waits_for(&new, &old, class(Some(1))), None);
        // It says why.
        let mut paused = class(None).unwrap();
        let good = json!({"type": "VariablesReady", "status": "True"});
        paused["status"]["conditions"] =
            json!([good, {"type": "Paused", "status": "True", "message": "somebody paused it"}]);
        let told = waits_for(&new, &old, Some(paused)).unwrap();
        assert!(
            told.ends_with("until then: Paused is True: somebody paused it"),
            "{told}"
        );
        // A version before, with the class as a word, and one of another namespace.
        let (old, new) = (json!({"class": "one"}), json!({"class": "other"}));
        assert!(waits(waits_for(&new, &old, None)));
        let elsewhere = json!({"class": "other", "classNamespace": "elsewhere"});
        assert_eq!(waits_for(&elsewhere, &old, None), None);
        // It is born, or was of that class before.
        assert_eq!(waits_for(&new, &Value::Null, None), None);
        assert_eq!(waits_for(&new, &new, class(None)), None);
    }
}
