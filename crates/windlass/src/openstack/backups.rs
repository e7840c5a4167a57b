//! `windlass openstack backup`, `backups`, `drill` and `restore`.

use std::time::Duration;

use ::openstack::backup::Errand;
use anyhow::{Context, bail, ensure};
use api::{
    cluster::ConvergeRequest,
    openstack::{BackupState, BackupStatus, BackupsStatus, OpenStack},
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use crate::{
    cli::{BackupCloud, DrillBackup, Global, ListBackups, Output, RestoreBackup},
    client::named_or_only,
    node::another,
    snapshots::{Foot, beginning, drilled, number, unknown},
    terminal,
};

/// How long an operator may take to answer: another one may have to become the leader first.
const ANSWER: Duration = Duration::from_mins(1);

pub(super) async fn backup(global: &Global, options: &BackupCloud) -> anyhow::Result<()> {
    let clouds: Api<OpenStack> = Api::namespaced(global.client().await?, &global.namespace);
    let cloud = named_or_only(&clouds, options.cloud.as_deref()).await?;
    let request = Timestamp::now().to_string();
    ask(global, clouds, &cloud.name_any(), (Errand::Backup, request)).await
}

pub(super) async fn drill(global: &Global, options: &DrillBackup) -> anyhow::Result<()> {
    let clouds: Api<OpenStack> = Api::namespaced(global.client().await?, &global.namespace);
    let request = format!("{} {}", options.backup, Timestamp::now());
    ask(global, clouds, &options.cloud, (Errand::Drill, request)).await
}

pub(super) async fn restore(global: &Global, options: &RestoreBackup) -> anyhow::Result<()> {
    let clouds: Api<OpenStack> = Api::namespaced(global.client().await?, &global.namespace);
    let cloud = &options.cloud;
    ensure!(
        options.confirm.as_ref() == Some(cloud),
        "nothing was done: {}what was written since the backup is lost; if that is wanted: {}",
        another(options.confirm.as_deref(), cloud),
        global.confirmed(cloud)
    );
    let mut request = options.backup.clone();
    for (word, value) in [
        ("confirm", &options.confirm),
        ("from", &options.from_cluster),
    ] {
        if let Some(value) = value {
            request.push_str(&format!(" {word}={value}"));
        }
    }
    request.push_str(&format!(" {}", Timestamp::now()));
    ask(global, clouds, &options.cloud, (Errand::Restore, request)).await
}

/// Asks a cloud for an errand with this value, and says what the operator answers.
async fn ask(
    global: &Global,
    clouds: Api<OpenStack>,
    name: &str,
    (errand, request): (Errand, String),
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {errand.annotation(): request}}});
    clouds
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("failed to ask OpenStack {name}"))?;
    let answer = |cloud: Option<&OpenStack>| {
        let answer = errand.answered(cloud?.status.as_ref()?)?.clone();
        (answer.request == request).then_some(answer)
    };
    let answered = Box::pin(await_condition(
        clouds,
        name,
        |cloud: Option<&OpenStack>| answer(cloud).is_some(),
    ));
    let cloud = tokio::time::timeout(ANSWER, answered).await.with_context(|| {
        format!("OpenStack {name} is asked, but nobody answered yet: does the operator run? The request stays; see kubectl describe openstack {name}")
    })??;
    match answer(cloud.as_ref()) {
        Some(ConvergeRequest { run: Some(run), .. }) => {
            let follow = "is carried out; follow it with: windlass openstack status";
            global.say(&format!("run {run} {follow}"));
            Ok(())
        }
        Some(ConvergeRequest { refused, .. }) => {
            bail!("refused: {}", refused.unwrap_or_default())
        }
        None => bail!("OpenStack {name} is gone"),
    }
}

pub(super) async fn list(global: &Global, options: &ListBackups) -> anyhow::Result<()> {
    let clouds: Api<OpenStack> = Api::namespaced(global.client().await?, &global.namespace);
    let cloud = named_or_only(&clouds, options.cloud.as_deref()).await?;
    let name = cloud.name_any();
    let Some(seen) = cloud.status.and_then(|status| status.backups) else {
        bail!(
            "nobody has looked into the store of OpenStack {name} yet: ask for a backup with windlass openstack backup {name}; where they \
             are to lie is said by spec.backup"
        );
    };
    match options.output {
        Output::Text => print!("{}", text(&seen, Timestamp::now())),
        Output::Json => println!("{}", terminal::json(&seen)?),
        Output::Yaml => println!("{}", terminal::yaml(&seen)?),
    }
    Ok(())
}

fn text(seen: &BackupsStatus, now: Timestamp) -> String {
    let header = ["NAME", "AGE", "SIZE", "RELEASE", "TABLES", "ROWS", "STATE"];
    let rows = seen.kept.iter().map(|kept| row(kept, now));
    let foot = Foot {
        shown: seen.kept.len(),
        count: seen.count,
        place: &seen.place,
        seen_at: seen.seen_at.as_ref(),
        drill: seen.drill.as_ref().map(|drill| {
            let name = terminal::text(&drill.name);
            let drilled = drilled(&drill.at, &drill.result, &drill.message);
            format!("{name} was {drilled}")
        }),
    };
    format!("{}\n{}", terminal::table(header, rows), foot.text())
}

fn row(kept: &BackupStatus, now: Timestamp) -> Vec<String> {
    let [name, age, size] = beginning(&kept.name, kept.taken_at.as_ref(), kept.size, now);
    vec![
        name,
        age,
        size,
        kept.release.as_deref().map_or_else(unknown, terminal::text),
        number(kept.tables),
        number(kept.rows),
        match kept.state {
            BackupState::Verified => "verified",
            BackupState::Unfinished => "unfinished",
            BackupState::Altered => "altered",
            BackupState::OtherCloud => "of another cluster",
        }
        .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_tells_of_each_how_it_stands() {
        let seen = serde_json::from_value(json!({
            "place": "/srv/openstack/cloud/one", "seenAt": "2026-11-25T12:00:00Z", "count": 2,
            "kept": [
                {"name": "2026-11-25T06-00-00Z", "state": "Verified", "takenAt": "2026-11-25T06:00:00Z", "size": 1_048_576,
                    "release": "2026.2", "tables": 80, "rows": 340},
                {"name": "2026-11-24T06-00-00Z", "state": "Unfinished"},
            ],
            "drill": {"name": "2026-11-25T06-00-00Z", "at": "2026-11-25T07:00:00Z", "result": "Passed", "message": "all came back"},
        }))
        .unwrap();
        let text = text(&seen, "2026-11-25T12:00:00Z".parse().unwrap());
        for said in [
            "6h",
            "1.0 MiB",
            "2026.2",
            "80",
            "340",
            "verified",
            "unfinished",
            "Passed, all came back",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
