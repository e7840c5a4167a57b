//! How far a move is: a ConfigMap in the namespace that is moved.
//!
//! It is the first thing that a move writes and the last that it deletes. Its phase changes only if it is still as it was read, so of a
//! move and an abort at the same time one wins.

use std::{collections::BTreeSet, sync::Arc};

use controller::problem::Problem;
use kube::api::{DynamicObject, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    error::{Error, Result, ensure},
    kind::Kind,
    place::{Item, Place},
};

/// What the ConfigMap is called.
pub(crate) const NAME: &str = "windlass-pivot";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const WINDLASS: &str = "windlass";

/// Where a move is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Phase {
    /// Here is paused, and there are copies: it can be taken back.
    Copying,
    /// The copies are what counts: what is here is deleted.
    Deleting,
    /// The copies are deleted, and here goes on.
    TakingBack,
}

/// What a move paused, or is about to.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Paused {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Paused {
    pub(crate) fn of(item: &Item) -> Self {
        Self {
            kind: item.kind.name().to_owned(),
            namespace: item.namespace().unwrap_or_default().to_owned(),
            name: item.name(),
        }
    }
}

/// What is written down of a move.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) phase: Phase,
    /// The API that it goes to.
    pub(crate) target: String,
    /// The namespaces of what it copies.
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) paused: BTreeSet<Paused>,
    /// As it is stored.
    stored: Option<Item>,
}

impl Record {
    pub(crate) fn new(target: &Place, namespaces: BTreeSet<String>) -> Self {
        Self {
            phase: Phase::Copying,
            target: target.api.clone(),
            namespaces,
            paused: BTreeSet::new(),
            stored: None,
        }
    }

    /// The record of a namespace, if something of it is on its way.
    pub(crate) async fn find(place: &Place) -> Result<Option<Self>> {
        let kind = Arc::new(Kind::config_map());
        let found = place.get(&kind, Some(&place.namespace), NAME).await?;
        found.map(Self::read).transpose()
    }

    fn read(item: Item) -> Result<Self> {
        let mut record = Self::parse(&item).ok_or_else(|| {
            Error::Refused(vec![Problem::new(
                format!("ConfigMap/{NAME} metadata.name"),
                NAME,
                "a move keeps its record under that name, and this is none",
                "give the ConfigMap another name",
            )])
        })?;
        record.stored = Some(item);
        Ok(record)
    }

    /// What a ConfigMap says, if it is a record.
    fn parse(item: &Item) -> Option<Self> {
        let labels = item.object.metadata.labels.as_ref()?;
        if labels.get(MANAGED_BY).map(String::as_str) != Some(WINDLASS) {
            return None;
        }
        let data = &item.object.data["data"];
        let text = |field: &str| data[field].as_str();
        Some(Self {
            phase: serde_json::from_value(data["phase"].clone()).ok()?,
            target: text("target")?.to_owned(),
            namespaces: serde_json::from_str(text("namespaces")?).ok()?,
            paused: serde_json::from_str(text("paused")?).ok()?,
            stored: None,
        })
    }

    fn item(&self, place: &Place) -> Item {
        let text = |value: &Value| value.to_string();
        let stored = self.stored.as_ref().map(|item| &item.object.metadata);
        Item {
            kind: Arc::new(Kind::config_map()),
            object: DynamicObject {
                types: None,
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    namespace: Some(place.namespace.clone()),
                    labels: Some([(MANAGED_BY.to_owned(), WINDLASS.to_owned())].into()),
                    resource_version: stored.and_then(|stored| stored.resource_version.clone()),
                    uid: stored.and_then(|stored| stored.uid.clone()),
                    ..ObjectMeta::default()
                },
                data: json!({"data": {
                    "phase": self.phase,
                    "target": self.target,
                    "namespaces": text(&json!(self.namespaces)),
                    "paused": text(&json!(self.paused)),
                }}),
            },
        }
    }

    /// Writes it down, if it is as it was read.
    pub(crate) async fn write(&mut self, place: &Place) -> Result<()> {
        let item = self.item(place);
        let written = if self.stored.is_some() {
            place.replace(&item).await
        } else {
            place.create(&item).await
        };
        match written {
            Err(error) if error.has_code(&[404, 409]) => {
                // Nobody answered a write that was done all the same: then it is as it should be.
                let found = Self::find(place).await?;
                let is_written = found
                    .as_ref()
                    .is_some_and(|found| found.says_the_same(self));
                ensure(is_written, changed)?;
                self.stored = found.and_then(|found| found.stored);
            }
            written => self.stored = Some(written?),
        }
        Ok(())
    }

    /// Refuses to go on if another command ended the move, or takes it back.
    pub(crate) async fn ensure_stands(&self, place: &Place) -> Result<()> {
        let found = Self::find(place).await?;
        let stands = found.is_some_and(|found| found.says_the_same(self));
        ensure(stands, changed)
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.phase == other.phase
            && self.target == other.target
            && self.namespaces == other.namespaces
            && self.paused == other.paused
    }

    pub(crate) async fn enter(&mut self, place: &Place, phase: Phase) -> Result<()> {
        let before = self.phase;
        self.phase = phase;
        let written = self.write(place).await;
        if written.is_err() {
            self.phase = before;
        }
        written
    }

    pub(crate) async fn delete(self, place: &Place) -> Result<()> {
        match &self.stored {
            Some(stored) => place.delete_alone(stored).await,
            None => Ok(()),
        }
    }

    /// Refuses to go on to another API than the one that it began with.
    pub(crate) fn same_target(&self, target: &Place) -> Result<()> {
        if self.target == target.api {
            return Ok(());
        }
        Err(Error::Refused(vec![Problem::new(
            "--to-kubeconfig",
            &target.api,
            format!(
                "a move of this namespace to another API is on its way: ConfigMap/{NAME} data.target is {:?}, the uid of its \
                 Namespace kube-system",
                self.target
            ),
            "name the kubeconfig of that one, or take that move back first with --abort (without --to-kubeconfig if that API is lost)",
        )]))
    }
}

fn changed() -> String {
    format!(
        "ConfigMap/{NAME} was changed by another command at the same time: only one may move the namespace or take its move back; look \
         at its data.phase, then start the one that you want again"
    )
}
