//! Whole sets of providers and what may follow them.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::collections::BTreeMap;

use api::VersionPart;
use clusterctl::{
    Installed, Metadata, Provider, ProviderType, Version,
    upgrade::{Refusal, Refusals, Releases, UpgradePlan, available, by_itself, plan_for, plans},
};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn core() -> Provider {
    Provider::new(ProviderType::Core, "cluster-api").unwrap()
}

fn kubeadm() -> Provider {
    Provider::new(ProviderType::Bootstrap, "kubeadm").unwrap()
}

fn metal() -> Provider {
    Provider::new(ProviderType::Infrastructure, "metal").unwrap()
}

fn installed(set: &[(Provider, &str)]) -> Vec<Installed> {
    let one = |(provider, text): &(Provider, &str)| Installed {
        provider: provider.clone(),
        namespace: format!("{}-system", provider.manifest_label()),
        version: version(text),
    };
    set.iter().map(one).collect()
}

/// Series as `1.14: v1beta2`, and versions.
fn releases(series: &[(&str, &str)], versions: &[&str]) -> Releases {
    let mut text =
        "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n"
            .to_owned();
    for (series, contract) in series {
        let (major, minor) = series.split_once('.').unwrap();
        text += &format!("- {{major: {major}, minor: {minor}, contract: {contract}}}\n");
    }
    Releases {
        metadata: Metadata::parse(&text).unwrap(),
        versions: versions.iter().map(|text| version(text)).collect(),
    }
}

/// Cluster API's own from 1.9 on, and a provider that learned `v1beta2` late.
fn world() -> BTreeMap<Provider, Releases> {
    let series = [
        ("1.9", "v1beta1"),
        ("1.10", "v1beta1"),
        ("1.11", "v1beta2"),
        ("1.12", "v1beta2"),
        ("1.13", "v1beta2"),
        ("1.14", "v1beta2"),
    ];
    let versions = [
        "v1.9.11",
        "v1.10.0",
        "v1.10.10",
        "v1.11.11",
        "v1.12.11",
        "v1.13.4",
        "v1.14.2",
        "v1.14.3-rc.0",
        "v1.14.0",
    ];
    let own = releases(&series, &versions);
    let metal = releases(
        &[("0.8", "v1beta1"), ("0.9", "v1beta1"), ("1.0", "v1beta2")],
        &["v0.8.1", "v0.9.0", "v0.9.3", "v1.0.1"],
    );
    BTreeMap::from([
        (core(), own.clone()),
        (kubeadm(), own),
        (self::metal(), metal),
    ])
}

fn told(plan: &UpgradePlan) -> Vec<String> {
    let line = |upgrade: &clusterctl::upgrade::Upgrade| {
        format!(
            "{} {} {}",
            upgrade.from.provider.manifest_label(),
            upgrade.from.version,
            upgrade.to
        )
    };
    plan.upgrades.iter().map(line).collect()
}

fn want(wanted: &[(Provider, &str)]) -> BTreeMap<Provider, Version> {
    wanted
        .iter()
        .map(|(provider, text)| (provider.clone(), version(text)))
        .collect()
}

#[test]
fn the_newest_set_is_planned_in_order_and_without_prereleases() {
    let set = installed(&[
        (metal(), "v0.9.0"),
        (kubeadm(), "v1.13.4"),
        (core(), "v1.13.4"),
    ]);
    let [plan] = &plans(&set, &world()).unwrap()[..] else {
        panic!("one contract is ahead")
    };
    assert_eq!(plan.contract.to_string(), "v1beta2");
    assert_eq!(
        told(plan),
        [
            "cluster-api v1.13.4 v1.14.2",
            "bootstrap-kubeadm v1.13.4 v1.14.2",
            "infrastructure-metal v0.9.0 v1.0.1"
        ]
    );
}

#[test]
fn there_is_a_plan_for_each_contract_ahead() {
    let set = installed(&[
        (core(), "v1.10.0"),
        (kubeadm(), "v1.10.0"),
        (metal(), "v0.9.0"),
    ]);
    let plans = plans(&set, &world()).unwrap();
    let contracts: Vec<_> = plans.iter().map(|plan| plan.contract.to_string()).collect();
    assert_eq!(contracts, ["v1beta1", "v1beta2"]);
    assert_eq!(
        told(&plans[0]),
        [
            "cluster-api v1.10.0 v1.10.10",
            "bootstrap-kubeadm v1.10.0 v1.10.10",
            "infrastructure-metal v0.9.0 v0.9.3"
        ]
    );
    // Not 1.14: that would skip too much.
    assert_eq!(told(&plans[1])[0], "cluster-api v1.10.0 v1.13.4");
}

#[test]
fn a_contract_that_some_provider_cannot_keep_is_no_plan() {
    let mut world = world();
    world.get_mut(&metal()).unwrap().versions = vec![version("v0.9.0")];
    let set = installed(&[(core(), "v1.10.0"), (metal(), "v0.9.0")]);
    let plans = plans(&set, &world).unwrap();
    assert_eq!(plans.len(), 1);
    assert_eq!(told(&plans[0]), ["cluster-api v1.10.0 v1.10.10"]);
    assert_eq!(plans[0].unchanged, installed(&[(metal(), "v0.9.0")]));
}

#[test]
fn cert_manager_keeps_no_contract() {
    let cert_manager = Provider::new(ProviderType::Addon, "cert-manager").unwrap();
    let mut world = world();
    let series = [("1.20", "v1beta1"), ("1.21", "v1beta1")];
    let known = releases(&series, &["v1.20.2", "v1.21.1"]);
    world.insert(cert_manager.clone(), known);
    for (version, upgraded) in [("v1.20.2", true), ("v1.21.1", false)] {
        let set = installed(&[(core(), "v1.10.10"), (cert_manager.clone(), version)]);
        let plans = plans(&set, &world).unwrap();
        let newest = plans.last().unwrap();
        assert_eq!(newest.contract.to_string(), "v1beta2");
        let own = "addon-cert-manager v1.20.2 v1.21.1".to_owned();
        assert_eq!(told(newest).contains(&own), upgraded, "{newest:?}");
    }
    let set = installed(&[(core(), "v1.13.4"), (cert_manager, "v1.20.2")]);
    assert!(plan_for(&set, &want(&[(core(), "v1.14.2")]), &world).is_ok());
}

#[test]
fn a_release_that_its_metadata_forgot_is_left_out_and_told() {
    let mut world = world();
    world
        .get_mut(&metal())
        .unwrap()
        .versions
        .push(version("v1.1.0"));
    let set = installed(&[(core(), "v1.14.2"), (metal(), "v0.9.0")]);
    let plan = plans(&set, &world).unwrap().remove(0);
    assert_eq!(told(&plan), ["infrastructure-metal v0.9.0 v1.0.1"]);
    assert_eq!(plan.left_out, [(metal(), version("v1.1.0"))]);
}

#[test]
fn a_wanted_set_is_planned_where_its_contracts_go_together() {
    let set = installed(&[
        (core(), "v1.13.4"),
        (kubeadm(), "v1.13.4"),
        (metal(), "v0.9.0"),
    ]);
    let plan = plan_for(
        &set,
        &want(&[
            (kubeadm(), "v1.14.2"),
            (core(), "v1.14.2"),
            (metal(), "v0.9.0"),
        ]),
        &world(),
    )
    .unwrap();
    assert_eq!(
        told(&plan),
        [
            "cluster-api v1.13.4 v1.14.2",
            "bootstrap-kubeadm v1.13.4 v1.14.2"
        ]
    );
    assert_eq!(plan.unchanged, installed(&[(metal(), "v0.9.0")]));
    // A patch may be older, as with the existing operator.
    let back = plan_for(&set, &want(&[(metal(), "v0.9.3")]), &world()).unwrap();
    let set = installed(&[(core(), "v1.13.4"), (metal(), "v0.9.3")]);
    assert_eq!(told(&back), ["infrastructure-metal v0.9.0 v0.9.3"]);
    assert!(plan_for(&set, &want(&[(metal(), "v0.9.0")]), &world()).is_ok());
}

#[test]
fn every_reason_is_said_at_once() {
    let set = installed(&[
        (core(), "v1.10.0"),
        (kubeadm(), "v1.10.0"),
        (metal(), "v0.9.0"),
    ]);
    let addon = Provider::new(ProviderType::Addon, "helm").unwrap();
    let wanted = want(&[
        (core(), "v1.10.10"),
        (kubeadm(), "v1.14.2"),
        (metal(), "v0.8.1"),
        (addon.clone(), "v1.0.0"),
    ]);
    let Refusals(refusals) = plan_for(&set, &wanted, &world()).unwrap_err();
    assert!(
        matches!(
            &refusals[..],
            [
                Refusal::NotInstalled(absent),
                Refusal::Contract { .. },
                Refusal::Skip { .. },
                Refusal::Downgrade { .. },
            ] if *absent == addon
        ),
        "{refusals:#?}"
    );
    let text = Refusals(refusals).to_string();
    for part in [
        "AddonProvider helm is to be upgraded and is not installed",
        "BootstrapProvider kubeadm v1.14.2 keeps contract v1beta2, which does not go with v1beta1 of core",
        "from v1.10.0 to v1.14.2 and skip more than three minors; go by way of v1.13",
        "InfrastructureProvider metal would go back from v0.9.0 to v0.8.1",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn sets_that_cannot_be_planned_for_are_refused() {
    let world = world();
    let refused = |set: &[(Provider, &str)], wanted: &[(Provider, &str)]| {
        plan_for(&installed(set), &want(wanted), &world)
            .unwrap_err()
            .to_string()
    };
    let cases = [
        (
            refused(&[(metal(), "v0.9.0")], &[]),
            "there are 0 core providers",
        ),
        (
            refused(&[(core(), "v1.13.4"), (core(), "v1.13.4")], &[]),
            "there are 2 core providers",
        ),
        (
            refused(
                &[
                    (core(), "v1.13.4"),
                    (metal(), "v0.9.0"),
                    (metal(), "v0.9.0"),
                ],
                &[],
            ),
            "metal is installed in the namespaces infrastructure-metal-system, infrastructure-metal-system; one is the most",
        ),
        (
            refused(&[(core(), "v1.13.4")], &[(core(), "v1.15.0")]),
            "has no 1.15 for version v1.15.0",
        ),
        (
            refused(&[(core(), "v1.13.4")], &[(core(), "v1.14.9")]),
            "has no release v1.14.9; the newest that it has is v1.14.3-rc.0",
        ),
        (
            refused(&[(core(), "v1.9.11")], &[(core(), "v1.8.0")]),
            "has no 1.8 for version v1.8.0",
        ),
    ];
    for (text, said) in cases {
        assert!(text.contains(said), "{text}");
    }
    let mut old = world.clone();
    old.insert(
        core(),
        releases(
            &[("0.4", "v1alpha4"), ("1.0", "v1beta1"), ("2.0", "v1")],
            &["v0.4.0", "v1.0.0", "v2.0.0"],
        ),
    );
    let set = installed(&[(core(), "v1.0.0"), (metal(), "v1.0.1")]);
    let text = plan_for(&set, &want(&[(core(), "v2.0.0")]), &old)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(
            "core v2.0.0 keeps contract v1, which is unknown; v1beta1 and v1beta2 are known"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "metal stays at v1.0.1, which keeps contract v1beta2 and does not go with v1 of core"
        ),
        "{text}"
    );
    old.remove(&metal());
    let text = plans(&set, &old).unwrap_err().to_string();
    assert_eq!(
        text,
        "no releases of InfrastructureProvider metal are known; say where they are"
    );
    // A version that nobody lists anywhere is the reason of all that follows: it is told.
    let set = installed(&[(core(), "v1.13.4"), (kubeadm(), "v1.7.0")]);
    let text = plans(&set, &world).unwrap_err().to_string();
    assert!(
        text.contains("BootstrapProvider kubeadm: releaseSeries of metadata.yaml has no 1.7"),
        "{text}"
    );
}

#[test]
fn a_policy_takes_what_it_names_of_each_provider_and_no_more() {
    let set = installed(&[
        (core(), "v1.13.0"),
        (kubeadm(), "v1.13.0"),
        (metal(), "v0.9.0"),
    ]);
    let taken = |takes: &dyn Fn(&Provider, VersionPart) -> bool| {
        let plan = by_itself(&set, &world(), takes).unwrap();
        plan.map(|plan| told(&plan)).unwrap_or_default()
    };
    assert_eq!(taken(&|_, _| false), Vec::<String>::new());
    assert_eq!(
        taken(&|_, part| part == VersionPart::Patch),
        [
            "cluster-api v1.13.0 v1.13.4",
            "bootstrap-kubeadm v1.13.0 v1.13.4",
            "infrastructure-metal v0.9.0 v0.9.3",
        ]
    );
    assert_eq!(
        taken(&|provider, part| part <= VersionPart::Minor && *provider != metal()),
        [
            "cluster-api v1.13.0 v1.14.2",
            "bootstrap-kubeadm v1.13.0 v1.14.2",
        ]
    );
    assert_eq!(
        taken(&|_, _| true).last().map(String::as_str),
        Some("infrastructure-metal v0.9.0 v1.0.1")
    );
}

#[test]
fn a_policy_leads_to_no_contract_that_is_unknown() {
    let set = installed(&[(core(), "v1.14.0")]);
    let known = releases(
        &[("1.14", "v1beta2"), ("1.15", "v1beta3")],
        &["v1.14.0", "v1.14.2", "v1.15.0"],
    );
    let plan = by_itself(&set, &BTreeMap::from([(core(), known)]), |_, _| true).unwrap();
    assert_eq!(told(&plan.unwrap()), ["cluster-api v1.14.0 v1.14.2"]);
}

#[test]
fn a_set_that_cannot_be_planned_for_takes_nothing() {
    let set = installed(&[(metal(), "v0.9.0")]);
    let refused = by_itself(&set, &world(), |_, _| true).unwrap_err();
    assert_eq!(refused.0, [Refusal::Cores(0)]);
}

#[test]
fn what_can_be_had_is_the_newest_by_each_part_beyond_what_is_on_its_way() {
    let [one] = installed(&[(metal(), "v0.8.1")]).try_into().unwrap();
    let known = &world()[&metal()];
    let found = |on_its_way: &str| {
        let found = available(&one, &version(on_its_way), known).into_iter();
        found
            .map(|(part, version)| format!("{part:?} {version}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("v0.8.1"), ["Minor v0.9.3", "Major v1.0.1"]);
    assert_eq!(found("v0.9.3"), ["Major v1.0.1"]);
    assert_eq!(found("v1.0.1"), Vec::<String>::new());
}
