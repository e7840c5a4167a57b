//! What the users of a cluster of servers made in the cloud goes with it, where its labels say so.

use api::magnum::CoeCluster;
use kube::ResourceExt;

use super::{Context, Error, credentials::failed};
use crate::{
    cloud::CloudError,
    credential::Record,
    leftovers::{Choice, Marks},
    machines::{
        Kind, name,
        report::{Seen, Trouble},
    },
};

impl Context {
    /// Takes away what is to go with a cluster, once no machine is left that could make more of it. Says what is in the way.
    pub(super) async fn clear(
        &self,
        cluster: &CoeCluster,
        seen: &Seen,
    ) -> Result<Option<Trouble>, Error> {
        let choice = Choice::of(&cluster.spec);
        if choice.is_none() || seen.live.of(Kind::Machine).next().is_some() {
            return Ok(None);
        }
        let kept = self.own_credential(cluster).await?;
        // By what a project shares is nothing done of which its owner was not told.
        let Some(record) = kept.as_ref().and_then(Record::of) else {
            return Ok(None);
        };
        if record.is_cleared() {
            return Ok(None);
        }
        let infrastructure = seen.live.get(Kind::Infrastructure, &name(cluster));
        let network = infrastructure.and_then(|object| object["status"]["network"]["id"].as_str());
        let marks = Marks::new(cluster, network.map(str::to_owned));
        let cleared = match record.session(&self.options.keystone).await {
            Ok(session) => session.clear(choice, &marks).await,
            Err(error) => Err(error),
        };
        let why = match cleared {
            Ok(None) => return Ok(None),
            // Nobody is left who could look, and the servers and the network are gone: whoever brought that about knows.
            Err(CloudError::Gone) if infrastructure.is_none() => {
                let user = record.user_id();
                tracing::warn!(
                    cluster = cluster.name_any(),
                    user,
                    "what its users made in the cloud is not looked for: the credential is gone"
                );
                return Ok(None);
            }
            Ok(Some(left)) => format!("these are going: {left}"),
            Err(error) => format!(
                "failed to take away what its users made in the cloud: {}",
                failed(&error, record.user_id())
            ),
        };
        Ok(Some(Trouble {
            is_final: false,
            message: format!(
                "{why}; to leave them, set delete_load_balancers and delete_volumes to false in spec.labels of the CoeCluster"
            ),
        }))
    }
}
