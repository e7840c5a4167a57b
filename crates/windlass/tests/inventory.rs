//! `windlass inventory`: what it prints of `examples/fleet`, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

struct Done {
    code: i32,
    out: String,
    err: String,
}

fn windlass(arguments: &[&str]) -> Done {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("inventory")
        .args(arguments)
        .output()
        .unwrap();
    Done {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet")
}

/// A copy of the example in directories below a new one, one file of which is changed.
fn edited(file: &str, from: &str, to: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let below = place.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    fs::create_dir_all(place.path().join(".git")).unwrap();
    fs::write(place.path().join(".git/x.yaml"), "no: object").unwrap();
    for entry in fs::read_dir(example()).unwrap() {
        let path = entry.unwrap().path();
        let mut text = fs::read_to_string(&path).unwrap();
        if path.ends_with(file) {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        fs::write(below.join(path.file_name().unwrap()), text).unwrap();
    }
    place
}

#[test]
fn a_roll_out_that_can_never_run_is_no_good_inventory() {
    for (from, to, why) in [
        ("maximum: 1", "maximum: 0", "spec.budgets"),
        (
            "level: site",
            "level: rack",
            "the level rack is one of no cluster",
        ),
        (
            "approval: AfterCanary",
            "windows: [{schedule: \"99 22 * * 6\", duration: 4h}]",
            "spec.windows",
        ),
        (
            "approval: AfterCanary",
            "gates: [{rule: \"self.status ==\"}]",
            "spec.gates",
        ),
    ] {
        let inventory = edited("rollout.yaml", from, to);
        let checked = windlass(&["check", "-f", inventory.path().to_str().unwrap()]);
        assert!(
            checked.code == 2 && checked.err.contains(why),
            "{}",
            checked.err
        );
    }
}

#[test]
fn what_speaks_of_nothing_is_warned_of() {
    for (file, from, to, warning) in [
        (
            "rollout.yaml",
            "clusters: [shop]",
            "clusters: [shpo]",
            "Rollout/all spec.canary.clusters[0]: there is no FleetCluster shpo that the roll-out is for; mend the name, unless it is meant for later",
        ),
        (
            "environment.yaml",
            "final: [kubespray.version]",
            "final: [kubespray.verison]",
            "Environment/production spec.final: no cluster below it has a value at kubespray.verison; mend the path, unless it forbids one or is meant for later",
        ),
        (
            "hierarchy.yaml",
            "path: network.dns",
            "path: \"network.*.dns\"",
            "Hierarchy/default spec.merges: no cluster of its namespace has a value at network.*.dns; mend the path, unless it forbids one or is meant for later",
        ),
    ] {
        let inventory = edited(file, from, to);
        let checked = windlass(&["check", "-f", inventory.path().to_str().unwrap()]);
        let told = (checked.code, checked.err.as_str());
        assert_eq!(told, (0, format!("warning: {warning}\n").as_str()));
    }
}

#[test]
fn a_cluster_is_printed_whole_and_so_are_all() {
    let example = example();
    let example = example.to_str().unwrap();
    let one = windlass(&["render", "shop", "-f", example]);
    assert_eq!((one.code, one.err.as_str()), (0, ""));
    assert_eq!(one.out.matches("kind: ClusterNode").count(), 3);
    let all = windlass(&["render", "-f", example]);
    assert_eq!(all.out.matches("kind: Cluster\n").count(), 2);
    assert!(all.out.ends_with(&one.out), "shop comes after billing");
    let checked = windlass(&["check", "-f", example]);
    assert_eq!(
        (checked.code, checked.out.as_str(), checked.err.as_str()),
        (0, "2 clusters, 9 objects\n", "")
    );
}

#[test]
fn a_value_is_explained_to_people_and_to_programs() {
    let example = example();
    let example = example.to_str().unwrap();
    let told = windlass(&["explain", "billing", "unreachable", "-f", example]);
    // As the guide shows it.
    let guide =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleets.md"))
            .unwrap();
    assert!(guide.contains(told.out.trim()), "{}", told.out);
    let told = windlass(&[
        "explain",
        "shop",
        "Cluster/shop:spec.ssh",
        "-o",
        "json",
        "-f",
        example,
    ]);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told[0]["from"][0]["by"], "Site/fra1");
    let told = windlass(&["explain", "shop", "no.such.value", "-f", example]);
    assert_eq!(told.code, 2);
    assert!(
        told.err.contains("Site/fra1") && told.err.contains("ClusterNode/shop-worker-1"),
        "{}",
        told.err
    );
}

#[test]
fn two_inventories_are_compared_and_the_exit_code_says_so() {
    let example = example();
    let example = example.to_str().unwrap();
    let same = edited("site.yaml", "10.77.0.53", "10.77.0.53");
    let same = windlass(&["diff", example, same.path().to_str().unwrap()]);
    assert_eq!((same.code, same.out.as_str()), (0, ""));
    let other = edited("environment.yaml", "unreachable: 10%", "unreachable: 20%");
    let other = windlass(&["diff", example, other.path().to_str().unwrap()]);
    assert_eq!(other.code, 1);
    assert_eq!(
        other.out,
        "changed FleetCluster/shop\n  changed Cluster/shop/shop\n    spec.operations.creation.thresholds.unreachable: \"10%\" -> \"20%\"\n1 cluster: no Machine and no host is touched\n"
    );
    let hosts = edited("site.yaml", "10.77.0.53", "10.77.0.54");
    let hosts = windlass(&["diff", example, hosts.path().to_str().unwrap()]);
    assert!(
        hosts.out.contains(
            "\n  effect  Cluster/shop/shop: at most 3 hosts updated in place: shop-master-1, shop-worker-1, shop-worker-2 (spec.nodes)\n"
        ) && hosts
            .out
            .ends_with("\n2 clusters: at most 5 hosts updated in place\n"),
        "{}",
        hosts.out
    );
    let bad = edited("site.yaml", "customer: acme", "customer: acmee");
    let bad = bad.path().to_str().unwrap();
    for arguments in [
        vec!["diff", example, bad],
        vec!["check", "-f", bad],
        vec!["render", "-f", bad],
    ] {
        let bad = windlass(&arguments);
        assert_eq!((bad.code, bad.out.as_str()), (2, ""), "{arguments:?}");
        assert!(
            bad.err
                .contains("Site/fra1 (level site) spec.parents.customer"),
            "{}",
            bad.err
        );
    }
}

#[test]
fn what_is_rendered_is_planned_like_any_other_objects() {
    let example = example();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("all.yaml");
    fs::write(
        &file,
        windlass(&["render", "-f", example.to_str().unwrap()]).out,
    )
    .unwrap();
    let plan = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("--data-dir")
        .arg(place.path().join("data"))
        .args(["plan", "-o", "json", "-f"])
        .arg(&file)
        // The example's playbooks are named from here.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert!(
        plan.status.success(),
        "{}",
        String::from_utf8_lossy(&plan.stderr)
    );
    let plans: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let names: Vec<_> = plans
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| plan["cluster"].clone())
        .collect();
    assert_eq!(names, ["billing", "shop"]);
    assert!(
        plans
            .as_array()
            .unwrap()
            .iter()
            .all(|plan| plan["plan"]["steps"].is_array())
    );
}

#[test]
fn a_value_in_vault_is_shown_as_a_reference_and_planned() {
    let place = edited(
        "customer.yaml",
        "{secretKeyRef: {name: registry, key: authorization}}",
        "{vault: {path: acme/registry, key: authorization}}",
    );
    let directory = place.path().to_str().unwrap();
    let refused = windlass(&["check", "-f", directory]);
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .err
            .contains("ClusterTemplate/kubespray spec.vaultSecrets: is not set")
            && refused
                .err
                .contains("Customer/acme (level customer) spec.values.registry.login"),
        "{}",
        refused.err
    );
    let template = place.path().join("a/b/template.yaml");
    let text = fs::read_to_string(&template).unwrap();
    let told = "  backEnd: Kubespray\n  vaultSecrets:\n    vault: {address: \"https://vault.{{ domain }}:8200\", \
                auth: {kubernetes: {role: windlass}}}\n";
    fs::write(&template, text.replace("  backEnd: Kubespray\n", told)).unwrap();

    let rendered = windlass(&["render", "shop", "-f", directory]);
    assert_eq!((rendered.code, rendered.err.as_str()), (0, ""));
    assert!(!rendered.out.contains("vault: {path"), "{}", rendered.out);
    assert!(rendered.out.contains("kind: VaultSecret"));
    assert!(
        rendered
            .out
            .contains("address: https://vault.acme.example:8200")
    );
    let name = inventory::vault_secret_name("shop", "secret", "acme/registry");
    assert_eq!(rendered.out.matches(&format!("name: {name}")).count(), 2);

    let path = "Cluster/shop:spec.nodes.all.deploy.extraVars.containerd_registries_mirrors[0].mirrors[0].header.Authorization";
    let explained = windlass(&["explain", "shop", path, "-f", directory]);
    assert_eq!(explained.code, 0, "{}", explained.err);
    for part in [
        name.as_str(),
        "acme/registry",
        "Customer/acme spec.values.registry.login (level customer",
    ] {
        assert!(explained.out.contains(part), "{part}: {}", explained.out);
    }

    let file = place.path().join("shop.yaml");
    fs::write(&file, rendered.out).unwrap();
    let plan = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("--data-dir")
        .arg(place.path().join("data"))
        .args(["plan", "-o", "json", "-f"])
        .arg(&file)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&plan.stderr);
    assert!(plan.status.success(), "{said}");
}

#[test]
fn existing_clusters_become_an_inventory_that_renders_to_them() {
    let example = example();
    let place = tempfile::tempdir().unwrap();
    let there = place.path().join("there.yaml");
    let all = windlass(&["render", "-f", example.to_str().unwrap()]);
    fs::write(&there, all.out).unwrap();
    let there = there.to_str().unwrap();
    let made = place.path().join("fleet");
    let made = made.to_str().unwrap();
    let imported = windlass(&["import", made, "-f", there]);
    assert_eq!((imported.code, imported.err.as_str()), (0, ""));
    let sites = fs::read_to_string(Path::new(made).join("levels.yaml")).unwrap();
    assert!(sites.contains("registry.acme.example"), "{sites}");

    // Imported again, it is the same: the objects are.
    let rendered = windlass(&["render", "-f", made]);
    let again = place.path().join("again.yaml");
    fs::write(&again, rendered.out).unwrap();
    let second = place.path().join("second");
    let second = second.to_str().unwrap();
    windlass(&["import", second, "-f", again.to_str().unwrap()]);
    let same = windlass(&["diff", made, second]);
    assert_eq!((same.code, same.out.as_str()), (0, ""));

    for (arguments, words) in [
        (vec!["import", made, "-f", there], "is not empty"),
        (
            vec!["import", "never", "-f", there, "--level", "rack=x"],
            "environment, customer, site, infraProvider",
        ),
        (
            vec![
                "import",
                "never",
                "-f",
                there,
                "--level",
                "site=acme.example/site",
            ],
            "label the Cluster with acme.example/site",
        ),
        (
            vec!["import", "never", "-f", example.to_str().unwrap()],
            "there is no Cluster",
        ),
    ] {
        let refused = windlass(&arguments);
        assert_eq!(refused.code, 2, "{arguments:?}");
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    assert!(!Path::new("never").exists());
}

#[test]
fn an_import_of_a_topology_names_the_class_that_it_leaves_out() {
    let place = tempfile::tempdir().unwrap();
    let made = place.path().join("fleet");
    let there = Path::new(env!("CARGO_MANIFEST_DIR"));
    let there = there.join("../inventory/tests/fleet/cluster_api/others.yaml");
    let (made, there) = (made.to_str().unwrap(), there.to_str().unwrap());
    let imported = windlass(&["import", made, "--of", "cluster-api", "-f", there]);
    assert_eq!((imported.code, imported.err.as_str()), (0, ""));
    assert!(
        imported.out.ends_with(
            "\nleft out, and needed beside it: ClusterClass/labs/usual, with the templates that a class names\n"
        ),
        "{}",
        imported.out
    );
}

#[test]
fn a_first_cluster_becomes_a_fleet_as_the_guide_has_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/fleets.md")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (one, fleet, there) = (at("one"), at("fleet"), at("there.yaml"));
    // Of the namespace, the cluster and its hosts, as kubectl gives them: the last two.
    let cluster = fs::read_to_string(root.join("examples/first-cluster/cluster.yaml")).unwrap();
    let (_, cluster) = cluster.split_once("---\n").unwrap();
    let nodes = fs::read_to_string(root.join("examples/first-cluster/nodes.yaml")).unwrap();
    fs::write(&there, format!("{cluster}---\n{nodes}")).unwrap();
    let imported = windlass(&["import", &one, "-f", &there]);
    assert_eq!((imported.code, imported.err.as_str()), (0, ""));

    // Moved as the guide says.
    let read = |file: &str| -> Vec<Value> {
        let text = fs::read_to_string(Path::new(&one).join(file)).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    };
    let (mut clusters, mut levels) = (read("clusters.yaml"), read("levels.yaml"));
    let cluster = clusters[0]["spec"]["values"]["spec"].take();
    let mut shared = cluster.clone();
    let creation = shared["operations"].as_object_mut().unwrap();
    let creation = creation.remove("creation").unwrap();
    assert_eq!(creation["startConditions"]["nodes"]["minimum"], 3);
    clusters[0]["spec"]["values"]["spec"] = json!({"operations": {"creation": creation}});
    let sites = levels.iter_mut().filter(|level| level["kind"] == "Site");
    for site in sites {
        site["spec"]["values"]["spec"] = shared.clone();
    }
    fs::create_dir(&fleet).unwrap();
    for entry in fs::read_dir(&one).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, Path::new(&fleet).join(path.file_name().unwrap())).unwrap();
    }
    for (file, objects) in [("clusters.yaml", clusters), ("levels.yaml", levels)] {
        let objects: Vec<_> = objects.iter().map(Value::to_string).collect();
        fs::write(Path::new(&fleet).join(file), objects.join("\n---\n")).unwrap();
    }
    let same = windlass(&["diff", &one, &fleet]);
    assert_eq!(
        (same.code, same.out.as_str(), same.err.as_str()),
        (0, "", "")
    );

    let (_, second) = guide
        .split_once("A second one is then\n\n```yaml\n")
        .unwrap();
    let (second, _) = second.split_once("```").unwrap();
    fs::write(Path::new(&fleet).join("second.yaml"), second).unwrap();
    let second = windlass(&["render", "second", "-f", &fleet]);
    assert_eq!((second.code, second.err.as_str()), (0, ""));
    let second: Vec<Value> = serde_saphyr::from_multiple(&second.out).unwrap();
    let made = second
        .iter()
        .find(|made| made["kind"] == "Cluster")
        .unwrap();
    assert_eq!(made["spec"]["ssh"], cluster["ssh"]);
    // It has one host, and waits for no more.
    assert_eq!(made["spec"]["operations"].get("creation"), None, "{made}");
}
