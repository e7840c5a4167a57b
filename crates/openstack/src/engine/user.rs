//! The user of a service in Keystone, rotated as that of its database is: two take turns.
//!
//! The next one has the roles and the groups of the one before, whoever gave them. What belongs to that one and would go with it, as an
//! application credential, is for people to make anew first.

use api::run::{Failure, Step};
use k8s_openapi::api::core::v1::Secret;
use runs::calls::config;
use serde_json::json;
use workflow::StepContext;

use crate::{
    audit,
    definition::Definition,
    engine::{
        Done, Worker,
        account::{Phase, Turn, text},
        accounts::said,
        misplaced,
    },
    identity::Own,
    service::{Identity, Inputs},
};

impl Worker {
    pub(super) async fn rotate_identity(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let identity = inputs.identity.as_ref().ok_or_else(|| misplaced(step))?;
        let service = &identity.account.name;
        let turn = Turn::of_keystone(self.name(), service);
        let owner = self.owner().await?;
        let own = Own {
            owner: &owner,
            former: None,
            existing: self.existing(inputs),
        };
        let (secret, phase) = self.stands(&turn).await?;
        let user = turn.in_turn(text(&secret, "username"), &turn.current)?;
        if phase == Phase::Done {
            return Ok(Some(format!("{user} was at work before")));
        }
        if phase == Phase::Begin {
            let turns = (user.as_str(), turn.other(&user));
            self.choose_next(identity, turns, own, &turn.next).await?;
        }
        if phase != Phase::Finish {
            self.let_succeed(identity, &user, own, (&turn, &secret))
                .await?;
        }
        let user = self.put_to_work(&turn, (inputs, definition), step, context);
        let user = user.await?;
        let former = turn.other(&user);
        let admin = self.administrator(identity).await?;
        let gone = audit::in_keystone(&format!("user {former}"));
        self.about(&audit::removed(&gone))?;
        let removed = admin.remove_user(former, own).await;
        removed.map_err(|error| said(&error))?;
        self.remove_secret(&turn.next).await?;
        Ok(Some(format!("{user} is at work, and {former} is gone")))
    }

    /// Chooses who is next. As long as nothing is noted, one of that name is somebody else's.
    async fn choose_next(
        &self,
        identity: &Identity,
        (user, next): (&str, &str),
        own: Own<'_>,
        secret: &str,
    ) -> Result<(), Failure> {
        let admin = self.administrator(identity).await?;
        let belongings = admin.belongings(user, own).await;
        let belongings = belongings.map_err(|error| said(&error))?;
        if !belongings.is_empty() {
            return Err(config(
                "Taken",
                format!(
                    "user {user} has what would go with it: {}",
                    api::text::lines(&belongings.join(", "), 500)
                ),
                "delete it where nobody needs it, or give it to another user; then retry the run",
            ));
        }
        if admin.has_user(next).await.map_err(|error| said(&error))? {
            return Err(config(
                "Taken",
                format!("Keystone has a user {next} already, and no rotation made it"),
                &format!(
                    "remove it if nobody needs it (openstack user delete {next}), for {next} takes turns with {user}, and retry the run"
                ),
            ));
        }
        self.note_next(secret, next).await
    }

    /// Makes the next user, and lets the Secret name it.
    async fn let_succeed(
        &self,
        identity: &Identity,
        user: &str,
        own: Own<'_>,
        (turn, current): (&Turn, &Secret),
    ) -> Result<(), Failure> {
        let chosen = self.site().login(&turn.next, None).await?;
        let next = turn.in_turn(chosen.username, &turn.next)?;
        let admin = self.administrator(identity).await?;
        let note = |what: &str| self.noted_in_keystone(what);
        let made = admin.succeed(
            &identity.account,
            (user, &next),
            &chosen.password,
            own,
            &note,
        );
        made.await.map_err(|error| said(&error))?;
        let values = json!({"username": next, "password": chosen.password});
        self.name_next(current, values).await
    }
}
