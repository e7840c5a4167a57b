//! `windlass init`: a first Cluster and its hosts, for those who have no inventory. No host is touched and no API is asked.

use std::{
    fs,
    io::{BufRead, IsTerminal as _, Write},
    path::Path,
    str::FromStr,
};

use anyhow::Context;
use kubespray::init::{self as conversion, First, Machine, Wish};

use crate::{
    cli::{Global, Init},
    objects::{create, refuse_used, yaml},
    sandbox,
    terminal::text,
};

/// Asks for what is missing, where there is somebody to ask, writes the objects, and says what comes next.
pub(crate) fn init(global: &Global, options: &Init) -> anyhow::Result<()> {
    refuse_used(&options.directory)?;
    let mut wish = wish(global, options)?;
    if wish.control_planes.is_empty() {
        anyhow::ensure!(
            std::io::stdin().is_terminal(),
            "--control-plane is not set, and there is no terminal to ask: name the addresses of one, three or five hosts"
        );
        ask(
            &mut wish,
            &mut std::io::stdin().lock(),
            &mut std::io::stderr(),
        )?;
    }
    let first = conversion::first(&wish).map_err(|problems| {
        let told: Vec<_> = problems
            .iter()
            .map(|problem| format!("\n  {problem}"))
            .collect();
        anyhow::anyhow!("there can be no such cluster:{}", told.concat())
    })?;
    write(&first, &options.directory)?;
    let next = next(&wish, &options.directory, &global.api_kubeconfig()?);
    println!("{}", text(&next));
    Ok(())
}

fn wish(global: &Global, options: &Init) -> anyhow::Result<Wish> {
    let checkout = match &options.checkout {
        Some(checkout) => Some(
            fs::canonicalize(checkout)
                .with_context(|| format!("failed to find the checkout {}", checkout.display()))?,
        ),
        None => None,
    };
    let kubespray = match &checkout {
        Some(checkout) => Some(sandbox::version(checkout)?),
        None => options.kubespray_version,
    };
    if let Some(version) = kubespray {
        ansible::catalogue::release(version)?;
    }
    let name = match &options.name {
        Some(name) => name.clone(),
        None => usual_name(&options.directory),
    };
    Ok(Wish {
        namespace: global.namespace.clone(),
        name,
        control_planes: options.control_plane.clone(),
        workers: options.worker.clone(),
        etcd: options.etcd.clone(),
        user: options.ssh_user.clone(),
        kubespray,
        source: checkout.map(|checkout| checkout.display().to_string()),
        kubernetes: options.kubernetes_version,
    })
}

/// The name of the directory.
fn usual_name(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default();
    name.to_string_lossy().to_lowercase().replace('_', "-")
}

/// Asks for the hosts, and for the user unless one is given. What cannot be taken is said, and asked for again.
fn ask(wish: &mut Wish, input: &mut impl BufRead, to: &mut impl Write) -> anyhow::Result<()> {
    say(
        to,
        "Hosts are named by their addresses, with commas between them; NAME=ADDRESS gives one a name of its own.\n",
    )?;
    while wish.control_planes.is_empty() {
        wish.control_planes = hosts(input, to, "Control planes, one, three or five: ")?;
    }
    if wish.workers.is_empty() {
        let question = "Workers (none: the control planes run pods as well): ";
        wish.workers = hosts(input, to, question)?;
    }
    if wish.etcd.is_empty() {
        wish.etcd = hosts(
            input,
            to,
            "Hosts for etcd alone (none: it runs on the control planes): ",
        )?;
    }
    if wish.user.is_none() {
        let user = line(input, to, "User to log in as (none: root): ")?;
        wish.user = Some(user).filter(|user| !user.is_empty());
    }
    Ok(())
}

fn hosts(
    input: &mut impl BufRead,
    to: &mut impl Write,
    question: &str,
) -> anyhow::Result<Vec<Machine>> {
    loop {
        let answer = line(input, to, question)?;
        let words = answer.split([',', ' ']).filter(|word| !word.is_empty());
        match words.map(Machine::from_str).collect() {
            Ok(machines) => return Ok(machines),
            Err(error) => say(to, &format!("{error}\n"))?,
        }
    }
}

fn line(input: &mut impl BufRead, to: &mut impl Write, question: &str) -> anyhow::Result<String> {
    say(to, question)?;
    let mut line = String::new();
    let read = input
        .read_line(&mut line)
        .context("failed to read the answer")?;
    anyhow::ensure!(read > 0, "there is no answer, nothing was written");
    Ok(line.trim().to_owned())
}

fn say(to: &mut impl Write, said: &str) -> anyhow::Result<()> {
    to.write_all(text(said).as_bytes())
        .and_then(|()| to.flush())
        .context("failed to ask")
}

fn write(first: &First, directory: &Path) -> anyhow::Result<()> {
    let (cluster, nodes) = first.documents().context("failed to print")?;
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to make {}", directory.display()))?;
    let (cluster, nodes) = (yaml(&[cluster])?, yaml(&nodes)?);
    create(
        &directory.join("cluster.yaml"),
        &format!("{ABOUT_CLUSTER}{cluster}"),
        0o644,
    )?;
    create(
        &directory.join("nodes.yaml"),
        &format!("{ABOUT_NODES}{nodes}"),
        0o644,
    )
}

/// What a person types next.
fn next(wish: &Wish, directory: &Path, kubeconfig: &Path) -> String {
    let (namespace, key) = (&wish.namespace, conversion::KEY);
    let (directory, kubeconfig) = (directory.display(), kubeconfig.display());
    let made = if namespace == "default" {
        String::new()
    } else {
        format!("  kubectl --kubeconfig {kubeconfig} create namespace {namespace}\n")
    };
    format!(
        "{directory} holds the Cluster {namespace}/{} and its hosts. Next, with `windlass up` in another terminal:\n\n\
         {made}  kubectl --kubeconfig {kubeconfig} -n {namespace} create secret generic {key} --from-file=ssh-privatekey=$HOME/.ssh/id_ed25519\n\
         \x20 windlass plan -f {directory}     # what would be done; nothing is touched\n\
         \x20 windlass apply -f {directory}\n\
         \x20 windlass -n {namespace} status --watch",
        wish.name
    )
}

const ABOUT_CLUSTER: &str = "\
# A first Cluster. kubespray's own variables go below spec.nodes.all.deploy.extraVars; examples/ has clusters of other shapes, and
# docs/reference/custom-resources.md every field.
";
const ABOUT_NODES: &str = "\
# Its hosts. `ip` below inventory says the address that Kubernetes uses, where it is not the one that ssh connects to.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(answers: &str) -> (anyhow::Result<Wish>, String) {
        let mut wish = Wish::default();
        let mut said = Vec::new();
        let done = ask(&mut wish, &mut answers.as_bytes(), &mut said);
        (done.map(|()| wish), String::from_utf8(said).unwrap())
    }

    #[test]
    fn a_person_is_asked_until_there_is_a_control_plane() {
        let (wish, said) = asked("\nA=10.0.0.1\n10.0.0.1\nbig=10.0.0.2, 10.0.0.3\n\nubuntu\n");
        let wish = wish.unwrap();
        assert_eq!(said.matches("Control planes").count(), 3, "{said}");
        assert!(said.contains("host name \"A\" is not RFC 1123"), "{said}");
        let names: Vec<_> = wish.workers.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["big=10.0.0.2", "10.0.0.3"]);
        assert_eq!(wish.etcd, []);
        assert_eq!(wish.user.as_deref(), Some("ubuntu"));
    }

    #[test]
    fn an_end_of_input_is_no_answer() {
        let (wish, _) = asked("10.0.0.1\n");
        assert!(
            wish.unwrap_err()
                .to_string()
                .contains("nothing was written")
        );
    }
}
