//! Three nodes are upgraded by a minor version, one at a time: through Windlass, and by plain `upgrade-cluster.yml`.
//!
//! There is no way back from an upgrade, so each has a cluster of its own, raised anew on hosts of its own that have the same
//! addresses. The plain run has the inventory, the variables and the ansible.cfg that Windlass wrote for its upgrade.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use e2e::Stage;
use lab::{Kubernetes, progress::Terminal};
use serde_json::{Value, json};

use super::{
    Row, kubespray, median, on_hosts,
    plays::{Ran, plain, through_windlass},
};
use crate::tools;

pub(crate) fn measure(pairs: u8, windlass: &Path) -> anyhow::Result<Vec<Row>> {
    let (mut sliced, mut whole, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        let (stage, files) = raised(windlass)?;
        let ran = upgraded(&stage, &files)?;
        // Told before the plain one begins, which takes as long again and may fail.
        eprintln!("upgrades: Windlass {:.2} s", ran.plays);
        let written = Written::read(&stage, &ran)?;
        drop(stage);
        let (stage, _) = raised(windlass)?;
        let directory = written.write(&stage)?;
        let took = plain(
            &stage,
            &directory,
            "upgrade-cluster.yml",
            &["-e", "serial=1"],
        )?;
        stage.ready_nodes(3)?;
        eprintln!(
            "upgrades: pair {pair} of {pairs}: Windlass {:.2} s, plain {took:.2} s",
            ran.plays
        );
        sliced.push(ran.plays);
        whole.push(ran.between(("RunStarted", ""), ("RunSucceeded", ""))?);
        bare.push(took);
    }
    let peer = format!(
        "ansible-playbook upgrade-cluster.yml, serial 1 {:.2} s",
        median(&bare)
    );
    let row = |what: &str, own: &[f64]| {
        let ratios: Vec<_> = own
            .iter()
            .zip(&bare)
            .map(|(own, peer)| own / peer)
            .collect();
        Row::new(what, format!("{:.2} s", median(own))).peer(&peer, median(&ratios))
    };
    let what = format!(
        "a minor upgrade of three nodes, median of {pairs} pairs: the plays, with the gates between them"
    );
    Ok(vec![
        row(&what, &sliced).wanted("<= 1.05"),
        row(
            "the same: the whole run, with the look at budgets before and the wait for health after",
            &whole,
        ),
    ])
}

/// A cluster of three with the older version, and the files that it was made of.
fn raised(windlass: &Path) -> anyhow::Result<(Stage, PathBuf)> {
    let options = on_hosts(3, windlass.to_owned());
    let mut stage = Stage::set_with_older(
        options,
        Kubernetes::Oldest,
        kubespray()?,
        &Terminal::default(),
    )?;
    stage.up()?;
    eprintln!("upgrades: raising a cluster");
    let files = stage.example(&tools::root().join("examples/first-cluster"), &[])?;
    through_windlass(&stage, || stage.apply_files(&files))?;
    stage.ready_nodes(3)?;
    Ok((stage, files))
}

fn upgraded(stage: &Stage, files: &Path) -> anyhow::Result<Ran> {
    let versions = stage.versions().context("there are two versions")?;
    let mut list: Value = serde_json::from_slice(&fs::read(files)?)?;
    let items = list["items"].as_array_mut().into_iter().flatten();
    for cluster in items.filter(|item| item["kind"] == "Cluster") {
        cluster["spec"]["kubernetesVersion"] = json!(versions.newest);
    }
    fs::write(files, serde_json::to_vec(&list)?)?;
    through_windlass(stage, || stage.apply_files(files))
}

/// What Windlass wrote for a run, as texts, and the directory of the hosts that they were written for.
struct Written {
    files: Vec<(PathBuf, String)>,
    lab: String,
    directory: PathBuf,
}

impl Written {
    fn read(stage: &Stage, ran: &Ran) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let inventory = fs::read_dir(ran.directory.join("inventory"))?;
        let mut names: Vec<PathBuf> = inventory
            .map(|entry| Ok(Path::new("inventory").join(entry?.file_name())))
            .collect::<anyhow::Result<_>>()?;
        names.extend(["ansible.cfg", "vars.json"].map(PathBuf::from));
        for name in names {
            let text = fs::read_to_string(ran.directory.join(&name))
                .with_context(|| format!("failed to read {}", name.display()))?;
            files.push((name, text));
        }
        let lab = stage.lab.dir();
        Ok(Self {
            files,
            lab: lab.display().to_string(),
            directory: ran.directory.strip_prefix(lab)?.to_owned(),
        })
    }

    /// Writes the same for other hosts, and gives the directory.
    fn write(&self, stage: &Stage) -> anyhow::Result<PathBuf> {
        let lab = stage.lab.dir();
        let directory = lab.join(&self.directory);
        fs::create_dir_all(directory.join("inventory"))?;
        for (name, text) in &self.files {
            let text = text.replace(&self.lab, &lab.display().to_string());
            fs::write(directory.join(name), text)?;
        }
        Ok(directory)
    }
}
