//! From every release of Cluster API to every other one: the plan of a set and the check of each object say the same, and it is what
//! Cluster API supports.

use std::{collections::BTreeMap, fmt::Write as _};

use clusterctl::{
    Installed, Metadata, Provider as Named,
    upgrade::{Refusal, Releases, plan_for},
};

use super::*;

/// The first minor version that keeps contract v1beta2.
const NEW_CONTRACT: u64 = 11;
/// The newest minor version, and the patches of each that stand for all of them.
const NEWEST: u64 = 14;
const PATCHES: [u64; 2] = [0, 11];

/// A minor version and a patch of it.
type Release = (u64, u64);

fn releases() -> impl Iterator<Item = Release> {
    (0..=NEWEST).flat_map(|minor| PATCHES.map(|patch| (minor, patch)))
}

fn text((minor, patch): Release) -> String {
    format!("v1.{minor}.{patch}")
}

fn contract((minor, _): Release) -> &'static str {
    if minor < NEW_CONTRACT {
        "v1beta1"
    } else {
        "v1beta2"
    }
}

/// What Cluster API says of a step, whoever else is there.
fn supported((from, _): Release, (to, _): Release) -> &'static str {
    // Skipped minors count from 1.10 on.
    if to < from {
        "back"
    } else if from >= 10 && to > from + 3 {
        "skips"
    } else {
        "goes"
    }
}

/// What plans are made of.
struct World {
    core: Named,
    kubeadm: Named,
    known: BTreeMap<Named, Releases>,
}

impl World {
    fn new() -> Self {
        let mut metadata =
            "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n"
                .to_owned();
        for minor in 0..=NEWEST {
            let contract = contract((minor, 0));
            writeln!(
                metadata,
                "- {{major: 1, minor: {minor}, contract: {contract}}}"
            )
            .unwrap();
        }
        let own = Releases {
            metadata: Metadata::parse(&metadata).unwrap(),
            versions: releases().map(|one| text(one).parse().unwrap()).collect(),
        };
        let named = |kind, name| inputs::provider(kind, name).unwrap();
        let core = named(ProviderType::Core, "cluster-api");
        let kubeadm = named(ProviderType::Bootstrap, "kubeadm");
        let known = [&core, &kubeadm].map(|provider| (provider.clone(), own.clone()));
        Self {
            core,
            kubeadm,
            known: known.into(),
        }
    }

    /// What a plan says that takes some of both from one release to another one.
    fn planned(&self, providers: &[&Named], from: Release, to: Release) -> &'static str {
        let installed = [&self.core, &self.kubeadm].map(|provider| Installed {
            provider: provider.clone(),
            namespace: "capi-system".to_owned(),
            version: text(from).parse().unwrap(),
        });
        let wanted = providers.iter().copied().cloned();
        let wanted = wanted.map(|provider| (provider, text(to).parse().unwrap()));
        let Err(refusals) = plan_for(&installed, &wanted.collect(), &self.known) else {
            return "goes";
        };
        let is = |wanted: fn(&Refusal) -> bool| refusals.0.iter().any(wanted);
        if is(|refusal| matches!(refusal, Refusal::Downgrade { .. })) {
            "back"
        } else if is(|refusal| matches!(refusal, Refusal::Skip { .. })) {
            "skips"
        } else {
            assert!(is(|refusal| matches!(refusal, Refusal::Contract { .. })));
            "contract"
        }
    }
}

/// What the check of an object says whose provider is installed.
fn checked<K: Kind>(name: &str, from: Release, to: Release, other: &Other) -> &'static str {
    let mut object: Provider<K> = provider(name, &format!("version: {}", text(to)));
    has(&mut object, &text(from), contract(from));
    let held = held(&text(to), contract(to));
    let said = judged(among(&object, std::slice::from_ref(other), Some(&held)));
    let says = |word: &str| said.contains(word);
    if said == "goes" {
        "goes"
    } else if says("UnsupportedProviderDowngradeReason") && says("no way back") {
        "back"
    } else if says("skips more than three minor versions") {
        "skips"
    } else {
        assert!(says("keeps contract"), "{said}");
        "contract"
    }
}

#[test]
fn a_plan_and_the_check_of_an_object_agree_from_every_release_to_every_other_one() {
    let world = World::new();
    let mut said: BTreeMap<&str, u32> = BTreeMap::new();
    for (from, to) in releases().flat_map(|from| releases().map(move |to| (from, to))) {
        let step = format!("{} to {}", text(from), text(to));
        let expected = supported(from, to);
        let core_at = |at| beside(ProviderType::Core, "cluster-api", &text(at), contract(at));
        let kubeadm_at = |at| beside(ProviderType::Bootstrap, "kubeadm", &text(at), contract(at));
        let both = world.planned(&[&world.core, &world.kubeadm], from, to);
        assert_eq!(both, expected, "both from {step}");
        let core = checked::<api::provider::Core>("cluster-api", from, to, &kubeadm_at(from));
        assert_eq!(core, expected, "core from {step}");
        let next = checked::<api::provider::Bootstrap>("kubeadm", from, to, &core_at(to));
        assert_eq!(next, expected, "kubeadm after core from {step}");

        // Core stays, and so does the contract that it keeps.
        let is_kept = contract(from) == contract(to) || contract(from) == "v1beta2";
        let expected = if expected == "goes" && !is_kept {
            "contract"
        } else {
            expected
        };
        let alone = world.planned(&[&world.kubeadm], from, to);
        assert_eq!(alone, expected, "kubeadm alone from {step}");
        let alone = checked::<api::provider::Bootstrap>("kubeadm", from, to, &core_at(from));
        assert_eq!(alone, expected, "kubeadm alone from {step}");
        *said.entry(expected).or_default() += 1;
    }
    assert_eq!(said.len(), 4, "{said:?}");
}
