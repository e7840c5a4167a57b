//! The controller of VaultSecrets.

use std::sync::Arc;

use api::secrets::VaultSecret;
use controller::{BackOff, Events, Manager, conditions, metrics::Gauge, reads};

use crate::{
    reconcile::{self, Context, STALE, Turns},
    session::Sessions,
};

/// How the controller works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether a Vault at loopback is asked: in a pod that is the operator itself.
    pub loopback: bool,
    /// The operator's own namespace: the key of digests is kept there.
    pub namespace: String,
}

/// Has the manager work on VaultSecrets.
pub fn operate(manager: &mut Manager, options: Options) {
    let own = manager.watch::<VaultSecret>();
    let client = manager.client().clone();
    let gauge = Gauge {
        name: "windlass_vault_secrets",
        help: "VaultSecrets by how they stand.",
        label: "standing",
    };
    manager
        .settings()
        .metrics
        .gauge(gauge, own.store(), standing);
    let context = Arc::new(Context {
        client: client.clone(),
        own: own.store(),
        events: Events::new(client, "vault"),
        sessions: Sessions::default(),
        back_off: BackOff::default(),
        turns: Turns::default(),
        loopback: options.loopback,
        keys: options.namespace,
    });
    manager
        .controller(&own, reads::wish)
        .reconcile(reconcile::reconcile, context);
}

#[expect(clippy::unnecessary_wraps, reason = "the metric may leave objects out")]
fn standing(object: &VaultSecret) -> Option<&'static str> {
    let conditions = object.status.as_ref().map(|status| &status.conditions);
    let is = |kind| conditions.is_some_and(|them| conditions::is_true(them, kind));
    Some(match (is(conditions::READY), is(STALE)) {
        (true, false) => "Ready",
        (true, true) => "Stale",
        (false, _) => "NotReady",
    })
}
