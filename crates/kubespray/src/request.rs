//! Annotations with which people ask for something: which of them asks for what.

pub use api::cluster::request::{
    COMPONENT, CONVERGE, DRILL, FORCE_REMOVAL, MAINTAIN, RECOVER, RENEW, REPLACED_BY, RESET_HOST,
    SNAPSHOT, START_AGAIN, TOOLBOX,
};

use crate::operation::{AskedBy, Operation};

/// How a person makes an operation start anew. The value is another one each time.
pub fn start_again(namespace: &str, cluster: &str) -> String {
    format!(
        "kubectl -n {namespace} annotate cluster {cluster} --overwrite {START_AGAIN}=\"$(date +%s)\""
    )
}

/// The annotation by which an operation is asked for, if it is.
pub const fn of(operation: &Operation) -> Option<&'static str> {
    match operation.asked {
        AskedBy::Nobody => None,
        AskedBy::Cluster(asked) => Some(asked.annotation),
        AskedBy::Host(annotation) => Some(annotation),
    }
}
