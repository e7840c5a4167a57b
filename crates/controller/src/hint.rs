//! Commands in hints, as whoever reads them can type them.
//!
//! What is wrong is told by pure functions that know no namespace, and read by people whose commands go to another one. So the
//! namespace comes into the commands at the border, where a message becomes a status, or is printed: no message can be forgotten.

/// A text whose commands of Windlass name the namespace, unless it is the one that they go to by themselves.
pub fn placed(text: &str, namespace: &str) -> String {
    if namespace.is_empty() || namespace == USUAL {
        return text.to_owned();
    }
    let own = |command: &str| {
        let end = command.find(|letter: char| !letter.is_ascii_lowercase());
        VERBS.contains(&command.split_at(end.unwrap_or(command.len())).0)
    };
    let of_kubectl = |command: &str| KUBECTL.iter().any(|verb| command.starts_with(verb));
    let text = named(text, namespace, PROGRAM, own);
    named(&text, namespace, "kubectl ", of_kubectl)
}

/// With the namespace in those commands of a program that look for one.
fn named(text: &str, namespace: &str, program: &str, looks: impl Fn(&str) -> bool) -> String {
    let mut pieces = text.split(program);
    let mut named = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        named.push_str(program);
        if looks(piece) {
            named.push_str(&format!("-n {namespace} "));
        }
        named.push_str(piece);
    }
    named
}

/// How a command begins.
const PROGRAM: &str = "windlass ";
/// What hints have kubectl do to objects of a namespace.
const KUBECTL: [&str; 2] = ["create secret ", "describe "];
/// The namespace of a command that names none.
const USUAL: &str = "default";
/// The verbs that look into a namespace, or write objects of one.
pub const VERBS: [&str; 32] = [
    "adopt",
    "apply",
    "approve",
    "bundle",
    "cancel",
    "cluster",
    "component",
    "converge",
    "describe",
    "explain",
    "get",
    "init",
    "inventory",
    "kubeconfig",
    "logs",
    "maintain",
    "mirror",
    "move",
    "node",
    "openstack",
    "pause",
    "plan",
    "providers",
    "recover",
    "renew",
    "reset",
    "resume",
    "retry",
    "skip",
    "snapshot",
    "snapshots",
    "status",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_go_to_the_namespace_of_what_they_are_about() {
        for (text, expected) in [
            (
                "then: windlass retry r, or `windlass skip`",
                "then: windlass -n demo retry r, or `windlass -n demo skip`",
            ),
            ("windlass plan --live", "windlass -n demo plan --live"),
            (
                "windlass openstack run c keystone/declare",
                "windlass -n demo openstack run c keystone/declare",
            ),
            (
                "create it: kubectl create secret generic ssh; see kubectl describe cluster c",
                "create it: kubectl -n demo create secret generic ssh; see kubectl -n demo describe cluster c",
            ),
            // As it is already, or of no namespace.
            ("kubectl uncordon node-1", "kubectl uncordon node-1"),
            (
                "kubectl -n one create secret",
                "kubectl -n one create secret",
            ),
            ("windlass -n demo retry r", "windlass -n demo retry r"),
            ("start `windlass up`", "start `windlass up`"),
            ("windlass crds | kubectl", "windlass crds | kubectl"),
            ("windlass planned it", "windlass planned it"),
            ("windlass ", "windlass "),
            ("", ""),
        ] {
            assert_eq!(placed(text, "demo"), expected);
            assert_eq!(placed(expected, "demo"), expected, "once is enough");
            assert_eq!(placed(text, "default"), text);
        }
    }
}
