//! `windlass crds`: the CustomResourceDefinitions as they are installed.

use anyhow::Context;
use api::crd::Set;

use crate::cli::Crds;

/// Prints them as YAML documents.
pub(crate) fn crds(options: &Crds) -> anyhow::Result<()> {
    let set = if options.providers {
        Set::Providers
    } else if options.magnum {
        Set::Magnum
    } else if options.openstack {
        Set::Openstack
    } else if options.fleet {
        Set::Fleet
    } else if options.vault {
        Set::Vault
    } else {
        Set::Clusters
    };
    for definition in set.definitions() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        // Through JSON, where empty fields are left out.
        let value = serde_json::to_value(&definition).context("failed to serialise a CRD")?;
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("failed to print {name}"))?;
        println!("---\n{}", yaml.trim_end());
    }
    Ok(())
}
