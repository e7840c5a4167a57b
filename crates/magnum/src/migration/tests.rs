//! Rows as Magnum writes them, and as it would not.

use api::magnum::{NetworkDriver, ServerType, State, Visibility};
use kube::ResourceExt as _;

use super::{
    database::{Address, AddressError, Way},
    rows::{Release, Row, Table, Tables},
    *,
};

pub(crate) const TEMPLATE: &str = "00000000-0000-4000-8000-0000000000a1";
pub(crate) const CLUSTER: &str = "00000000-0000-4000-8000-0000000000b1";
pub(crate) const MASTERS: &str = "00000000-0000-4000-8000-0000000000c1";
pub(crate) const WORKERS: &str = "00000000-0000-4000-8000-0000000000c2";
const KEY: &str = "00000000-0000-4000-8000-0000000000d1";
/// Sealed by `cryptography` in the way in which Magnum has it done.
const SEALED: &str = include_str!("fixtures/ca.key");
pub(crate) const CERTIFICATE: &str = include_str!("fixtures/ca.crt");
const PASSWORD: &str = "a password of a test";

fn row(cells: &[(&str, &str)]) -> Row {
    let cells = cells.iter();
    Row::new(cells.map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())))
}

/// A row with other values in some columns. An empty one is null there.
fn with(cells: &[(&'static str, &str)], other: &[(&'static str, &str)]) -> Row {
    let kept = cells
        .iter()
        .filter(|(name, _)| !other.iter().any(|(changed, _)| changed == name));
    let all = kept.chain(other.iter().filter(|(_, value)| !value.is_empty()));
    row(&all.copied().collect::<Vec<_>>())
}

const OF_TEMPLATE: &[(&str, &str)] = &[
    ("id", "1"),
    ("uuid", TEMPLATE),
    ("project_id", "p1"),
    ("user_id", "ann"),
    ("name", "small"),
    ("coe", "kubernetes"),
    ("image_id", "ubuntu"),
    ("flavor_id", "m1.large"),
    ("network_driver", "cilium"),
    ("server_type", "vm"),
    ("labels", r#"{"kube_tag": "v1.34.3"}"#),
    ("public", "0"),
    ("hidden", "1"),
    ("tls_disabled", "0"),
    ("registry_enabled", "0"),
    ("master_lb_enabled", "1"),
    ("floating_ip_enabled", "0"),
    ("driver", "k8s_capi_helm_v1"),
    ("created_at", "2024-02-03 04:05:06"),
];

const OF_CLUSTER: &[(&str, &str)] = &[
    ("id", "1"),
    ("uuid", CLUSTER),
    ("project_id", "p1"),
    ("user_id", "ann"),
    ("name", "first"),
    ("cluster_template_id", TEMPLATE),
    ("keypair", "ann"),
    ("labels", r#"{"kube_tag": "v1.34.3", "mine": "1"}"#),
    ("stack_id", "first-abc"),
    ("status", "UPDATE_COMPLETE"),
    ("status_reason", "Stack UPDATE completed"),
    ("health_status", "HEALTHY"),
    ("health_status_reason", r#"{"api": "ok"}"#),
    ("create_timeout", "60"),
    ("api_address", "https://203.0.113.7:6443"),
    ("coe_version", "v1.34.3"),
    ("container_version", "1.7"),
    ("ca_cert_ref", KEY),
    ("floating_ip_enabled", "1"),
    ("master_lb_enabled", "1"),
    ("created_at", "2024-03-04 05:06:07"),
    ("updated_at", "2024-03-04 06:07:08.123456"),
];

const OF_GROUP: &[(&str, &str)] = &[
    ("id", "1"),
    ("uuid", WORKERS),
    ("name", "default-worker"),
    ("cluster_id", CLUSTER),
    ("project_id", "p1"),
    ("role", "worker"),
    ("is_default", "1"),
    ("node_count", "2"),
    ("min_node_count", "0"),
    ("stack_id", "first-abc"),
    ("status", "CREATE_COMPLETE"),
    ("node_addresses", r#"["10.0.0.5", "10.0.0.6"]"#),
    ("labels", r#"{"kube_tag": "v1.34.3"}"#),
    ("created_at", "2024-03-04 05:06:07"),
];

const OF_MASTERS: &[(&str, &str)] = &[
    ("uuid", MASTERS),
    ("name", "default-master"),
    ("role", "master"),
    ("node_count", "1"),
    ("node_addresses", r#"["10.0.0.4"]"#),
    ("stack_id", "first-masters"),
];

const OF_QUOTA: &[(&str, &str)] = &[
    ("id", "7"),
    ("project_id", "p1"),
    ("resource", "Cluster"),
    ("hard_limit", "5"),
    ("created_at", "2024-02-03 04:05:06"),
];

const OF_KEY: &[(&str, &str)] = &[
    ("id", "1"),
    ("uuid", KEY),
    ("certificate", CERTIFICATE),
    ("private_key", SEALED),
    ("private_key_passphrase", PASSWORD),
];

/// A database with one of each.
pub(crate) fn tables() -> Tables {
    Tables::default()
        .with(Table::Templates, vec![row(OF_TEMPLATE)])
        .with(Table::Clusters, vec![row(OF_CLUSTER)])
        .with(
            Table::NodeGroups,
            vec![with(OF_GROUP, OF_MASTERS), row(OF_GROUP)],
        )
        .with(Table::Quotas, vec![row(OF_QUOTA)])
        .with(Table::KeyPairs, vec![row(OF_KEY)])
}

/// The same, of which the only cluster says something else.
pub(crate) fn renamed() -> Tables {
    let cluster = with(OF_CLUSTER, &[("name", "other")]);
    tables().with(Table::Clusters, vec![cluster])
}

pub(crate) fn made(tables: &Tables) -> Carried {
    carried(tables, &Authorities::new(tables, None))
}

fn told(made: &Carried) -> Vec<String> {
    made.findings.iter().map(Finding::to_string).collect()
}

#[test]
fn all_of_a_database_comes() {
    let made = made(&tables());
    assert_eq!(told(&made), [""; 0]);
    let template = &made.templates[0];
    assert_eq!(template.name_any(), TEMPLATE);
    assert_eq!(template.namespace().unwrap(), "magnum-p1");
    assert_eq!(template.spec.network_driver, Some(NetworkDriver::Cilium));
    assert_eq!(template.spec.visibility, Some(Visibility::Hidden));
    let cluster = &made.clusters[0];
    let imported = cluster.spec.imported.clone().unwrap();
    assert_eq!(imported.stack_id.as_deref(), Some("first-abc"));
    assert_eq!(imported.group_stack_ids[MASTERS], "first-masters");
    assert!(!imported.group_stack_ids.contains_key(WORKERS));
    assert_eq!(cluster.spec.server_type, Some(ServerType::Vm));
    assert_eq!(cluster.spec.labels["mine"], "1");
    // Without it, whoever deletes the object by kubectl is let go at once.
    assert!(cluster.finalizers().is_empty());
    let moments = cluster.annotations();
    assert_eq!(
        moments[api::magnum::UPDATED_ANNOTATION],
        "2024-03-04T06:07:08+00:00"
    );
    let status = cluster.status.clone().unwrap();
    assert_eq!(status.state, Some(State::UpdateComplete));
    assert_eq!(status.groups[WORKERS].node_addresses.len(), 2);
    assert_eq!(made.quotas[0].spec.id, 7);
    assert_eq!(made.authorities[CLUSTER].len(), 1);
}

#[test]
fn a_row_that_does_not_fit_says_field_value_rule_and_remedy() {
    let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(5000));
    let many: std::collections::BTreeMap<_, _> =
        (0..300).map(|number| (format!("l{number}"), "")).collect();
    let many = serde_json::to_string(&many).unwrap();
    let rows: &[(&str, &str, &str, &str)] = &[
        (
            "uuid",
            "NOT-A-UUID",
            "uuid is NOT-A-UUID",
            "UUID in lower case",
        ),
        (
            "uuid",
            "00000000-0000-4000-8000-0000000000B1",
            "0B1",
            "lower case",
        ),
        (
            "status",
            "CREATE_IN_PROGRESS",
            "status is CREATE_IN_PROGRESS",
            "wait until",
        ),
        (
            "status",
            "ROLLBACK_FAILED",
            "status is ROLLBACK_FAILED",
            "change it in Magnum",
        ),
        (
            "project_id",
            "../kube-system",
            "project_id is ../kube-system",
            "id as of Keystone",
        ),
        ("labels", &long, "a has 5000 characters", "may have 4096"),
        ("labels", &many, "300 entries", "may have 256"),
        ("labels", "{", "1 bytes that are no JSON", "mend the row"),
        (
            "labels",
            r#"{"a": {"b": 1}}"#,
            "a map whose a is no text",
            "map of texts",
        ),
        (
            "docker_volume_size",
            "0",
            "docker_volume_size is 0",
            "from 1 to",
        ),
        ("user_id", "", "user_id is empty", "say something"),
        (
            "health_status",
            "SICK",
            "health_status is SICK",
            "HEALTHY, UNHEALTHY",
        ),
    ];
    for (field, value, what, rule) in rows {
        let cluster = with(OF_CLUSTER, &[(*field, value)]);
        // They are the cluster's, also where that has another UUID.
        let of = if *field == "uuid" { *value } else { CLUSTER };
        let of = [("cluster_id", of)];
        let masters = [OF_MASTERS, &of].concat();
        let groups = vec![with(OF_GROUP, &masters), with(OF_GROUP, &of)];
        let tables = tables()
            .with(Table::Clusters, vec![cluster])
            .with(Table::NodeGroups, groups);
        let made = made(&tables);
        assert!(made.clusters.is_empty(), "{field} {value}");
        let told = told(&made);
        assert!(
            told.iter()
                .any(|told| told.starts_with("not carried over: cluster ")
                    && told.contains(what)
                    && told.contains(rule)),
            "{field}: {told:?}"
        );
    }
}

#[test]
fn a_template_that_no_cluster_could_be_made_of_is_refused() {
    for (field, value) in [
        ("coe", "swarm"),
        ("network_driver", "weave"),
        ("volume_driver", "rexray"),
        ("server_type", "lxd"),
        ("image_id", ""),
        ("apiserver_port", "80"),
    ] {
        let tables = tables().with(Table::Templates, vec![with(OF_TEMPLATE, &[(field, value)])]);
        let made = made(&tables);
        assert!(made.templates.is_empty(), "{field}");
        let told = told(&made);
        assert!(told[0].contains(field), "{told:?}");
        // Its clusters are there all the same.
        assert_eq!(made.clusters.len(), 1, "{told:?}");
        assert!(told[1].contains("its template is not there"), "{told:?}");
    }
}

#[test]
fn what_is_kept_as_something_else_is_told() {
    let templates = vec![with(
        OF_TEMPLATE,
        &[
            (
                "labels",
                r#"{"boot_volume_size": "huge", "n": 5, "t": true}"#,
            ),
            ("name", ""),
        ],
    )];
    let quotas = vec![with(OF_QUOTA, &[("hard_limit", "0")])];
    let made = made(
        &tables()
            .with(Table::Templates, templates)
            .with(Table::Quotas, quotas)
            .with(Table::Federations, vec![row(&[("id", "1"), ("uuid", KEY)])]),
    );
    assert_eq!(made.templates[0].spec.name, TEMPLATE);
    let labels = &made.templates[0].spec.labels;
    assert_eq!((&*labels["n"], &*labels["t"]), ("5", "True"));
    assert_eq!(made.quotas[0].spec.hard_limit, 0);
    let told = told(&made).join("\n");
    for word in [
        "called by its UUID",
        "boot_volume_size",
        "has 1 clusters",
        "federation",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn health_of_many_nodes_keeps_no_cluster_away() {
    let reasons: std::collections::BTreeMap<_, _> = (0..300)
        .map(|node| (format!("n{node}.Ready"), "True"))
        .collect();
    let reasons = serde_json::to_string(&reasons).unwrap();
    let cluster = with(OF_CLUSTER, &[("health_status_reason", &reasons)]);
    let made = made(&tables().with(Table::Clusters, vec![cluster]));
    let health = made.clusters[0].status.as_ref().unwrap().health.as_ref();
    assert!(health.unwrap().reasons.is_empty());
    let told = told(&made);
    assert!(
        told.len() == 1 && told[0].starts_with("changed: ") && told[0].contains("300 entries"),
        "{told:?}"
    );
}

#[test]
fn clusters_of_one_name_come_each_by_its_uuid() {
    const OTHER: &str = "00000000-0000-4000-8000-0000000000b2";
    let of = [("cluster_id", OTHER)];
    let clusters = vec![row(OF_CLUSTER), with(OF_CLUSTER, &[("uuid", OTHER)])];
    let masters = [OF_MASTERS, &of, &[("uuid", KEY)]].concat();
    let groups = vec![
        with(OF_GROUP, OF_MASTERS),
        row(OF_GROUP),
        with(OF_GROUP, &masters),
        with(OF_GROUP, &[("cluster_id", OTHER), ("uuid", TEMPLATE)]),
    ];
    let tables = tables()
        .with(Table::Clusters, clusters)
        .with(Table::NodeGroups, groups);
    let made = made(&tables);
    assert_eq!(told(&made), [""; 0]);
    let names = made.clusters.iter().map(|cluster| &*cluster.spec.name);
    assert_eq!(names.collect::<Vec<_>>(), ["first", "first"]);
    assert_eq!(made.clusters[1].name_any(), OTHER);
}

#[test]
fn a_cluster_comes_with_all_its_groups_or_not_at_all() {
    let taint = r#"{"key": "a", "effect": "NoSchedule"}"#;
    let taints = format!("[{}]", vec![taint; 65].join(","));
    let tainted = with(OF_GROUP, &[("node_taints", &taints)]);
    let bad = with(OF_GROUP, &[("node_count", "-1")]);
    let alien = with(OF_GROUP, &[("cluster_id", "nobody"), ("uuid", KEY)]);
    let same = with(OF_GROUP, &[("uuid", KEY)]);
    for (groups, word) in [
        (
            vec![with(OF_GROUP, OF_MASTERS), bad],
            "one of its node groups",
        ),
        (
            vec![with(OF_GROUP, OF_MASTERS), tainted],
            "at most 64 taints",
        ),
        (vec![with(OF_GROUP, OF_MASTERS)], "2 to 64 node groups"),
        (
            vec![with(OF_GROUP, OF_MASTERS), row(OF_GROUP), same],
            "its name once",
        ),
    ] {
        let made = made(&tables().with(Table::NodeGroups, groups));
        let told = told(&made).join("\n");
        assert!(made.clusters.is_empty() && told.contains(word), "{told}");
    }
    let groups = vec![with(OF_GROUP, OF_MASTERS), row(OF_GROUP), alien];
    let made = made(&tables().with(Table::NodeGroups, groups));
    assert_eq!(made.clusters.len(), 1);
    assert!(told(&made)[0].contains("there is no such cluster"));
}

#[test]
fn what_others_wrote_steers_no_terminal_and_nothing_that_is_no_text_comes() {
    let cluster = with(
        OF_CLUSTER,
        &[
            ("health_status", "\u{1b}[2J\u{202e}ok\nREADY"),
            ("status_reason", "a\u{1b}[31mb\nc"),
        ],
    );
    let made = made(&tables().with(Table::Clusters, vec![cluster]));
    for told in told(&made) {
        assert!(api::text::is_plain(&told), "{told:?}");
    }
    let raw = Row::new(OF_CLUSTER.iter().map(|(name, value)| {
        let value = if *name == "name" {
            b"\xff\xfe".to_vec()
        } else {
            value.as_bytes().to_vec()
        };
        ((*name).to_owned(), value)
    }));
    let made = super::tests::made(&tables().with(Table::Clusters, vec![raw]));
    assert!(made.clusters.is_empty());
    assert!(
        told(&made)[0].contains("name is not UTF-8"),
        "{:?}",
        told(&made)
    );
}

#[test]
fn a_key_that_cannot_be_opened_is_named_and_its_cluster_comes() {
    let wrong: &[(&[(&str, &str)], &str)] = &[
        (
            &[("private_key_passphrase", "another")],
            "cannot be opened with the password",
        ),
        (
            &[("private_key_passphrase", "")],
            "cannot be opened with the password",
        ),
        (&[("private_key", "x")], "none in PEM form"),
        (&[("certificate", "x")], "its certificate is none"),
        (&[("private_key", "")], "has no private_key"),
        (&[("uuid", TEMPLATE)], "no such row of x509keypair"),
    ];
    for (cells, word) in wrong {
        let tables = tables().with(Table::KeyPairs, vec![with(OF_KEY, cells)]);
        let made = made(&tables);
        let told = told(&made).join("\n");
        assert!(told.contains(word), "{told}");
        assert_eq!((made.clusters.len(), made.authorities.len()), (1, 0));
        assert!(
            !told.contains("PRIVATE") && !told.contains(PASSWORD),
            "{told}"
        );
    }
    let address = "http://barbican:9311/v1/containers/00000000-0000-4000-8000-0000000000d1";
    let cluster = with(OF_CLUSTER, &[("ca_cert_ref", address)]);
    let tables = tables().with(Table::Clusters, vec![cluster]);
    assert!(told(&made(&tables))[0].contains("in Barbican, which is not asked"));
}

#[test]
fn a_key_comes_from_a_directory_too() {
    let directory = tempfile::tempdir().unwrap();
    for (end, text) in [("crt", CERTIFICATE), ("key", SEALED), ("pass", PASSWORD)] {
        std::fs::write(directory.path().join(format!("{KEY}.{end}")), text).unwrap();
    }
    let directory = Directory(directory.path().to_owned());
    let tables = tables().with(Table::KeyPairs, Vec::new());
    let made = carried(&tables, &Authorities::new(&tables, Some(&directory)));
    assert_eq!(told(&made), [""; 0]);
    assert_eq!(made.authorities[CLUSTER].len(), 1);
    // A reference is no way to another file.
    let cluster = with(OF_CLUSTER, &[("ca_cert_ref", "../../etc/passwd")]);
    let tables = tables.with(Table::Clusters, vec![cluster]);
    let made = carried(&tables, &Authorities::new(&tables, Some(&directory)));
    assert!(told(&made)[0].contains("no UUID and no address"));
}

#[test]
fn secrets_of_users_are_not_read() {
    for release in [Release::V21, Release::V23] {
        for table in Table::ALL {
            for column in table.columns(release) {
                assert!(!column.contains("trust"), "{column}");
            }
        }
    }
    assert_eq!(Release::of("d7e6a4d39fe4"), None);
}

#[test]
fn an_address_is_of_this_machine_unless_somebody_says_otherwise() {
    let parse = |text: &str| Address::parse(text, Way::Local).map(drop);
    for good in [
        "mysql+pymysql://magnum:s%40crt@127.0.0.1/magnum?charset=utf8",
        "mysql://magnum@localhost:3307/magnum\n",
        "mariadb+mariadbconnector://magnum:x@[::1]/magnum",
        "mysql+pymysql://magnum:x@ignored/magnum?unix_socket=%2Frun%2Fmysqld%2Fmysqld.sock",
    ] {
        assert_eq!(parse(good), Ok(()), "{good}");
    }
    let far = "mysql+pymysql://magnum:s3cret@db.example.com/magnum";
    let refused = parse(far).unwrap_err();
    assert!(matches!(refused, AddressError::Clear(_)));
    assert!(!refused.to_string().contains("s3cret"));
    assert!(Address::parse(far, Way::Plaintext).is_ok());
    // What SQLAlchemy takes for a password, and part of one for a host.
    let good = "mysql+pymysql://magnum:s/c?r#t:x@localhost/magnum?charset=utf8";
    assert_eq!(parse(good), Ok(()));
    for bad in [
        "mysql://magnum:x@s3cret@localhost/magnum",
        "mysql://magnum:x@s3c/ret@localhost/magnum",
        "mysql://magnum:x@s3c/ret?ssls3cret@localhost/magnum",
        "",
        "magnum",
        "postgresql://a@localhost/magnum",
        "mysql://a@localhost",
        "sqlite:///x",
    ] {
        assert_eq!(parse(bad), Err(AddressError::Form), "{bad}");
    }
    let asks = parse("mysql+pymysql://a:b@localhost/magnum?ssl_ca=/etc/ca.pem").unwrap_err();
    assert_eq!(asks, AddressError::Tls("ssl_ca".to_owned()));
}
