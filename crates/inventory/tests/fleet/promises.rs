//! Values that are templates: what levels ask holds for what they come to as well.

use crate::{problems, render};

const GROUP: &str = "inventory.windlass.dev/v1alpha1";

/// A site above a cluster, both with templates. The template needs `needs`.
fn inventory(site: &str, own: &str, needs: &str) -> String {
    format!(
        "
{{apiVersion: {GROUP}, kind: Hierarchy, metadata: {{name: default}}, spec: {{
  levels: [{{name: environment, kind: Environment}}, {{name: site, kind: Site, rules: [{{rule: self.zone != 'closed', path: zone}}],
    schema: {{additionalProperties: false, properties: {{
      mtu: {{type: integer, maximum: 9000}}, zone: {{type: string}},
      net: {{additionalProperties: false, properties: {{cidr: {{type: string}}}}}}}}}}}}],
  cluster: {{rules: [{{rule: self.masters < 7 && self.masters != 4, path: masters}}]}}}}}}
---
{{apiVersion: {GROUP}, kind: Environment, metadata: {{name: prod}}, spec: {{template: t, values: {{masters: 3, zone: a, two: 2}}}}}}
---
{{apiVersion: {GROUP}, kind: Site, metadata: {{name: fra}}, spec: {{parents: {{environment: prod}}, values: {site}}}}}
---
{{apiVersion: {GROUP}, kind: FleetCluster, metadata: {{name: c}}, spec: {{parents: {{site: fra}}, values: {own}}}}}
---
{{apiVersion: {GROUP}, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain,
  schema: {{properties: {{masters: {{maximum: 7}}}}}}, documents: [
  {{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}, spec: {{v: '{{{{ {needs} }}}}'}}}}}}]}}}}
"
    )
}

#[test]
fn what_a_template_comes_to_is_held_against_what_its_level_asks() {
    let too_large = "{mtu: {$template: '{{ 9000 + two }}'}}";
    let known = "with what templates come to for FleetCluster/c";
    for (site, own, needs, told) in [
        (
            too_large,
            "{}",
            "mtu",
            "Site/fra (level site) spec.values.mtu: is above its maximum 9000",
        ),
        (
            "{mtu: {$template: 'x{{ two }}'}}",
            "{}",
            "mtu",
            "is not of type integer",
        ),
        (
            "{net: {$template: '{{ {\"cidr\": 1} }}'}}",
            "{}",
            "net",
            "spec.values.net: is not of type string",
        ),
        (
            "{net: {$template: '{{ {\"vlan\": 1} }}'}}",
            "{}",
            "net",
            "spec.values.net: is no key that may be set there: cidr",
        ),
        (
            "{}",
            "{masters: {$template: '{{ two + 7 }}'}}",
            "masters",
            "FleetCluster/c (level cluster) spec.values.masters: is above its maximum 7",
        ),
    ] {
        let told_of = problems(&inventory(site, own, needs));
        assert!(told_of.contains(told), "{told_of}");
        assert!(told_of.contains(known), "{told_of}");
    }
}

#[test]
fn a_rule_and_a_type_hold_for_what_a_template_comes_to() {
    let closed = "{zone: {$template: '{{ \"clo\" }}sed'}}";
    let told = problems(&inventory(closed, "{}", "zone"));
    assert!(
        told.starts_with("Site/fra (level site) spec.values.zone: breaks the rule"),
        "{told}"
    );
    let text = "{masters: {$template: 'three'}}";
    let told = problems(&inventory("{}", text, "masters"));
    assert!(
        told.contains("spec.values.masters: is a text, but Environment/prod spec.values.masters has a number there"),
        "{told}"
    );
    let even = "{masters: {$template: '{{ two * 2 }}'}}";
    let told = problems(&inventory("{}", even, "masters"));
    assert!(told.contains("as FleetCluster/c sees it"), "{told}");
}

#[test]
fn a_template_that_comes_to_what_is_asked_is_as_good_as_a_value() {
    for (site, own, needs) in [
        (
            "{mtu: {$template: '{{ 8998 + two }}'}, zone: {$template: 'b{{ two }}'}}",
            "{}",
            "mtu",
        ),
        (
            "{zone: {$template: b}}",
            "{masters: {$template: '{{ two + 3 }}'}}",
            "[zone, masters]",
        ),
        (
            "{net: {$template: '{{ {\"cidr\": zone} }}'}}",
            "{}",
            "net.cidr",
        ),
        // The cluster sets it otherwise, and no object needs what the site's comes to.
        ("{zone: {$template: closed}}", "{zone: open}", "zone"),
    ] {
        render(&inventory(site, own, needs)).unwrap();
    }
}
