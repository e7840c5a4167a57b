//! Every provider of an API, for the commands.

use kube::Client;
use providers::stand::{Stand, Unread};

use crate::client::answered;

pub(super) async fn all(client: &Client) -> anyhow::Result<Vec<Stand>> {
    Stand::all(client).await.or_else(|Unread { what, source }| {
        if let kube::Error::Api(status) = &source
            && status.code == 404
        {
            anyhow::bail!(
                "failed to {what}, for the API does not serve the kind: install the definitions that `windlass crds --providers` prints"
            );
        }
        answered(Err(source), &what)
    })
}

/// The same of the kinds that the API serves: of the others none is installed by an object.
pub(super) async fn all_there(client: &Client) -> anyhow::Result<Vec<Stand>> {
    let stands = Stand::all_served(client).await;
    stands.or_else(|Unread { what, source }| answered(Err(source), &what))
}
