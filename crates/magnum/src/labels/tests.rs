use std::collections::BTreeSet;

use api::magnum::ServerType;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn the_guide_has_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/magnum.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("<!-- labels -->").nth(1).unwrap();
    assert_eq!(
        table.trim(),
        guide().trim(),
        "docs/magnum.md: put what `labels::guide` gives between the marks"
    );
}

#[test]
fn every_label_has_one_row_and_a_default_that_it_takes() {
    let mut seen = BTreeSet::new();
    for label in &LABELS {
        assert!(seen.insert(label.name), "{}", label.name);
        let fits = label.default.is_empty() || label.kind.has(label.default);
        assert!(fits, "{}: {}", label.name, label.default);
    }
}

#[test]
fn a_bad_value_names_label_value_and_rule() {
    for (name, bad) in [
        ("kube_tag", "newest"),
        ("boot_volume_size", "-1"),
        ("boot_volume_size", "65537"),
        ("fixed_subnet_cidr", "10.0.0.0"),
        ("fixed_subnet_cidr", "10.0.0.0/33"),
        ("fixed_subnet_cidr", "10.0.0.0/+8"),
        ("api_master_lb_allowed_cidrs", "10.0.0.0/8,,"),
        ("auto_healing_enabled", "perhaps"),
        ("availability_zone", ""),
        ("availability_zone", "a b"),
        ("csi_cinder_reclaim_policy", "Keep"),
    ] {
        let wrong = check(&labels(&[(name, bad)])).unwrap_err();
        assert_eq!((wrong.label, wrong.value.as_str()), (name, bad));
        assert!(!wrong.rule.is_empty());
    }
    let good = labels(&[
        ("kube_tag", "v1.34.3"),
        ("fixed_subnet_cidr", "fd00::/64"),
        ("api_master_lb_allowed_cidrs", "10.0.0.0/8, 192.0.2.1/32"),
        ("auto_healing_enabled", "False"),
        ("a word of somebody's own", "\n"),
    ]);
    assert_eq!(check(&good), Ok(()));
}

#[test]
fn what_does_nothing_is_told() {
    let spec = |server: ServerType| CoeClusterSpec {
        server_type: Some(server),
        labels: labels(&[
            ("kube_tag", "v1.34.3"),
            ("boot_volume_size", "10"),
            ("etcd_tag", "3"),
            ("colour", "red"),
        ]),
        ..CoeClusterSpec::default()
    };
    assert_eq!(
        notice(&spec(ServerType::Vm)).as_deref(),
        Some("labels that are not known: colour; labels without effect here: etcd_tag")
    );
    assert_eq!(
        notice(&spec(ServerType::Bm)).as_deref(),
        Some(
            "labels that are not known: colour; labels without effect here: boot_volume_size, etcd_tag"
        )
    );
    assert_eq!(notice(&CoeClusterSpec::default()), None);
}
