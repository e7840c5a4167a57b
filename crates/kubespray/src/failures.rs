//! Every code that a run of a Cluster may fail with: what hosts and playbooks fail with ([`ansible::failure`]), and what steps of
//! Windlass' own do. The reference people read is printed from here.

use ansible::failure::{self, Kind, Rank};
use api::{
    Cluster, Run,
    run::{
        Failure,
        FailureClass::{self, Config, External, Permanent, Transient},
    },
};
use kube::ResourceExt;

use crate::operation::Operation;

const fn own(
    code: &'static str,
    class: FailureClass,
    meaning: &'static str,
    remedy: &'static str,
) -> Kind {
    Kind {
        code,
        class,
        meaning,
        remedy,
        rank: Rank::Symptom,
        pattern: None,
    }
}

/// Those of steps that are no plays, whose messages say the rest.
static OWN: [Kind; 75] = [
    own(
        "APIServerOutdated",
        Transient,
        "An API server does not run with the members that etcd has now.",
        "Look at /etc/kubernetes/manifests/kube-apiserver.yaml and the kubelet there, then retry the run.",
    ),
    own(
        "APIServerUnreachable",
        Transient,
        "The cluster's API server does not answer this machine.",
        "Let this machine reach the control-plane hosts on that port, and see to the control plane; then retry the run.",
    ),
    own(
        "AuthoritiesUnusable",
        Config,
        "The authorities that the cluster is to be founded with cannot be used.",
        "Correct the Secret of spec.operations.creation.authoritiesSecretRef, then retry the run.",
    ),
    own(
        "BadConfiguration",
        Config,
        "ansible.cfg cannot be written as the spec has it.",
        "Correct spec.runner.ansible.",
    ),
    own(
        "BadKubeconfig",
        Permanent,
        "The kubeconfig of the first control plane is refused.",
        "Find out who changed /etc/kubernetes/admin.conf there, mend it, then retry the run.",
    ),
    own(
        "BastionUnusable",
        External,
        "The bastion cannot be used.",
        "Start sshd on the bastion, give it the public key, or correct spec.ssh.bastion.",
    ),
    own(
        "BudgetForbids",
        Config,
        "No PodDisruptionBudget lets these pods go, now or later.",
        "Give the pods another replica or loosen the budget; or give them up with --force.",
    ),
    own(
        "CredentialsOfVault",
        Config,
        "A Secret that a spec refers to is what VaultSecrets log in with, and nothing of a cluster is made of that.",
        "Refer to another Secret, then retry the run.",
    ),
    own(
        "DrainBlocked",
        Transient,
        "Pods have not left a node in time.",
        "It is tried again. Let them go, give them up (windlass node remove NAME --force), or keep the host (windlass node keep NAME).",
    ),
    own(
        "DrillDiffers",
        Permanent,
        "A snapshot that was started in a throw-away etcd has other keys than were noted when it was taken.",
        "Do not rely on it: take another one (windlass snapshot), and drill that.",
    ),
    own(
        "DrillFailed",
        Permanent,
        "No etcd came up from a snapshot.",
        "Do not rely on it: take another one (windlass snapshot), and drill that.",
    ),
    own(
        "EtcdNotFounded",
        External,
        "etcd was founded anew and is not one member that answers.",
        "Look at the log of etcd there (journalctl -u etcd), then retry the run.",
    ),
    own(
        "EtcdUnanswered",
        External,
        "No member of etcd says how etcd is.",
        "See to etcd on these hosts (journalctl -u etcd), then retry the run.",
    ),
    own(
        "EtcdUnhealthy",
        External,
        "Members of etcd do not answer, and what is next would take another away.",
        "Bring them back (journalctl -u etcd tells why they do not answer), then retry the run.",
    ),
    own(
        "ExecutorEnded",
        Permanent,
        "A step ended without a word about how.",
        "Look into the runner's log, then retry the step.",
    ),
    own(
        "FileUnwritable",
        Permanent,
        "A file of the data directory cannot be written.",
        "Give this user the right to write there, then retry the run.",
    ),
    own(
        "FormerPlaybook",
        Transient,
        "The playbook of an earlier runner was not ended.",
        "It is tried again. If it stays, end that process on this machine.",
    ),
    own(
        "GateNotMet",
        External,
        "The cluster was not well in time after its hosts were worked on.",
        "Look at what the message names; it holds the next hosts back. Then retry the run, or skip the step with a reason.",
    ),
    own(
        "HookFailed",
        Permanent,
        "A hook failed.",
        "Mend what it met and retry the run, or skip its step with a reason. Another text in spec.hooks is for the next run.",
    ),
    own(
        "HookTimedOut",
        Permanent,
        "A hook did not end within its timeout, and was ended.",
        "See what it waits for, or give it more time in spec.hooks; then retry the run, or skip its step with a reason.",
    ),
    own(
        "InvalidInventory",
        Config,
        "Hosts and variables do not make an inventory.",
        "Correct the spec.",
    ),
    own(
        "MemberMissing",
        External,
        "etcd does not know a member that the cluster was built with.",
        "Bring it back (windlass converge) or remove it (windlass node remove NAME), then retry the run.",
    ),
    own(
        "MemberNotTakenOut",
        Transient,
        "etcd still has a member that was to be taken out.",
        "Look at the log of etcd on the members (journalctl -u etcd), then retry the run.",
    ),
    own(
        "MembersDiffer",
        External,
        "The members of an adopted cluster's etcd are others than its inventory names. No host was touched.",
        "Write what etcd says into the ClusterNodes (spec.inventory.etcd_member_name, ip), and declare hosts that are missing.",
    ),
    own(
        "MirrorIncomplete",
        External,
        "Files or images are not where hosts are told to ask for them. No host was touched.",
        "Have them brought (windlass mirror fetch), see that the mirror is served, then retry the run.",
    ),
    own(
        "MirrorUnknown",
        Config,
        "What hosts would ask the mirror for cannot be evaluated with these variables.",
        "Correct spec.nodes.all.deploy.extraVars, or set spec.kubespray.mirror.check to Never.",
    ),
    own(
        "NoHostKeys",
        Config,
        "The hosts' keys are to come from a Secret that is not there.",
        "Create it, then retry the run.",
    ),
    own(
        "NoKubeconfig",
        Permanent,
        "The kubeconfig that the playbooks left is gone or cannot be read.",
        "Retry the run from the step control-plane.",
    ),
    own(
        "NoMemoryForSecrets",
        External,
        "Secrets are kept in memory only, and there is none to write them to.",
        "Mount a tmpfs on /dev/shm, then retry the run.",
    ),
    own(
        "NoPlan",
        Permanent,
        "The run of a step could not be planned.",
        "Look at the object that the step works on, then retry the step.",
    ),
    own(
        "NoPython",
        External,
        "This machine has no Python of the release's range.",
        "Install one, then retry the run.",
    ),
    own(
        "NoSnapshotProgram",
        Config,
        "A host of etcd lacks the program that saves, checks or restores snapshots.",
        "Bring etcdutl and etcdctl of the etcd's release there, then retry the run.",
    ),
    own(
        "NoSshKey",
        Config,
        "The ssh key is to come from a Secret that is not there.",
        "Create it, then retry the run.",
    ),
    own(
        "NoUv",
        External,
        "This machine cannot make Python environments.",
        "Install uv, or python3-venv and python3-pip, then retry the run.",
    ),
    own(
        "NodeMissing",
        External,
        "A host that is worked on as a node is no node of the cluster.",
        "Have its kubelet register it (windlass converge), or name another host.",
    ),
    own(
        "NodesDiffer",
        External,
        "Nodes of an adopted cluster run another version than its spec names, or are missing. No host was touched.",
        "Write the version that all nodes report into spec.kubernetesVersion, or take hosts out that are no nodes.",
    ),
    own(
        "OtherPlaybook",
        Permanent,
        "The run was planned by a Windlass with another playbook.",
        "Cancel the run: what it was for is planned anew by this Windlass.",
    ),
    own(
        "PlaybookFailed",
        Permanent,
        "The playbook failed.",
        "Look into the step's log, then retry the step.",
    ),
    own(
        "PlaybookLost",
        Permanent,
        "The end of a playbook cannot be read.",
        "Look into the step's log, then retry the step.",
    ),
    own(
        "PlaybookNotStarted",
        Permanent,
        "Ansible cannot be started.",
        "Look into the message, then retry the run.",
    ),
    own(
        "PlaybooksUnusable",
        Config,
        "The playbooks cannot be cut into steps.",
        "Correct spec.kubespray.source.",
    ),
    own(
        "QuorumIntact",
        External,
        "etcd has its quorum, so that nothing is given up.",
        "Remove the hosts that are dead: windlass node remove NAME. To roll a cluster that works back to a snapshot: windlass recover --roll-back --from-snapshot NAME.",
    ),
    own(
        "QuorumUnknown",
        External,
        "A host does not say whether etcd has its quorum.",
        "Mend ssh, sudo or etcdctl there, or stop its etcd for good (systemctl stop etcd), then retry the run. If the host is off since, ask again: windlass recover.",
    ),
    own(
        "QuorumWouldBeLost",
        External,
        "Without this host too few members of etcd would answer.",
        "Bring members back first, then retry the run.",
    ),
    own(
        "RequirementsRefused",
        Config,
        "requirements.txt of the playbooks names what is no package.",
        "Name playbooks whose requirements.txt names packages alone.",
    ),
    own(
        "RunFailed",
        Permanent,
        "The run of another object, which is a step of this one, failed.",
        "Look at that run: windlass explain failure RUN.",
    ),
    own(
        "SameMachine",
        Config,
        "Two hosts are one machine, or a host is the machine of another node.",
        "Correct ansible_host and ansible_port of the ClusterNode. If they are containers of one machine, give each an /etc/machine-id of its own. Then retry the run.",
    ),
    own(
        "SandboxNotMade",
        Transient,
        "The Python environment was not made.",
        "Check the network and the disk of this machine, then retry the run.",
    ),
    own(
        "SandboxUnfit",
        Permanent,
        "The Python environment is not what the release needs.",
        "Remove the environment's directory, then retry the run.",
    ),
    own(
        "SecretTaken",
        Config,
        "A Secret that the runner would write is somebody else's.",
        "Give that Secret another name, then retry the run.",
    ),
    own(
        "SecretUnreadable",
        Transient,
        "The API does not give a Secret.",
        "It is tried again. Look whether the API answers and the runner may read it.",
    ),
    own(
        "SecretUnwritable",
        Transient,
        "The API does not take a Secret.",
        "It is tried again. Look whether the API answers and the runner may write it.",
    ),
    own(
        "SecretVariablesUnusable",
        Config,
        "Variables are to come from a Secret that does not hold them as they should be.",
        "Correct the Secret or the reference, then retry the run.",
    ),
    own(
        "SnapshotAltered",
        Permanent,
        "The store answers with another object than the one that was written.",
        "Find out who writes to the store; take another snapshot.",
    ),
    own(
        "SnapshotCut",
        Transient,
        "A snapshot did not go from one machine to the other as a whole.",
        "See to the connection and to the disk of that host, then retry the run.",
    ),
    own(
        "SnapshotKeyUnfit",
        Config,
        "A snapshot is encrypted, and the key that is given does not open it.",
        "Name the Secret with a private key that does in spec.etcd.snapshots.encryption, then retry the run.",
    ),
    own(
        "SnapshotMissing",
        Config,
        "The store has no snapshot of that name.",
        "See which there are: windlass snapshots list.",
    ),
    own(
        "SnapshotNameTaken",
        External,
        "Somebody else wrote to the store under the name that a snapshot was to have.",
        "Find out who else writes there; then retry the run, which takes another name.",
    ),
    own(
        "SnapshotNotSaved",
        External,
        "No member of etcd saved a snapshot that etcd's own program takes for one.",
        "See to etcd (journalctl -u etcd) and to the disk of /var/backups on these hosts, then retry the run.",
    ),
    own(
        "SnapshotOfAnotherCluster",
        Config,
        "The snapshot is of another cluster.",
        "Name one of this cluster: windlass snapshots list.",
    ),
    own(
        "SnapshotOfNewerEtcd",
        Config,
        "A newer etcd made the snapshot than is to read it.",
        "Bring the host the etcd of that release first, or name an older snapshot.",
    ),
    own(
        "SnapshotSecretUnusable",
        Config,
        "A Secret that spec.etcd.snapshots refers to lacks what it is referred to for.",
        "Create it, then retry the run.",
    ),
    own(
        "SourceChanged",
        External,
        "The playbooks are no longer those that the run was planned with.",
        "Bring them back, or cancel the run so that another is planned.",
    ),
    own(
        "SourceUnreachable",
        Transient,
        "The playbooks cannot be brought.",
        "Check the network of the runner, then retry the run.",
    ),
    own(
        "StepTimedOut",
        Transient,
        "A step took longer than its timeout.",
        "It is tried again; give the step more time if its hosts are slow.",
    ),
    own(
        "StillAtWork",
        External,
        "An earlier Ansible is still at work on hosts.",
        "Wait for it or end it on the hosts, then retry the run.",
    ),
    own(
        "StillRunning",
        External,
        "Hosts that were to leave did not answer and are Ready nodes all the same.",
        "Have them answer ssh, or switch them off, then retry the run; or remove them as they are: windlass node remove NAME --force.",
    ),
    own(
        "StoreFull",
        External,
        "The store of snapshots has no room.",
        "Free room there, and retry the run; or write a smaller spec.etcd.snapshots.keep, and ask again.",
    ),
    own(
        "StoreRefused",
        External,
        "The store of snapshots does not let the runner in, or not do what it must.",
        "Give the operator's user, or the credentials, the right to read, write, list and delete there; then retry the run.",
    ),
    own(
        "StoreUnreachable",
        Transient,
        "The store of snapshots does not answer.",
        "Let this machine reach the endpoint and trust its certificate (caSecretRef); then retry the run.",
    ),
    own(
        "StoreUnusable",
        Config,
        "The store of snapshots is not there, or is none.",
        "Make the directory or the bucket, or correct spec.etcd.snapshots.store; then retry the run.",
    ),
    own(
        TOO_MANY_UNREACHABLE,
        External,
        "More hosts do not answer than the threshold allows.",
        "Bring them back, then: windlass retry RUN; or raise spec.operations.OPERATION.thresholds.unreachable, which begins another run.",
    ),
    own(
        "UnexpectedAction",
        Permanent,
        "The plan has a step that this Windlass does not know.",
        "Use the Windlass that made the plan, or cancel the run.",
    ),
    own(
        "Unhealthy",
        Transient,
        "The cluster did not become healthy in time.",
        "Look at the named parts, then retry the run.",
    ),
    own(
        "UnknownRelease",
        Config,
        "Windlass does not know the kubespray release.",
        "Name one that windlass knows in spec.kubespray.version.",
    ),
];

/// Every kind, by code.
pub fn kinds() -> Vec<&'static Kind> {
    let mut kinds: Vec<&Kind> = failure::kinds().chain(&OWN).collect();
    kinds.sort_by_key(|kind| kind.code);
    kinds
}

/// The kind of that code.
pub fn named(code: &str) -> Option<&'static Kind> {
    failure::named(code).or_else(|| OWN.iter().find(|kind| kind.code == code))
}

/// What is to be done about the failure of a run, with the run and the field that a general remedy does not know.
pub fn remedy(run: &Run, failure: &Failure) -> Option<String> {
    if failure.code != TOO_MANY_UNREACHABLE || !run.spec.subject.is_a::<Cluster>() {
        return failure.remedy.clone();
    }
    let thresholds = Operation::of(run).map_or("creation", |of| of.thresholds);
    Some(format!(
        "bring them back, then: windlass retry {}; or raise spec.operations.{thresholds}.thresholds.unreachable, which begins another run",
        run.name_any(),
    ))
}

/// The gate of a step does not hold.
const TOO_MANY_UNREACHABLE: &str = "TooManyUnreachable";

/// What a person may have meant by a code that there is not.
pub fn nearest(code: &str) -> Option<&'static str> {
    let code = code.to_lowercase();
    let distance = |kind: &Kind| strsim::jaro_winkler(&kind.code.to_lowercase(), &code);
    let near = kinds().into_iter().map(|kind| (distance(kind), kind.code));
    let best = near.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// What a class means for whoever reads it.
pub const fn told(class: FailureClass) -> &'static str {
    match class {
        Transient => "it may pass, and is tried again",
        Permanent => "it does not pass by itself",
        Config => "what was asked for cannot be done: the spec must change",
        External => "something outside must change first",
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    /// A code that no table has would be shown to people without a page.
    #[test]
    fn what_to_do_about_hosts_that_do_not_answer_names_the_run_and_the_field() {
        for (operation, field) in [
            ("Create", "creation"),
            ("Upgrade", "creation"),
            ("Scale", "scale"),
        ] {
            let run: Run = serde_json::from_value(serde_json::json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "first-run-1"},
                "spec": {
                    "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                    "operation": operation, "generation": 1, "plan": {"digest": "d", "steps": []},
                },
            }))
            .unwrap();
            let failure = |code: &str| Failure {
                class: External,
                code: code.to_owned(),
                message: "m".to_owned(),
                remedy: Some("as it says".to_owned()),
                targets: Vec::new(),
            };
            let told = remedy(&run, &failure(TOO_MANY_UNREACHABLE)).unwrap();
            for words in [
                "windlass retry first-run-1;".to_owned(),
                format!("spec.operations.{field}.thresholds.unreachable"),
            ] {
                assert!(told.contains(&words), "{told}");
            }
            let other = remedy(&run, &failure("DiskFull"));
            assert_eq!(other.as_deref(), Some("as it says"));
        }
    }

    #[test]
    fn every_code_that_a_step_fails_with_is_in_the_table() {
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runner"),
            &mut files,
        );
        files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/etcd.rs"));
        let mut seen = 0;
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let text = text.split("mod tests {").next().unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            for pair in words.windows(2) {
                let follows = pair[0].starts_with("FailureClass::")
                    || pair[0].ends_with("failure(FailureClass::Permanent,")
                    || pair[0] == "no("
                    || pair[0] == "Answer::No(Refusal";
                let code = pair[1]
                    .strip_prefix('"')
                    .and_then(|word| word.strip_suffix("\","));
                if let Some(code) = code.filter(|_| follows) {
                    seen += 1;
                    assert!(named(code).is_some(), "{code} in {}", file.display());
                }
            }
        }
        assert!(seen > 25, "the test finds the codes no more: {seen}");
    }

    #[test]
    fn codes_are_there_once_and_found_by_what_people_type() {
        let codes: Vec<_> = kinds().iter().map(|kind| kind.code).collect();
        let once: BTreeSet<_> = codes.iter().collect();
        assert_eq!(once.len(), codes.len());
        assert_eq!(nearest("diskful"), Some("DiskFull"));
        assert_eq!(nearest("Zzz"), None);
        assert!(OWN.iter().all(|kind| kind.remedy.len() <= 1024));
    }
}
