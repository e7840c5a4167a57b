//! Levels and their order are data.

use inventory::Fleet;
use serde_json::{Value, json};

use crate::{cluster, objects};

/// A site and a rack, a level of the user's own, in an order.
fn inventory(order: &str) -> String {
    format!(
        "
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Hierarchy, metadata: {{name: default}}, spec: {{levels: {order}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: Site, metadata: {{name: fra}}, spec: {{template: t, values: {{who: site, site: 1}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: r1, labels: {{inventory.windlass.dev/level: rack}}}}
data:
  values: |
    who: rack
    rack: 1
  final: '[rack]'
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: other}}, data: {{values: 'no: level'}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: FleetCluster, metadata: {{name: c}}, spec: {{parents: {{rack: r1, site: fra}}, values: {{own: 1}}}}}}
---
{{apiVersion: inventory.windlass.dev/v1alpha1, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain, documents: [
  {{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, rack: '{{{{ levels.rack.name }}}}'}}}}]}}}}
"
    )
}

fn values(text: &str) -> Value {
    let fleet = Fleet::read(objects(text), "default").unwrap();
    fleet
        .render(&cluster("c"))
        .unwrap()
        .resolved
        .values
        .to_value()
}

#[test]
fn the_order_decides_and_a_level_may_be_of_ones_own() {
    let (site, rack) = ("{name: site, kind: Site}", "{name: rack, kind: ConfigMap}");
    let strong_rack = values(&inventory(&format!("[{site}, {rack}]")));
    assert_eq!(
        strong_rack,
        json!({"who": "rack", "site": 1, "rack": 1, "own": 1})
    );
    let strong_site = values(&inventory(&format!("[{rack}, {site}]")));
    assert_eq!(strong_site["who"], "site");
}

#[test]
fn a_lock_of_a_config_map_holds_and_what_is_wrong_in_one_is_named() {
    let order = "[{name: site, kind: Site}, {name: rack, kind: ConfigMap}]";
    let locked = inventory(order).replace("own: 1", "rack: 2");
    assert!(crate::problems(&locked).contains("is locked by ConfigMap/r1 (level rack)"));
    let bad = inventory(order).replace("final: '[rack]'", "final: 'rack: ['");
    assert!(
        crate::problems(&bad).starts_with("ConfigMap/r1 data.final: "),
        "{}",
        crate::problems(&bad)
    );
    let bad = inventory(order).replace("final: '[rack]'", "final: 'rack'");
    assert!(
        crate::problems(&bad).starts_with("ConfigMap/r1 data: "),
        "{}",
        crate::problems(&bad)
    );
}

#[test]
fn an_optional_level_may_be_missing_and_namespaces_are_apart() {
    let order = "[{name: site, kind: Site}, {name: rack, kind: ConfigMap, presence: Optional}]";
    let without = inventory(order).replace("rack: r1, ", "").replace(
        "{{ levels.rack.name }}",
        "{{ levels.rack.name | default(\"none\") if levels.rack is defined else omit }}",
    );
    assert_eq!(
        values(&without),
        json!({"who": "site", "site": 1, "own": 1})
    );
    // The same names in another namespace are other objects, of which a cluster of this one sees none.
    let mut both = objects(&without);
    for mut object in objects(&without.replace("site: 1", "site: 2")) {
        object["metadata"]["namespace"] = json!("other");
        both.push(object);
    }
    let fleet = Fleet::read(both, "default").unwrap();
    let all: Vec<_> = fleet
        .clusters()
        .map(|cluster| fleet.resolve(&cluster).unwrap().values.to_value()["site"].clone())
        .collect();
    assert_eq!(all, [json!(1), json!(2)]);
}
