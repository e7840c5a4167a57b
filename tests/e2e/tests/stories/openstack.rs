//! One object in an empty cluster ends with a Keystone that issues tokens and a Glance that takes an image, and Keystone is upgraded
//! under load: real Helm, a real MariaDB, real services, and the real `openstack` command.

use std::{collections::BTreeSet, process::Command, time::Duration};

use e2e::{Services, condition, is_true, wait_until, windlass};
use lab::{Extent, command::output, progress::Terminal};
use serde_json::{Value, json};

use writes::Deaths;

mod gate;
mod kolla;
mod layers;
mod messages;
mod seed;
mod writes;

/// A loaded machine takes its time.
const LIMIT: Duration = Duration::from_mins(8);

#[test]
fn one_object_ends_with_tokens_and_an_image() {
    let mut world = Services::set(windlass().unwrap(), &Terminal::default()).unwrap();
    let unknown = json!({"keystne.conf": ""});
    let refused = world.apply(&Services::cloud("2026.1", &unknown));
    assert!(refused.is_ok(), "the schema cannot know it: {refused:?}");
    let stalled = world.until("openstack", "one", "Stalled").unwrap();
    assert!(
        Services::message(&stalled, "Stalled").contains("the files of keystone are keystone.conf"),
        "{stalled}"
    );
    let config = json!({"keystone.conf": "[token]\nexpiration = 1234\n"});
    let mut cloud = Services::cloud("2026.1", &config);
    let keystone = |cloud: &mut Value, hook: Value| {
        let services = cloud["spec"]["services"].as_array_mut().unwrap();
        let keystone = services
            .iter_mut()
            .find(|service| service["name"] == "keystone");
        keystone.unwrap()["hooks"] = json!([hook]);
    };
    let mut nowhere = cloud.clone();
    keystone(
        &mut nowhere,
        json!({"name": "look", "after": "database/expnd", "image": {"command": ["true"]}}),
    );
    world.apply(&nowhere).unwrap();
    let stalled = world.until("openstack", "one", "Stalled").unwrap();
    let why = Services::message(&stalled, "Stalled");
    assert!(why.contains("did you mean database/expand?"), "{why}");
    // It has what the service's own Jobs have, and what it says of that is not told.
    keystone(
        &mut cloud,
        json!({
            "name": "look", "after": "database/expand", "operations": ["Install"],
            "image": {"command": ["/run/windlass/hook/look"], "files": {"look": "#!/bin/sh\necho at $WINDLASS_STEP by $OS_DATABASE__CONNECTION\n"}},
        }),
    );
    world.apply(&cloud).unwrap();
    // The operator dies in the middle: its runner goes on, and another operator finds it again.
    world.step_is_done("one-keystone", 1).unwrap();
    world.operate().unwrap();
    // So does its runner, in the middle of Helm.
    Deaths::of(&world, "one-keystone").at("Helm release one-keystone-api");
    let ready = world.until("openstack", "one", "Ready").unwrap();
    assert_eq!(ready["status"]["steps"], "9/9");
    let service = world.get("openstackservice", "one-keystone");
    assert_eq!(service["status"]["steps"], "14/14");
    let run = world.get("run", service["status"]["run"].as_str().unwrap());
    let told = run["status"]["history"].to_string();
    assert!(told.contains("at database/expand by ***"), "{told}");
    assert_eq!(service["status"]["phase"], "Ready");

    let token = world.openstack(&["token", "issue", "-f", "json"]).unwrap();
    let token: Value = serde_json::from_str(&token).unwrap();
    assert!(
        token["id"].as_str().unwrap().starts_with("gAAAA"),
        "{token}"
    );
    let endpoints = ["endpoint", "list", "-f", "value", "-c", "URL"];
    let endpoints = world.openstack(&endpoints).unwrap();
    for endpoint in [
        "http://one-keystone.cloud.svc:5000/v3",
        "http://one-placement.cloud.svc:8778",
        "http://one-glance.cloud.svc:9292",
    ] {
        assert!(endpoints.contains(endpoint), "{endpoints}");
    }
    // What is sent is what is kept.
    let (sent, kept) = world.upload().unwrap();
    assert_eq!(sent, kept);
    nothing_secret_is_told(&world);
    what_was_done_is_what_was_planned(&world, &cloud);
    let is_full = Extent::of_this_run() == Extent::Full;
    if is_full {
        what_is_rendered_is_what_is_there(&world);
    }
    database_goes_away(&world);

    // A password that somebody changed is set again, by the step that sets it.
    let change = ["user", "set", "--password", "another", "glance"];
    world.openstack(&change).unwrap();
    does_step(&world, "one-glance", "identity/seed", "set the password");
    does_step(&world, "one-glance", "identity/seed", "it was there");
    if is_full {
        seed::people_are_what_an_object_says(&world);
    }

    // A step by hand, against the same objects: what was done before is not done again.
    let jobs = names(&world, "jobs");
    does_step(&world, "one-keystone", "database/expand", "was done before");
    assert_eq!(names(&world, "jobs"), jobs);

    // Another release, and another setting: another ConfigMap, other pods, and no other table. Nobody notices.
    let uid = world.get("secret", "one-keystone-admin")["metadata"]["uid"].clone();
    let tokens = world.tokens().unwrap();
    if is_full {
        rotates_keys(&world);
        rotates_credentials(&world);
        rotates_account(&world);
        rotates_identity(&world);
        slip_is_refused(&world);
    }
    let config = json!({"keystone.conf": "[token]\nexpiration = 4321\n"});
    world.apply(&Services::cloud("2026.2", &config)).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    let (served, failed, first) = tokens.end().unwrap();
    assert!(served > 10 && failed == 0, "{failed} of {served}: {first}");
    if is_full {
        rotates_administrators(&world);
    }
    let goals = names(&world, "runs");
    for service in ["one-keystone", "one-glance"] {
        let of = world.get("deployment", &format!("{service}-api"));
        let image = &of["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, lab::CloudImages::SERVICES);
        let upgrade = format!("openstackservice-{service}-upgrade-");
        assert!(goals.contains(&upgrade), "{goals}");
    }
    // What Glance of the release before had noted is known to this one.
    let status = ["image", "show", "disk", "-f", "value", "-c", "status"];
    assert_eq!(world.openstack(&status).unwrap().trim(), "active");
    let config = [
        "get",
        "configmaps",
        "-o",
        "json",
        "-l",
        "openstack.windlass.dev/part=config",
    ];
    let maps = world.kubectl(&config).unwrap();
    assert!(
        maps.contains("expiration = 4321") && !maps.contains("expiration = 1234"),
        "{maps}"
    );
    assert_eq!(
        world.get("secret", "one-keystone-admin")["metadata"]["uid"],
        uid
    );

    // There is no way back, and it is said before anything is touched.
    world.apply(&Services::cloud("2026.1", &json!({}))).unwrap();
    let refused = world.until("openstack", "one", "Stalled").unwrap();
    let why = Services::message(&refused, "Stalled");
    assert!(why.contains("tables do not go back"), "{why}");

    // A second cloud on the same database server is refused by name.
    let mut second = Services::cloud("2026.2", &json!({}));
    second["metadata"]["name"] = json!("two");
    second["spec"]["database"] =
        json!({"external": {"host": "one-mariadb", "adminSecret": {"name": "one-mariadb-admin"}}});
    world.apply(&second).unwrap();
    let refused = world
        .until("openstackservice", "two-keystone", "Stalled")
        .unwrap();
    let why = Services::message(&refused, "Stalled");
    assert!(
        why.contains("it belongs to windlass cloud/one-keystone"),
        "{why}"
    );
    for cloud in ["two", "one"] {
        let delete = ["delete", "openstack", cloud, "--timeout=300s"];
        world.kubectl(&delete).unwrap();
    }
    assert_eq!(names(&world, "deployments"), "");
    assert_eq!(names(&world, "statefulsets"), "");
    assert!(
        names(&world, "secrets").contains("one-keystone-credential-keys"),
        "it is retained"
    );
}

/// Saved, drilled, and brought back over what people did since; what is cut or not confirmed is refused.
#[test]
fn a_backup_brings_back_what_was_there() {
    let world = Services::set(windlass().unwrap(), &Terminal::default()).unwrap();
    let store = world.node.lab.dir().join("backups");
    std::fs::create_dir(&store).unwrap();
    let passphrase = "--from-literal=passphrase=of a test";
    let secret = ["create", "secret", "generic", "backups", passphrase];
    world.kubectl(&secret).unwrap();
    let mut cloud = Services::cloud("2026.2", &json!({}));
    let services = cloud["spec"]["services"].as_array_mut().unwrap();
    services.retain(|service| service["name"] != "glance");
    cloud["spec"]["backup"] = json!({
        "store": {"directory": store}, "keep": {"count": 1},
        "encryption": {"passphraseSecretRef": {"name": "backups"}},
    });
    world.apply(&cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    let user = |verb: &str, name: &str| {
        let mut command = vec!["user", verb, name];
        if verb == "create" {
            command.extend(["--password", "it's \\ ü", "--description", "line\none"]);
        }
        world.openstack(&command).unwrap()
    };
    user("create", "before");
    does_errand(&world, "backup", &["backup", "one"]).unwrap();
    let kept = || {
        let found = wait_until("the backup to be told of", LIMIT, || {
            let cloud = world.get("openstack", "one");
            Ok(cloud["status"]["backups"]["kept"].as_array().cloned())
        });
        found.unwrap()
    };
    let told = kept();
    assert_eq!(told[0]["state"], "Verified", "{told:?}");
    let name = told[0]["name"].as_str().unwrap().to_owned();
    let listed = output(&mut world.windlass(&["openstack", "backups", "one"])).unwrap();
    assert!(listed.contains(&name), "{listed}");

    does_errand(&world, "drill", &["drill", "one", &name]).unwrap();
    wait_until("the drill to be told of", LIMIT, || {
        let cloud = world.get("openstack", "one");
        Ok((cloud["status"]["backups"]["drill"]["result"] == "Passed").then_some(()))
    })
    .unwrap();
    assert!(!names(&world, "deployments,secrets").contains("one-drill"));

    user("delete", "before");
    user("create", "since");
    let unconfirmed = ["restore", "one", &name, "--confirm", "two"];
    let refused = does_errand(&world, "restore", &unconfirmed).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.contains("--confirm one"), "{refused}");
    does_errand(
        &world,
        "restore",
        &["restore", "one", &name, "--confirm", "one"],
    )
    .unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    let users = world
        .openstack(&["user", "list", "-f", "value", "-c", "Name"])
        .unwrap();
    assert!(
        users.contains("before") && !users.contains("since"),
        "{users}"
    );
    let described = ["user", "show", "before", "-f", "value", "-c", "description"];
    assert_eq!(world.openstack(&described).unwrap().trim_end(), "line\none");
    nothing_secret_is_told_of(
        &world,
        &[
            ("one-keystone-admin", "password"),
            ("one-keystone-database", "password"),
            ("one-mariadb-admin", "password"),
            ("one-keystone-fernet-keys", "1"),
            ("one-placement-identity", "password"),
            ("backups", "passphrase"),
        ],
    );

    // A second one, of which one is kept; and one that was cut.
    does_errand(&world, "backup", &["backup", "one"]).unwrap();
    let newer = wait_until("the older one to go", LIMIT, || {
        let kept = kept();
        let newer = kept[0]["name"].as_str().unwrap_or_default().to_owned();
        Ok((kept.len() == 1 && newer != name).then_some(newer))
    })
    .unwrap();
    let file = store.join(format!("openstack/cloud/one/{newer}.db.age"));
    let whole = std::fs::read(&file).unwrap();
    let secret = world.secret("one-keystone-admin", "password").unwrap();
    assert!(
        !whole
            .windows(secret.len())
            .any(|part| part == secret.as_bytes())
    );
    std::fs::write(&file, &whole[..whole.len() * 93 / 100]).unwrap();
    let cut = does_errand(&world, "drill", &["drill", "one", &newer]).unwrap_err();
    let cut = format!("{cut:#}");
    assert!(
        cut.contains("BackupAltered") && cut.contains("fewer than"),
        "{cut}"
    );
}

/// Asks for something about backups, and waits until its run has ended well.
fn does_errand(world: &Services, word: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    output(&mut world.windlass(&[&["openstack"], arguments].concat()))?;
    let cloud = world.get("openstack", "one");
    let run = cloud["status"][word]["run"].as_str().unwrap().to_owned();
    wait_until(&format!("run {run}"), LIMIT, || {
        let run = world.get("run", &run);
        anyhow::ensure!(run["status"]["phase"] != "Failed", "{}", run["status"]);
        Ok((run["status"]["phase"] == "Succeeded").then_some(run))
    })
}

/// What objects and files of runs say of themselves holds nothing of what is in these Secrets.
fn nothing_secret_is_told_of(world: &Services, secrets: &[(&str, &str)]) {
    let kinds = "openstacks,openstackservices,runs,configmaps,events,jobs,deployments";
    let mut told = world.kubectl(&["get", kinds, "-o", "yaml"]).unwrap();
    let files = Command::new("grep")
        .args(["-rh", "", "--include=*.log", "--include=*.json*"])
        .arg(world.node.lab.dir().join("windlass"))
        .output();
    told.push_str(&String::from_utf8_lossy(&files.unwrap().stdout));
    for (name, key) in secrets {
        let secret = world.secret(name, key).unwrap();
        assert!(!told.contains(&secret), "{name} {key} is told");
    }
}

/// What the runs noted that they wrote is what `plan` says of the object, but for what others had made before.
fn what_was_done_is_what_was_planned(world: &Services, cloud: &Value) {
    let file = world.node.lab.dir().join("planned.json");
    std::fs::write(&file, cloud.to_string()).unwrap();
    let plan = ["openstack", "plan", "-f", &file.display().to_string()];
    let plan = output(&mut world.windlass(&plan)).unwrap();
    let mut done = BTreeSet::new();
    let find = Command::new("find")
        .arg(world.node.lab.dir().join("windlass"))
        .args(["-name", "audit.log", "-exec", "cat", "{}", "+"])
        .output();
    let text = String::from_utf8(find.unwrap().stdout).unwrap();
    done.extend(text.lines());
    let mut planned = BTreeSet::new();
    for line in plan
        .lines()
        .filter(|line| line.starts_with(&" ".repeat(24)))
    {
        let line = line.trim();
        let (what, is_shared) = match line.strip_suffix(", unless it is there") {
            Some(what) => (what, true),
            None => (line, false),
        };
        // What is run in a Job and what is asked stand below what is written.
        if ["runs ", "asks "].iter().any(|word| what.starts_with(word)) {
            continue;
        }
        planned.insert(what.to_owned());
        assert!(
            is_shared || done.contains(what),
            "{what} was not done: {text}"
        );
    }
    for what in done {
        assert!(planned.contains(what), "{what} was not planned: {plan}");
    }
}

/// Whoever applies what `render` prints of the cloud changes nothing in what its runs made.
fn what_is_rendered_is_what_is_there(world: &Services) {
    let mut render = world.windlass(&["openstack", "render", "one", "--helm"]);
    let rendered = output(render.arg(&world.helm)).unwrap();
    for object in [
        "name: one-keystone-api",
        "name: one-keystone-hook-look-",
        "# keystone/database/create: ",
        "#   SQL GRANT ALL ",
    ] {
        assert!(rendered.contains(object), "{object}: {rendered}");
    }
    let file = world.node.lab.dir().join("rendered.yaml");
    std::fs::write(&file, &rendered).unwrap();
    let file = file.display().to_string();
    let diff = ["diff", "--server-side", "--filename", &file];
    assert_eq!(world.kubectl(&diff).unwrap(), "");
    for (name, key) in [
        ("one-keystone-admin", "password"),
        ("one-mariadb-admin", "password"),
    ] {
        assert!(!rendered.contains(&world.secret(name, key).unwrap()));
    }
}

/// Nobody is told that all is well while nobody reaches the database, though the pods are ready; and it is again once somebody does.
fn database_goes_away(world: &Services) {
    let part = "openstack.windlass.dev/part";
    let lead = |to: &str| {
        let patch = json!({"spec": {"selector": {part: to}}}).to_string();
        let patch = ["patch", "service", "one-mariadb", "--patch", &patch];
        world.kubectl(&patch).unwrap();
    };
    lead("nowhere");
    let told = wait_until("the database to be missed", LIMIT, || {
        let service = world.get("openstackservice", "one-keystone");
        let ready = condition(&service, "Ready").cloned().unwrap_or_default();
        let is_missed = ready["status"] == "False" && ready["reason"] == "DatabaseUnavailable";
        Ok(is_missed.then_some(service))
    });
    let told = told.unwrap();
    assert_eq!(told["status"]["phase"], "Unhealthy");
    assert!(!is_true(&told, "EndpointHealthy"), "{told}");
    let shown = wait_until("the columns to say so", LIMIT, || {
        let shown = world.kubectl(&["get", "openstacks,openstackservices"])?;
        let of_cloud = shown.lines().find(|line| line.starts_with("openstack."));
        let is_told = of_cloud.is_some_and(|line| line.contains("waits for database/health"));
        Ok(is_told.then_some(shown))
    });
    let shown = shown.unwrap();
    let waits =
        "keystone/health waits for database/health: Service one-mariadb has no pod that runs";
    assert!(shown.contains(waits), "{shown}");
    assert!(!is_true(&world.get("openstack", "one"), "Ready"));
    let events = world.kubectl(&["get", "events"]).unwrap();
    assert!(events.contains("DatabaseUnavailable"), "{events}");
    lead("mariadb");
    world.until("openstack", "one", "Ready").unwrap();
}

/// Keystone's pods have another user of its database, while tokens are issued; the one before is gone.
fn rotates_account(world: &Services) {
    let says = "keystone_2 is at work, and keystone is gone";
    does_step(world, "one-keystone", "database/rotate", says);
    let secret = "one-keystone-database";
    assert_eq!(world.secret(secret, "username").unwrap(), "keystone_2");
    assert!(!names(world, "secrets").contains("one-keystone-database-next"));
}

/// Glance has another user in Keystone, which has what people gave the one before; that one is gone.
fn rotates_identity(world: &Services) {
    let of_before = ["--user", "glance", "--project", "admin", "reader"];
    let give = [&["role", "add"][..], &of_before].concat();
    world.openstack(&give).unwrap();
    let says = "glance_2 is at work, and glance is gone";
    does_step(world, "one-glance", "identity/rotate", says);
    let secret = "one-glance-identity";
    assert_eq!(world.secret(secret, "username").unwrap(), "glance_2");
    assert!(!names(world, "secrets").contains("one-glance-identity-next"));
    let roles = [
        "role",
        "assignment",
        "list",
        "--names",
        "--project",
        "admin",
    ];
    let roles = [&roles[..], &["--user", "glance_2"]].concat();
    let roles = world.openstack(&roles).unwrap();
    assert!(roles.contains("reader"), "{roles}");
    let users = ["user", "list", "-f", "value", "-c", "Name"];
    let users = world.openstack(&users).unwrap();
    assert!(!users.lines().any(|user| user == "glance"), "{users}");
    world.until("openstack", "one", "Ready").unwrap();
}

/// The administrators of Keystone and of the database server have other passwords, and everything of the cloud goes on with them.
fn rotates_administrators(world: &Services) {
    let keystone = "one-keystone-admin";
    let before = world.secret(keystone, "password").unwrap();
    let says = "admin has another password";
    does_step(world, "one-keystone", "administrator/rotate", says);
    assert_ne!(world.secret(keystone, "password").unwrap(), before);
    assert!(world.secret(keystone, "password-next").is_err());
    // With that of the Secret.
    world.openstack(&["token", "issue"]).unwrap();

    // As if a runner had noted the next one long ago, and died: it is put to use, for pods may have it, and then another one, for
    // whoever has read it since knows it. Five minutes go until each pod has that.
    let server = "one-mariadb-admin";
    let before = world.secret(server, "password").unwrap();
    let next = before.chars().rev().collect::<String>();
    let init = world.secret(server, "init.sql").unwrap();
    let noted = json!({
        "metadata": {"annotations": {"openstack.windlass.dev/password-noted": "2026-01-31T12:00:00Z"}},
        "stringData": {"password-next": next, "init.sql": init.replace(&before, &next)},
    });
    let file = world.node.lab.dir().join("noted.json");
    std::fs::write(&file, noted.to_string()).unwrap();
    let patch = format!("--patch-file={}", file.display());
    world.kubectl(&["patch", "secret", server, &patch]).unwrap();
    does_step(world, "one", "database/rotate", "root has another password");
    let now = world.secret(server, "password").unwrap();
    assert!(
        now != before && now != next,
        "no password of before is left"
    );
    assert!(world.secret(server, "password-next").is_err());
    // Whoever makes databases gets in.
    does_step(world, "one-keystone", "database/check", "MariaDB");
    does_step(world, "one-glance", "identity/seed", "it was there");
    world.until("openstack", "one", "Ready").unwrap();
    nothing_secret_is_told(world);
}

/// The image of the next release says that it knows no such setting, before anything of it is begun.
fn slip_is_refused(world: &Services) {
    let of = || {
        let deployment = world.get("deployment", "one-keystone-api");
        let generation = deployment["metadata"]["generation"].clone();
        (
            generation,
            names(world, "jobs -l openstack.windlass.dev/part=database-expand"),
        )
    };
    let before = of();
    let slip = json!({"keystone.conf": "[token]\nexpirtion = 4321\n"});
    world.apply(&Services::cloud("2026.2", &slip)).unwrap();
    let refused = world.until("openstackservice", "one-keystone", "Stalled");
    let refused = refused.unwrap();
    let why = Services::message(&refused, "Stalled");
    let slip =
        "keystone.conf token.expirtion is unknown to this release; it knows token.expiration";
    assert!(why.contains(slip), "{why}");
    assert_eq!(of(), before);
}

/// Refused as long as a pod may not have the next key, and done when that has been there for long enough.
fn rotates_keys(world: &Services) {
    let secret = "one-keystone-fernet-keys";
    let since = |at: &str| {
        let since = format!(r#"openstack.windlass.dev/keys-since={{"1": "{at}"}}"#);
        let annotate = ["annotate", "--overwrite", "secret", secret, &since];
        world.kubectl(&annotate).unwrap();
    };
    // As if it were new, however long all this took so far.
    let now = output(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]));
    since(now.unwrap().trim());
    let refused = world.do_step("one-keystone", "keys/rotate").unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("not all pods have the next key until"),
        "{refused}"
    );
    since("2026-01-31T12:00:00Z");
    let says = "keys 0, 1, 2 are there";
    does_step(world, "one-keystone", "keys/rotate", says);
}

/// What Keystone keeps of a credential is read by it still when the key is gone that sealed it first.
fn rotates_credentials(world: &Services) {
    let create = ["credential", "create", "--type", "cert", "admin", "sealed"];
    let id = world
        .openstack(&[create.as_slice(), &["-f", "value", "-c", "id"]].concat())
        .unwrap();
    let keys = "one-keystone-credential-keys";
    for says in ["keys 0, 1, 2 are there", "keys 0, 2, 3 are there"] {
        let long_ago = "openstack.windlass.dev/keys-since";
        let times: serde_json::Map<_, _> = (1..=3)
            .map(|number| (number.to_string(), json!("2026-01-31T12:00:00Z")))
            .collect();
        let since = format!("{long_ago}={}", Value::Object(times));
        world
            .kubectl(&["annotate", "--overwrite", "secret", keys, &since])
            .unwrap();
        does_step(world, "one-keystone", "credentials/rotate", says);
    }
    let show = ["credential", "show", id.trim(), "-f", "value", "-c", "blob"];
    assert_eq!(world.openstack(&show).unwrap().trim(), "sealed");
}

/// A step by hand, and what it says that it did.
fn does_step(world: &Services, service: &str, step: &str, says: &str) {
    let done = world.do_step(service, step).unwrap();
    assert!(done["status"].to_string().contains(says), "{done}");
}

fn names(world: &Services, kind: &str) -> String {
    let kind: Vec<_> = kind.split(' ').collect();
    let get = [&["get", "-o", "name"], kind.as_slice()].concat();
    world.kubectl(&get).unwrap()
}

/// In objects that others read, in what Helm keeps, and in what runners log.
fn nothing_secret_is_told(world: &Services) {
    let mut told = world
        .kubectl(&[
            "get",
            "openstacks,openstackservices,identityseeds,runs,configmaps,events,jobs,deployments,statefulsets",
            "-o",
            "yaml",
        ])
        .unwrap();
    let helm = Command::new(&world.helm);
    let mut helm = world.node.lab.enter_network(&helm);
    helm.arg("--kubeconfig").arg(world.node.kubeconfig());
    helm.args([
        "--namespace",
        Services::NAMESPACE,
        "get",
        "all",
        "one-keystone-api",
    ]);
    told.push_str(&output(&mut helm).unwrap());
    let files = output(
        Command::new("grep")
            .args(["-rh", "", "--include=*.log", "--include=*.json*"])
            .arg(world.node.lab.dir().join("windlass")),
    );
    told.push_str(&files.unwrap());
    for (name, key) in [
        ("one-keystone-admin", "password"),
        ("one-keystone-database", "password"),
        ("one-mariadb-admin", "password"),
        ("one-keystone-fernet-keys", "1"),
        ("one-glance-identity", "password"),
        ("one-placement-database", "password"),
    ] {
        assert!(
            !told.contains(&world.secret(name, key).unwrap()),
            "{name} {key} is told"
        );
    }
}
