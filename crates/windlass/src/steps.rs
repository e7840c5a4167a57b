//! `windlass steps`: the ordered steps of a playbook.

use std::path::{Path, PathBuf};

use ansible::slice::{self, Playbook};
use anyhow::Context;
use serde::Serialize;

use crate::{
    cli::{Global, Output, Steps},
    sandbox, terminal,
};

/// One step, as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    hosts: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<usize>,
    file: String,
}

/// Lists the steps of a playbook of a checkout.
pub(crate) async fn steps(global: &Global, options: &Steps) -> anyhow::Result<()> {
    let playbook = Playbook::read(&options.checkout, &options.playbook)
        .with_context(|| format!("failed to read the playbook {}", options.playbook))?;
    let counts = if options.tasks {
        tasks(global, options, &playbook).await?
    } else {
        Vec::new()
    };
    let files = match &options.write {
        Some(directory) => write(&playbook, &options.checkout, directory)?,
        None => Vec::new(),
    };
    let lines: Vec<Line> = playbook
        .slices()
        .iter()
        .enumerate()
        .map(|(index, slice)| Line {
            tasks: counts.get(index).copied(),
            id: slice.id.clone(),
            hosts: slice.hosts.clone(),
            name: slice.name.clone(),
            file: files.get(index).map_or_else(
                || format!("{}:{}", slice.file.display(), slice.line),
                |file| file.display().to_string(),
            ),
        })
        .collect();
    match options.output {
        Output::Text => println!("{}", table(&lines)),
        Output::Json => println!("{}", terminal::json(&lines)?),
        Output::Yaml => println!("{}", terminal::yaml(&lines)?),
    }
    Ok(())
}

/// Writes the steps beside links to the checkout; gives the file of each. A play that the next one reads from shares its file.
fn write(playbook: &Playbook, checkout: &Path, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(directory).into_iter().flatten();
    anyhow::ensure!(
        entries.next().is_none(),
        "{} is not empty: name a directory that is not there yet",
        directory.display()
    );
    std::fs::create_dir_all(directory)
        .with_context(|| format!("failed to make {}", directory.display()))?;
    let slices: Vec<_> = playbook.slices().iter().enumerate().collect();
    let groups: Vec<Vec<usize>> = slices
        .chunk_by(|(_, slice), _| slice.with_next)
        .map(|group| group.iter().map(|(index, _)| *index).collect())
        .collect();
    let borrowed: Vec<_> = groups.iter().map(Vec::as_slice).collect();
    let files = playbook.write(checkout, directory, &borrowed)?;
    let each = groups
        .iter()
        .zip(files)
        .flat_map(|(group, file)| group.iter().map(move |_| file.path.clone()));
    Ok(each.collect())
}

/// How many tasks each play lists; includes add more at run time.
async fn tasks(
    global: &Global,
    options: &Steps,
    playbook: &Playbook,
) -> anyhow::Result<Vec<usize>> {
    let checkout =
        std::path::absolute(&options.checkout).context("failed to resolve the checkout")?;
    let made = sandbox::ensure(global, &checkout).await?;
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let inventory = directory.path().join("hosts.ini");
    std::fs::write(&inventory, INVENTORY).context("failed to write an inventory")?;
    let file: PathBuf = checkout.join(playbook.file());
    let plays = slice::list_tasks(
        &made.ansible_playbook(),
        &checkout.join("ansible.cfg"),
        &inventory,
        &file,
    )
    .await?;
    Ok(plays.iter().map(|play| play.tasks.len()).collect())
}

/// One host in every group, so that no play is empty.
const INVENTORY: &str = "[kube_control_plane]\nhost\n[etcd]\nhost\n[kube_node]\nhost\n\
                         [k8s_cluster:children]\nkube_control_plane\nkube_node\n";

fn table(lines: &[Line]) -> String {
    let rows = lines.iter().enumerate().map(|(index, line)| {
        let number = (index + 1).to_string();
        let tasks = line.tasks.map_or("-".into(), |tasks| tasks.to_string());
        [
            number,
            line.id.clone(),
            tasks,
            line.hosts.clone(),
            line.name.clone(),
            line.file.clone(),
        ]
    });
    terminal::table(["", "STEP", "TASKS", "HOSTS", "PLAY", "FILE"], rows)
}
