//! Rules in CEL of levels: what they see, and what is told of one that is broken.

use inventory::Fleet;

use crate::{cluster, objects, problems, render};

const GROUP: &str = "inventory.windlass.dev/v1alpha1";

/// An environment above a site above a cluster; `site` and `own` are the rules of the two.
fn inventory(site: &str, own: &str) -> String {
    format!(
        "
{{apiVersion: {GROUP}, kind: Hierarchy, metadata: {{name: default}}, spec: {{
  levels: [{{name: environment, kind: Environment}}, {{name: site, kind: Site, rules: {site}}}], cluster: {{rules: {own}}}}}}}
---
{{apiVersion: {GROUP}, kind: Environment, metadata: {{name: prod}}, spec: {{template: t, values: {{masters: 3, api: {{$template: 'x'}},
  login: {{secretKeyRef: {{name: s, key: k}}}}}}}}}}
---
{{apiVersion: {GROUP}, kind: Site, metadata: {{name: fra}}, spec: {{parents: {{environment: prod}}, values: {{spread: 3, zones: [a, b, c]}}}}}}
---
{{apiVersion: {GROUP}, kind: FleetCluster, metadata: {{name: c}}, spec: {{parents: {{site: fra}}, values: {{masters: 5}}}}}}
---
{{apiVersion: {GROUP}, kind: ClusterTemplate, metadata: {{name: t}}, spec: {{backEnd: Plain, documents: [
  {{object: {{apiVersion: v1, kind: X, metadata: {{name: x}}}}}}]}}}}
"
    )
}

#[test]
fn a_rule_sees_the_values_as_they_are_at_its_level() {
    // 3 at the site, of the environment; 5 at the cluster, which overrides it.
    let site = "[{rule: 'self.masters == 3 && self.masters <= self.zones.size()'}]";
    let own = "[{rule: 'self.masters == 5 && self.zones.size() == 3'}]";
    render(&inventory(site, own)).unwrap();
    assert!(problems(&inventory("[{rule: self.masters == 5}]", "[]")).contains("Site/fra sees it"));
    assert!(
        problems(&inventory("[]", "[{rule: self.masters == 3}]"))
            .contains("FleetCluster/c sees it")
    );
}

#[test]
fn a_broken_rule_names_level_object_path_rule_and_remedy() {
    let remedy = "set other values here or at a level above, or change the rule";
    for (site, own, told) in [
        (
            "[{rule: self.masters > self.spread, message: more control planes than racks, path: masters}]",
            "[]",
            // Whoever sets what the path names is told, also where it stands above.
            "Environment/prod (level environment) spec.values.masters: breaks the rule `self.masters > self.spread` (Hierarchy/default \
             spec.levels.site.rules[0]), as Site/fra sees it: more control planes than racks; ",
        ),
        (
            "[{rule: self.spread == 3}, {rule: self.spread == 1}]",
            "[]",
            "Site/fra (level site) spec.values: breaks the rule `self.spread == 1` (Hierarchy/default spec.levels.site.rules[1]), as \
             Site/fra sees it; ",
        ),
        (
            "[]",
            "[{rule: self.dns.size() > 0, message: no name server, path: 'dns[0]'}]",
            "FleetCluster/c (level cluster) spec.values.dns[0]: breaks the rule `self.dns.size() > 0` (Hierarchy/default \
             spec.cluster.rules[0]), as FleetCluster/c sees it: no name server (no answer: no such key: dns); ",
        ),
    ] {
        let told = format!("{told}{remedy} [Validation]");
        assert_eq!(problems(&inventory(site, own)), told);
    }
    let fleet = Fleet::read(objects(&inventory("[{rule: 1 == 2}]", "[]")), "default").unwrap();
    let problem = fleet.render(&cluster("c")).unwrap_err().0.remove(0);
    assert_eq!(problem.rule.name(), "Validation");
    assert_eq!(problem.rule.halves().1, remedy);
}

#[test]
fn what_is_not_known_yet_stands_as_it_is_written() {
    let own = r#"[{rule: has(self.api) && has(self.login)}, {rule: "self.login.secretKeyRef.name == 's'"}]"#;
    render(&inventory("[]", own)).unwrap();
}

#[test]
fn a_costly_rule_is_ended_and_told() {
    let doubled = ".map(a, [a, a])".repeat(40);
    let told = problems(&inventory(
        "[]",
        &format!("[{{rule: '[1]{doubled}.all(a, a == a)'}}]"),
    ));
    assert!(
        told.contains("no answer: it costs more than one evaluation may"),
        "{told}"
    );
}

#[test]
fn a_rule_that_is_none_is_refused_where_it_stands() {
    let long = format!("[{{rule: 'self.a == 1{}'}}]", " ".repeat(1100));
    let many = format!("[{}]", "{rule: 'true'}, ".repeat(17));
    for (site, place, told) in [
        (
            "[{rule: self.masters}]",
            "spec.levels.site.rules[0].rule",
            "must evaluate to a bool",
        ),
        (
            "[{rule: 'true'}, {rule: 'self.a =='}]",
            "spec.levels.site.rules[1].rule",
            "compilation failed",
        ),
        (
            "[{rule: self.a == oldSelf.a}]",
            "spec.levels.site.rules[0].rule",
            "no oldSelf",
        ),
        (
            &long,
            "spec.levels.site.rules[0].rule",
            "longer than 1024 characters",
        ),
        (
            "[{rule: 'true', message: ''}]",
            "spec.levels.site.rules[0].message",
            "is empty",
        ),
        (
            "[{rule: 'true', path: 'a.*'}]",
            "spec.levels.site.rules[0].path",
            "is of several values",
        ),
        (
            &many,
            "spec.levels.site.rules:",
            "has 17 rules, more than 16",
        ),
    ] {
        let problems = problems(&inventory(site, "[]"));
        let expected = format!("Hierarchy/default {place}");
        assert!(
            problems.starts_with(&expected) && problems.contains(told),
            "{site}: {problems}"
        );
    }
}
