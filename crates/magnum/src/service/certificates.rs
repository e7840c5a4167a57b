//! Certificates of a cluster's authorities.

use api::magnum::ServerType;
use http::StatusCode;
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Answer, Asked, actions::made_here, clusters::own, templates::mandatory};
use crate::{
    authority::{AuthorityError, Purpose},
    contract::{Fault, objects::Certificate},
    view::links,
};

pub(super) async fn show(asked: &Asked<'_>, cluster: &str) -> Result<Answer, Fault> {
    let purpose = purpose(asked.argument("ca_cert_type"))?;
    let cluster = own(asked, cluster).await?;
    asked.caller.must_be(&cluster.spec.user_id)?;
    let authority = asked.store().authority(&cluster, purpose).await?;
    let uuid = cluster.name_any();
    Answer::ok(Certificate {
        links: links(&asked.base, &format!("certificates/{uuid}")),
        cluster_uuid: uuid,
        ca_cert_type: None,
        pem: authority.certificate,
        csr: None,
    })
}

pub(super) async fn sign(asked: &Asked<'_>) -> Result<Answer, Fault> {
    let mut fields = asked.fields()?;
    let cluster = fields
        .text("cluster_uuid", 255)?
        .ok_or_else(|| mandatory("cluster_uuid"))?;
    let csr = fields
        .text("csr", crate::authority::LONGEST)?
        .ok_or_else(|| mandatory("csr"))?;
    let purpose = purpose(fields.text("ca_cert_type", 64)?.as_deref())?;
    fields.finish()?;
    let cluster = own(asked, &cluster)
        .await
        .map_err(|fault| match fault.status() {
            StatusCode::NOT_FOUND => {
                Fault::invalid(format!("Cluster {cluster} could not be found."))
            }
            _ => fault,
        })?;
    asked.caller.must_be(&cluster.spec.user_id)?;
    let authority = asked.store().authority(&cluster, purpose).await?;
    let pem = authority
        .sign(&csr, Timestamp::now())
        .map_err(|error| refused(&error))?;
    let uuid = cluster.name_any();
    let certificate = Certificate {
        links: links(&asked.base, &format!("certificates/{uuid}")),
        cluster_uuid: uuid,
        ca_cert_type: Some(purpose.word()),
        pem,
        csr: Some(csr),
    };
    Answer::with(StatusCode::CREATED, certificate)
}

/// An unknown word is refused: another authority than the one that was asked for would be worse than none.
fn purpose(word: Option<&str>) -> Result<Purpose, Fault> {
    let Some(word) = word else {
        return Ok(Purpose::Kubernetes);
    };
    Purpose::of(word).ok_or_else(|| {
        let reason = "Value should be one of kubernetes, etcd and front_proxy";
        Fault::field("ca_cert_type", &word.into(), reason)
    })
}

/// Neither kubespray nor Cluster API exchanges the authorities of a cluster that runs, so what is kept stays as it is: another one
/// would sign what the cluster does not know.
pub(super) async fn rotate(asked: &Asked<'_>, cluster: &str) -> Result<Answer, Fault> {
    let cluster = own(asked, cluster).await?;
    made_here(&cluster)?;
    let (builder, renewed) = match cluster.spec.server_type.unwrap_or_default() {
        ServerType::Bm => (
            "kubespray",
            "The certificates that they sign are renewed by `windlass renew`",
        ),
        ServerType::Vm => (
            "Cluster API",
            "The certificates that they sign are renewed when control planes are replaced, as by an upgrade",
        ),
    };
    Err(Fault::invalid(format!(
        "Rotating the CA certificate of cluster {} is not supported: {builder} does not exchange the authorities of a cluster that runs. {renewed}; where a key of an authority is lost to others, make a new cluster and move to it.",
        cluster.name_any()
    )))
}

fn refused(error: &AuthorityError) -> Fault {
    match error {
        AuthorityError::Authority(_) => broken(error),
        AuthorityError::Request(_) | AuthorityError::Refused(_) => Fault::invalid(format!(
            "Failed to {}.",
            api::text::plain(&error.to_string(), 512)
        )),
    }
}

pub(super) fn broken(error: &AuthorityError) -> Fault {
    tracing::error!(
        error = controller::chain(error),
        "an authority cannot be used"
    );
    Fault::told(
        StatusCode::INTERNAL_SERVER_ERROR,
        "The authority of the cluster can not be used.",
    )
}
