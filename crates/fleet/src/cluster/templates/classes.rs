//! Takes away ClusterClasses that a revision no longer has.
//!
//! Clusters name a class in their topology, from any namespace. And a class owns the templates that it refers to, as Cluster API notes in
//! them, so they may go with it. It goes when no Cluster names it and each of its templates could go too; so one stays whose templates the
//! cluster still has, or that refers to one of somebody else.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::{
        Context, Error,
        apply::delete,
        part::{Identity, Part, Parts, holds},
    },
    Former, Looked,
};

/// Deletes the classes that nothing needs, and says which.
pub(super) async fn remove(
    looked: &mut Looked,
    classes: &[Former],
    templates: &[Former],
    parts: &Parts,
    context: &Context,
) -> Result<BTreeSet<Identity>, Error> {
    let mut unnamed = Vec::new();
    for class in classes {
        if !is_named(looked, &class.part, parts, context).await? {
            unnamed.push(class);
        }
    }
    // Two that share a template do not keep each other.
    let leaving = unnamed.iter().map(|class| class.part.identity()).collect();
    let mut gone = BTreeSet::new();
    for class in unnamed {
        let mut is_needed = false;
        for (kind, name) in references(&class.live["spec"]) {
            let template = templates
                .iter()
                .map(|template| &template.part)
                .find(|part| {
                    part.namespace == class.part.namespace && part.kind == kind && part.name == name
                });
            is_needed |= match template {
                Some(template) => looked.is_needed(template, parts, &leaving, context).await?,
                None => true,
            };
        }
        if !is_needed {
            delete(&class.part, &class.live, context).await?;
            gone.insert(class.part.identity());
        }
    }
    Ok(gone)
}

/// Whether the topology of a Cluster names a class. One of another namespace with that name counts: to delete less is no harm.
async fn is_named(
    looked: &mut Looked,
    class: &Part,
    parts: &Parts,
    context: &Context,
) -> Result<bool, Error> {
    let names = |cluster: &Value| holds(&cluster["spec"]["topology"], &class.name);
    if parts.objects.iter().any(|part| names(&part.value)) {
        return Ok(true);
    }
    let clusters = looked
        .at(&class.api_version, "Cluster", None, context)
        .await?;
    Ok(clusters.is_none_or(|clusters| clusters.iter().any(names)))
}

/// The templates that a class refers to, by kind and name.
fn references(value: &Value) -> Vec<(&str, &str)> {
    let (kind, name) = (value["kind"].as_str(), value["name"].as_str());
    let own = kind.zip(name);
    let own = own.filter(|(kind, _)| kind.ends_with("Template"));
    let inner: Vec<_> = match value {
        Value::Array(values) => values.iter().collect(),
        Value::Object(values) => values.values().collect(),
        _ => Vec::new(),
    };
    own.into_iter()
        .chain(inner.into_iter().flat_map(references))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_refers_to_templates_wherever_they_stand() {
        // `templateRef` is of v1beta2, `ref` of v1beta1.
        let spec = json!({
            "infrastructure": {"templateRef": {"kind": "DevClusterTemplate", "name": "a"}},
            "workers": {"machineDeployments": [
                {"class": "worker", "bootstrap": {"ref": {"kind": "KubeadmConfigTemplate", "name": "b"}}},
            ]},
            "patches": [{"name": "p", "definitions": [{"selector": {"kind": "KubeadmControlPlaneTemplate"}}]}],
            "variables": [{"name": "c", "kind": "Text"}],
        });
        let expected = [("DevClusterTemplate", "a"), ("KubeadmConfigTemplate", "b")];
        assert_eq!(references(&spec), expected);
    }
}
