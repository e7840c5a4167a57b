//! Whether the providers there are those of here, and not older, by clusterctl's inventory.

use std::collections::BTreeMap;

use clusterctl::{Installed, Version};
use controller::problem::Problem;

use crate::{Move, error::Result, place::Place, read};

/// The providers that are missing there, or older.
pub(super) async fn missing(this: &Move<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let here = newest(&this.here, &mut problems).await?;
    let there = newest(&this.there, &mut problems).await?;
    for (provider, version) in here {
        match there.get(&provider) {
            None => problems.push(Problem::new(
                format!("Provider {provider} there"),
                "",
                format!("it is installed here, in {version}, and not there"),
                "install it there",
            )),
            Some(found) if *found < version => problems.push(Problem::new(
                format!("Provider {provider} there"),
                found,
                format!("it is older than here, where it is {version}"),
                "upgrade it there",
            )),
            Some(_) => {}
        }
    }
    Ok(problems)
}

/// The newest version of each provider.
async fn newest(place: &Place, problems: &mut Vec<Problem>) -> Result<BTreeMap<String, Version>> {
    let mut newest = BTreeMap::<String, Version>::new();
    for found in read::providers(place).await? {
        match found {
            Ok(Installed {
                provider, version, ..
            }) => {
                let known = newest
                    .entry(provider.manifest_label())
                    .or_insert_with(|| version.clone());
                if *known < version {
                    *known = version;
                }
            }
            Err(why) => problems.push(Problem::new(
                format!("Provider {}", place.word),
                "",
                format!("clusterctl's inventory has an entry that is none: {why}"),
                "correct it, or delete it",
            )),
        }
    }
    Ok(newest)
}
