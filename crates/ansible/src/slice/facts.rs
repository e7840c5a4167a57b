//! What one play leaves for another: measured on real runs, kept here as data.

use std::path::Path;

use super::Slice;

/// Plays of which the second reads what the first registered: they share a process. The first id, the second id.
///
/// `remove/reset` registers the nodes that `remove/forget` deletes; `nodes/join` reads the key that
/// `control-plane/upload-certificates` gets, where it follows it.
pub const KEEP_TOGETHER: &[(&str, &str)] = &[
    ("remove/reset", "remove/forget"),
    ("control-plane/upload-certificates", "nodes/join"),
];

/// How the names of the plays and tasks that Windlass adds begin.
pub const ADDED: &str = "Windlass: ";

/// Roles that read facts which `kubernetes/preinstall` sets without caching them.
const READERS: &[&str] = &[
    "kubernetes/node",
    "kubernetes/control-plane",
    "kubernetes/kubeadm",
    "network_plugin",
    "network_plugin/calico/rr",
];

/// The role whose facts are read.
pub(super) const SETTER: &str = "kubernetes/preinstall";

pub(super) fn mark(checkout: &Path, slices: &mut [Slice]) {
    let setter = tasks_file(checkout).is_some();
    let next: Vec<Option<String>> = slices
        .iter()
        .skip(1)
        .map(|s| Some(s.id.clone()))
        .chain([None])
        .collect();
    for (slice, next) in slices.iter_mut().zip(next) {
        slice.with_next = KEEP_TOGETHER
            .iter()
            .any(|(a, b)| slice.id == *a && next.as_deref() == Some(b));
        let reads = slice
            .roles
            .iter()
            .any(|role| READERS.contains(&role.as_str()));
        slice.needs_facts = setter && reads && !slice.roles.iter().any(|role| role == SETTER);
    }
}

/// The file of the role's tasks that sets the facts: `0020-set_facts.yml`, in old releases `0040-set_facts.yml`.
fn tasks_file(checkout: &Path) -> Option<String> {
    let tasks = checkout.join("roles").join(SETTER).join("tasks");
    let names = ["0020-set_facts.yml", "0040-set_facts.yml"];
    names
        .into_iter()
        .find(|name| tasks.join(name).is_file())
        .map(str::to_owned)
}

/// A play that computes the facts again for the hosts of a play that reads them.
pub(super) fn play(checkout: &Path, slice: &Slice) -> Option<String> {
    let tasks = tasks_file(checkout)?;
    let defaults = slice.defaults()?;
    let hosts = serde_json::to_string(&slice.hosts).ok()?;
    Some(format!(
        r#"- name: "{ADDED}facts for {id}"
  hosts: {hosts}
  gather_facts: false
  environment: "{{{{ proxy_disable_env }}}}"
  roles:
    - role: {defaults}
  tasks:
    - name: "{ADDED}facts of the operating system"
      import_role:
        name: {SETTER}
        tasks_from: {tasks}
    - name: "{ADDED}read the serial of the etcd client certificate"
      command: "openssl x509 -in {{{{ etcd_cert_dir }}}}/node-{{{{ inventory_hostname }}}}.pem -noout -serial"
      register: windlass_etcd_serial
      changed_when: false
      failed_when: false
      when:
        - kube_network_plugin | default("") == "calico"
        - calico_datastore | default("kdd") == "etcd"
        - etcd_deployment_type | default("host") != "kubeadm"
    - name: "{ADDED}keep the serial"
      set_fact:
        etcd_client_cert_serial: "{{{{ windlass_etcd_serial.stdout.split('=')[1] }}}}"
      when: windlass_etcd_serial.rc | default(1) == 0
"#,
        id = slice.id,
    ))
}
