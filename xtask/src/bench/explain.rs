//! `windlass explain failure` of a run of 500 hosts: the embedded API has the Run, and the data directory what Ansible told of it.

use std::{path::Path, process::Command, time::Instant};

use anyhow::{Context, ensure};

use super::{
    Profile, Row,
    creates::serve,
    example, median, output,
    process::{Guard, cpu_of_children},
};

const HOSTS: u32 = 500;
/// The tasks of the step that failed: as many as one of the longest has.
const TASKS: u32 = 300;
const TIMES: u32 = 9;

pub(crate) fn measure(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    let program = example("kubespray", "creates", Profile::Debug)?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let data = scratch.path().join("data");
    let (_api, kubeconfig) = serve(&program, &scratch.path().join("api"))?;
    let part = |name: &str| {
        let mut command = Command::new(&program);
        command.arg(name).arg(&kubeconfig);
        command
    };
    output(part("create").args(["1", &HOSTS.to_string()]))?;
    let operator = Guard::start(part("operate").arg(&data))?;
    output(part("ready").arg("1"))?;
    drop(operator);
    let run = output(part("fail").arg(&data).arg(TASKS.to_string()))?;
    let explain = || {
        let mut command = Command::new(windlass);
        command.args(["--namespace", "n0", "--data-dir"]).arg(&data);
        command.arg("--kubeconfig").arg(&kubeconfig);
        command.args(["explain", "failure", run.trim()]);
        command
    };
    let told = output(&mut explain())?;
    for words in ["code: DiskFull", "TASK [files : copy number 300]"] {
        ensure!(told.contains(words), "{words:?} is not in {told}");
    }
    let mut wall = Vec::new();
    let before = cpu_of_children()?;
    for _ in 0..TIMES {
        let start = Instant::now();
        output(&mut explain())?;
        wall.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let used = cpu_of_children()?.saturating_sub(before).as_secs_f64() * 1e3 / f64::from(TIMES);
    Ok(vec![
        Row::new(
            &format!(
                "windlass explain failure of a run of {HOSTS} hosts with {} events, median of {TIMES}",
                HOSTS * TASKS
            ),
            format!("{:.0} ms", median(&wall)),
        )
        .wanted("<= 200 ms"),
        Row::new("the same: processor time, mean", format!("{used:.0} ms")).wanted("<= 200 ms"),
    ])
}
