//! What the users of a cluster of servers made in the cloud goes with it, where its labels say so.

use api::magnum::CoeCluster;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{Context, Error, credentials::failed};
use crate::{
    cloud::CloudError,
    credential::Record,
    leftovers::{Choice, Left, Marks},
    machines::{
        Kind, name,
        report::{Seen, Trouble},
    },
};

/// How long a load balancer is waited for that holds nothing but what is told of it. Octavia takes minutes, or is stuck.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

impl Context {
    /// Takes away what is to go with a cluster, once no machine is left that could make more of it. Says what is in the way, and notes
    /// what stays.
    pub(super) async fn clear(
        &self,
        cluster: &CoeCluster,
        seen: &mut Seen,
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
        let is_alone = infrastructure.is_none();
        let cleared = match record.session(&self.options.keystone).await {
            Ok(session) => session.clear(choice, &marks).await,
            Err(error) => Err(error),
        };
        let why = match cleared {
            Ok(mut left) => {
                if is_alone && has_waited(cluster, Timestamp::now()) {
                    left.give_up();
                }
                note(cluster, seen, &left);
                match left.awaited() {
                    Some(left) => format!("these are going: {left}"),
                    None => return Ok(None),
                }
            }
            // Nobody is left who could look, and the servers and the network are gone: whoever brought that about knows.
            Err(CloudError::Gone) if is_alone => {
                let user = record.user_id();
                tracing::warn!(
                    cluster = cluster.name_any(),
                    user,
                    "what its users made in the cloud is not looked for: the credential is gone"
                );
                return Ok(None);
            }
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

fn has_waited(cluster: &CoeCluster, now: Timestamp) -> bool {
    let since = cluster.metadata.deletion_timestamp.as_ref();
    since.is_some_and(|since| now.duration_since(since.0) > PATIENCE)
}

/// With the cluster goes what is told of it: the log keeps what stays.
fn note(cluster: &CoeCluster, seen: &mut Seen, left: &Left) {
    let Some(stays) = left.stays() else { return };
    let cluster = cluster.name_any();
    tracing::warn!(cluster, stays, "things of a cluster that goes are left");
    seen.note(Some(format!(
        "these stay, and hold the network where they are in it: {stays}"
    )));
}
