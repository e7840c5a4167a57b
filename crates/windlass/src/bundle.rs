//! `windlass bundle` and `windlass replay`: a run as one file, and the run again from it.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

use ansible::mask::may_be_secret;
use anyhow::Context;
use api::{Run, text::plain};
use k8s_openapi::{
    api::{core::v1::Secret, events::v1::Event},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use kubespray::{
    Layout,
    bundle::{Bundle, Moment, Redaction, gather, write},
    inputs::Inputs,
};
use runs::phase;
use serde_json::{Value, json};

use crate::{
    cli::{self, Global, Output, Replay},
    control, explain, status, terminal,
};

/// Writes the bundle of a run.
pub(crate) async fn bundle(global: &Global, options: &cli::Bundle) -> anyhow::Result<()> {
    let client = global.client().await?;
    let runs: Api<Run> = Api::namespaced(client.clone(), &global.namespace);
    let run = control::pick(&runs, options.run.as_deref()).await?;
    let name = run.name_any();
    let file = options.to.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{name}.windlass.tar.gz")));
    anyhow::ensure!(
        !file.exists(),
        "{} is there already: name another with --to",
        file.display()
    );
    let (secrets, unread) = secrets(&client, global, &run).await;
    let redaction = Redaction::of(secrets.iter().map(String::as_str), rand::random());
    let told = told(&client, global, &run).await;
    let directory = Layout::new(global.data_directory()?).run(&global.namespace, &name);
    let mut gathered =
        gather(&run, &told, &directory, &redaction).context("failed to gather the run")?;
    for name in unread {
        gathered.lacks(format!(
            "a second mask of Secret {name}, which cannot be read now: its values were masked when they were written"
        ));
    }
    let made_at = Timestamp::now().to_string();
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let failed = || format!("failed to write {}", file.display());
    // Whole or not at all; readable by its owner alone until they give it away.
    let beside = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")));
    let beside = beside.with_context(failed)?;
    let of = (global.namespace.as_str(), name.as_str());
    let manifest = write(of, made_at, &gathered, BufWriter::new(&beside)).with_context(failed)?;
    beside.persist_noclobber(&file).with_context(failed)?;
    println!(
        "{}: {} files of run {name}",
        file.display(),
        manifest.files.len()
    );
    for lacks in &manifest.left_out {
        println!("  without {lacks}");
    }
    println!("see it with: windlass replay {}", file.display());
    Ok(())
}

/// What the Secrets of the run hold, as far as they can be read, and the names of the others.
async fn secrets(client: &Client, global: &Global, run: &Run) -> (Vec<String>, Vec<String>) {
    let api: Api<Secret> = Api::namespaced(client.clone(), &global.namespace);
    let inputs = Inputs::from_map(&run.spec.plan.inputs);
    let names = inputs.map(|inputs| inputs.secrets()).unwrap_or_default();
    let (mut texts, mut unread) = (Vec::new(), Vec::new());
    for name in names {
        match api.get_opt(&name).await {
            Ok(Some(secret)) => texts_of(&secret, &mut texts, Leaves::All),
            _ => unread.push(name),
        }
    }
    // Most of a kubeconfig is in every log: names and addresses.
    let kubeconfig = format!("{}-kubeconfig", run.spec.subject.name);
    if let Ok(Some(secret)) = api.get_opt(&kubeconfig).await {
        texts_of(&secret, &mut texts, Leaves::Secret);
    }
    (texts, unread)
}

/// Which texts of a document are secret.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Leaves {
    All,
    Secret,
}

fn texts_of(secret: &Secret, texts: &mut Vec<String>, which: Leaves) {
    for bytes in secret.data.iter().flat_map(|data| data.values()) {
        let Ok(text) = std::str::from_utf8(&bytes.0) else {
            continue;
        };
        texts.push(text.to_owned());
        if let Ok(document) = serde_saphyr::from_str::<Value>(text) {
            leaves(&document, which == Leaves::All, which, texts);
        }
    }
}

fn leaves(value: &Value, is_secret: bool, which: Leaves, texts: &mut Vec<String>) {
    match value {
        Value::String(text) if is_secret => texts.push(text.clone()),
        Value::Number(number) if is_secret => texts.push(number.to_string()),
        Value::Array(items) => {
            for item in items {
                leaves(item, is_secret, which, texts);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let is_secret = which == Leaves::All || may_be_secret(name);
                leaves(field, is_secret, which, texts);
            }
        }
        _ => {}
    }
}

/// The Events of the run's subject, which go away by themselves after an hour or so.
async fn told(client: &Client, global: &Global, run: &Run) -> Value {
    let events: Api<Event> = Api::namespaced(client.clone(), &global.namespace);
    let subject = &run.spec.subject;
    let listed = events.list(&ListParams::default()).await;
    let mut events = listed.map(|list| list.items).unwrap_or_default();
    events.retain(|event| {
        let about = event.regarding.as_ref();
        about.is_some_and(|about| {
            about.kind.as_ref() == Some(&subject.kind) && about.name.as_ref() == Some(&subject.name)
        })
    });
    events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
    let told = events.iter().map(|event| {
        json!({"time": event.event_time, "type": event.type_, "reason": event.reason, "note": event.note})
    });
    told.collect()
}

/// Shows a run from its bundle.
pub(crate) fn replay(options: &Replay) -> anyhow::Result<()> {
    let moment: Option<Moment> = options.at.as_deref().map(str::parse).transpose()?;
    let name = options.file.display();
    let file = File::open(&options.file).with_context(|| format!("failed to open {name}"))?;
    let bundle = Bundle::read(file).with_context(|| format!("failed to read {name}"))?;
    let run = bundle
        .at(moment)
        .with_context(|| format!("failed to replay {name}"))?;
    match options.output {
        Output::Text => print!("{}", terminal::text(&text(&bundle, run, options.records)?)),
        Output::Json => println!("{}", terminal::json(&run)?),
        Output::Yaml => println!("{}", terminal::yaml(&run)?),
    }
    Ok(())
}

fn text(bundle: &Bundle, run: Run, with_records: bool) -> anyhow::Result<String> {
    let manifest = &bundle.manifest;
    let history = run.status.clone().unwrap_or_default().history;
    let now = history
        .last()
        .map_or(Timestamp::UNIX_EPOCH, |record| record.time.0);
    let mut text = format!(
        "run {} of namespace {}, as it was {now}; from a bundle of Windlass {}, made {}\n",
        plain(&manifest.run, 253),
        plain(&manifest.namespace, 63),
        plain(&manifest.windlass, 64),
        plain(&manifest.made_at, 64),
    );
    for lacks in &manifest.left_out {
        text += &format!("  without {}\n", plain(lacks, 512));
    }
    if with_records {
        for record in &history {
            let step = record.step.as_deref().unwrap_or("the run");
            let failure = record.failure.as_ref();
            let failure = failure.map(|failure| format!(" {}: {}", failure.code, failure.message));
            let detail = record.detail.as_ref().map(|detail| format!(" {detail}"));
            let line = format!(
                "{} #{} {step}: {:?}{}{}",
                record.time.0,
                record.sequence,
                record.event,
                detail.unwrap_or_default(),
                failure.unwrap_or_default()
            );
            text += &format!("{}\n", plain(&line, 1024));
            for applied in &record.remedies {
                text += &format!("  {}\n", plain(&applied.to_string(), 1024));
            }
        }
        text += "\n";
    }
    let is_failed = phase(&run) == api::run::RunPhase::Failed;
    let why = if is_failed {
        explain::of_bundle(&run, bundle)?
    } else {
        None
    };
    for line in status::of_run(run, now) {
        text += &format!("{line}\n");
    }
    if let Some(why) = why {
        text += &format!("\n{why}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn numbers_of_a_secret_are_secret_too() {
        let document = "pin: 482913\nport: 6443\nregistry: {password: hunter22, token: 99887766}\n";
        let data = ByteString(document.as_bytes().to_vec());
        let secret = Secret {
            data: Some([("values.yaml".to_owned(), data)].into()),
            ..Secret::default()
        };
        let found = |which| {
            let mut texts = Vec::new();
            texts_of(&secret, &mut texts, which);
            texts.remove(0);
            texts.sort_unstable();
            texts
        };
        assert_eq!(
            found(Leaves::All),
            ["482913", "6443", "99887766", "hunter22"]
        );
        assert_eq!(found(Leaves::Secret), ["99887766", "hunter22"]);
    }
}
