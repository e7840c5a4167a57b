//! Machines that are replaced when a secret changes.
//!
//! A reference that says `onChange: RollMachines` lets a digest of the value into what machines are made from: a template whose name is a
//! digest of what it says, so that another value is another template, to which a roll-out goes as to any other edit. What is first seen of
//! a value leaves no trace: neither a birth nor a Windlass that begins to look replaces anything.
//!
//! The VaultSecret says for which of its keys that is, for whoever looks whether they have changed.

use std::collections::{BTreeMap, BTreeSet};

use api::inventory::{Naming, ROLLS_ANNOTATION, SECRETS_ANNOTATION, ValuePath};
use serde_json::Value;

use super::RenderedDocument;
use crate::{
    contract,
    fleet::Changed,
    problem::Object,
    template::world::{Made, MadeShape, Use, Uses},
    tree::{ON_CHANGE, ROLL_MACHINES},
};

/// Whether machines are replaced for a reference.
pub(super) fn is_asked(reference: &Value) -> bool {
    reference["vault"][ON_CHANGE] == ROLL_MACHINES
}

/// What to do where no machine can be replaced.
pub(super) const REMEDY: &str = "onChange: RollMachines is for a template with naming: Hashed that a MachineDeployment names, or a KubeadmControlPlane whose machine template \
     has it; elsewhere take it out: the Secret is written anew, and brought to hosts of kubespray by windlass converge";

/// The template of each document by whose name machines are told what they are made from: itself, or that of the machines that it is for.
pub(super) fn templates(documents: &[RenderedDocument]) -> Vec<Option<usize>> {
    let named = named(documents);
    let is_template = |document: &RenderedDocument| {
        let Object { kind, name, .. } = &document.object;
        let is_named = named.contains(&(kind.clone(), name.clone()));
        document.naming == Naming::Hashed && kind.ends_with("Template") && is_named
    };
    let of = |(number, document): (usize, &RenderedDocument)| {
        if is_template(document) {
            return Some(number);
        }
        if document.object.kind != "KubeadmControlPlane" {
            return None;
        }
        let object = document.to_value();
        let machines = contract::infrastructure_of_control_plane(&object);
        documents.iter().position(|template| {
            is_template(template)
                && machines["kind"] == template.object.kind.as_str()
                && machines["name"] == template.object.name.as_str()
        })
    };
    documents.iter().enumerate().map(of).collect()
}

/// Kind and name of what machines are made from, by what makes them. Those of a ClusterClass are none: for an annotation of theirs no Machine is
/// replaced.
fn named(documents: &[RenderedDocument]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let makers = documents.iter().filter(|document| {
        let group = contract::group(&document.api_version);
        contract::MAKERS.contains(&(group, document.object.kind.as_str()))
    });
    for maker in makers {
        let maker = maker.to_value();
        let named = contract::references(&maker["spec"], &ValuePath::default());
        found.extend(
            named
                .iter()
                .map(|named| (named.kind.to_owned(), named.name.to_owned())),
        );
    }
    found
}

/// References for which machines are replaced: the document that tells it, the VaultSecret and key, and of what it was made.
pub(super) type Rolls = BTreeMap<usize, BTreeMap<String, BTreeSet<Use>>>;

/// Lets what has changed into the templates.
pub(super) fn mark(rolls: &Rolls, changed: Option<&Changed>, documents: &mut [RenderedDocument]) {
    for (number, secrets) in rolls {
        let Some(document) = documents.get_mut(*number) else {
            continue;
        };
        let known = |name: &String| {
            let digest = changed?.get(name)?;
            Some(format!("{name}={digest}"))
        };
        let text: Vec<_> = secrets.keys().filter_map(known).collect();
        if !text.is_empty() {
            let uses = secrets.values().flatten().cloned().collect();
            annotate(document, SECRETS_ANNOTATION, &text.join(" "), &uses);
        }
    }
}

/// Says in a VaultSecret for which keys machines are replaced.
pub(super) fn tell(document: &mut RenderedDocument, keys: &BTreeMap<String, BTreeSet<Use>>) {
    if !keys.is_empty() {
        let text: Vec<_> = keys.keys().map(String::as_str).collect();
        let uses = keys.values().flatten().cloned().collect();
        annotate(document, ROLLS_ANNOTATION, &text.join(" "), &uses);
    }
}

fn annotate(document: &mut RenderedDocument, name: &str, text: &str, uses: &BTreeSet<Use>) {
    let at = document.at.clone();
    let map = || Made {
        uses: Uses::default(),
        at: at.clone(),
        shape: MadeShape::Map(BTreeMap::new()),
    };
    let mut made = &mut document.content;
    for key in ["metadata", "annotations"] {
        let MadeShape::Map(parts) = &mut made.shape else {
            return;
        };
        made = parts.entry(key.into()).or_insert_with(map);
    }
    if let MadeShape::Map(annotations) = &mut made.shape {
        let leaf = Made {
            uses: Uses::new(uses.clone()),
            at: at.clone(),
            shape: MadeShape::Leaf(text.into()),
        };
        annotations.insert(name.into(), leaf);
    }
}
