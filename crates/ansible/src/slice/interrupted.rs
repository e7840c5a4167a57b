//! What goes before a play that cannot be repeated where it was interrupted: it undoes what that has left. [`REPAIRS`] has all of them.
//!
//! What a host looks like decides, and not what a run remembers: a host may have lost power. The plugin's configuration comes
//! last, so a cluster without it never had a network, and nothing runs in it but its control plane.

use super::{ADDED, Slice};

/// The variable with which an operation allows to undo what was interrupted: that of a cluster that does not exist yet.
pub const FOUNDING: &str = "windlass_founding";

/// What is done before a play that cannot be repeated where it was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair {
    /// The play.
    pub play: &'static str,
    /// What of it is undone, for people.
    pub undoes: &'static str,
    /// The first release of kubespray for which it matters.
    pub since: &'static str,
    /// Why the play cannot be repeated as it was left.
    pub why: &'static str,
}

impl Repair {
    /// The task that undoes it, as events name it.
    pub fn task(&self) -> String {
        format!("{ADDED}undo {}", self.undoes)
    }
}

/// All plays for which it matters.
pub const REPAIRS: [Repair; 1] = [Repair {
    play: CONTROL_PLANE,
    undoes: "what kubeadm has begun",
    since: "2.30",
    why: "kubeadm is not run again once it has begun on a host, and the play waits for Ready nodes, which want the network plugin of a later play",
}];

/// The play that kubeadm makes a control plane in.
const CONTROL_PLANE: &str = "control-plane/install";

/// Where authorities and manifests lie that are not of the interrupted work, while that is undone.
const KEPT: &str = "/var/lib/windlass-undo";

/// The states that are undone: kubeadm has configured the kubelet, and no network plugin is configured, or an undoing was
/// itself interrupted.
const LOOK: &str = r#"[ -d "$kept" ] && { echo undone in part; exit; }
          [ -e /var/lib/kubelet/config.yaml ] || exit 0
          for file in /etc/cni/net.d/*.conf /etc/cni/net.d/*.conflist /etc/cni/net.d/*.json; do
            [ -e "$file" ] && exit 0
          done
          echo begun"#;

/// Workers may have joined by these authorities, and kubeadm takes them up; what it makes of them names addresses, and is made
/// anew. Manifests of others (a virtual address, a load balancer) come from an earlier play. Nothing of etcd's is touched.
const UNDO: &str = r#"set -eu
          umask 077
          if [ ! -d "$kept" ]; then
            rm -rf "$kept.part"
            mkdir -p "$kept.part/authorities" "$kept.part/manifests"
            for pair in ca.crt:ca.key front-proxy-ca.crt:front-proxy-ca.key sa.pub:sa.key; do
              if [ -s "$certificates/${pair%:*}" ] && [ -s "$certificates/${pair#*:}" ]; then
                cp -p "$certificates/${pair%:*}" "$certificates/${pair#*:}" "$kept.part/authorities/"
              fi
            done
            for file in "$manifests"/*; do
              case "${file##*/}" in
                kube-apiserver.yaml | kube-controller-manager.yaml | kube-scheduler.yaml | '*') ;;
                *) cp -p "$file" "$kept.part/manifests/" ;;
              esac
            done
            mv "$kept.part" "$kept"
          fi
          timeout 300 "$kubeadm" reset --force --skip-phases=remove-etcd-member \
            --cert-dir="$certificates" --cri-socket="$socket"
          mkdir -p "$certificates" "$manifests"
          chmod 0755 "$certificates" "$manifests"
          cp -pR "$kept/authorities/." "$certificates/"
          cp -pR "$kept/manifests/." "$manifests/"
          rm -rf "$kept""#;

/// A play that undoes what an interrupted play has left, for one that it matters for.
pub(super) fn play(slice: &Slice) -> Option<String> {
    let repair = REPAIRS.iter().find(|repair| repair.play == slice.id)?;
    let defaults = slice.defaults()?;
    let hosts = serde_json::to_string(&slice.hosts).ok()?;
    Some(format!(
        r#"- name: "{ADDED}undo what was interrupted before {id}"
  hosts: {hosts}
  gather_facts: false
  environment: "{{{{ proxy_disable_env }}}}"
  roles:
    - role: {defaults}
  tasks:
    - name: "{ADDED}look whether kubeadm was interrupted"
      shell:
        cmd: |
          {LOOK}
      environment:
        kept: {KEPT}
      register: windlass_interrupted
      changed_when: false
      when:
        - {FOUNDING} | default(false)
        - not (kube_external_ca_mode | default(false))
        - etcd_deployment_type | default("host") != "kubeadm"
    - name: "{task}"
      shell:
        cmd: |
          {UNDO}
      environment:
        kept: {KEPT}
        certificates: "{{{{ kube_cert_dir }}}}"
        manifests: "{{{{ kube_manifest_dir }}}}"
        kubeadm: "{{{{ bin_dir }}}}/kubeadm"
        socket: "{{{{ cri_socket | default(containerd_cri_socket | default('unix:///run/containerd/containerd.sock')) }}}}"
      when: windlass_interrupted.stdout | default("") | length > 0
"#,
        id = slice.id,
        task = repair.task(),
    ))
}
