//! Replicas that are left to an autoscaler: where its annotations stand, the field is not rendered, and so never applied. Who applied it
//! would set back what the autoscaler did, each time.
//!
//! A template may go on to say replicas: that is what a cluster without the annotations has.

use super::RenderedDocument;
use crate::{
    contract,
    impact::autoscaler,
    template::world::{Made, MadeShape},
};

/// Takes the replicas out of what is left to an autoscaler.
pub(super) fn hand_over(documents: &mut [RenderedDocument]) {
    for document in documents {
        if contract::group(&document.api_version) != contract::CORE {
            continue;
        }
        let content = &mut document.content;
        match document.object.kind.as_str() {
            "MachineDeployment" | "MachineSet" | "MachinePool" => without_replicas(content, "spec"),
            "Cluster" => {
                for kind in ["machineDeployments", "machinePools"] {
                    let parts = field(content, &["spec", "topology", "workers", kind]);
                    if let Some(MadeShape::List(parts)) = parts.map(|parts| &mut parts.shape) {
                        for part in parts.iter_mut() {
                            without_replicas(part, "");
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Takes the replicas out of what keeps machines, if it is left to an autoscaler. They stand below the key, or in it itself.
fn without_replicas(keeper: &mut Made, key: &str) {
    let metadata = field(keeper, &["metadata"]).map(|metadata| metadata.to_value());
    if metadata.as_ref().and_then(autoscaler::range).is_none() {
        return;
    }
    let path: &[&str] = if key.is_empty() { &[] } else { &[key] };
    if let Some(MadeShape::Map(fields)) = field(keeper, path).map(|made| &mut made.shape) {
        fields.remove("replicas");
    }
}

fn field<'a>(made: &'a mut Made, path: &[&str]) -> Option<&'a mut Made> {
    let mut made = made;
    for key in path {
        match &mut made.shape {
            MadeShape::Map(fields) => made = fields.get_mut(*key)?,
            _ => return None,
        }
    }
    Some(made)
}
