//! What goes before a play that installs what was downloaded: it is brought again where it is gone.
//!
//! kubespray downloads into a directory of the host (`local_release_dir`, `/tmp/releases`), and several of its roles copy from there
//! whenever they run, in whatever play. A host that was built long ago has lost it: `/tmp` is emptied by a reboot, or by age. Where a
//! play works on such a host and none before it downloads (others join or leave, a run goes on days later), it fails.
//!
//! The host is asked for what the release would have downloaded for it, in one task. Where all of that is there, nothing else is done.

use std::path::Path;

use super::{ADDED, Slice};

/// Roles that install what was downloaded earlier. Container engines download for themselves.
const INSTALLERS: &[&str] = &[
    "etcd",
    "kubernetes/node",
    "kubernetes/control-plane",
    "network_plugin",
    "kubernetes-apps",
];

/// The role that downloads.
const DOWNLOAD: &str = "download";

/// Prints each file that is gone. An archive that was unpacked is gone too where something of it is: that is what roles copy.
const LOOK: &str = r#"while read -r kind file; do
            [ -n "$file" ] || continue
            if [ ! -e "$file" ]; then echo "$file"; continue; fi
            [ "$kind" = unpacked ] || continue
            parts=$(tar -tf "$file" 2>/dev/null) || { echo "$file"; continue; }
            printf '%s\n' "$parts" | while read -r part; do
              [ -e "${file%/*}/$part" ] || { echo "$file"; break; }
            done
          done"#;

/// Whether the play itself downloads for all of its hosts: one that goes host by host does so under conditions.
pub(super) fn brings(slice: &Slice) -> bool {
    slice.serial.is_none() && slice.roles.iter().any(|role| role == DOWNLOAD)
}

/// A play that downloads again what is gone from the hosts of a play that installs it.
pub(super) fn play(checkout: &Path, slice: &Slice) -> Option<String> {
    let installs = |role: &String| INSTALLERS.contains(&role.as_str());
    let is_there = checkout.join("roles").join(DOWNLOAD).is_dir();
    if !is_there || !slice.roles.iter().any(installs) {
        return None;
    }
    let defaults = slice.defaults()?;
    let hosts = serde_json::to_string(&slice.hosts).ok()?;
    Some(format!(
        r#"- name: "{ADDED}downloads for {id}"
  hosts: {hosts}
  gather_facts: false
  any_errors_fatal: "{{{{ any_errors_fatal | default(true) }}}}"
  environment: "{{{{ proxy_disable_env }}}}"
  roles:
    - role: {defaults}
  tasks:
    - name: "{ADDED}look for downloads that are gone"
      shell:
        cmd: |
          {LOOK}
        stdin: |
          {{% for file in (downloads | default({{}})).values()
             if (file.enabled | default(false) | bool) and (file.file | default(false) | bool)
             and (file.groups | default([]) | intersect(group_names)) %}}
          {{{{ 'unpacked' if (file.unarchive | default(false) | bool) and file.unarchive_extra_opts is not defined else 'whole' }}}} {{{{ file.dest }}}}
          {{% endfor %}}
      register: windlass_gone
      changed_when: false
      when: not (skip_downloads | default(false) | bool)
    - name: "{ADDED}download them again"
      include_role:
        name: {DOWNLOAD}
      vars:
        download_container: false
        skip_kubeadm_images: true
      when: windlass_gone.stdout | default("") | length > 0
"#,
        id = slice.id,
    ))
}

/// Whether what was brought to the hosts of one pattern was brought to those of another.
pub(super) fn covers(brought: &str, wanted: &str) -> bool {
    let brought: Vec<&str> = brought.split(':').collect();
    if brought.iter().any(|part| part.contains(['!', '&', '['])) {
        return false;
    }
    let whole = |part: &str| brought.contains(&part);
    let mut parts = wanted.split(':').filter(|part| !part.starts_with('!'));
    parts.all(|part| {
        let group = part.split('[').next().unwrap_or(part);
        whole(group) || (whole("k8s_cluster") && MEMBERS.contains(&group))
    })
}

/// The groups whose hosts are all in `k8s_cluster`.
const MEMBERS: &[&str] = &[
    "kube_control_plane",
    "kube_node",
    "calico_rr",
    "_kubespray_needs_etcd",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_brought_to_a_group_was_brought_to_its_parts() {
        for (brought, wanted, expected) in [
            ("k8s_cluster:etcd", "etcd:kube_control_plane", true),
            ("k8s_cluster:etcd:calico_rr", "k8s_cluster", true),
            (
                "k8s_cluster:etcd",
                "kube_node:calico_rr:!kube_control_plane",
                true,
            ),
            ("k8s_cluster:etcd", "kube_control_plane[0]", true),
            ("kube_node", "kube_node", true),
            ("kube_node", "k8s_cluster", false),
            ("k8s_cluster", "etcd:kube_control_plane", false),
            ("kube_control_plane[0]", "kube_control_plane", false),
            ("etcd:!k8s_cluster", "etcd", false),
            ("k8s_cluster", "&etcd", false),
        ] {
            assert_eq!(covers(brought, wanted), expected, "{brought}: {wanted}");
        }
    }
}
