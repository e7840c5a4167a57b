//! `windlass crds`: the CustomResourceDefinitions as they are installed.

use anyhow::Context;

use crate::cli::Crds;

/// Prints them as YAML documents.
pub(crate) fn crds(options: &Crds) -> anyhow::Result<()> {
    let definitions = if options.providers {
        api::provider::provider_definitions()
    } else if options.magnum {
        api::magnum::definitions()
    } else if options.openstack {
        api::openstack::definitions()
    } else if options.fleet {
        api::inventory::definitions()
    } else {
        api::custom_resource_definitions()
    };
    for definition in definitions {
        let name = definition.metadata.name.clone().unwrap_or_default();
        // Through JSON, where empty fields are left out.
        let value = serde_json::to_value(&definition).context("failed to serialise a CRD")?;
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("failed to print {name}"))?;
        println!("---\n{}", yaml.trim_end());
    }
    Ok(())
}
