//! A look at a host after a failure whose words leave open what it was.

use std::time::Duration;

use ansible::{failure, probe};
use api::{HostName, run::Failure};
use jiff::Timestamp;

use crate::runner::{executor::KubesprayExecutor, prepare};

/// The step has failed already: nobody waits longer to hear why.
const LIMIT: Duration = Duration::from_secs(10);

/// The failure, told as what a look at the first of its hosts says that it is. A host that does not answer leaves it as it is.
pub(super) async fn refined(executor: &KubesprayExecutor, failure: Failure) -> Failure {
    let Some(look) = failure::look(&failure.code) else {
        return failure;
    };
    let mut hosts = failure.targets.iter();
    let host: Option<HostName> = hosts.find_map(|target| target.as_str().parse().ok());
    let targets = prepare::targets(executor, host.iter());
    let Some(target) = targets.first() else {
        return failure;
    };
    let Ok(options) = prepare::options(executor).await else {
        return failure;
    };
    match probe::run(target, &options, look.script(), LIMIT).await {
        Ok(said) => look.refined(failure, &said, Timestamp::now().as_second()),
        Err(_) => failure,
    }
}
