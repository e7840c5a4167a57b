//! `windlass adopt`: an inventory that kubespray was run with, as objects. No host is touched, and no API is asked but that of the
//! cluster itself, where a person names it.

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use ansible::{
    inventory::Directories,
    listing::{Listing, Reader},
    sandbox::Sandbox,
};
use anyhow::Context;
use api::KubesprayVersion;
use kubespray::{
    adopt::{self as conversion, Adopted, Existing, Wish, groups, proof::Difference},
    private,
    problem::Problem,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{
    cli::{Adopt, Global},
    manifest::Opener,
    objects::{create, refuse_used, yaml},
    sandbox,
    terminal::text,
};

mod files;
mod opened;
mod running;

use running::Running;

/// Prints the objects, says what could not be carried over, and holds what hosts get against what they got.
pub(crate) async fn adopt(global: &Global, options: Adopt) -> anyhow::Result<ExitCode> {
    private::close();
    if let Some(directory) = &options.output {
        refuse_used(directory)?;
    }
    let mut files = files::find(&options.inventory)?;
    let wish = wish(global, &options)?;
    let place = place()?;
    opened::open(&mut files, place.path(), &Opener::new(&options.age_keys))?;
    let passwords = passwords(&options, files.is_encrypted, place.path())?;
    // What lies in that place may be secret: it goes with whatever ends this.
    tokio::select! {
        done = adopt_in(place.path(), passwords, files, &wish, global, &options) => done,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted, nothing was written"),
    }
}

async fn adopt_in(
    place: &Path,
    passwords: Vec<PathBuf>,
    mut files: files::Files,
    wish: &Wish,
    global: &Global,
    options: &Adopt,
) -> anyhow::Result<ExitCode> {
    let running = Running::look(options).await?;
    let wish = &Wish {
        running: running.version(),
        members: running.members(),
        ..wish.clone()
    };
    let environment = environment(global, options).await?;
    let reader = Reader::new(environment.path.join("bin"), place.into(), passwords)
        .context("failed to prepare for Ansible")?;
    let existing = read(&reader, place, wish.kubespray, &mut files).await?;
    let adopted = conversion::adopt(&existing, wish)
        .map_err(|problems| refused("the inventory cannot be adopted", &problems))?;
    let contradictions = running.contradictions(&adopted);
    if !contradictions.is_empty() {
        return Err(refused(
            "the inventory contradicts the cluster",
            &contradictions,
        ));
    }
    let differences = prove(&reader, place, &existing, &adopted).await?;
    match &options.output {
        Some(directory) => write(&adopted, directory)?,
        None => print(&adopted)?,
    }
    tell(&files, &adopted, &differences, options.output.is_some());
    let doubts = running.doubts(&adopted);
    section("The cluster seems to contradict the inventory", &doubts);
    if running.is_live() && doubts.is_empty() {
        eprintln!("The cluster has the nodes, versions and members that the inventory names.");
    }
    let open = differences.iter().filter(|difference| !difference.own);
    Ok(if options.check && open.count() + doubts.len() > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn refused(what: &str, problems: &[Problem]) -> anyhow::Error {
    let told = problems.iter();
    let told: Vec<_> = told
        .map(|problem| format!("\n  {}", text(&problem.to_string())))
        .collect();
    anyhow::anyhow!("{what}:{}", told.concat())
}

fn wish(global: &Global, options: &Adopt) -> anyhow::Result<Wish> {
    let checkout = match &options.checkout {
        Some(checkout) => Some(
            fs::canonicalize(checkout)
                .with_context(|| format!("failed to find the checkout {}", checkout.display()))?,
        ),
        None => None,
    };
    let kubespray = match (&checkout, options.kubespray_version) {
        (Some(checkout), _) => sandbox::version(checkout)?,
        (None, version) => version.context("--kubespray-version is not set")?,
    };
    ansible::catalogue::release(kubespray)?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => usual_name(&options.inventory)?,
    };
    anyhow::ensure!(
        name.parse::<api::HostName>().is_ok() && name.len() <= 50,
        "{name:?} cannot be the name of a Cluster: give it one of at most 50 lower-case letters, digits and '-' with --name"
    );
    Ok(Wish {
        namespace: global.namespace.clone(),
        name,
        kubespray,
        source: checkout.map(|checkout| checkout.display().to_string()),
        kubernetes: options.kubernetes_version,
        running: None,
        members: Vec::new(),
        user: options.ssh_user.clone(),
    })
}

/// The name of the inventory's directory, as kubespray's documentation has it: `inventory/mycluster`.
fn usual_name(inventory: &[PathBuf]) -> anyhow::Result<String> {
    let first = inventory.first().context("no inventory")?;
    let path = fs::canonicalize(first)
        .with_context(|| format!("failed to find the inventory {}", first.display()))?;
    let directory = if path.is_dir() {
        Some(path.as_path())
    } else {
        path.parent()
    };
    let name = directory.and_then(Path::file_name).unwrap_or_default();
    Ok(name.to_string_lossy().to_lowercase().replace('_', "-"))
}

/// A directory of ours alone, in memory where there is some: what Ansible reads and writes meanwhile may be secret.
fn place() -> anyhow::Result<TempDir> {
    let parent = private::memory().unwrap_or_else(std::env::temp_dir);
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(ansible::CHANCE_PREFIX)
        .tempdir_in(parent)
        .context("failed to make a temporary directory")
}

/// The files with passwords: those that are given, else one with what a person types.
fn passwords(options: &Adopt, needed: bool, place: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !options.vault_password_file.is_empty() {
        let files = options.vault_password_file.iter();
        return files
            .map(|file| {
                fs::canonicalize(file)
                    .with_context(|| format!("failed to find the password file {}", file.display()))
            })
            .collect();
    }
    if !needed {
        return Ok(Vec::new());
    }
    anyhow::ensure!(
        std::io::stdin().is_terminal(),
        "some of the inventory is encrypted: name a file with the password with --vault-password-file"
    );
    anyhow::ensure!(
        private::memory().is_some(),
        "a password that is typed is kept in memory only, and neither /dev/shm nor $XDG_RUNTIME_DIR is memory here: name a file with it \
         with --vault-password-file"
    );
    eprint!("Vault password: ");
    let password = console::Term::stderr()
        .read_secure_line()
        .context("failed to read the password")?;
    let file = place.join("password");
    ansible::write_private(&file, password.as_bytes()).context("failed to keep the password")?;
    Ok(vec![file])
}

async fn environment(global: &Global, options: &Adopt) -> anyhow::Result<Sandbox> {
    match (&options.checkout, options.kubespray_version) {
        (Some(checkout), _) => sandbox::ensure(global, checkout).await,
        (None, version) => {
            let version = version.context("--kubespray-version is not set")?;
            sandbox::core_alone(global, version).await
        }
    }
}

/// Has Ansible read the inventory, and opens what is encrypted.
async fn read(
    reader: &Reader,
    place: &Path,
    release: KubesprayVersion,
    files: &mut files::Files,
) -> anyhow::Result<Existing> {
    let failed = "failed to read the inventory";
    let mut listing = reader.list(&files.hosts).await.context(failed)?;
    let made = groups::made(release, &listing);
    if !made.is_empty() {
        let mut hosts = files.hosts.clone();
        hosts.push(as_hosts_file(&made, place)?);
        listing = reader.list(&hosts).await.context(failed)?;
    }
    files.note_unread(&listing);
    let own = reader.own(&files.hosts).await.context(failed)?;
    let mut vaulted = files.opened.clone();
    for file in &files.vaulted {
        let failed = || format!("failed to read {}", file.display());
        let opened = reader.view(file).await.with_context(failed)?;
        // What the parser says of a mistake shows the lines around it.
        let variables: Map<String, Value> = serde_saphyr::from_str(&opened)
            .ok()
            .with_context(|| format!("{} holds no map of variables", file.display()))?;
        vaulted.extend(variables.into_iter().map(|(name, _)| name));
    }
    let mut decrypted = BTreeMap::new();
    for value in conversion::encrypted(&listing) {
        let opened = reader.decrypt(&value).await;
        let opened = opened.context("failed to read a value of the inventory")?;
        decrypted.insert(value, opened);
    }
    Ok(Existing::new(listing, &own, &vaulted, &decrypted))
}

/// Groups as a hosts file. No variables lie beside it, and those beside the others count for its groups as well.
fn as_hosts_file(
    groups: &BTreeMap<&'static str, Vec<String>>,
    place: &Path,
) -> anyhow::Result<PathBuf> {
    let groups = groups.iter().map(|(name, hosts)| {
        let hosts: Map<_, _> = hosts
            .iter()
            .cloned()
            .map(|host| (host, json!({})))
            .collect();
        (*name, json!({"hosts": hosts}))
    });
    let groups: BTreeMap<_, _> = groups.collect();
    // Ansible tries its reader of ini first, which refuses the first line, and would take a brace for a host.
    let text = format!("all:\n  {}\n", json!({"children": groups}));
    let file = place.join("groups.yaml");
    ansible::write_private(&file, text.as_bytes())
        .context("failed to write the groups that kubespray makes")?;
    Ok(file)
}

/// What hosts would get other than before, as Ansible reads what the objects are compiled to.
async fn prove(
    reader: &Reader,
    place: &Path,
    existing: &Existing,
    adopted: &Adopted,
) -> anyhow::Result<Vec<Difference>> {
    let run = place.join("run");
    let inventory =
        conversion::proof::inventory(adopted, Directories::below(&place.join("cluster")))
            .map_err(|problems| anyhow::anyhow!(kubespray::problem::text(&problems)))?;
    let written = inventory
        .write(&run)
        .context("failed to write the inventory")?;
    let read: Listing = reader
        .list(&[written.inventory])
        .await
        .context("failed to read what the objects are compiled to")?;
    Ok(conversion::proof::differences(
        existing, adopted, &inventory, &read,
    ))
}

fn print(adopted: &Adopted) -> anyhow::Result<()> {
    let (cluster, nodes) =
        conversion::documents(&adopted.cluster, &adopted.nodes).context("failed to print")?;
    let mut documents = vec![cluster];
    documents.extend(nodes);
    std::io::stdout()
        .write_all(yaml(&documents)?.as_bytes())
        .context("failed to write to standard output")
}

fn write(adopted: &Adopted, directory: &Path) -> anyhow::Result<()> {
    let (cluster, nodes) =
        conversion::documents(&adopted.cluster, &adopted.nodes).context("failed to print")?;
    fs::create_dir_all(directory)
        .with_context(|| format!("failed to make {}", directory.display()))?;
    create(&directory.join("cluster.yaml"), &yaml(&[cluster])?, 0o644)?;
    create(&directory.join("nodes.yaml"), &yaml(&nodes)?, 0o644)?;
    if let Some(secret) = &adopted.secret {
        let secret = serde_json::to_value(secret).context("failed to print")?;
        create(&directory.join("secrets.yaml"), &yaml(&[secret])?, 0o600)?;
    }
    Ok(())
}

/// Says on standard error what a person should know.
fn tell(files: &files::Files, adopted: &Adopted, differences: &[Difference], written: bool) {
    let mut notes: Vec<String> = files.notes.iter().chain(&adopted.notes).cloned().collect();
    if let Some(secret) = &adopted.secret {
        let keys = secret.string_data.iter().flat_map(BTreeMap::keys);
        let keys: Vec<_> = keys.map(String::as_str).collect();
        let (name, keys) = (
            secret.metadata.name.as_deref().unwrap_or_default(),
            keys.join(", "),
        );
        notes.push(if written {
            format!("Secret {name}: secrets.yaml holds in the open what was encrypted ({keys}): apply it, then delete the file")
        } else {
            format!("Secret {name}: not printed, it would hold in the open what was encrypted ({keys}); --output DIR writes it")
        });
    }
    section("Not carried over, or not as it was", &notes);
    let (own, open): (Vec<_>, Vec<_>) = differences.iter().partition(|difference| difference.own);
    let (changed, added): (Vec<_>, Vec<_>) = own
        .into_iter()
        .partition(|difference| difference.before.is_some());
    let mut own: Vec<String> = changed.into_iter().map(line).collect();
    let mut names: Vec<&str> = added.iter().map(|added| added.name.as_str()).collect();
    names.dedup();
    own.push(format!(
        "set where the inventory does not: {}",
        names.join(", ")
    ));
    section("Windlass' own, no difference to the cluster", &own);
    let open: Vec<String> = open.into_iter().map(line).collect();
    section("Differences", &open);
    if open.is_empty() {
        eprintln!("Every host gets what the inventory gave it.");
    }
}

fn section(title: &str, lines: &[String]) {
    if !lines.is_empty() {
        eprintln!("{title}:");
        for line in lines {
            eprintln!("  {}", text(line));
        }
    }
}

fn line(difference: &Difference) -> String {
    let Difference {
        name,
        hosts,
        before,
        after,
        why,
        own: _,
    } = difference;
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
    let why = why.map_or_else(String::new, |why| format!(" ({why})"));
    format!(
        "{name} on {hosts}: {} -> {}{why}",
        shown(before),
        shown(after)
    )
}
