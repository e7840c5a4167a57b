//! Lets go of what was installed, and leaves it where it is: for plain clusterctl, for the existing operator, or for nobody.

use std::collections::BTreeSet;

use api::run::{Failure, Step};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use runs::calls::{Ended, FORBIDDEN, boundary, call, config};
use serde_json::json;
use workflow::{StepContext, StepOutcome};

use super::{
    Installer, done,
    prune::{self, Found},
    steps::{known, telling},
};
use crate::names::{COMPONENTS_MANAGER, RENEWED_FROM};

impl Installer {
    /// Takes the provider out of the owners of its objects, so that they do not go with it, and forgets what was applied. The existing operator
    /// makes it their owner. clusterctl's inventory has it as before.
    pub(super) async fn release(
        &self,
        there: &Client,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<StepOutcome, Ended> {
        let provider = self.work.run.spec.subject.uid.as_deref();
        let (found, unseen) = self.to_be_released(there, context).await?;
        let mut changed = 0;
        for found in &found {
            boundary(step, context).await?;
            let owners = found.meta().owner_references.as_deref();
            if let Some(left) = owners.and_then(|owners| without(owners, provider)) {
                self.held()?;
                disown(there, found, &left).await?;
                changed += 1;
            }
        }
        self.forget_applied(there).await?;
        let is_renewed = |found: &&Found| {
            let annotations = found.meta().annotations.as_ref();
            annotations.is_some_and(|all| all.contains_key(RENEWED_FROM))
        };
        let ending: Vec<_> = found.iter().filter(is_renewed).map(Found::title).collect();
        let ending = (!ending.is_empty()).then(|| {
            let ending = ending.join(", ");
            format!("certificates that Windlass made are renewed by nobody, so install cert-manager: {ending}")
        });
        let notices: Vec<_> = unseen.into_iter().chain(ending).collect();
        let outcome = done([("changed", changed), ("unchanged", found.len() - changed)]);
        Ok(telling(outcome, "to be looked at", &notices))
    }

    /// Everything that the provider may own: what was not found would go with it.
    async fn to_be_released(
        &self,
        there: &Client,
        context: &StepContext,
    ) -> Result<(Vec<Found>, Vec<String>), Failure> {
        let noted = self.noted(there).await?;
        let record = noted.clone().unwrap_or_default();
        let is_known = known((&record, noted.is_some()), &BTreeSet::new(), context);
        let label = self.provider.manifest_label();
        let found = prune::find(there, &label, noted.as_ref(), is_known).await;
        found.map_err(|failure| match noted {
            None if failure.code == FORBIDDEN => unseen(&failure),
            _ => failure,
        })
    }
}

/// Secrets are not listed by who has few rights, and without a record nothing names them.
fn unseen(failure: &Failure) -> Failure {
    config(
        "OwnedUnseen",
        format!(
            "no run has noted what is installed, and what the provider's object owns cannot be looked for: {}",
            failure.message
        ),
        "let the operator list all kinds until the provider is gone, and retry the run",
    )
}

/// The owners that are left without the provider. None: it is none of them.
fn without(owners: &[OwnerReference], provider: Option<&str>) -> Option<Vec<OwnerReference>> {
    let provider = provider?;
    let left: Vec<_> = owners
        .iter()
        .filter(|owner| owner.uid != provider)
        .collect();
    (left.len() < owners.len()).then(|| left.into_iter().cloned().collect())
}

async fn disown(there: &Client, found: &Found, left: &[OwnerReference]) -> Result<(), Failure> {
    let name = found.meta().name.as_deref().unwrap_or_default();
    let parameters = PatchParams {
        field_manager: Some(COMPONENTS_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = json!({"metadata": {
        "resourceVersion": found.meta().resource_version, "ownerReferences": left,
    }});
    match found
        .api(there)
        .patch_metadata(name, &parameters, &Patch::Merge(&body))
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result
            .map(drop)
            .map_err(|error| call(format!("let go of {}", found.title()), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_alone_is_taken_out_of_the_owners() {
        let owner = |uid: &str| OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let both = [owner("provider"), owner("another")];
        assert_eq!(
            without(&both, Some("provider")),
            Some(vec![owner("another")])
        );
        assert_eq!(without(&both[..1], Some("provider")), Some(Vec::new()));
        assert_eq!(without(&both, Some("third")), None);
        assert_eq!(without(&both, None), None);
    }
}
