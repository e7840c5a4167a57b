//! What people want, followed by a watch on the Run.

use api::{Run, run::DesiredState};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use workflow::Steering;

use super::{Job, steering};

/// Follows `spec.control` for as long as the process lives. The first value is that of the Run as it was fetched.
pub(crate) fn follow(job: &Job) -> watch::Receiver<Steering> {
    let (sender, receiver) = watch::channel(steering(&job.run));
    let api = Api::<Run>::namespaced(job.client.clone(), &job.namespace());
    let name = job.run.name_any();
    let uid = job.run.uid();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    tokio::spawn(async move {
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let wanted = match event {
                Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run))
                    if run.uid() == uid =>
                {
                    steering(&run)
                }
                // Nobody can want anything of a Run that is gone, and nobody would see how it goes on.
                Ok(watcher::Event::Delete(run)) if run.uid() == uid => {
                    let mut steering = steering(&run);
                    steering.control.state = Some(DesiredState::Cancelled);
                    steering
                }
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch on the Run failed, trying again"
                    );
                    continue;
                }
            };
            sender.send_if_modified(|now| {
                let changed = *now != wanted;
                *now = wanted;
                changed
            });
        }
    });
    receiver
}
