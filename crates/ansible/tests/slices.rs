//! Slices are the whole: their task lists, one after the other, are those of the playbook.
//!
//! A small fixture is cut; the test of `kubespray_checkout` cuts an unmodified kubespray. It is ignored where nobody has one,
//! and needs `WINDLASS_KUBESPRAY=DIR`, a checkout, and `WINDLASS_ANSIBLE_PLAYBOOK=FILE` if that needs another Ansible than the
//! other tests.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]
#![expect(clippy::type_complexity, reason = "rows of tables are short this way")]

mod support {
    pub mod environment;
}

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use ansible::{
    inventory::{
        Configuration, Directories, Host, Inventory, InventoryInput, Settings, ansible_cfg, compile,
    },
    slice::{ADDED, Error, KEEP_TOGETHER, ListedPlay, Playbook, list_tasks},
};
use api::node::{HostVariables, Role};

const PLAYBOOKS: &[&str] = &[
    "cluster",
    "scale",
    "upgrade-cluster",
    "reset",
    "remove-node",
    "recover-control-plane",
];

#[tokio::test]
async fn slices_are_the_whole() {
    for name in ["cluster", "reset"] {
        compare(&ansible_playbook().await, &fixture(), name).await;
    }
}

#[test]
fn a_play_that_goes_host_by_host_says_so() {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle");
    let playbook = Playbook::read(&bundle, "upgrade-cluster").unwrap();
    assert_goes_host_by_host(&playbook);
}

fn assert_goes_host_by_host(playbook: &Playbook) {
    let serial = |id: &str| playbook.slice(id).unwrap().serial.clone();
    assert_eq!(serial("control-plane/upgrade"), Some(1.into()));
    let template = "{{ serial | default('20%') }}";
    assert_eq!(serial("workers/upgrade"), Some(template.into()));
    for id in ["prepare/upgrade", "etcd/install", "apps/install"] {
        assert_eq!(serial(id), None, "{id}");
    }
}

mod kubespray_checkout {
    use super::*;

    #[test]
    #[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
    fn a_play_that_goes_host_by_host_says_so() {
        let checkout =
            env::var_os("WINDLASS_KUBESPRAY").expect("WINDLASS_KUBESPRAY names a checkout");
        let playbook = Playbook::read(Path::new(&checkout), "upgrade-cluster").unwrap();
        assert_goes_host_by_host(&playbook);
        let network = playbook.slice("network/upgrade").unwrap();
        assert!(network.serial.is_some());
    }

    #[tokio::test]
    #[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
    async fn slices_are_the_whole() {
        let checkout =
            env::var_os("WINDLASS_KUBESPRAY").expect("WINDLASS_KUBESPRAY names a checkout");
        for name in PLAYBOOKS {
            compare(&ansible_playbook().await, Path::new(&checkout), name).await;
        }
    }
}

/// Compares the listing of the whole with those of its slices: each alone, and all in one file.
async fn compare(ansible_playbook: &Path, checkout: &Path, name: &str) {
    let playbook = match Playbook::read(checkout, name) {
        Ok(playbook) => playbook,
        Err(Error::NoPlaybook { .. }) => return say(&format!("{}: no {name}", checkout.display())),
        Err(error) => panic!("{error}: {error:?}"),
    };
    let run = tempfile::tempdir().unwrap();
    let (inventory, configuration) = prepare(run.path(), checkout);
    let whole = checkout.join(playbook.file());
    let list = async |file: &Path| {
        list_tasks(ansible_playbook, &configuration, &inventory, file)
            .await
            .unwrap()
    };
    let before = fingerprint(checkout);
    let whole = list(&whole).await;
    assert_eq!(
        whole.len(),
        playbook.slices().len(),
        "{name}: number of plays"
    );
    for (listed, slice) in whole.iter().zip(playbook.slices()) {
        assert_eq!(listed.tags, slice.tags, "{name}: tags of {}", slice.id);
    }
    let single = playbook.units();
    let everything = vec![(0..playbook.slices().len()).collect::<Vec<_>>()];
    for (kind, units) in [("alone", single), ("in one file", everything)] {
        let groups: Vec<&[usize]> = units.iter().map(Vec::as_slice).collect();
        let files = playbook
            .write(checkout, &run.path().join(kind), &groups)
            .unwrap();
        let mut joined: Vec<ListedPlay> = Vec::new();
        for file in &files {
            let listed = list(&file.path).await;
            assert_eq!(listed.len(), file.plays.len(), "{}", file.path.display());
            for (listed, play) in listed.into_iter().zip(&file.plays) {
                assert_eq!(
                    listed.name.starts_with(ADDED),
                    play.is_none(),
                    "{}",
                    listed.name
                );
                joined.extend(play.map(|_| listed));
            }
        }
        assert_eq!(joined, whole, "{name}: slices {kind}");
        let tasks: usize = whole.iter().map(|play| play.tasks.len()).sum();
        say(&format!(
            "{name}: {} plays, {tasks} tasks, {} files {kind}: equal",
            whole.len(),
            files.len()
        ));
    }
    assert_eq!(fingerprint(checkout), before, "the checkout was changed");
}

/// Runs the fixture for real, on this machine alone: each play where it stands, with what its import carries.
#[tokio::test]
async fn slices_run_where_their_plays_stand() {
    let ansible_playbook = ansible_playbook().await;
    let run = tempfile::tempdir().unwrap();
    let (inventory, configuration) = prepare(run.path(), &fixture());
    let playbook = Playbook::read(&fixture(), "cluster").unwrap();
    let units = playbook.units();
    let groups: Vec<&[usize]> = units.iter().map(Vec::as_slice).collect();
    let view = run.path().join("view");
    let mut said = String::new();
    for file in playbook.write(&fixture(), &view, &groups).unwrap() {
        let output = tokio::process::Command::new(&ansible_playbook)
            .env("ANSIBLE_CONFIG", &configuration)
            .env("ANSIBLE_NOCOLOR", "1")
            .args(["--connection", "local"])
            // The modules run here, with the Python that is there for sure.
            .arg("--extra-vars")
            .arg("ansible_python_interpreter={{ ansible_playbook_python }}")
            .arg("-i")
            .args([&inventory, &file.path])
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {text}", file.path.display());
        said.push_str(&text);
    }
    let stands = format!("\"msg\": \"{}\"", view.join("playbooks").display());
    let added = format!("PLAY [{ADDED}facts for kubelet/install]");
    for expected in [
        stands.as_str(),
        "mode 448",
        "Do kubernetes/node",
        added.as_str(),
        "Set facts",
        "\"msg\": \"images False\"",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // Brought before the first play that installs, there for the next one.
    let looked = said.matches("[Windlass: look for downloads that are gone]");
    assert_eq!(looked.count(), 2, "{said}");
    assert_eq!(said.matches("Do download").count(), 1, "{said}");
}

fn prepare(run: &Path, checkout: &Path) -> (PathBuf, PathBuf) {
    let inventory = inventory(run).write(run).unwrap();
    let configuration = ansible_cfg(&Configuration {
        checkout: checkout.to_owned(),
        hosts: 3,
        facts: run.join("facts"),
        known_hosts: run.join("known_hosts"),
        control: PathBuf::from("/tmp/windlass-test"),
        ..Configuration::default()
    });
    let path = run.join("ansible.cfg");
    fs::write(&path, configuration.unwrap()).unwrap();
    (inventory.inventory, path)
}

fn inventory(run: &Path) -> Inventory {
    let host = |name: &str, address: &str, roles: &[Role]| Host {
        name: name.to_owned(),
        roles: roles.to_vec(),
        variables: HostVariables {
            ansible_host: address.to_owned(),
            ..HostVariables::default()
        },
        python: None,
        excluded: false,
    };
    let input = InventoryInput {
        hosts: vec![
            host("master-1", "192.0.2.11", &[Role::ControlPlane, Role::Etcd]),
            host("worker-1", "192.0.2.21", &[Role::Worker]),
            host("worker-2", "192.0.2.22", &[Role::Worker]),
        ],
        settings: Settings {
            directories: Directories::below(run),
            ..Settings::default()
        },
        ..InventoryInput::default()
    };
    compile(&input).unwrap()
}

/// Names and sizes of the files at the top and of the playbooks: what a careless writer would touch.
fn fingerprint(checkout: &Path) -> Vec<(PathBuf, u64)> {
    let directories = [checkout.to_owned(), checkout.join("playbooks")];
    let entries = directories
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
        .collect();
    files.sort();
    files
}

async fn ansible_playbook() -> PathBuf {
    match env::var_os("WINDLASS_ANSIBLE_PLAYBOOK") {
        Some(file) => file.into(),
        None => support::environment::sandbox().await.ansible_playbook(),
    }
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkout")
}

fn say(text: &str) {
    eprintln!("slices: {text}");
}

#[test]
fn plays_that_belong_together_cannot_be_parted() {
    let playbook = Playbook::read(&fixture(), "remove-node").unwrap();
    let (first, _) = KEEP_TOGETHER[0];
    let index = playbook.slice(first).unwrap().index;
    assert!(playbook.units().contains(&vec![index, index + 1]));
    let directory = tempfile::tempdir().unwrap();
    for group in [[index], [index + 1]] {
        let error = playbook
            .write(&fixture(), directory.path(), &[&group])
            .unwrap_err();
        assert!(matches!(error, Error::Group { .. }), "{error}");
    }
    playbook
        .write(&fixture(), directory.path(), &[&[index, index + 1]])
        .unwrap();

    // Whoever wants a play gets that which it reads along, and nothing else.
    assert_eq!(
        playbook.with_what_they_read([index + 1]),
        [index, index + 1]
    );
    assert_eq!(playbook.with_what_they_read([index]), [index]);
}

#[test]
fn a_play_is_carried_as_it_was_written() {
    let playbook = Playbook::read(&fixture(), "cluster").unwrap();
    let text = playbook.slice("kubelet/install").unwrap().text();
    for written in [
        "mode: 0644",
        "!unsafe '{{ not a template }}'",
        "yes_is_text: 'yes'",
        "# A comment.",
    ] {
        assert!(text.contains(written), "{written}: {text}");
    }
}

#[test]
fn a_play_resolves_paths_as_in_the_checkout() {
    let directory = tempfile::tempdir().unwrap();
    let playbook = Playbook::read(&fixture(), "cluster").unwrap();
    let files = playbook
        .write(&fixture(), directory.path(), &[&[0]])
        .unwrap();
    assert_eq!(files[0].path.parent().unwrap(), directory.path());
    assert!(
        directory
            .path()
            .join("playbooks/windlass-cluster-000-play.yml")
            .is_file()
    );
    let roles = fs::read_link(directory.path().join("roles")).unwrap();
    assert_eq!(roles, fs::canonicalize(fixture()).unwrap().join("roles"));
    assert!(
        !fixture()
            .join("playbooks/windlass-cluster-000-play.yml")
            .exists()
    );
}

#[test]
fn what_cannot_be_cut_says_where() {
    let cases: &[(&str, &str, fn(&Error) -> bool)] = &[
        (
            "not there",
            "",
            |e| matches!(e, Error::NoPlaybook { looked_for, .. } if looked_for == &["cluster.yml"]),
        ),
        ("no play", "---\n# Nothing.\n", |e| {
            matches!(e, Error::Empty { .. })
        }),
        ("bad syntax", "---\n- hosts: all\n  tasks: [\n", |e| {
            matches!(e, Error::Syntax { line: 3.., .. })
        }),
        ("bad tab", "---\n- hosts: all\n\tbecome: yes\n", |e| {
            matches!(e, Error::Syntax { line: 2..=3, .. })
        }),
        ("no list", "---\nhosts: all\n", |e| {
            matches!(e, Error::Syntax { .. })
        }),
        ("no hosts", "---\n- name: x\n", |e| {
            matches!(e, Error::Uncuttable { line: 2, .. })
        }),
        ("missing import", "- import_playbook: gone.yml\n", |e| {
            matches!(e, Error::Import { line: 1, .. })
        }),
        (
            "import of outside",
            "- import_playbook: ../../x.yml\n",
            |e| matches!(e, Error::Import { .. }),
        ),
        (
            "import of itself",
            "- import_playbook: cluster.yml\n",
            |e| matches!(e, Error::Import { .. }),
        ),
        (
            "anchor across plays",
            "- hosts: all\n  vars: &v {a: 1}\n- hosts: all\n  vars: *v\n",
            |e| matches!(e, Error::Uncuttable { line: 3, .. }),
        ),
        ("one line", "[{hosts: all}]\n", |e| {
            matches!(e, Error::Uncuttable { .. })
        }),
    ];
    for (name, text, expected) in cases {
        let checkout = tempfile::tempdir().unwrap();
        if !text.is_empty() {
            fs::write(checkout.path().join("cluster.yml"), text).unwrap();
        }
        let error = Playbook::read(checkout.path(), "cluster").expect_err(name);
        assert!(expected(&error), "{name}: {error}: {error:?}");
    }
}

#[test]
fn a_play_without_hosts_can_be_told() {
    let run = tempfile::tempdir().unwrap();
    let inventory = inventory(run.path());
    let playbook = Playbook::read(&fixture(), "cluster").unwrap();
    let matches = |id: &str| playbook.slice(id).unwrap().matches(&inventory).unwrap();
    assert!(matches("preamble/check-ansible") && matches("etcd/install"));
    assert!(!matches("preamble/bastion") && !matches("network/calico-rr"));
}
