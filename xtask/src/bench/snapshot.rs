//! A snapshot of an etcd of 100 MiB through Windlass against `etcdctl snapshot save` on the same host, by turns.
//!
//! The step is more than the save: the file is checked and digested on the host, goes over ssh into a store, here a directory, is read
//! back from there, and held against its digest. So the parts are told beside it.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Row, median, output, plays::followed, stage};
use crate::tools;

/// The host of etcd.
const HOST: &str = "host-1";
/// The values that etcd gets, each of a million bytes.
const VALUES: u32 = 105;
const ETCDCTL: &str = "cd /etc/ssl/etcd/ssl && export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 ETCDCTL_CACERT=ca.pem \
                       ETCDCTL_CERT=$(ls admin-*[!y].pem | head -n 1) ETCDCTL_KEY=$(ls admin-*-key.pem | head -n 1)";
/// What is timed on the host, each by itself.
const PARTS: [(&str, &str); 4] = [
    (
        "etcdctl snapshot save",
        "etcdctl snapshot save /var/backups/bench.db",
    ),
    (
        "etcdutl snapshot status",
        "etcdutl snapshot status /var/backups/bench.db",
    ),
    ("sha256sum", "sha256sum /var/backups/bench.db"),
    (
        "keys counted",
        "etcdctl get \"\" --prefix --count-only --write-out=fields",
    ),
];

pub(crate) fn measure(pairs: u8, windlass: PathBuf) -> anyhow::Result<Vec<Row>> {
    let stage = stage("snapshot", 3, windlass)?;
    followed(&stage, || {
        stage.apply_example(&tools::root().join("examples/first-cluster"))
    })?;
    stage.bring_etcdutl(HOST)?;
    let on_host = |script: &str| -> anyhow::Result<String> {
        let said = stage.lab.ssh(HOST, &format!("{ETCDCTL}\n{script}"))?;
        let errors = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "{script}: {errors}");
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    };
    on_host(&format!(
        "for i in $(seq {VALUES}); do head -c 750000 /dev/urandom | base64 -w 0 | etcdctl put /bench/$i >/dev/null || exit 1; done"
    ))?;
    let store = stage.lab.dir().join("snapshots");
    std::fs::create_dir(&store)?;
    let kept = json!({"spec": {"etcd": {"snapshots": {"store": {"directory": store}, "keep": {"count": 1}}}}});
    stage.merge("cluster", "first", &kept)?;
    let mut parts = PARTS.map(|_| Vec::new());
    let (mut steps, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        for ((_, command), took) in PARTS.iter().zip(&mut parts) {
            let said = on_host(&format!(
                "date +%s.%N; {command} >/dev/null 2>&1 || exit 1; date +%s.%N"
            ))?;
            let moments: Vec<f64> = said
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect();
            let [began, ended] = moments.as_slice() else {
                anyhow::bail!("{command}: {said:?}");
            };
            took.push(ended - began);
        }
        let size = on_host("wc -c </var/backups/bench.db; rm /var/backups/bench.db")?;
        sizes.push(size.trim().parse::<f64>().context("no size")?);
        let (_, records) = followed(&stage, || {
            output(&mut stage.windlass(&["snapshot"])).map(drop)
        })?;
        let at = |event: &str| {
            let mut records = records.iter();
            let found =
                records.find(|(_, it)| it["event"] == event && it["step"] == "snapshot/save");
            found
                .map(|(moment, _)| *moment)
                .context("the journal has no snapshot")
        };
        steps.push(at("StepSucceeded")? - at("StepStarted")?);
    }
    let medians = parts.map(|took| median(&took));
    let [save, ..] = medians;
    let step = median(&steps);
    let told = PARTS.iter().zip(medians);
    let told: Vec<_> = told
        .map(|((name, _), took)| format!("{name} {took:.2} s"))
        .collect();
    Ok(vec![
        Row::new(
            &format!(
                "snapshot of an etcd of {:.0} MiB: saved, checked, brought, stored and read back, median of {pairs}",
                median(&sizes) / 1_048_576.0
            ),
            format!("{step:.2} s"),
        )
        .peer(&format!("etcdctl snapshot save {save:.2} s"), step / save)
        .wanted("<= 1.2"),
        Row::new("the same: its parts on the host, each by itself", told.join(", ")),
    ])
}
