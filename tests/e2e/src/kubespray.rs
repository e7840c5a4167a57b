//! Real kubespray, brought by whoever runs the suites: nothing of it is in this repository.

use std::{
    env, fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

use crate::Versions;

/// A kubespray checkout, and all that it downloads.
#[derive(Clone, Debug)]
pub struct Kubespray {
    /// The unmodified checkout.
    pub checkout: PathBuf,
    /// Its release, as the checkout says it.
    pub version: String,
    /// Its variables, such as where it downloads from.
    pub variables: Map<String, Value>,
    /// Two versions of Kubernetes that can be had there, for who upgrades.
    pub versions: Option<Versions>,
    /// What is served to the hosts on port 80 of the lab's gateway; nothing where the variables name another place.
    pub mirror: Option<PathBuf>,
    /// The program that serves it.
    pub server: PathBuf,
}

impl Kubespray {
    /// What `WINDLASS_KUBESPRAY` (a checkout), `WINDLASS_KUBESPRAY_VARS` (a file of variables, JSON or YAML),
    /// `WINDLASS_KUBESPRAY_VERSIONS` (`FROM,TO`) and `WINDLASS_KUBESPRAY_MIRROR` (a directory) name; none without the first.
    ///
    /// # Errors
    ///
    /// What they name is not there or cannot be read.
    pub fn from_environment(server: PathBuf) -> anyhow::Result<Option<Self>> {
        let given = |name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let Some(checkout) = given("WINDLASS_KUBESPRAY") else {
            return Ok(None);
        };
        ensure!(
            checkout.join("cluster.yml").is_file(),
            "WINDLASS_KUBESPRAY: {} is no kubespray checkout: it has no cluster.yml",
            checkout.display()
        );
        let galaxy = read(&checkout.join("galaxy.yml")).context("WINDLASS_KUBESPRAY")?;
        let version = galaxy.get("version").and_then(Value::as_str);
        let version = version.context("WINDLASS_KUBESPRAY: its galaxy.yml names no version")?;
        let variables = match given("WINDLASS_KUBESPRAY_VARS") {
            None => Map::new(),
            Some(file) => read(&file).context("WINDLASS_KUBESPRAY_VARS")?,
        };
        let versions = given("WINDLASS_KUBESPRAY_VERSIONS").map(|named| {
            let named = named.to_string_lossy().into_owned();
            let (oldest, newest) = named.split_once(',').with_context(|| {
                format!(
                    "WINDLASS_KUBESPRAY_VERSIONS: {named:?} is not FROM,TO, as in 1.33.13,1.34.4"
                )
            })?;
            anyhow::Ok(Versions {
                oldest: oldest.to_owned(),
                newest: newest.to_owned(),
            })
        });
        Ok(Some(Self {
            versions: versions.transpose()?,
            version: version.to_owned(),
            checkout,
            variables,
            mirror: given("WINDLASS_KUBESPRAY_MIRROR"),
            server,
        }))
    }

    /// Makes a Cluster's spec use this checkout and these variables, on hosts of a lab with this gateway.
    pub fn choose(&self, spec: &mut Value, gateway: Ipv4Addr) {
        spec["kubespray"] = json!({"version": self.version, "source": {"path": self.checkout}});
        let mut variables = of_throw_away_hosts(gateway);
        variables.extend(self.variables.clone());
        spec["nodes"]["all"]["deploy"]["extraVars"] = Value::Object(variables);
    }
}

/// What kubespray must know of hosts that share a kernel and are cut off; a person's variables win over them.
fn of_throw_away_hosts(gateway: Ipv4Addr) -> Map<String, Value> {
    let of = |name: &str, value: Value| (name.to_owned(), value);
    Map::from_iter([
        // 0 leaves nf_conntrack_max alone, which a host in a network namespace cannot write.
        of("kube_proxy_conntrack_max_per_core", json!(0)),
        of("kube_proxy_conntrack_min", json!(0)),
        // They share the machine's disk: of its size kubelet's shares would be much, and images of others are its fill.
        of(
            "eviction_hard",
            json!({
                "memory.available": "100Mi",
                "nodefs.available": "1Gi", "nodefs.inodesFree": "1%",
                "imagefs.available": "1Gi", "imagefs.inodesFree": "1%",
            }),
        ),
        of("kubelet_image_gc_high_threshold", json!(100)),
        // The kernel may have neither IP_VS nor the dummy interface that a DNS cache of each node wants.
        of("kube_proxy_mode", json!("iptables")),
        of("enable_nodelocaldns", json!(false)),
        // Nothing answers there, but CoreDNS would else forward to itself and give up.
        of("upstream_dns_servers", json!([gateway])),
        // Root of a host may be without CAP_SYS_RESOURCE: it lowers no score and raises no limit.
        of(
            "containerd_extra_runtime_args",
            json!({"restrict_oom_score_adj": true}),
        ),
        of("containerd_base_runtime_spec_rlimit_nofile", json!(20_000)),
    ])
}

/// A file of JSON or YAML.
fn read(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
}
