//! `windlass openstack`: what it says of objects in a file, and how it ends. Nothing is asked, and nothing changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

struct Done {
    is_well: bool,
    out: String,
    err: String,
}

/// Of this file, called cloud.yaml.
fn windlass(file: &str, arguments: &[&str]) -> Done {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("cloud.yaml"), file).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .current_dir(place.path())
        .arg("openstack")
        .args(arguments)
        .args(["-f", "cloud.yaml"])
        .output()
        .unwrap();
    Done {
        is_well: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

const CLOUD: &str = r#"apiVersion: v1
kind: Namespace
metadata: {name: cloud}
---
apiVersion: openstack.windlass.dev/v1alpha1
kind: OpenStack
metadata: {name: one, namespace: cloud}
spec:
  database: {managed: {image: "registry.example/mariadb:10.11"}}
  config: |
    [DEFAULT]
    debug = true

    [token]
    expiration = 1000
  services:
    - name: keystone
      image: registry.example/keystone:30.0.0
      config:
        global.conf: "[token]\nexpiration = 2000\n"
        keystone.conf: |
          # Longer, for the nights.
          [token]
          expiration = 3000
    - {name: placement, image: "registry.example/placement:16.0.0"}
    - {name: glance, image: "registry.example/glance:33.0.0"}
"#;

/// The line of a text that holds this, as an editor numbers it.
fn line_of(text: &str, part: &str) -> usize {
    text.lines().position(|line| line.contains(part)).unwrap() + 1
}

#[test]
fn everybody_who_spoke_of_a_setting_is_named_by_file_and_line() {
    let told = windlass(CLOUD, &["explain", "keystone.conf", "token.expiration"]);
    let built_in = include_str!("../../openstack/services/keystone.yaml");
    let expected = format!(
        "one-keystone token.expiration = 3000\n  \
         from cloud.yaml line {}, OpenStack one spec.services[keystone].config[keystone.conf]: 3000\n  \
         over cloud.yaml line {}, OpenStack one spec.services[keystone].config[global.conf]: 2000\n  \
         over cloud.yaml line {}, OpenStack one spec.config: 1000\n  \
         over services/keystone.yaml line {}, config[keystone.conf]: 3600\n",
        line_of(CLOUD, "expiration = 3000"),
        line_of(CLOUD, "expiration = 2000"),
        line_of(CLOUD, "expiration = 1000"),
        line_of(built_in, "expiration = 3600"),
    );
    assert_eq!((told.is_well, told.err.as_str()), (true, ""));
    assert_eq!(told.out, expected);
}

#[test]
fn what_a_cloud_says_reaches_every_service() {
    for (file, service) in [
        ("keystone.conf", "one-keystone"),
        ("placement.conf", "one-placement"),
        ("glance-api.conf", "one-glance"),
    ] {
        let told = windlass(CLOUD, &["explain", file, "DEFAULT.debug"]).out;
        let line = line_of(CLOUD, "debug = true");
        let expected = format!(
            "{service} DEFAULT.debug = true\n  from cloud.yaml line {line}, OpenStack one spec.config: true\n"
        );
        assert_eq!(told, expected);
    }
}

/// The cloud with a component of Glance that has a setting of its own.
fn scrubbed() -> String {
    let glance = r#"    - {name: glance, image: "registry.example/glance:33.0.0"}
"#;
    assert!(CLOUD.contains(glance));
    let of_glance = r"    - name: glance
      image: registry.example/glance:33.0.0
      storage: {size: 1Gi}
      config:
        glance-api.conf: |
          [DEFAULT]
          wakeup_time = 9
      components:
        scrubber:
          replicas: 1
          config:
            glance-api.conf: |
              [DEFAULT]
              wakeup_time = 60
";
    CLOUD.replace(glance, of_glance)
}

#[test]
fn what_is_said_for_a_component_alone_is_told_and_planned_for_that() {
    let file = scrubbed();
    let told = windlass(
        &file,
        &["explain", "glance-api.conf", "DEFAULT.wakeup_time"],
    );
    let expected = format!(
        "one-glance api: DEFAULT.wakeup_time = 9\n  \
         from cloud.yaml line {0}, OpenStack one spec.services[glance].config[glance-api.conf]: 9\n\
         one-glance scrubber: DEFAULT.wakeup_time = 60\n  \
         from cloud.yaml line {1}, OpenStack one spec.services[glance].components[scrubber].config[glance-api.conf]: 60\n  \
         over cloud.yaml line {0}, OpenStack one spec.services[glance].config[glance-api.conf]: 9\n",
        line_of(&file, "wakeup_time = 9"),
        line_of(&file, "wakeup_time = 60"),
    );
    assert_eq!(
        (told.out.as_str(), told.err.as_str()),
        (expected.as_str(), "")
    );
    let plan = windlass(&file, &["plan"]).out;
    for part in [
        "ConfigMap one-glance-scrubber-config-",
        "scrubber/check       Hold the files of scrubber against the schema",
        "Job one-glance-scrubber-check-DIGEST",
        "scrubber/deploy      Start the pods of scrubber",
        "Deployment one-glance-scrubber",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let unknown = windlass(&file.replace("scrubber:", "scruber:"), &["plan"]);
    for part in [
        "spec.components",
        "scruber",
        "glance are api, scrubber",
        "did you mean scrubber?",
    ] {
        assert!(unknown.err.contains(part), "{}", unknown.err);
    }
}

#[test]
fn the_pods_of_a_component_share_the_volume_of_the_api_and_serve_nobody() {
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let told = windlass(&scrubbed(), &["render", "--helm", helm.to_str().unwrap()]);
    let (objects, _) = rendered(&told);
    let of = |kind: &str, name: &str| {
        let mut found = objects
            .iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        (found.next().cloned(), found.count())
    };
    let (Some(deployment), 0) = of("Deployment", "one-glance-scrubber") else {
        panic!("{}", told.out);
    };
    let pod = &deployment["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    let claims: Vec<_> = volumes
        .iter()
        .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
        .collect();
    assert_eq!(claims, ["one-glance-api"]);
    assert!(pod["affinity"]["podAffinity"].is_object(), "{pod}");
    let container = &pod["containers"][0];
    assert_eq!(container["command"][0], "glance-scrubber");
    assert!(container["ports"].is_null() && container["readinessProbe"].is_null());
    assert_eq!(of("PersistentVolumeClaim", "one-glance-scrubber").0, None);
    let services = objects.iter().filter(|object| object["kind"] == "Service");
    let glance: Vec<_> = services
        .filter_map(|object| object["metadata"]["name"].as_str())
        .filter(|name| name.starts_with("one-glance"))
        .collect();
    assert_eq!(glance, ["one-glance"]);
    assert!(of("PersistentVolumeClaim", "one-glance-api").0.is_some());
}

#[test]
fn who_named_a_rabbitmq_is_told_and_its_address_is_a_reference() {
    let messaging = "  messaging: {transportUrlSecret: {name: rabbitmq}}\n  services:";
    let file = CLOUD.replace("  services:", messaging);
    let told = windlass(
        &file,
        &[
            "explain",
            "keystone.conf",
            "oslo_messaging_notifications.driver",
        ],
    );
    let built_in = include_str!("../../openstack/services/keystone.yaml");
    let expected = format!(
        "one-keystone oslo_messaging_notifications.driver = messagingv2\n  \
         from services/keystone.yaml line {}, messaging.config[keystone.conf]: messagingv2\n",
        line_of(built_in, "driver = messagingv2"),
    );
    assert_eq!(
        (told.out.as_str(), told.err.as_str()),
        (expected.as_str(), "")
    );
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let told = windlass(&file, &["render", "--helm", helm.to_str().unwrap()]);
    let (objects, _) = rendered(&told);
    let deployments = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment");
    for deployment in deployments {
        let name = deployment["metadata"]["name"].as_str().unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().unwrap().iter();
        let found: Vec<_> = variables
            .filter(|variable| variable["name"] == "OS_DEFAULT__TRANSPORT_URL")
            .map(|variable| &variable["valueFrom"]["secretKeyRef"])
            .collect();
        let expected = serde_json::json!({"name": "rabbitmq", "key": "transport_url"});
        if name == "one-placement-api" {
            assert!(found.is_empty(), "{found:?}");
        } else {
            assert_eq!(found, [&expected], "{name}");
        }
    }
    let empty = file.replace("{name: rabbitmq}", "{name: ''}");
    let refused = windlass(&empty, &["plan"]);
    assert!(
        !refused.is_well && refused.err.contains("transportUrlSecret"),
        "{}",
        refused.err
    );
}

#[test]
fn a_rabbitmq_that_is_made_is_planned_and_rendered_for_those_that_send_messages() {
    let managed = "  messaging: {managed: {image: rabbit, storage: {size: 5Gi}}}\n  services:";
    let file = CLOUD.replace("  services:", managed);
    let plan = windlass(&file, &["plan"]).out;
    for part in ["Secret one-rabbitmq-admin", "StatefulSet one-rabbitmq"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let told = windlass(&file, &["render", "--helm", helm.to_str().unwrap()]);
    let (objects, _) = rendered(&told);
    let of = |kind: &str| {
        let mut found = objects.iter().filter(|object| {
            object["kind"] == kind && object["metadata"]["name"] == "one-rabbitmq"
        });
        found
            .next()
            .unwrap_or_else(|| panic!("{kind}: {}", told.out))
    };
    let set = of("StatefulSet");
    let storage = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"];
    assert_eq!(storage["storage"], "5Gi");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let mut mounts = mounts.filter(|mount| mount["name"] == "data");
    let data = mounts.next().unwrap()["mountPath"].as_str().unwrap();
    let home = container["env"].as_array().unwrap().iter();
    let mut home = home.filter(|variable| variable["name"] == "HOME");
    let home = home.next().unwrap()["value"].as_str().unwrap();
    assert!(
        !home.starts_with(data),
        "Erlang takes no cookie that the group may read, as it becomes where a volume is mounted again"
    );
    // Its user is that of the Secret at each start, also on data of before.
    let conf = pod["volumes"].as_array().unwrap().iter();
    let mut conf = conf.filter(|volume| volume["name"] == "conf");
    let items = &conf.next().unwrap()["secret"]["items"];
    assert_eq!(items[1]["key"], "definitions.json", "{items}");
    let from = &of("NetworkPolicy")["spec"]["ingress"][0]["from"][0]["podSelector"];
    let let_in = &from["matchExpressions"][0]["values"];
    assert_eq!(*let_in, serde_json::json!(["one-keystone", "one-glance"]));
    assert!(!told.out.contains("rabbit://"), "{}", told.out);
}

#[test]
fn a_service_without_a_cloud_has_both_layers_itself() {
    let file = r"apiVersion: openstack.windlass.dev/v1alpha1
kind: OpenStackService
metadata: {name: identity, namespace: cloud}
spec:
  service: keystone
  image: registry.example/keystone:30.0.0
  database: {host: db, adminSecret: {name: admin}}
  cloudConfig: |
    [token]
    expiration = 1000
  config:
    keystone.conf: |
      [token]
      expiration = 2000
";
    let told = windlass(file, &["explain", "keystone.conf", "token.expiration"]).out;
    for expected in [
        "from cloud.yaml line 14, OpenStackService identity spec.config[keystone.conf]: 2000",
        "over cloud.yaml line 10, OpenStackService identity spec.cloudConfig: 1000",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_file_that_is_given_whole_is_told_by_rule_and_line() {
    let rules = "        policy.yaml: |\n          # Nobody else.\n          \"identity:get_user\": \"role:night\"\n";
    let cloud = CLOUD.replace(
        "        keystone.conf: |\n",
        &format!("{rules}        keystone.conf: |\n"),
    );
    let told = windlass(&cloud, &["explain", "policy.yaml", "identity:get_user"]);
    let expected = format!(
        "one-keystone identity:get_user = role:night\n  from cloud.yaml line {}, OpenStack one spec.services[keystone].config[policy.yaml]\n",
        line_of(&cloud, "role:night")
    );
    assert_eq!((told.out, told.err), (expected, String::new()));
    let whole = windlass(&cloud, &["explain", "policy.yaml"]).out;
    assert!(
        whole.starts_with("one-keystone policy.yaml, whole\n"),
        "{whole}"
    );
    let unsaid = windlass(&cloud, &["explain", "policy.yaml", "identity:get_users"]);
    let says = "one-keystone says nothing of identity:get_users";
    assert!(
        !unsaid.is_well && unsaid.err.contains(says),
        "{}",
        unsaid.err
    );
}

#[test]
fn what_a_template_became_is_told_by_the_line_that_was_written() {
    let text = "          [token]\n          {% if region == 'RegionOne' %}\n          expiration = {{ 60 * 50 }}\n          {% endif %}\n";
    let plain = "          [token]\n          expiration = 3000\n";
    assert!(CLOUD.contains(plain));
    let cloud = CLOUD.replace(plain, text);
    let told = windlass(&cloud, &["explain", "keystone.conf", "token.expiration"]).out;
    let expected = format!(
        "one-keystone token.expiration = 3000\n  from cloud.yaml line {}, OpenStack one spec.services[keystone].config[keystone.conf]: 3000\n",
        line_of(&cloud, "60 * 50")
    );
    assert!(told.starts_with(&expected), "{told}");
    let unset = cloud.replace("60 * 50", "keystone_token_expiration");
    let refused = windlass(&unset, &["plan"]);
    let says = "line 4: keystone_token_expiration is not set: a template knows component,";
    assert!(
        !refused.is_well && refused.err.contains(says),
        "{}",
        refused.err
    );
}

#[test]
fn a_file_that_is_merged_is_told_by_value_and_line() {
    let cloud = scrubbed().replace(
        "        glance-api.conf: |\n          [DEFAULT]\n          wakeup_time = 9\n",
        "        schema-image.json: |\n          {\n            \"kernel\": {\"type\": \"string\"}\n          }\n",
    );
    let cloud = cloud.replace(
        "            glance-api.conf: |\n              [DEFAULT]\n",
        "            schema-image.json: |\n              {\"kernel\": {\"type\": \"integer\"}}\n            glance-api.conf: |\n              [DEFAULT]\n",
    );
    let told = windlass(&cloud, &["explain", "schema-image.json", "kernel"]);
    let expected = format!(
        "one-glance api: kernel.type = string\n  from cloud.yaml line {string}, OpenStack one spec.services[glance].config[schema-image.json]: string\n\
         one-glance scrubber: kernel.type = integer\n  from cloud.yaml line {}, OpenStack one spec.services[glance].components[scrubber].config[schema-image.json]: integer\n  \
         over cloud.yaml line {string}, OpenStack one spec.services[glance].config[schema-image.json]: string\n",
        line_of(&cloud, "integer"),
        string = line_of(&cloud, "\"string\""),
    );
    assert_eq!((told.out, told.err), (expected, String::new()));
}

#[test]
fn a_plan_says_every_write_before_it_is_done() {
    let told = windlass(CLOUD, &["plan"]);
    assert_eq!((told.is_well, told.err.as_str()), (true, ""));
    for expected in [
        "  up to 4 services side by side\n",
        "StatefulSet one-mariadb\n",
        "OpenStackService one-keystone\n",
        "Secret one-keystone-fernet-keys\n",
        "SQL CREATE DATABASE IF NOT EXISTS `keystone` CHARACTER SET utf8mb3 COMMENT 'windlass cloud/one-keystone of cluster UID'\n",
        "SQL ALTER USER 'keystone'@'%' IDENTIFIED BY PASSWORD '...'\n",
        "Job one-keystone-database-expand-DIGEST\n",
        "runs keystone-manage db_sync --expand\n",
        "Deployment one-keystone-api\n",
        "asks POST /v3/auth/tokens, GET /v3/auth/tokens\n",
        "Keystone project service, unless it is there\n",
        "Keystone role service for user glance on project service\n",
        "Keystone endpoint public http://one-glance.cloud.svc:9292\n",
        "Keystone password of user glance\n",
        "asks GET /v2/images\n",
    ] {
        assert!(told.out.contains(expected), "{expected}{}", told.out);
    }
}

/// A seed of what there may be.
const SEED: &str = r"apiVersion: openstack.windlass.dev/v1alpha1
kind: IdentitySeed
metadata: {name: people, namespace: cloud}
spec:
  cloud: one
  domains: [{name: science}]
  users: [{name: ada, domain: science, passwordSecret: {name: people, key: ada}}]
  assignments:
    - {role: reader, user: {name: ada, domain: science}, domain: science}
";

#[test]
fn a_seed_says_what_it_makes_in_keystone_and_what_cannot_be_is_refused() {
    let told = windlass(SEED, &["plan"]);
    assert!(told.is_well, "{}", told.err);
    for line in [
        "IdentitySeed people",
        "asks POST /v3/auth/tokens",
        "Keystone domain science",
        "Keystone password of user ada of domain science",
        "Keystone role reader for user ada of domain science on domain science, unless it is there",
    ] {
        assert!(told.out.contains(line), "{line}: {}", told.out);
    }
    for (right, wrong, why) in [
        ("cloud: one", "region: one", "unknown field"),
        ("cloud: one", "prune: true", "give cloud"),
        (
            "name: ada, domain: science, p",
            "name: '', domain: science, p",
            "users[0].name",
        ),
        (
            "{role: reader, user",
            "{role: reader, group: {name: a}, user",
            "for a user or for a group",
        ),
        (
            "domains: [{name: science}]",
            "domains: [{name: science}, {name: Science}]",
            "twice",
        ),
    ] {
        let refused = windlass(&SEED.replace(right, wrong), &["plan"]);
        assert!(!refused.is_well, "{wrong}: {}", refused.out);
        assert!(refused.err.contains(why), "{wrong}: {}", refused.err);
    }
}

/// The cloud with hooks of Keystone.
fn hooked() -> String {
    let hooks = r#"      hooks:
        - name: count
          after: database/expand
          image:
            name: registry.example/tools:1
            command: [sh, -c, "psql\n--all"]
            files: {users.sql: "SELECT 1"}
        - {name: look, before: database/contract, operations: [Upgrade], approval: "Are all tokens valid?"}
        - {name: own, instead: identity/bootstrap, image: {command: [bootstrap]}}
    - {name: placement"#;
    CLOUD.replace("    - {name: placement", hooks)
}

#[test]
fn a_plan_says_what_hooks_do_and_when() {
    let told = windlass(&hooked(), &["plan"]);
    assert_eq!((told.is_well, told.err.as_str()), (true, ""));
    for expected in [
        "  hook/count           Run hook count, after database/expand\n",
        "   Helm release one-keystone-hook-count\n",
        "   ConfigMap one-keystone-hook-count-DIGEST\n",
        "   Job one-keystone-hook-count-DIGEST\n",
        "   runs sh -c psql --all in image registry.example/tools:1 (a tag, which may come to mean another image: write its digest)\n",
        "  hook/look            Wait for an approval: hook look, before database/contract, in runs of Upgrade\n",
        "   asks a person: Are all tokens valid?\n",
        "  identity/bootstrap   Run hook own, instead of identity/bootstrap\n",
        "   runs bootstrap\n",
    ] {
        assert!(told.out.contains(expected), "{expected}{}", told.out);
    }
    assert!(!told.out.contains("--bootstrap-username"), "{}", told.out);
}

/// The objects of what was printed, and the lines of its comments.
fn rendered(told: &Done) -> (Vec<serde_json::Value>, Vec<&str>) {
    assert_eq!((told.is_well, told.err.as_str()), (true, ""));
    let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&told.out).unwrap();
    let comments = told.out.lines().filter_map(|line| line.strip_prefix("# "));
    (objects, comments.collect())
}

#[test]
fn what_a_cloud_would_make_is_rendered_in_order_and_nothing_secret_with_it() {
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let helm = helm.to_str().unwrap();
    let asks = "  asks a person: Are all tokens valid?";
    let upgrades = windlass(&hooked(), &["render", "--helm", helm]);
    assert!(!rendered(&upgrades).1.contains(&asks), "{}", upgrades.out);
    let told = windlass(
        &hooked().replace("operations: [Upgrade]", "operations: [Install]"),
        &["render", "--helm", helm],
    );
    // Nothing of what is made waits for itself, whoever waits for it.
    assert!(helm::Proven::of(&told.out).is_ok());
    let (objects, comments) = rendered(&told);
    let names: Vec<_> = objects
        .iter()
        .map(|object| {
            assert_eq!(object["metadata"]["namespace"], "cloud");
            assert_ne!(object["kind"], "Secret");
            let text = |field: &serde_json::Value| field.as_str().unwrap().to_owned();
            format!(
                "{} {}",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            )
        })
        .collect();
    let at = |part: &str| {
        names
            .iter()
            .position(|name| name.starts_with(part))
            .unwrap()
    };
    let order = [
        "Service one-mariadb",
        "StatefulSet one-mariadb",
        "ConfigMap one-keystone-config-",
        "Job one-keystone-database-expand-",
        "ConfigMap one-keystone-hook-count-",
        "Job one-keystone-hook-count-",
        "Job one-keystone-identity-bootstrap-",
        "Deployment one-keystone-api",
        "Job one-keystone-database-contract-",
        "ConfigMap one-placement-config-",
        "Deployment one-glance-api",
    ];
    for pair in order.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?} in {names:?}");
    }
    for expected in [
        "database/secret: Make the database's password",
        "  Secret one-mariadb-admin, with the keys username, password, init.sql",
        "  OpenStackService one-keystone, whose steps follow in its place",
        "keystone/secrets/make: Make passwords and keys",
        "  Secret one-keystone-fernet-keys, with the keys 0, 1",
        "  Secret one-keystone-database, with the keys username, password, connection",
        "  SQL ALTER USER 'keystone'@'%' IDENTIFIED BY PASSWORD '...'",
        "  Keystone endpoint public http://one-glance.cloud.svc:9292",
        asks,
        "  runs keystone-manage db_sync --expand",
    ] {
        assert!(comments.contains(&expected), "{expected}: {}", told.out);
    }
    // As the engine hands them to Helm, which takes them up later.
    let job = &objects[at("Job one-keystone-hook-count-")];
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example/tools:1");
    assert_eq!(container["command"][2], "psql\n--all");
    assert_eq!(
        container["env"][0]["valueFrom"]["secretKeyRef"]["name"],
        "one-keystone-database"
    );
    assert_eq!(
        (
            &job["spec"]["backoffLimit"],
            &job["spec"]["activeDeadlineSeconds"]
        ),
        (&2.into(), &300.into())
    );
    let files = &objects[at("ConfigMap one-keystone-hook-count-")];
    assert_eq!(files["data"]["users.sql"], "SELECT 1");
    assert_eq!(files["metadata"]["name"], job["metadata"]["name"]);
    let mounts = pod["volumes"].as_array().unwrap().iter();
    let mut mounted = mounts.filter_map(|volume| volume["configMap"]["name"].as_str());
    assert!(mounted.any(|name| files["metadata"]["name"] == name));
    let marks = &files["metadata"];
    assert_eq!(marks["labels"]["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(
        marks["annotations"]["meta.helm.sh/release-name"],
        "one-keystone-hook-count"
    );
}

#[test]
fn one_step_is_rendered_alone_and_without_helm_where_it_has_no_chart() {
    let none = ["--helm", "/nowhere"];
    let step = |step: &'static str| [&["render", "--step", step][..], &none].concat();
    let told = windlass(CLOUD, &step("placement/config/apply"));
    let (objects, _) = rendered(&told);
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0]["kind"], "ConfigMap");
    let sql = windlass(CLOUD, &step("glance/database/create"));
    assert_eq!(rendered(&sql).0, [serde_json::Value::Null; 0]);
    let several = windlass(CLOUD, &step("database/create"));
    assert!(!several.is_well);
    for part in ["names no single step", "keystone/database/create"] {
        assert!(several.err.contains(part), "{}", several.err);
    }
    let without = windlass(CLOUD, &step("keystone/database/expand"));
    assert!(
        without.err.contains("name it with --helm"),
        "{}",
        without.err
    );
}

#[test]
fn who_asks_for_what_is_not_there_is_told_so() {
    let unsaid = windlass(CLOUD, &["explain", "keystone.conf", "token.experation"]);
    assert!(!unsaid.is_well);
    assert!(
        unsaid.err.contains("says nothing of token.experation"),
        "{}",
        unsaid.err
    );
    let unknown = windlass(CLOUD, &["explain", "nova.conf"]);
    assert!(
        unknown.err.contains("no service here has a file nova.conf"),
        "{}",
        unknown.err
    );
}

#[test]
fn what_cannot_be_is_refused_by_field_value_rule_and_remedy() {
    let refused = |from: &str, to: &str| {
        assert!(CLOUD.contains(from), "{from}");
        let told = windlass(&CLOUD.replace(from, to), &["plan"]);
        assert_eq!((told.is_well, told.out.as_str()), (false, ""));
        told.err
    };
    let option = refused("  services:", "  paralelism: 2\n  services:");
    assert!(option.contains("paralelism"), "{option}");
    let component = refused("name: glance", "name: glanse");
    for part in ["glanse", "keystone, placement, glance"] {
        assert!(component.contains(part), "{component}");
    }
    let file = refused("keystone.conf: |", "keystne.conf: |");
    for part in ["keystne.conf", "the files of keystone are keystone.conf"] {
        assert!(file.contains(part), "{file}");
    }
    let line = refused("expiration = 1000", "expiration");
    for part in ["spec.cloudConfig", "line 5", "KEY = VALUE"] {
        assert!(line.contains(part), "{line}");
    }
    let hook = windlass(
        &hooked().replace("after: database/expand", "after: database/expnd"),
        &["plan"],
    )
    .err;
    for part in [
        "spec.hooks[name=count].after is \"database/expnd\"",
        "keystone has no such step, but database/check",
        "did you mean database/expand?",
    ] {
        assert!(hook.contains(part), "{hook}");
    }
    let both = windlass(
        &hooked().replace(
            "after: database/expand",
            "after: a/b\n          before: a/b",
        ),
        &["plan"],
    )
    .err;
    assert!(
        both.contains("set before, after or instead, one of the three"),
        "{both}"
    );
    let public = "publicUrl: https://cloud.example, image";
    let image = "{name: glance, image";
    let both = CLOUD
        .replace(image, &format!("{{name: glance, {public}"))
        .replace(
            "{name: placement, image",
            &format!("{{name: placement, {public}"),
        );
    let overlap = windlass(&both, &["plan"]).err;
    for part in ["publicUrl", "https://cloud.example", "placement and glance"] {
        assert!(overlap.contains(part), "{overlap}");
    }
}

/// The cloud with Kolla's image of Keystone, and with a memcached.
fn of_kolla() -> String {
    CLOUD
        .replace(
            "      image: registry.example/keystone",
            "      contract: Kolla\n      image: registry.example/keystone",
        )
        .replace(
            "  config: |",
            "  memcached: {managed: {image: \"registry.example/memcached:1.6\", memory: 1Gi}}\n  config: |",
        )
}

#[test]
fn an_image_of_kolla_s_has_a_directory_and_what_sudo_takes_and_no_other_one_has() {
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let helm = ["render", "--helm", helm.to_str().unwrap()];
    let told = windlass(&of_kolla(), &helm);
    let (objects, _) = rendered(&told);
    let pod = |name: &str| {
        let mut objects = objects.iter();
        let found = objects.find(|object| {
            let called = object["metadata"]["name"].as_str().unwrap();
            called.starts_with(name) && object["spec"]["template"].is_object()
        });
        found.unwrap()["spec"]["template"].clone()
    };
    let at = |pod: &serde_json::Value, path: &str| {
        let mounts = pod["spec"]["containers"][0]["volumeMounts"]
            .as_array()
            .unwrap();
        mounts.iter().any(|mount| mount["mountPath"] == path)
    };
    for name in [
        "one-keystone-api",
        "one-keystone-database-expand",
        "one-keystone-config-check",
    ] {
        let pod = pod(name);
        assert!(
            at(&pod, "/var/lib/kolla/config_files") && !at(&pod, "/etc/keystone/keystone.conf")
        );
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], serde_json::Value::Null);
        assert_eq!(
            container["securityContext"]["readOnlyRootFilesystem"],
            false
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"][0],
            "ALL"
        );
        assert_eq!(pod["spec"]["securityContext"]["runAsUser"], 42425);
        let annotations = &pod["metadata"]["annotations"];
        let config = annotations["openstack.windlass.dev/kolla-config"]
            .as_str()
            .unwrap();
        let config: serde_json::Value = serde_json::from_str(config).unwrap();
        assert_eq!(
            config["config_files"][0]["dest"],
            "/etc/keystone/keystone.conf"
        );
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == "config")
            .unwrap();
        let items = volume["projected"]["sources"][1]["downwardAPI"]["items"]
            .as_array()
            .unwrap();
        assert_eq!(items[0]["path"], "config.json");
        for item in items {
            let field = item["fieldRef"]["fieldPath"].as_str().unwrap();
            let field = field.strip_prefix("metadata.annotations['").unwrap();
            assert!(
                annotations[field.strip_suffix("']").unwrap()].is_string(),
                "{field}"
            );
        }
    }
    let other = pod("one-placement-api");
    assert!(at(&other, "/etc/placement/placement.conf"));
    let context = &other["spec"]["containers"][0]["securityContext"];
    assert_eq!(
        (
            &context["allowPrivilegeEscalation"],
            &context["readOnlyRootFilesystem"]
        ),
        (&false.into(), &true.into())
    );
    let memcached = pod("one-memcached");
    let command = memcached["spec"]["containers"][0]["command"]
        .as_array()
        .unwrap();
    assert_eq!(command.last().unwrap(), "--memory-limit=1024");
    let rule = objects
        .iter()
        .find(|object| object["kind"] == "NetworkPolicy")
        .unwrap();
    let from = &rule["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0];
    assert_eq!(
        from["values"],
        serde_json::json!(["one-keystone", "one-placement", "one-glance"])
    );
    assert_eq!(
        other["metadata"]["labels"][from["key"].as_str().unwrap()],
        "one-placement"
    );
}

#[test]
fn who_named_a_memcached_is_told() {
    for (file, service, setting) in [
        ("keystone.conf", "keystone", "cache.memcache_servers"),
        (
            "placement.conf",
            "placement",
            "keystone_authtoken.memcached_servers",
        ),
        (
            "glance-api.conf",
            "glance",
            "keystone_authtoken.memcached_servers",
        ),
    ] {
        let told = windlass(&of_kolla(), &["explain", file, setting]).out;
        let path = format!(
            "{}/../openstack/services/{service}.yaml",
            env!("CARGO_MANIFEST_DIR")
        );
        let line = line_of(
            &std::fs::read_to_string(path).unwrap(),
            "{{ memcached_servers }}",
        );
        let expected = format!(
            "one-{service} {setting} = one-memcached:11211\n  from services/{service}.yaml line {line}, memcached.config[{file}]: one-memcached:11211\n"
        );
        assert_eq!(told, expected);
    }
    let plan = windlass(&of_kolla(), &["plan"]).out;
    for expected in [
        "  memcached/ready ",
        "NetworkPolicy one-memcached\n",
        "StatefulSet one-memcached\n",
    ] {
        assert!(plan.contains(expected), "{plan}");
    }
}

#[test]
fn contracts_and_memcacheds_that_cannot_be_are_refused() {
    let refused = |to: &str, parts: &[&str]| {
        let file = CLOUD.replace("  config: |", &format!("  {to}\n  config: |"));
        let told = windlass(&file, &["plan"]);
        assert!(!told.is_well, "{to}");
        for part in parts {
            assert!(told.err.contains(part), "{to}: {}", told.err);
        }
    };
    let managed = "managed: {image: m}";
    let one = "give one of the two";
    refused("memcached: {}", &[one]);
    refused(
        &format!("memcached: {{{managed}, external: {{servers: [\"a:1\"]}}}}"),
        &[one],
    );
    refused(
        "memcached: {external: {servers: []}}",
        &["spec.memcached.external.servers"],
    );
    for server in ["a", "a:", ":1", "a b:1", "a,b:1", "2001:db8::1"] {
        refused(
            &format!("memcached: {{external: {{servers: [\"{server}\"]}}}}"),
            &["spec.memcached.external.servers"],
        );
    }
    refused(
        "memcached: {external: {servers: [\"a:70000\"]}}",
        &["a:70000", "1 to 65535"],
    );
    for memory in ["much", "0Mi", "64", "1.5Gi", "-1Mi"] {
        refused(
            &format!("memcached: {{managed: {{image: m, memory: \"{memory}\"}}}}"),
            &["spec.memcached.managed.memory"],
        );
    }
    let contract = windlass(&of_kolla().replace("Kolla", "Kola"), &["plan"]).err;
    for part in ["contract", "Kola", "Mounted"] {
        assert!(contract.contains(part), "{contract}");
    }
}

/// A chart of others as openstack-helm writes them: the tables are made by a hook that comes after, and the pods wait for it.
const KNOTTED: &str = r"
apiVersion: batch/v1
kind: Job
metadata: {name: '{{ .Release.Name }}-db-sync', annotations: {helm.sh/hook: post-install}}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: sync, image: nova}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: '{{ .Release.Name }}-api'}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      initContainers:
        - {name: init, image: entrypoint, env: [{name: DEPENDENCY_JOBS, value: '{{ .Release.Name }}-db-sync'}]}
      containers: [{name: api, image: nova}]
";

#[test]
fn a_chart_that_would_wait_for_itself_is_not_waited_for() {
    let helm = lab::helm(&lab::progress::Terminal::default()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let chart = place.path().join("nova");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    let meta = "apiVersion: v2\nname: nova\nversion: 1.0.0\n";
    std::fs::write(chart.join("Chart.yaml"), meta).unwrap();
    std::fs::write(chart.join("templates/all.yaml"), KNOTTED).unwrap();
    let install = |option: &str| {
        Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["openstack", "install-chart", "compute"])
            .arg(&chart)
            .arg(option)
            .arg("--helm")
            .arg(&helm)
            .arg("--data-dir")
            .arg(place.path().join("data"))
            .output()
            .unwrap()
    };
    let knot = "Deployment compute-api waits for Job compute-db-sync, a hook";
    let looked = install("--dry-run");
    let told = String::from_utf8(looked.stdout).unwrap();
    assert!(looked.status.success() && told.contains(knot), "{told}");
    let waited = install("--wait");
    let told = String::from_utf8(waited.stderr).unwrap();
    assert!(!waited.status.success(), "{told}");
    assert!(told.contains("leave --wait out"), "{told}");
}
