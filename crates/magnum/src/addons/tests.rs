use serde_json::json;

use super::*;
use crate::labels::{Effect, LABELS};

const CLUSTER: &str = "5d4f6f02-6e5b-4c0e-8f0c-000000000001";

fn cluster(server: &str, labels: &Value) -> CoeCluster {
    serde_json::from_value(json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster",
        "metadata": {"name": CLUSTER, "namespace": "magnum-p1"},
        "spec": {
            "name": "first", "projectId": "p1", "userId": "u", "clusterTemplateId": "t", "serverType": server,
            "kubernetesVersion": "1.34.3", "labels": labels,
            "nodeGroups": [
                {"uuid": "m", "name": "default-master", "role": "master", "nodeCount": 1, "isDefault": true},
                {"uuid": "w", "name": "default-worker", "role": "worker", "nodeCount": 1, "isDefault": true},
            ],
        },
    }))
    .unwrap()
}

/// One that is usable, made at this second.
fn addon(namespace: &str, name: &str, second: i64, spec: &Value) -> Addon {
    let mut whole = json!({"chart": {"configMapRef": {"name": "charts"}}});
    let fields = spec.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(fields);
    let created = jiff::Timestamp::from_second(second).unwrap().to_string();
    serde_json::from_value(json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Addon",
        "metadata": {"name": name, "namespace": namespace, "generation": 1, "creationTimestamp": created},
        "spec": whole, "status": standing(1, "True", "usable"),
    }))
    .unwrap()
}

fn standing(generation: i64, ready: &str, message: &str) -> Value {
    json!({
        "observedGeneration": generation, "chart": "c-1.0.0", "version": "1.0.0", "digest": "d",
        "conditions": [{
            "type": "Ready", "status": ready, "reason": "R", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

fn words(cluster: &CoeCluster) -> Words {
    Words::of(cluster, "192.0.2.9", 6443)
}

fn release(name: &str, revision: u64, state: State, labels: &[(&str, String)]) -> Outline {
    let labels = labels.iter();
    Outline {
        namespace: "kube-system".to_owned(),
        release: name.to_owned(),
        revision,
        state,
        labels: labels
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect(),
    }
}

fn named(chosen: &[&Addon]) -> Vec<String> {
    chosen.iter().map(|addon| title(addon)).collect()
}

#[test]
fn labels_say_which_plugins_a_cluster_has() {
    for (server, labels, plugin, expected) in [
        ("vm", json!({}), Plugin::Calico, true),
        ("vm", json!({}), Plugin::Cilium, false),
        // kubespray brings its own.
        ("bm", json!({}), Plugin::Calico, false),
        ("vm", json!({}), Plugin::CloudProvider, true),
        ("bm", json!({}), Plugin::CloudProvider, false),
        (
            "bm",
            json!({"cloud_provider_enabled": "True"}),
            Plugin::CloudProvider,
            true,
        ),
        (
            "vm",
            json!({"cinder_csi_enabled": "no"}),
            Plugin::CinderCsi,
            false,
        ),
        ("bm", json!({}), Plugin::Monitoring, false),
        (
            "bm",
            json!({"monitoring_enabled": "true"}),
            Plugin::Monitoring,
            true,
        ),
        ("bm", json!({}), Plugin::Metrics, true),
        (
            "vm",
            json!({"ingress_controller": "nginx"}),
            Plugin::IngressNginx,
            true,
        ),
        (
            "vm",
            json!({"ingress_controller": "nginx"}),
            Plugin::IngressOctavia,
            false,
        ),
        ("vm", json!({}), Plugin::Autoscaler, false),
        ("bm", json!({}), Plugin::All, true),
    ] {
        let cluster = cluster(server, &labels);
        assert_eq!(
            has(&cluster.spec, plugin),
            expected,
            "{server} {labels} {plugin:?}"
        );
    }
    let mut scaled = cluster("vm", &json!({}));
    let on = [("auto_scaling_enabled".to_owned(), "true".to_owned())];
    scaled.spec.node_groups[1].labels.extend(on);
    assert!(has(&scaled.spec, Plugin::Autoscaler));
}

/// A plugin whose label does nothing for the guide would be one that nobody finds.
#[test]
fn every_label_that_asks_for_a_plugin_has_an_effect_in_the_table() {
    for plugin in Plugin::EVERY {
        let (Asks::Flag(label, _) | Asks::Word(label, _)) = asks(plugin) else {
            continue;
        };
        let row = LABELS.iter().find(|row| row.name == label).unwrap();
        let Effect::All(effect) = row.effect else {
            panic!("{label}")
        };
        assert!(effect.contains(&format!("`{}`", plugin.word())), "{label}");
        if let Asks::Flag(_, unsaid) = asks(plugin) {
            assert_eq!(row.default == "true", unsaid != Unsaid::None, "{label}");
        }
    }
}

#[test]
fn addons_of_a_project_go_before_those_of_the_pool_and_older_ones_before_younger() {
    let all = [
        addon("default", "calico", 1, &json!({"plugin": "calico"})),
        addon("default", "later", 2, &json!({"plugin": "calico"})),
        addon("default", "agent", 3, &json!({"plugin": "all"})),
        addon("default", "other", 3, &json!({"plugin": "all"})),
        addon("default", "cilium", 3, &json!({"plugin": "cilium"})),
        addon("magnum-p2", "metrics", 1, &json!({"plugin": "metrics"})),
    ];
    let cluster = cluster("vm", &json!({}));
    let of_pool = chosen(&cluster, &all, "default");
    assert_eq!(
        named(&of_pool),
        ["default/calico", "default/agent", "default/other"]
    );
    let mut all = all.to_vec();
    all.push(addon("magnum-p1", "own", 9, &json!({"plugin": "calico"})));
    // The release is the same.
    let same = json!({"plugin": "all", "releaseName": "agent"});
    all.push(addon("magnum-p1", "mine", 9, &same));
    let of_project = chosen(&cluster, &all, "default");
    assert_eq!(
        named(&of_project),
        ["magnum-p1/own", "magnum-p1/mine", "default/other"]
    );
    // In one namespace that is a mistake, and told.
    let first = rival(&all[1], &all).map(title);
    assert_eq!(first.as_deref(), Some("default/calico"));
    assert_eq!(rival(&all[0], &all), None);
    assert_eq!(rival(&all[2], &all), None);
}

#[test]
fn values_may_have_what_a_cluster_has_and_other_dollars_are_the_chart_s() {
    let spec = json!({"plugin": "calico", "values": {
        "installation": {"pools": [{"cidr": "${cluster.podCidr}"}], "flag": true},
        "server": "https://${cluster.apiHost}:${cluster.apiPort}/${cluster.uuid}",
        "query": "${datasource}",
    }});
    let addon = addon("default", "calico", 1, &spec);
    let labels = json!({"calico_ipv4pool": "10.9.0.0/16"});
    let vm = cluster("vm", &labels);
    assert_eq!(
        values(&addon, &words(&vm)).unwrap(),
        json!({
            "installation": {"pools": [{"cidr": "10.9.0.0/16"}], "flag": true},
            "server": format!("https://192.0.2.9:6443/{CLUSTER}"),
            "query": "${datasource}",
        })
    );
    assert!(values(&addon, &Words::sample()).is_ok());
    let bm = cluster("bm", &json!({}));
    let refused = values(&addon, &words(&bm)).unwrap_err();
    assert_eq!(
        (refused.field.as_str(), refused.value.as_str()),
        (
            "spec.values.installation.pools[0].cidr",
            "${cluster.podCidr}"
        )
    );
}

#[test]
fn a_word_that_is_none_is_refused_with_its_field_and_all_that_there_are() {
    let spec = json!({"plugin": "all", "values": {"a": {"b": "x ${cluster.colour} y"}}});
    let addon = addon("default", "a", 1, &spec);
    let refused = values(&addon, &Words::sample()).unwrap_err().to_string();
    for part in [
        "spec.values.a.b",
        "${cluster.colour}",
        "${cluster.name}",
        "write one of these",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_name_that_helm_does_not_take_is_told() {
    let long = "a".repeat(54);
    for (name, spec, fits) in [
        ("calico", json!({"plugin": "all"}), true),
        ("calico.3", json!({"plugin": "all"}), false),
        (long.as_str(), json!({"plugin": "all"}), false),
        (
            long.as_str(),
            json!({"plugin": "all", "releaseName": "a"}),
            true,
        ),
    ] {
        let addon = addon("default", name, 1, &spec);
        assert_eq!(misnamed(&addon).is_none(), fits, "{name}");
    }
}

/// A cluster that was refused an Addon is woken by these alone.
#[test]
fn clusters_are_told_of_an_addon_s_wish_and_whether_it_is_usable() {
    let usable = addon("default", "calico", 1, &json!({"plugin": "calico"}));
    let with = |status: Value| Addon {
        status: serde_json::from_value(status).unwrap(),
        ..usable.clone()
    };
    let refused = with(standing(1, "False", "spec.chart: no"));
    let old = with(standing(0, "True", ""));
    let other = with(standing(1, "False", "spec.chart: another reason"));
    assert!(concern(&usable) == concern(&usable.clone()));
    for (one, two) in [(&usable, &refused), (&refused, &old), (&refused, &other)] {
        assert!(concern(one) != concern(two));
    }
    let state = |addon: &Addon| super::usable(addon).unwrap_err();
    assert_eq!(
        state(&refused),
        (AddonState::Refused, "spec.chart: no".to_owned())
    );
    assert_eq!(state(&old).0, AddonState::Waiting);
}

fn states(steps: &[Step]) -> Vec<(String, AddonState)> {
    let steps = steps.iter();
    steps
        .map(|step| (step.report.name.clone(), step.report.state))
        .collect()
}

#[test]
fn what_is_there_as_it_should_be_is_left_alone() {
    let cluster = cluster("vm", &json!({}));
    let words = words(&cluster);
    let calico = addon("default", "calico", 1, &json!({"plugin": "calico"}));
    let planned = |releases: &[Outline]| {
        let mut steps = plan(&cluster, &[&calico], &words, releases, true);
        assert_eq!(steps.len(), 1, "{steps:?}");
        steps.remove(0)
    };
    let Deed::Install(wanted) = planned(&[]).deed else {
        panic!("it is installed")
    };
    assert_eq!((wanted.revision, wanted.is_broken), (1, false));
    let of = |revision: u64, state, stored: &str, digest: &str| {
        let labels = [
            (MARK, digest.to_owned()),
            ("windlass.dev/revision", stored.to_owned()),
        ];
        [release("calico", revision, state, &labels)]
    };
    let settled = planned(&of(3, State::Deployed, "3", &wanted.digest));
    assert_eq!(settled.deed, Deed::None);
    assert_eq!(settled.report.state, AddonState::Installed);
    assert_eq!(settled.report.version.as_deref(), Some("1.0.0"));
    for (why, there, is_broken) in [
        ("other", of(3, State::Deployed, "3", "other"), false),
        ("failed", of(3, State::Failed, "3", &wanted.digest), false),
        (
            "a client died",
            of(3, State::Pending, "3", &wanted.digest),
            true,
        ),
        (
            "somebody else changed it",
            of(3, State::Deployed, "2", &wanted.digest),
            false,
        ),
    ] {
        let Deed::Install(next) = planned(&there).deed else {
            panic!("{why}")
        };
        assert_eq!((next.revision, next.is_broken), (4, is_broken), "{why}");
    }
}

#[test]
fn a_release_that_no_addon_made_is_neither_changed_nor_taken_away() {
    let cluster = cluster("vm", &json!({}));
    let calico = addon("default", "calico", 1, &json!({"plugin": "calico"}));
    let foreign = [
        release("calico", 1, State::Deployed, &[]),
        release("their-own", 1, State::Deployed, &[]),
    ];
    let steps = plan(&cluster, &[&calico], &words(&cluster), &foreign, true);
    let [step] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(
        (step.report.state, &step.deed),
        (AddonState::Refused, &Deed::None)
    );
    let message = step.report.message.as_deref().unwrap();
    assert!(message.contains("kube-system/calico"), "{message}");
}

#[test]
fn what_nobody_asks_for_any_more_goes_and_what_is_refused_stays() {
    let cluster = cluster("vm", &json!({}));
    let mut calico = addon("default", "calico", 1, &json!({"plugin": "calico"}));
    calico.status = serde_json::from_value(standing(1, "False", "no")).unwrap();
    let marked = |name: &str| release(name, 1, State::Deployed, &[(MARK, "digest".to_owned())]);
    let releases = [marked("calico"), marked("gone")];
    let planned = |may_remove| {
        let words = words(&cluster);
        plan(&cluster, &[&calico], &words, &releases, may_remove)
    };
    assert_eq!(
        states(&planned(true)),
        [
            ("default/calico".to_owned(), AddonState::Refused),
            ("kube-system/gone".to_owned(), AddonState::Removing)
        ]
    );
    assert_eq!(
        states(&planned(false)),
        [("default/calico".to_owned(), AddonState::Refused)]
    );
}

#[test]
fn a_label_that_asks_for_what_no_addon_brings_is_told() {
    let labels = json!({"monitoring_enabled": "true", "kube_dashboard_enabled": "false"});
    let cluster = cluster("bm", &labels);
    let steps = plan(&cluster, &[], &words(&cluster), &[], true);
    assert_eq!(
        states(&steps),
        [("monitoring".to_owned(), AddonState::Waiting)]
    );
    let message = steps[0].report.message.as_deref().unwrap();
    assert!(message.contains("monitoring_enabled"), "{message}");
}
