//! The generated ansible.cfg.

use std::{collections::BTreeMap, fs, path::PathBuf};

use ansible::{
    inventory::{Configuration, ConfigurationError, ansible_cfg, forks},
    ssh::Bastion,
};

fn configuration() -> Configuration {
    Configuration {
        checkout: "/data/sources/1".into(),
        hosts: 3,
        facts: "/data/clusters/a/b/facts".into(),
        known_hosts: "/data/clusters/a/b/known_hosts".into(),
        control: "/tmp/wl-0".into(),
        callback_plugins: vec!["/data/plugins".into()],
        callbacks: vec!["windlass".to_owned()],
        ..Configuration::default()
    }
}

fn line(text: &str, key: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key} = ")));
    line.unwrap_or_default().to_owned()
}

#[test]
fn of_three_hosts() {
    insta::assert_snapshot!("ansible_cfg", ansible_cfg(&configuration()).unwrap());
}

#[test]
fn forks_follow_the_number_of_hosts() {
    for (hosts, maximum, expected) in [
        (1, None, 5),
        (20, None, 20),
        (200, None, 50),
        (200, Some(30), 30),
        (3, Some(2), 2),
        (3, Some(0), 1),
    ] {
        assert_eq!(forks(hosts, maximum), expected, "{hosts} {maximum:?}");
    }
}

#[test]
fn search_paths_are_those_of_the_checkout() {
    let checkout = tempfile::tempdir().unwrap();
    let shipped = "[defaults]\nroles_path = roles:$VIRTUAL_ENV/x:/usr/share/y\nlibrary = ./library\nforks = 3\n[other]\naction_plugins = no\n";
    fs::write(checkout.path().join("ansible.cfg"), shipped).unwrap();
    let text = ansible_cfg(&Configuration {
        checkout: checkout.path().to_owned(),
        ..configuration()
    })
    .unwrap();
    let root = checkout.path().display();
    assert_eq!(
        line(&text, "roles_path"),
        format!("{root}/roles:$VIRTUAL_ENV/x:/usr/share/y")
    );
    assert_eq!(line(&text, "library"), format!("{root}/library"));
    assert_eq!(
        (
            line(&text, "forks").as_str(),
            line(&text, "action_plugins").as_str()
        ),
        ("5", "")
    );
}

#[test]
fn a_person_overrides_single_settings() {
    let overrides = |section: &str, key: &str, value: &str| {
        let entries = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        Configuration {
            overrides: BTreeMap::from([(section.to_owned(), entries)]),
            ..configuration()
        }
    };
    let text = ansible_cfg(&overrides("defaults", "forks", "7")).unwrap();
    assert_eq!(line(&text, "forks"), "7");
    for (section, key, value) in [
        ("defaults", "forks", "7\nlibrary = /tmp"),
        ("a]", "b", "c"),
        ("a", "b c", "d"),
    ] {
        let error = ansible_cfg(&overrides(section, key, value)).unwrap_err();
        assert!(
            matches!(error, ConfigurationError::Unwritable { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_bastion_is_gone_through() {
    let bastion = Bastion {
        address: "192.0.2.1".to_owned(),
        user: "jump".to_owned(),
        port: 2222,
        control: "/run/my cluster".into(),
    };
    let text = ansible_cfg(&Configuration {
        bastion: Some(bastion),
        private_key: Some("/run/my cluster/key".into()),
        ..configuration()
    })
    .unwrap();
    insta::assert_snapshot!("bastion", line(&text, "ssh_args"));
}

#[test]
fn a_control_path_that_is_too_long_is_refused() {
    let control = PathBuf::from(format!("/{}", "x".repeat(60)));
    let error = ansible_cfg(&Configuration {
        control,
        ..configuration()
    })
    .unwrap_err();
    assert!(
        matches!(error, ConfigurationError::ControlPath { length: 119, .. }),
        "{error}"
    );
}
