//! What people make in a Keystone as an object: made, mended where somebody changes it, and gone with its object.

use anyhow::ensure;
use e2e::{Services, wait_until};
use serde_json::{Value, json};

use super::LIMIT;

/// The password in the Secret.
const PASSWORD: &str = "of-ada-of-a-test";

/// A seed of this name, with the user ada.
fn seed(name: &str) -> Value {
    json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "IdentitySeed",
        "metadata": {"name": name, "namespace": Services::NAMESPACE},
        "spec": {
            "cloud": Services::CLOUD,
            "domains": [{"name": "science"}],
            "projects": [{"name": "genes", "domain": "science", "description": "of the lab"}],
            "users": [{"name": "ada", "domain": "science", "passwordSecret": {"name": "people", "key": "ada"}}],
            "assignments": [{
                "role": "reader", "user": {"name": "ada", "domain": "science"},
                "project": {"name": "genes", "domain": "science"},
            }],
            "onDelete": "Delete",
        },
    })
}

/// Of the real command: nothing is known of it but what Keystone says.
pub(super) fn people_are_what_an_object_says(world: &Services) {
    let secret = format!("--from-literal=ada={PASSWORD}");
    let secret = ["create", "secret", "generic", "people", &secret];
    world.kubectl(&secret).unwrap();
    world.apply(&seed("people")).unwrap();
    world.until("identityseed", "people", "Ready").unwrap();
    let described = [
        "project", "show", "genes", "--domain", "science", "-f", "value",
    ];
    let described = world.openstack(&[&described[..], &["-c", "description"]].concat());
    let described = described.unwrap();
    assert!(
        described.starts_with("windlass cloud/people of cluster ")
            && described.contains(": of the lab"),
        "{described}"
    );
    assert!(has_role(world), "the role is given");
    logs_in(world).unwrap();

    // What another object has is refused, and said whose it is.
    world.apply(&seed("others")).unwrap();
    let refused = world.until("identityseed", "others", "Stalled").unwrap();
    let why = Services::message(&refused, "Stalled");
    assert!(why.contains("windlass cloud/people of cluster"), "{why}");
    let delete = ["delete", "identityseed", "others", "--timeout=300s"];
    world.kubectl(&delete).unwrap();

    // What somebody changes by hand is mended.
    let user = ["--user", "ada", "--user-domain", "science"];
    let project = ["--project", "genes", "--project-domain", "science"];
    let removed = [&["role", "remove"][..], &user, &project, &["reader"]].concat();
    world.openstack(&removed).unwrap();
    let disabled = ["user", "set", "--disable", "--domain", "science", "ada"];
    world.openstack(&disabled).unwrap();
    assert!(logs_in(world).is_err(), "nobody who is disabled logs in");
    wait_until("the user and the role to be mended", LIMIT, || {
        Ok((has_role(world) && logs_in(world).is_ok()).then_some(()))
    })
    .unwrap();
    let events = world.kubectl(&["get", "events"]).unwrap();
    assert!(events.contains("Drifted"), "{events}");
    let password = [
        "user",
        "set",
        "--password",
        "another",
        "--domain",
        "science",
        "ada",
    ];
    world.openstack(&password).unwrap();
    wait_until("the password to be that of the Secret", LIMIT, || {
        Ok(logs_in(world).is_ok().then_some(()))
    })
    .unwrap();
    let told = lab::command::output(&mut world.windlass(&["openstack", "status"])).unwrap();
    assert!(told.contains("IdentitySeed people"), "{told}");
    let told = world
        .kubectl(&["get", "identityseeds,runs,events", "-o", "yaml"])
        .unwrap();
    assert!(!told.contains(PASSWORD), "the password is told");

    let delete = ["delete", "identityseed", "people", "--timeout=300s"];
    world.kubectl(&delete).unwrap();
    let domains = ["domain", "list", "-f", "value", "-c", "Name"];
    let domains = world.openstack(&domains).unwrap();
    assert!(!domains.contains("science"), "{domains}");
}

fn has_role(world: &Services) -> bool {
    let list = ["role", "assignment", "list", "--names", "-f", "value"];
    let listed = world.openstack(&list).unwrap_or_default();
    let mut lines = listed.lines();
    lines.any(|line| {
        ["reader", "ada@science", "genes@science"]
            .iter()
            .all(|word| line.contains(word))
    })
}

/// As the user, with what is in the Secret.
fn logs_in(world: &Services) -> anyhow::Result<()> {
    let who = ["--os-username", "ada", "--os-password", PASSWORD];
    let domains = [
        "--os-user-domain-name",
        "science",
        "--os-project-domain-name",
        "science",
    ];
    let issue = [
        "--os-project-name",
        "genes",
        "token",
        "issue",
        "-f",
        "value",
        "-c",
        "id",
    ];
    let token = world.openstack(&[&who[..], &domains, &issue].concat())?;
    ensure!(token.starts_with("gAAAA"), "it is no token");
    Ok(())
}
