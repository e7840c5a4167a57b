//! The rights that renderings take.

use std::collections::BTreeSet;

use clusterctl::rights::{Rights, Rule, rights};

use crate::cases;

/// What is told of a case.
fn of(name: &str) -> Rights {
    let cases = cases::made();
    let case = cases.iter().find(|case| case.name == name).unwrap();
    rights(case.render().unwrap().objects())
}

#[test]
fn each_object_of_a_rendering_is_named_and_kinds_alone_are_listed() {
    let rights = of("everything-moved");
    let told: BTreeSet<_> = rights.rules.iter().map(Rule::to_string).collect();
    for expected in [
        "create, get, patch customresourcedefinitions.apiextensions.k8s.io named widgets.made.example",
        "patch customresourcedefinitions.apiextensions.k8s.io/status named widgets.made.example",
        "create, delete, get, patch configmaps named elsewhere, nowhere",
        "create, delete, get, patch secrets named credentials",
        "create, delete, get, patch deployments.apps named made-controller-manager",
        "create, delete, get, patch priorityclasses.scheduling.k8s.io named made",
        "list, patch widgets.made.example",
        "create, delete, get widgets.made.example named first",
        "list daemonsets.apps, deployments.apps",
        "list configmaps, serviceaccounts, services",
        "create, get, patch namespaces named other-system",
    ] {
        assert!(told.contains(expected), "{expected} is none of {told:#?}");
    }
    for rule in &told {
        assert!(!rule.contains('*'), "{rule}");
        for verb in ["escalate", "bind", "impersonate", "update", "watch"] {
            assert!(
                !rule.split([',', ' ']).any(|word| word == verb),
                "{verb}: {rule}"
            );
        }
    }
}

#[test]
fn what_gives_more_than_is_known_is_for_a_person() {
    let told: Vec<_> = of("everything")
        .by_hand
        .iter()
        .map(|one| format!("{}: {}", one.object.title(), one.why))
        .collect();
    assert_eq!(
        told,
        [
            "ClusterRole made: it gathers the rules of other roles, which may be any (aggregationRule)",
            "ClusterRoleBinding made: it gives ClusterRole made, whose rules the operator does not hold",
            "RoleBinding made-system/made: it gives Role made-system/made, whose rules the operator does not hold",
        ]
    );
    assert!(of("plain").by_hand.is_empty());
}

#[test]
fn every_rendering_is_complete_with_its_own_rights_and_not_with_less() {
    for case in cases::made() {
        let needed = rights(case.render().unwrap().objects()).rules;
        assert!(Rule::missing(&needed, &needed).is_empty(), "{}", case.name);
        for (at, rule) in needed.iter().enumerate() {
            let mut less = needed.clone();
            less.remove(at);
            assert_eq!(
                Rule::missing(&needed, &less),
                std::slice::from_ref(rule),
                "{}",
                case.name
            );
        }
    }
}
