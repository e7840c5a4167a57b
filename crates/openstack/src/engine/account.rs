//! The user of a service's database, or of Keystone, rotated: there are two, which take turns, so that nobody is refused meanwhile.
//!
//! The next one is made beside the one at work; the Secret names it; the pods are replaced by such as have it from the Secret; and when nobody
//! is connected as the one before any more, or no pod has it, that goes. What is underway stands in a Secret of its own, so that the one which pods read
//! changes once, and so that a death in between is seen: whoever comes next goes on where it happened.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use api::run::{Failure, Step};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use runs::calls::{Ended, Seen, call, config, transient, until};
use serde_json::{Value, json};
use workflow::StepContext;

use crate::{
    action::Action,
    audit,
    definition::{DATABASE, Definition, IDENTITY},
    engine::{
        Done, Worker,
        database::said,
        missing,
        objects::{connection, password, place},
    },
    identity, names,
    rotation::PASSWORD_SINCE,
    service::Inputs,
    sql,
};

/// The Secrets with the next user of the database and of Keystone, by the word behind the name of the object.
pub(super) const NEXT: &str = "database-next";
pub(super) const NEXT_IDENTITY: &str = "identity-next";
/// On the Secret with the user at work: the run that made it that.
pub(super) const ROTATED_BY: &str = "openstack.windlass.dev/account-rotated-by";

/// How long whoever is at work as the user before may go on. Glance's pods have ten minutes to end.
const PATIENCE: Duration = Duration::from_mins(15);

impl Worker {
    pub(super) async fn rotate_account(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let turn = Turn::of_database(self.name(), &definition.database);
        let database = &definition.database;
        let (secret, phase) = self.stands(&turn).await?;
        self.must_be_own(inputs, database).await?;
        let user = turn.in_turn(text(&secret, "username"), &turn.current)?;
        if phase == Phase::Done {
            return Ok(Some(format!("{user} was at work before")));
        }
        if phase == Phase::Begin {
            let turns = (user.as_str(), turn.other(&user));
            self.choose(inputs, turns, &turn.next).await?;
        }
        if phase != Phase::Finish {
            self.switch(inputs, database, &secret).await?;
        }
        let user = self.put_to_work(&turn, (inputs, definition), step, context);
        let user = user.await?;
        let former = turn.other(&user);
        self.must_be_own(inputs, database).await?;
        self.end_user(inputs, former, step, context).await?;
        self.remove_secret(&turn.next).await?;
        Ok(Some(format!("{user} is at work, and {former} is gone")))
    }

    /// The Secret with the user at work, and where a rotation of it stands.
    pub(super) async fn stands(&self, turn: &Turn) -> Result<(Secret, Phase), Failure> {
        let Some(secret) = self.own_secret(&turn.current).await? else {
            return Err(missing(&turn.current, "is not there"));
        };
        let chosen = self.own_secret(&turn.next).await?;
        let chosen = chosen.map(|next| text(&next, "username"));
        let run = self.work.run.uid().unwrap_or_default();
        let is_by_this_run = secret.annotations().get(ROTATED_BY) == Some(&run);
        let phase = phase(
            &text(&secret, "username"),
            chosen.as_deref(),
            is_by_this_run,
        );
        Ok((secret, phase))
    }

    /// Has the Secret of the user at work name the next one: all of it at once, and as it was read.
    pub(super) async fn name_next(&self, current: &Secret, values: Value) -> Result<(), Failure> {
        let run = self.work.run.uid().unwrap_or_default();
        let patch = json!({
            "metadata": {
                "resourceVersion": current.resource_version(),
                "annotations": {ROTATED_BY: run, PASSWORD_SINCE: Timestamp::now().to_string()},
            },
            "stringData": values,
        });
        let name = current.name_any();
        self.about(&audit::object("Secret", &name))?;
        let patched = self
            .secrets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched
            .map(drop)
            .map_err(|error| call(format!("change Secret {name}"), &error))
    }

    /// Replaces the pods by such as have the user that the Secret names now, and says who that is.
    pub(super) async fn put_to_work(
        &self,
        turn: &Turn,
        (inputs, definition): (&Inputs, &Definition),
        step: &Step,
        context: &mut StepContext,
    ) -> Result<String, Ended> {
        let user = self.site().secret_value(&turn.current, "username").await?;
        // Pods read their environment when they start: those of now have the user of before.
        self.deploy_all((inputs, definition), step, context).await?;
        self.answers(inputs, definition, step).await?;
        Ok(user)
    }

    /// A Secret that was made for the object. One of somebody else is not followed, whatever it says.
    pub(super) async fn own_secret(&self, name: &str) -> Result<Option<Secret>, Failure> {
        let found = self.secrets().get_opt(name).await;
        let found = found.map_err(|error| call(format!("read Secret {name}"), &error))?;
        if found
            .as_ref()
            .is_some_and(|found| !self.is_own(found.labels()))
        {
            let what = format!("Secret {name} is there, and was not made for this object");
            let remedy =
                "change the password as whoever made it does, or remove it, and retry the run";
            return Err(config("Taken", what, remedy));
        }
        Ok(found)
    }

    /// Chooses who is next. As long as nothing is noted, one of that name is somebody else's.
    async fn choose(
        &self,
        inputs: &Inputs,
        (former, user): (&str, &str),
        secret: &str,
    ) -> Result<(), Failure> {
        let (_way, mut session) = self.session(&inputs.database).await?;
        let is_there = session.has_user(user).await.map_err(|error| said(&error))?;
        let beside = session.beside(former).await.map_err(|error| said(&error))?;
        session.close().await;
        if !beside.is_empty() {
            return Err(config(
                "Taken",
                format!(
                    "the database server has {} as well, which would stay when {former} goes: {}",
                    if beside.len() == 1 { "a user" } else { "users" },
                    api::text::lines(&beside.join(", "), 500)
                ),
                "remove them if nobody needs them (DROP USER), and retry the run",
            ));
        }
        if is_there {
            return Err(config(
                "Taken",
                format!("the database server has a user {user} already, and no rotation made it"),
                &format!(
                    "remove it if nobody needs it (DROP USER), for {user} is the next user of the database, and retry the run"
                ),
            ));
        }
        self.note_next(secret, user).await
    }

    /// Notes who is next, with a password that nobody knows yet, unless somebody noted one meanwhile.
    pub(super) async fn note_next(&self, secret: &str, user: &str) -> Result<(), Failure> {
        let values = [("username", user.to_owned()), ("password", password())];
        let made = self.make_secret(secret, BTreeMap::from(values)).await?;
        if !made {
            let what = format!("Secret {secret} was made meanwhile");
            return Err(transient("Taken", what));
        }
        Ok(())
    }

    /// Makes the next user, and lets the Secret name it: all of it at once, and as it was read.
    async fn switch(
        &self,
        inputs: &Inputs,
        database: &str,
        current: &Secret,
    ) -> Result<(), Failure> {
        let next = names::secret(self.name(), NEXT);
        let (user, password) = self.account_in(&next, database).await?;
        let digest = sql::digest(&password);
        let (_way, mut session) = self.session(&inputs.database).await?;
        for statement in sql::account(database, &user, &digest) {
            let told = statement.replace(&digest, audit::PASSWORD);
            self.about(&audit::statement(&told))?;
            let made = session.execute(&[statement]).await;
            made.map_err(|error| said(&error))?;
        }
        self.confine(&mut session, database, &user).await?;
        session.close().await;
        let place = place(&inputs.database, database);
        let values = json!({
            "connection": connection(&user, &password, &place),
            "username": user, "password": password,
        });
        self.name_next(current, values).await
    }

    /// Asks for what only a service that reaches its database can answer, as the last steps of its run do.
    async fn answers(&self, inputs: &Inputs, definition: &Definition, step: &Step) -> Done {
        for asked in &definition.steps {
            match &asked.does {
                Action::IssueToken => return self.issue_token(definition).await,
                Action::Ask(ask) => return self.ask(inputs, definition, ask, step).await,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Pods that go and Jobs end first what they are at; whoever goes on, as one with a password that got around would, is ended.
    async fn end_user(
        &self,
        inputs: &Inputs,
        user: &str,
        step: &Step,
        context: &mut StepContext,
    ) -> Result<(), Ended> {
        let since = Instant::now();
        until(step, context, || async {
            let (_way, mut session) = self.session(&inputs.database).await?;
            let left = session.sessions_of(user).await;
            let left = left.map_err(|error| said(&error))?;
            session.close().await;
            Ok(if left == 0 || since.elapsed() > PATIENCE {
                Seen::There(())
            } else {
                Seen::Missing(format!("{left} sessions of {user} end"))
            })
        })
        .await?;
        let (_way, mut session) = self.session(&inputs.database).await?;
        for statement in sql::end_user(user) {
            self.about(&audit::statement(&statement))?;
            let done = session.execute(&[statement]).await;
            done.map_err(|error| said(&error))?;
        }
        session.close().await;
        Ok(())
    }
}

/// Two users that take turns, and where it stands whose turn it is.
pub(super) struct Turn {
    /// The Secret with the user at work.
    pub(super) current: String,
    /// The Secret with the next one, while there is one.
    pub(super) next: String,
    /// Their names.
    pub(super) users: [String; 2],
    /// What they are the users of, for people.
    pub(super) of: String,
}

impl Turn {
    /// Those of a database of an object.
    pub(super) fn of_database(object: &str, database: &str) -> Self {
        Self {
            current: names::secret(object, DATABASE),
            next: names::secret(object, NEXT),
            users: sql::users_of(database),
            of: format!("database {database}"),
        }
    }

    /// Those by which Keystone knows a service that an object is.
    pub(super) fn of_keystone(object: &str, service: &str) -> Self {
        Self {
            current: names::secret(object, IDENTITY),
            next: names::secret(object, NEXT_IDENTITY),
            users: identity::users_of(service),
            of: format!("{service} in Keystone"),
        }
    }

    /// The user that a Secret names, if it is one of the two: as administrator nobody else's is changed, whatever a Secret says.
    pub(super) fn in_turn(&self, user: String, secret: &str) -> Result<String, Failure> {
        if self.users.contains(&user) {
            return Ok(user);
        }
        let Self {
            users: [first, second],
            of,
            ..
        } = self;
        Err(config(
            "Taken",
            format!(
                "Secret {secret} names the user {}, and the users of {of} are {first} and {second}",
                api::text::plain(&user, 64)
            ),
            &format!(
                "write {first} under the key username of Secret {secret}, or delete the Secret, and retry the run"
            ),
        ))
    }

    /// The one of the two that this one is not.
    pub(super) fn other(&self, user: &str) -> &str {
        let [first, second] = &self.users;
        if user == first { second } else { first }
    }
}

/// Where a rotation stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Nothing of it is done.
    Begin,
    /// The next user is chosen and may be there, and nobody knows it.
    Switch,
    /// The Secret names it.
    Finish,
    /// It is over.
    Done,
}

/// By the user that the Secret names, the next one where one is chosen, and whether the Secret names its user since this run.
fn phase(user: &str, next: Option<&str>, is_by_this_run: bool) -> Phase {
    match next {
        Some(next) if next == user => Phase::Finish,
        Some(_) => Phase::Switch,
        None if is_by_this_run => Phase::Done,
        None => Phase::Begin,
    }
}

pub(super) fn text(secret: &Secret, key: &str) -> String {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let bytes = value.map(|value| value.0.clone()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_secret_names_no_user_of_others() {
        for turn in [
            Turn::of_database("one", "keystone"),
            Turn::of_keystone("one", "keystone"),
        ] {
            for user in ["keystone", "keystone_2"] {
                let user = turn.in_turn(user.to_owned(), "s");
                assert!(user.is_ok(), "{user:?}");
            }
            for user in ["root", "glance", "keystone_3", "", "keystone'"] {
                let refused = turn.in_turn(user.to_owned(), "s").unwrap_err();
                assert_eq!(refused.code, "Taken", "{user}");
                assert!(refused.message.contains(&turn.of), "{}", refused.message);
            }
        }
    }

    /// What a rotation changes, and how often it may before it is killed.
    #[derive(Clone, Debug, Default)]
    struct World {
        secret: &'static str,
        rotated_by: Option<u8>,
        next: Option<&'static str>,
        users: BTreeSet<&'static str>,
        pods: &'static str,
        left: usize,
    }

    struct Killed;

    impl World {
        fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), Killed> {
            self.left = self.left.checked_sub(1).ok_or(Killed)?;
            change(self);
            assert!(self.users.contains(self.pods), "pods are refused: {self:?}");
            assert!(self.users.contains(self.secret), "a new pod is: {self:?}");
            Ok(())
        }

        /// In the order of the step.
        fn rotate(&mut self, run: u8) -> Result<(), Killed> {
            let phase = phase(self.secret, self.next, self.rotated_by == Some(run));
            if phase == Phase::Done {
                return Ok(());
            }
            if phase == Phase::Begin {
                let other = if self.secret == "a" { "b" } else { "a" };
                self.change(|world| world.next = Some(other))?;
            }
            if phase != Phase::Finish {
                let next = self.next.unwrap();
                self.change(|world| world.users.extend([next]))?;
                self.change(|world| {
                    world.secret = next;
                    world.rotated_by = Some(run);
                })?;
            }
            self.change(|world| world.pods = world.secret)?;
            let former = if self.secret == "a" { "b" } else { "a" };
            self.change(|world| world.users.retain(|user| *user != former))?;
            self.change(|world| world.next = None)
        }
    }

    #[test]
    fn a_rotation_that_is_killed_anywhere_is_one_rotation() {
        let begin = World {
            secret: "a",
            users: BTreeSet::from(["a"]),
            pods: "a",
            ..World::default()
        };
        let mut edges = 0;
        loop {
            let mut world = begin.clone();
            world.left = edges;
            let whole = world.rotate(1).is_ok();
            world.left = usize::MAX;
            // The same run, by another runner; and once more, where nobody heard that it was over.
            for _ in 0..2 {
                assert!(world.rotate(1).is_ok());
            }
            assert_eq!((world.secret, world.pods, world.next), ("b", "b", None));
            assert_eq!(world.users, BTreeSet::from(["b"]));
            assert!(world.rotate(2).is_ok());
            assert_eq!(world.users, BTreeSet::from(["a"]));
            if whole {
                break;
            }
            edges += 1;
        }
        assert_eq!(edges, 6);
    }
}
