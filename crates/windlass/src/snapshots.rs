//! `windlass snapshots`: what lies in the store of a cluster, and whether one of it can be relied on.

use std::fmt::Debug;

use anyhow::bail;
use api::{
    Cluster,
    snapshots::{SnapshotState, SnapshotStatus, SnapshotsStatus},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, ResourceExt};
use kubespray::{Layout, operation::drill::ASKED, preview};

use crate::{
    cli::{DrillSnapshot, Global, ListSnapshots, Output, Snapshots},
    client::named_or_only,
    converge::{possible, request_of},
    plan, terminal,
};

pub(crate) async fn snapshots(global: &Global, command: &Snapshots) -> anyhow::Result<()> {
    match command {
        Snapshots::List(options) => list(global, options).await,
        Snapshots::Drill(options) => drill(global, options).await,
    }
}

async fn list(global: &Global, options: &ListSnapshots) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::namespaced(global.client().await?, &global.namespace);
    let cluster = named_or_only(&clusters, options.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let Some(seen) = cluster.status.and_then(|status| status.snapshots) else {
        bail!(
            "nobody has looked into the store of cluster {name} yet: ask for a snapshot with windlass snapshot {name}; where they are to \
             lie is said by spec.etcd.snapshots"
        );
    };
    match options.output {
        Output::Text => print!("{}", text(&seen, Timestamp::now())),
        Output::Json => println!("{}", terminal::json(&seen)?),
        Output::Yaml => println!("{}", terminal::yaml(&seen)?),
    }
    Ok(())
}

async fn drill(global: &Global, options: &DrillSnapshot) -> anyhow::Result<()> {
    let client = global.client().await?;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &global.namespace);
    let cluster = named_or_only(&clusters, Some(&options.cluster)).await?;
    let runs = Api::namespaced(client.clone(), &global.namespace);
    possible(&cluster, &runs, &ASKED).await?;
    let request = format!("{} {}", options.name, Timestamp::now());
    if options.dry_run {
        let layout = Layout::new(global.private_data_directory()?);
        let asked = (ASKED.annotation, request.as_str());
        let preview = preview::asked(&client, &cluster, asked, &layout).await?;
        return plan::show(&[preview], options.output);
    }
    request_of(global, clusters, &cluster.name_any(), &ASKED, request).await
}

fn text(seen: &SnapshotsStatus, now: Timestamp) -> String {
    let header = [
        "NAME", "AGE", "SIZE", "ETCD", "REVISION", "KEYS", "DIGEST", "STATE",
    ];
    let rows = seen.kept.iter().map(|kept| row(kept, now));
    let foot = Foot {
        shown: seen.kept.len(),
        count: seen.count,
        place: &seen.place,
        seen_at: Some(&seen.seen_at),
        drill: seen
            .drill
            .as_ref()
            .map(|drill| drilled(&drill.at, &drill.result, &drill.message)),
    };
    format!("{}\n{}", terminal::table(header, rows), foot.text())
}

fn row(kept: &SnapshotStatus, now: Timestamp) -> Vec<String> {
    let digest = kept.digest.as_deref().unwrap_or("-");
    let [name, age, size] = beginning(&kept.name, kept.taken_at.as_ref(), kept.size, now);
    vec![
        name,
        age,
        size,
        kept.etcd_version.clone().unwrap_or_else(unknown),
        number(kept.revision),
        number(kept.keys),
        digest.chars().take(12).collect(),
        match kept.state {
            SnapshotState::Verified => "verified",
            SnapshotState::Unfinished => "unfinished",
            SnapshotState::Altered => "altered",
            SnapshotState::OtherCluster => "of another cluster",
        }
        .to_owned(),
    ]
}

/// What is told below a list of what lies in a store.
pub(crate) struct Foot<'a> {
    /// How many the list has.
    pub(crate) shown: usize,
    /// How many there are.
    pub(crate) count: u32,
    /// Where the store is.
    pub(crate) place: &'a str,
    /// When somebody looked. None: nobody said.
    pub(crate) seen_at: Option<&'a Time>,
    /// What the last drill came to.
    pub(crate) drill: Option<String>,
}

impl Foot<'_> {
    /// Its lines.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let all = usize::try_from(self.count).unwrap_or(self.shown);
        if all > self.shown {
            text.push_str(&format!("and {} older ones\n", all - self.shown));
        }
        if let Some(at) = self.seen_at {
            let place = terminal::text(self.place);
            text.push_str(&format!("in {place}, as seen at {}\n", at.0));
        }
        if let Some(drill) = &self.drill {
            text.push_str(&format!("{drill}\n"));
        }
        text
    }
}

/// What a drill came to.
pub(crate) fn drilled(at: &Time, result: &dyn Debug, message: &str) -> String {
    let message = terminal::text(message);
    format!("drilled at {}: {result:?}, {message}", at.0)
}

/// How the row of something in a store begins: its name, its age and its size.
pub(crate) fn beginning(
    name: &str,
    taken_at: Option<&Time>,
    bytes: Option<i64>,
    now: Timestamp,
) -> [String; 3] {
    [
        terminal::text(name),
        taken_at.map_or_else(unknown, |taken| aged(now.duration_since(taken.0))),
        bytes.map_or_else(unknown, size),
    ]
}

pub(crate) fn number(number: Option<i64>) -> String {
    number.map_or_else(unknown, |number| number.to_string())
}

pub(crate) fn unknown() -> String {
    "-".to_owned()
}

/// As kubectl tells ages: the largest unit of which there are two.
fn aged(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    for (unit, length) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        if seconds >= 2 * length {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

fn size(bytes: i64) -> String {
    const UNITS: [(&str, i64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) => {
            let tenths = bytes / (unit / 10);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_tells_of_each_how_it_stands() {
        let seen = serde_json::from_value(json!({
            "place": "/srv/demo/first/", "seenAt": "2026-11-25T12:00:00Z", "count": 4,
            "kept": [
                {
                    "name": "2026-11-25T06-00-00Z", "state": "Verified", "takenAt": "2026-11-25T06:00:00Z", "size": 104_857_600,
                    "revision": 812, "keys": 340, "etcdVersion": "3.6.4", "digest": "ab".repeat(32),
                },
                {"name": "2026-11-24T06-00-00Z", "state": "Unfinished"},
            ],
            "drill": {"name": "a", "at": "2026-11-25T11:00:00Z", "result": "Passed", "message": "m\u{1b}"},
        }))
        .unwrap();
        let told = text(&seen, "2026-11-25T12:00:00Z".parse().unwrap());
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "NAME                   AGE   SIZE        ETCD    REVISION   KEYS   DIGEST         STATE",
                "2026-11-25T06-00-00Z   6h    100.0 MiB   3.6.4   812        340    abababababab   verified",
                "2026-11-24T06-00-00Z   -     -           -       -          -      -              unfinished",
                "and 2 older ones",
            ]
        );
        assert!(lines[5].contains("Passed") && !told.contains('\u{1b}'));
    }

    #[test]
    fn ages_and_sizes_are_told_shortly() {
        for (seconds, told) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (86_400, "24h"),
            (200_000, "2d"),
        ] {
            assert_eq!(aged(SignedDuration::from_secs(seconds)), told);
        }
        for (bytes, told) in [(9, "9 B"), (2048, "2.0 KiB"), (1_600_000, "1.5 MiB")] {
            assert_eq!(size(bytes), told);
        }
    }
}
