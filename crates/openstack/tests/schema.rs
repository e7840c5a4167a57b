//! What oslo.config's own validator says of Keystone's files, by the command that is run in its image.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result};
use lab::{OpenStack, progress::Terminal};
use openstack::{
    definition,
    schema::{self, Leave},
};

/// What the command printed, and whether it let the files through.
fn check(text: &str, leave: &Leave) -> Result<(String, bool)> {
    let keystone = definition::find("keystone").context("Keystone is not known")?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("keystone.conf"), text)?;
    let files = BTreeMap::from([("keystone.conf".to_owned(), text.to_owned())]);
    let place = directory.path().display().to_string();
    checked(&keystone.schema.command(&place, &files, &[], &[], leave))
}

/// The same of rules of oslo.policy.
fn check_rules(text: &str, leave: &Leave) -> Result<(String, bool)> {
    let keystone = definition::find("keystone").context("Keystone is not known")?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("policy.yaml"), text)?;
    let place = directory.path().display().to_string();
    let command = keystone
        .schema
        .command(&place, &BTreeMap::new(), &["policy.yaml"], &[], leave);
    checked(&command)
}

fn checked(command: &[String]) -> Result<(String, bool)> {
    let python = OpenStack::ensure(&Terminal::default())?.python();
    let variables = python
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let (program, arguments) = command.split_first().context("no command")?;
    let done = Command::new(program)
        .args(arguments)
        .envs(variables)
        .output()?;
    Ok((String::from_utf8(done.stdout)?, done.status.success()))
}

#[test]
fn a_slip_is_refused_and_what_is_meant_is_let_through() {
    let own = definition::find("keystone").unwrap().config["keystone.conf"].clone();
    let nothing = Leave::default();
    assert_eq!(check(&own, &nothing).unwrap(), (String::new(), true));

    let slips = format!(
        "{own}[DEFAULT]\ndbug = true\n[mine]\na = 1\nb = 2\n[cashe]\nenabled = true\n[cinder]\na = b\n"
    );
    let (said, passes) = check(&slips, &nothing).unwrap();
    assert!(!passes);
    let message = schema::refusal(&said).unwrap().message;
    for slip in [
        "keystone.conf DEFAULT.dbug is unknown to this release; it knows DEFAULT.debug",
        "keystone.conf cashe.enabled is unknown to this release; it knows cache.enabled",
        "keystone.conf mine.a is unknown to this release;",
    ] {
        assert!(message.contains(slip), "{message}");
    }

    // A slip of the cloud is one, too; what is another service's is not.
    let leave = Leave {
        allow: vec!["mine.*".to_owned(), "cashe.enabled".to_owned()],
        shared: ["DEFAULT.dbug", "cinder.a"]
            .map(|setting| format!("keystone.conf {setting}"))
            .into(),
        proceed: false,
    };
    let (said, passes) = check(&slips, &leave).unwrap();
    let failure = schema::refusal(&said).unwrap();
    assert!(!passes && !failure.message.contains("mine"), "{failure:?}");
    assert!(failure.message.contains("DEFAULT.dbug"), "{failure:?}");
    let (said, passes) = check(&slips.replace("dbug", "debug"), &leave).unwrap();
    assert!(passes, "{said}");
    let told = schema::told(&said).unwrap();
    assert_eq!(told, "keystone.conf cinder.a is unknown here");

    let (said, passes) = check("[token]\nprovider = fernet\n", &Leave::default()).unwrap();
    assert!(passes, "{said}");
    let (said, passes) = check("provider = fernet\n", &Leave::default()).unwrap();
    let failure = schema::refusal(&said).unwrap();
    assert!(
        !passes && failure.message.contains("keystone.conf line 1"),
        "{failure:?}"
    );
}

#[test]
fn a_rule_that_nobody_asks_for_is_refused() {
    let well = "\"identity:get_user\": \"rule:night or role:admin\"\nnight: \"role:night\"\nmine: \"@\"\nnobody: \"!\"\n";
    let leave = Leave {
        allow: ["mine", "nobody"]
            .map(|rule| format!("policy.yaml.{rule}"))
            .into(),
        ..Leave::default()
    };
    assert_eq!(check_rules(well, &leave).unwrap(), (String::new(), true));
    let slips =
        "\"identity:get_usr\": \"role:night\"\n\"identity:list_users\": \"role:a orr role:b)\"\n";
    let (said, passes) = check_rules(slips, &leave).unwrap();
    let message = schema::refusal(&said).unwrap().message;
    assert!(!passes);
    for slip in [
        "policy.yaml identity:get_usr is no rule of this release, and no other rule refers to it; it knows identity:get_user",
        "policy.yaml identity:list_users cannot be understood",
    ] {
        assert!(message.contains(slip), "{message}");
    }
}

#[test]
fn tables_of_a_later_release_are_refused_whatever_is_let_through() {
    let keystone = definition::find("keystone").unwrap();
    let look = |tables: &[&str], leave: &Leave| {
        let tables: Vec<_> = tables.iter().map(|table| (*table).to_owned()).collect();
        let nothing = BTreeMap::new();
        let command = keystone
            .schema
            .command("/nowhere", &nothing, &[], &tables, leave);
        checked(&command).unwrap()
    };
    // Of an older release and of this one.
    let own = ["27e647c0fad4", "29e87d24a316", "e25ffa003242"];
    let proceed = Leave {
        proceed: true,
        ..Leave::default()
    };
    for leave in [&Leave::default(), &proceed] {
        assert_eq!(look(&own, leave), (String::new(), true));
        let (said, passes) = look(&["29e87d24a316", "c0ffee000001"], leave);
        let failure = schema::later(&said, "keystone:29", "keystone").unwrap();
        assert!(!passes && failure.message.contains("at c0ffee000001, which"));
    }
}

#[test]
fn an_image_that_knows_no_keystone_cannot_tell() {
    let keystone = definition::find("keystone").unwrap();
    let files = BTreeMap::from([("keystone.conf".to_owned(), String::new())]);
    for (proceed, code) in [(false, 69), (true, 0)] {
        let leave = Leave {
            proceed,
            ..Leave::default()
        };
        let command = keystone
            .schema
            .command("/nowhere", &files, &[], &[], &leave);
        let (program, arguments) = command.split_first().unwrap();
        let done = Command::new(program)
            .args(arguments)
            .env("PYTHONPATH", "/nowhere")
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(code));
        let said = String::from_utf8(done.stdout).unwrap();
        assert_eq!(schema::refusal(&said).unwrap().code, "SchemaUnknown");
        assert!(
            schema::told(&said).unwrap().contains("could not check"),
            "{said}"
        );
    }
}
