//! Passwords of administrators, rotated. There is one administrator with one password, so nobody takes turns.
//!
//! The next password stands in the Secret, under a key of its own, before anybody is told of it, and takes the place of the one before
//! when a login has proved it. So whichever of the two is known at any moment, the Secret has it: who goes on after a death tries both, and
//! so does every step that logs in meanwhile.

use api::run::{Failure, Step};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use reqwest::StatusCode;
use runs::calls::{Ended, Seen, call, config, transient, until};
use serde_json::{Value, json};
use workflow::StepContext;

use crate::{
    audit,
    cloud::database_server,
    definition::{ADMIN, Definition},
    engine::{
        Done, Worker,
        account::{ROTATED_BY, text},
        accounts::said,
        database, missing,
        objects::{INIT, init, password},
        site::NEXT_PASSWORD,
    },
    identity::{self, Error, LoggedIn, Login},
    names,
    reach::Way,
    rotation::{PASSWORD_SINCE, SPREAD},
    service::Server,
    sql::{self, Session},
};

/// On a Secret with a next password: since when it is there.
pub(super) const NOTED: &str = "openstack.windlass.dev/password-noted";
/// The same: which run has noted it.
pub(super) const NOTED_BY: &str = "openstack.windlass.dev/password-noted-by";

/// A Secret with a password that is rotated.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// As it was read.
    secret: Secret,
    /// The password in use.
    password: String,
    /// The next one, while there is one.
    next: Option<String>,
    /// Whether all is noted that has to be before anybody is told of the next one.
    is_noted: bool,
    /// Whether another run has noted the next one, and did not come to its end.
    is_left: bool,
    /// Whether this run has put the one in use to use.
    is_done: bool,
}

/// Somebody whose password is rotated: what is asked of who knows it and of the Secret, and what is changed.
trait Rotated {
    /// What the Secret has.
    async fn read(&mut self) -> Result<Kept, Failure>;
    /// Notes this next password in the Secret.
    async fn note(&mut self, kept: &Kept, next: &str) -> Result<(), Failure>;
    /// Waits until the next password may be told.
    async fn settle(&mut self, kept: &Kept) -> Result<(), Ended>;
    /// Whether somebody is let in with a password.
    async fn knows(&mut self, password: &str) -> Result<bool, Failure>;
    /// Whether a next password that was noted may be set by others, so that it has to be brought to its end.
    fn has_spread(&self) -> bool;
    /// Nobody is let in with what the Secret has.
    fn neither(&self) -> Failure;
    /// Has the next password be the one, by the one before.
    async fn tell(&mut self, password: &str, next: &str) -> Result<(), Failure>;
    /// Waits until somebody is let in with the next password, and may do something.
    async fn prove(&mut self, next: &str) -> Result<(), Ended>;
    /// Has the next password be the one in use of the Secret: all of it at once, and as it was read.
    async fn swap(&mut self, kept: &Kept, next: &str, is_last: bool) -> Result<(), Failure>;
}

/// Rotates a password, from wherever that stands. False: this run has done it.
async fn rotate(of: &mut impl Rotated) -> Result<bool, Ended> {
    let mut kept = of.read().await?;
    if kept.next.is_none() && kept.is_done {
        return Ok(false);
    }
    if kept.is_left
        && let Some(left) = kept.next.take()
    {
        // Whoever has read it since then would know the password that is in use when this has ended.
        if of.has_spread() || !of.knows(&kept.password).await? {
            kept.next = Some(left.clone());
            finish(of, kept, &left, false).await?;
            kept = of.read().await?;
        }
    }
    let next = kept.next.clone().unwrap_or_else(password);
    finish(of, kept, &next, true).await?;
    Ok(true)
}

/// Puts a next password to use.
async fn finish(
    of: &mut impl Rotated,
    mut kept: Kept,
    next: &str,
    is_last: bool,
) -> Result<(), Ended> {
    if kept.next.is_none() || !kept.is_noted {
        of.note(&kept, next).await?;
        kept = of.read().await?;
    }
    of.settle(&kept).await?;
    // That takes minutes, and nobody may be told of what the Secret no longer has.
    let kept = of.read().await?;
    if kept.next.as_deref() != Some(next) {
        let what = format!("{NEXT_PASSWORD} of the Secret was changed by somebody else meanwhile");
        return Err(transient("Changed", what).into());
    }
    // Whoever was killed may have told it. The one before is tried first: one that is refused counts where many lock a user out.
    if of.knows(&kept.password).await? {
        of.tell(&kept.password, next).await?;
    } else if !of.knows(next).await? {
        return Err(of.neither().into());
    }
    of.prove(next).await?;
    of.swap(&kept, next, is_last).await?;
    Ok(())
}

impl Worker {
    /// Gives the administrator of a Keystone another password.
    pub(super) async fn rotate_administrator(
        &self,
        definition: &Definition,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let secret = names::secret(self.name(), ADMIN);
        let login = self.site().login(&secret, Some("project")).await?;
        let who = login.username.clone();
        let mut administrator = Administrator {
            worker: self,
            url: self.site().keystone(self.name(), definition),
            login,
            secret,
            step,
            context,
        };
        let is_new = rotate(&mut administrator).await?;
        Ok(Some(told(&who, is_new)))
    }

    /// Gives the administrator of the managed database server another password.
    pub(super) async fn rotate_server_administrator(
        &self,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let host = database_server(self.name());
        let mut root = Root {
            worker: self,
            server: Server {
                admin_secret: names::secret(&host, ADMIN),
                host,
                port: 3306,
            },
            step,
            context,
        };
        let is_new = rotate(&mut root).await?;
        Ok(Some(told(sql::ROOT, is_new)))
    }

    /// What a Secret has that was made for the object.
    async fn kept(&self, name: &str) -> Result<Kept, Failure> {
        let secret = self.own_secret(name).await?;
        let secret = secret.ok_or_else(|| missing(name, "is not there"))?;
        let next = text(&secret, NEXT_PASSWORD);
        let run = self.work.run.uid().unwrap_or_default();
        let is_noted = secret.annotations().contains_key(NOTED);
        Ok(Kept {
            password: text(&secret, "password"),
            next: (!next.is_empty()).then_some(next),
            is_noted,
            // One that a person wrote is meant.
            is_left: is_noted && secret.annotations().get(NOTED_BY) != Some(&run),
            is_done: secret.annotations().get(ROTATED_BY) == Some(&run),
            secret,
        })
    }

    /// Notes the next password of a Secret, and what else is to stand there from then on.
    async fn note_password(&self, kept: &Kept, next: &str, more: Value) -> Result<(), Failure> {
        if !is_plain(next) {
            let name = kept.secret.name_any();
            return Err(config(
                "Unusable",
                format!(
                    "Secret {name} holds under {NEXT_PASSWORD} what is no password of letters and digits"
                ),
                &format!("remove the key {NEXT_PASSWORD}, and retry the run: it makes one"),
            ));
        }
        let mut data = more;
        data[NEXT_PASSWORD] = json!(bytes(next));
        let run = self.work.run.uid().unwrap_or_default();
        let annotations = json!({NOTED: Timestamp::now().to_string(), NOTED_BY: run});
        self.change_secret(&kept.secret, &data, &annotations).await
    }

    /// Puts the next password of a Secret to use.
    async fn swap_password(&self, kept: &Kept, next: &str, is_last: bool) -> Result<(), Failure> {
        let run = is_last.then(|| self.work.run.uid().unwrap_or_default());
        let data = json!({"password": bytes(next), NEXT_PASSWORD: null});
        let since = Timestamp::now().to_string();
        let annotations =
            json!({NOTED: null, NOTED_BY: null, ROTATED_BY: run, PASSWORD_SINCE: since});
        self.change_secret(&kept.secret, &data, &annotations).await
    }

    /// Changes a Secret as it was read, or not at all.
    async fn change_secret(
        &self,
        secret: &Secret,
        data: &Value,
        annotations: &Value,
    ) -> Result<(), Failure> {
        let name = secret.name_any();
        let patch = json!({
            "metadata": {
                "resourceVersion": secret.resource_version(),
                "annotations": annotations,
            },
            "data": data,
        });
        self.about(&audit::object("Secret", &name))?;
        let patched = self
            .secrets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched
            .map(drop)
            .map_err(|error| call(format!("change Secret {name}"), &error))
    }
}

/// The administrator of a Keystone.
struct Administrator<'a> {
    worker: &'a Worker,
    url: String,
    /// With the password that was in use when the step began.
    login: Login,
    secret: String,
    step: &'a Step,
    context: &'a mut StepContext,
}

impl Administrator<'_> {
    fn login(&self, password: &str) -> Login {
        Login {
            password: password.to_owned(),
            ..self.login.clone()
        }
    }
}

impl Rotated for Administrator<'_> {
    async fn read(&mut self) -> Result<Kept, Failure> {
        self.worker.kept(&self.secret).await
    }

    async fn note(&mut self, kept: &Kept, next: &str) -> Result<(), Failure> {
        self.worker.note_password(kept, next, json!({})).await
    }

    /// Nobody has it from elsewhere.
    async fn settle(&mut self, _: &Kept) -> Result<(), Ended> {
        Ok(())
    }

    async fn knows(&mut self, password: &str) -> Result<bool, Failure> {
        let site = self.worker.site();
        let known = site.try_login(&self.url, &self.login(password)).await?;
        Ok(matches!(known, LoggedIn::As(_)))
    }

    fn has_spread(&self) -> bool {
        false
    }

    fn neither(&self) -> Failure {
        neither("Keystone", &self.login.username, &self.secret, "")
    }

    async fn tell(&mut self, password: &str, next: &str) -> Result<(), Failure> {
        let login = self.login(password);
        let known = self.worker.site().try_login(&self.url, &login).await?;
        let LoggedIn::As(session) = known else {
            return Err(self.neither());
        };
        let what = identity::password(&login.username);
        self.worker.about(&audit::in_keystone(&what))?;
        let told = session.change_own_password(password, next).await;
        told.map_err(|error| said(&error))
    }

    async fn prove(&mut self, next: &str) -> Result<(), Ended> {
        let login = self.login(next);
        let (site, url) = (self.worker.site(), self.url.clone());
        until(self.step, self.context, || async {
            let LoggedIn::As(session) = site.try_login(&url, &login).await? else {
                let who = &login.username;
                let what = format!("Keystone does not know the next password of {who} yet");
                return Ok(Seen::Missing(what));
            };
            match session.validate(&login.username).await {
                Ok(()) => Ok(Seen::There(())),
                // Those of the same second end as those of before do.
                Err(Error::Status {
                    status: StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND,
                    ..
                }) => Ok(Seen::Missing(
                    "no token by the next password is valid yet".to_owned(),
                )),
                Err(error) => Err(said(&error)),
            }
        })
        .await
    }

    async fn swap(&mut self, kept: &Kept, next: &str, is_last: bool) -> Result<(), Failure> {
        self.worker.swap_password(kept, next, is_last).await
    }
}

/// The administrator of a managed database server.
struct Root<'a> {
    worker: &'a Worker,
    server: Server,
    step: &'a Step,
    context: &'a mut StepContext,
}

impl Root<'_> {
    /// None: the server lets nobody in with that password.
    async fn enter(&self, password: &str) -> Result<Option<(Way, Session)>, Failure> {
        let (way, login) = self.worker.way(&self.server).await?;
        let login = sql::Login {
            password: password.to_owned(),
            ..login
        };
        match Session::open(&login).await {
            Ok(session) => Ok(Some((way, session))),
            Err(error) if error.is_denied() => Ok(None),
            Err(error) => Err(database::said(&error)),
        }
    }
}

impl Rotated for Root<'_> {
    async fn read(&mut self) -> Result<Kept, Failure> {
        let name = &self.server.admin_secret;
        let mut kept = self.worker.kept(name).await?;
        let user = text(&kept.secret, "username");
        if user != sql::ROOT {
            let user = api::text::plain(&user, 64);
            return Err(config(
                "Taken",
                format!("Secret {name} names the user {user}, and the server was made with root"),
                &format!(
                    "write root under the key username of Secret {name}, with its password, and retry the run"
                ),
            ));
        }
        if let Some(next) = &kept.next {
            kept.is_noted &= text(&kept.secret, INIT) == init(next);
        }
        Ok(kept)
    }

    async fn note(&mut self, kept: &Kept, next: &str) -> Result<(), Failure> {
        let more = json!({INIT: bytes(&init(next))});
        self.worker.note_password(kept, next, more).await
    }

    /// Each time that it starts, the server sets the password which its pod has of the Secret: that would be the one of before, after the
    /// Secret has another one.
    async fn settle(&mut self, kept: &Kept) -> Result<(), Ended> {
        let from = settled(noted(&kept.secret), Timestamp::now());
        let what = format!("from {from} on a server that starts anew has the next password");
        until(self.step, self.context, || async {
            Ok(if Timestamp::now() < from {
                Seen::Missing(what.clone())
            } else {
                Seen::There(())
            })
        })
        .await
    }

    async fn knows(&mut self, password: &str) -> Result<bool, Failure> {
        let Some((_way, session)) = self.enter(password).await? else {
            return Ok(false);
        };
        session.close().await;
        Ok(true)
    }

    /// A server that starts anew sets it.
    fn has_spread(&self) -> bool {
        true
    }

    fn neither(&self) -> Failure {
        let Server {
            host, admin_secret, ..
        } = &self.server;
        let or = format!(
            "; or delete the pod of {host}: it sets what the Secret has under {INIT} when it starts"
        );
        neither(host, sql::ROOT, admin_secret, &or)
    }

    async fn tell(&mut self, password: &str, next: &str) -> Result<(), Failure> {
        let Some((_way, mut session)) = self.enter(password).await? else {
            return Err(self.neither());
        };
        let digest = sql::digest(next);
        for statement in sql::administrator(&digest) {
            let told = statement.replace(&digest, audit::PASSWORD);
            self.worker.about(&audit::statement(&told))?;
            let done = session.execute(&[statement]).await;
            done.map_err(|error| database::said(&error))?;
        }
        session.close().await;
        Ok(())
    }

    async fn prove(&mut self, next: &str) -> Result<(), Ended> {
        let Some((_way, mut session)) = self.enter(next).await? else {
            let what = format!(
                "{} does not let root in with the next password",
                self.server.host
            );
            return Err(transient("DatabaseServer", what).into());
        };
        let version = session.version().await;
        version.map_err(|error| database::said(&error))?;
        session.close().await;
        Ok(())
    }

    async fn swap(&mut self, kept: &Kept, next: &str, is_last: bool) -> Result<(), Failure> {
        self.worker.swap_password(kept, next, is_last).await
    }
}

/// Since when a Secret has its next password.
fn noted(secret: &Secret) -> Option<Timestamp> {
    secret.annotations().get(NOTED)?.parse().ok()
}

/// From when on all pods have what was noted then. What a person wrote there is waited for no longer than what is noted now.
fn settled(noted: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let noted = noted.map_or(now, |noted| noted.min(now));
    noted.checked_add(SPREAD).unwrap_or(Timestamp::MAX)
}

fn told(who: &str, is_new: bool) -> String {
    if is_new {
        format!("{who} has another password")
    } else {
        format!("{who} was given another password before")
    }
}

/// Nothing that the Secret has lets anybody in.
fn neither(at: &str, who: &str, secret: &str, or: &str) -> Failure {
    config(
        "WrongPassword",
        format!(
            "{at} lets {who} in neither with the password in Secret {secret} nor with the next one there"
        ),
        &format!(
            "put the right one under the key password of Secret {secret}{or}; then retry the run"
        ),
    )
}

/// Letters and digits, as those that are made here: it stands in statements, and Keystone's hashes know no longer ones.
fn is_plain(password: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_alphanumeric();
    (8..=64).contains(&password.len()) && password.chars().all(is_plain)
}

fn bytes(value: &str) -> ByteString {
    ByteString(value.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    /// What a rotation changes, and how many changes are done before it is killed.
    #[derive(Clone, Debug, Default)]
    struct World {
        password: String,
        next: Option<String>,
        is_noted: bool,
        noted_by: Option<u8>,
        rotated_by: Option<u8>,
        /// Whether it is a server that sets what it was started with.
        spreads: bool,
        /// What somebody writes as the next one while it is waited.
        edited: Option<String>,
        known: String,
        /// What may set the password, and which: a server that starts anew by what its pod has of the Secret.
        sets: Vec<String>,
        told: usize,
        run: u8,
        left: usize,
    }

    impl World {
        fn new() -> Self {
            Self {
                password: "first".to_owned(),
                known: "first".to_owned(),
                sets: vec!["first".to_owned()],
                ..Self::default()
            }
        }

        fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<(), Failure> {
            let left = self.left.checked_sub(1);
            self.left = left.ok_or_else(|| transient("Killed", "killed"))?;
            change(self);
            self.is_found();
            Ok(())
        }

        /// Whoever reads the Secret is let in, and is still if the server starts anew.
        fn is_found(&self) {
            for known in self.sets.iter().chain([&self.known]) {
                assert!(
                    self.password == *known || self.next.as_ref() == Some(known),
                    "nobody is let in: {self:?}"
                );
            }
        }

        fn rotate(&mut self, run: u8, left: usize) -> Result<bool, Ended> {
            (self.run, self.left) = (run, left);
            rotate(self).now_or_never().unwrap()
        }
    }

    impl Rotated for World {
        async fn read(&mut self) -> Result<Kept, Failure> {
            Ok(Kept {
                password: self.password.clone(),
                next: self.next.clone(),
                is_noted: self.is_noted,
                is_left: self.is_noted && self.noted_by != Some(self.run),
                is_done: self.rotated_by == Some(self.run),
                ..Kept::default()
            })
        }

        async fn note(&mut self, _: &Kept, next: &str) -> Result<(), Failure> {
            self.change(|world| {
                world.next = Some(next.to_owned());
                world.is_noted = true;
                world.noted_by = Some(world.run);
                if !world.spreads {
                    world.sets.clear();
                }
                world.sets.push(next.to_owned());
            })
        }

        async fn settle(&mut self, _: &Kept) -> Result<(), Ended> {
            assert!(self.is_noted);
            self.sets = self.next.iter().cloned().collect();
            if let Some(edited) = self.edited.take() {
                self.next = Some(edited);
            }
            Ok(())
        }

        async fn knows(&mut self, password: &str) -> Result<bool, Failure> {
            Ok(self.known == password)
        }

        fn has_spread(&self) -> bool {
            self.spreads
        }

        fn neither(&self) -> Failure {
            transient("WrongPassword", "nobody is let in")
        }

        async fn tell(&mut self, password: &str, next: &str) -> Result<(), Failure> {
            assert_eq!(self.known, password);
            self.told += 1;
            self.change(|world| next.clone_into(&mut world.known))
        }

        async fn prove(&mut self, next: &str) -> Result<(), Ended> {
            assert_eq!(self.known, next);
            Ok(())
        }

        async fn swap(&mut self, _: &Kept, next: &str, is_last: bool) -> Result<(), Failure> {
            self.change(|world| {
                next.clone_into(&mut world.password);
                (world.next, world.is_noted, world.noted_by) = (None, false, None);
                world.rotated_by = is_last.then_some(world.run);
            })
        }
    }

    #[test]
    fn a_password_is_rotated_once_and_always_in_its_secret_wherever_a_rotation_is_killed() {
        let mut edges = 0;
        loop {
            let mut world = World::new();
            let whole = world.rotate(1, edges).is_ok();
            world.is_found();
            // The same run, by another runner; and once more, where nobody heard that it was over.
            assert_eq!(world.rotate(1, 9).unwrap(), !whole);
            assert!(!world.rotate(1, 0).unwrap());
            assert_eq!((&world.known, &world.next), (&world.password, &None));
            assert_ne!(world.known, "first");
            assert_eq!(world.told, if edges == 1 { 2 } else { 1 });
            let second = world.known.clone();
            assert!(world.rotate(2, 9).unwrap());
            assert_ne!(world.known, second);
            if whole {
                break;
            }
            edges += 1;
        }
        assert_eq!(edges, 3);
    }

    #[test]
    fn what_another_run_left_is_in_use_no_longer_wherever_it_was_left() {
        for (edges, spreads) in [
            (0, false),
            (1, false),
            (2, false),
            (0, true),
            (1, true),
            (2, true),
        ] {
            let mut world = World {
                spreads,
                ..World::new()
            };
            assert!(world.rotate(1, edges).is_err());
            let left = world.next.clone();
            if spreads {
                // A server that starts anew sets one of them.
                world.known = world.sets[0].clone();
                world.is_found();
            }
            assert!(world.rotate(2, 9).unwrap());
            assert_eq!((&world.known, &world.next), (&world.password, &None));
            assert_ne!(left.as_ref(), Some(&world.known), "{edges} {spreads}");
            assert!(!world.rotate(2, 0).unwrap());
        }
    }

    #[test]
    fn what_a_person_wrote_as_the_next_one_is_meant() {
        let mut world = World {
            next: Some("theirs".to_owned()),
            ..World::new()
        };
        assert!(world.rotate(1, 9).unwrap());
        assert_eq!(
            (world.known.as_str(), world.password.as_str()),
            ("theirs", "theirs")
        );
        // In mid-rotation nobody is told of what the Secret has no longer.
        world.edited = Some("later".to_owned());
        assert!(world.rotate(2, 9).is_err());
        assert_eq!(world.known, "theirs");
        assert!(world.rotate(2, 9).unwrap());
        assert_eq!(
            (world.known.as_str(), world.password.as_str()),
            ("later", "later")
        );
    }

    #[test]
    fn where_neither_password_of_a_secret_is_known_nothing_is_changed() {
        let mut world = World {
            next: Some("second".to_owned()),
            is_noted: true,
            known: "another".to_owned(),
            ..World::new()
        };
        assert!(world.rotate(1, 9).is_err());
        assert_eq!((world.left, world.password.as_str()), (9, "first"));
        let told = format!(
            "{:?}",
            neither("Keystone", "admin", "one-keystone-admin", "")
        );
        assert!(told.contains("neither with the password in Secret one-keystone-admin"));
    }

    #[test]
    fn a_password_is_told_when_every_pod_has_it_whatever_a_person_noted() {
        let at = |minutes| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_mins(minutes);
        for (noted, from) in [
            (Some(at(100)), at(105)),
            (Some(at(97)), at(102)),
            (Some(at(9)), at(14)),
            (Some(at(9000)), at(105)),
            (None, at(105)),
        ] {
            assert_eq!(settled(noted, at(100)), from, "{noted:?}");
        }
        let secret = |noted: &str| {
            let mut secret = Secret::default();
            let noted = (NOTED.to_owned(), noted.to_owned());
            secret.annotations_mut().extend([noted]);
            secret
        };
        assert_eq!(super::noted(&secret(&at(7).to_string())), Some(at(7)));
        assert_eq!(super::noted(&secret("soon")), None);
    }

    #[test]
    fn a_next_password_that_a_person_wrote_is_taken_where_it_can_stand_in_statements() {
        let mut world = World::new();
        world.next = Some("mine".to_owned());
        assert!(world.rotate(1, 9).unwrap());
        assert_eq!(world.password, "mine");
        for plain in [password().as_str(), "abcdefg1"] {
            assert!(is_plain(plain));
        }
        let long = "a".repeat(65);
        for other in ["short", "it's long enough", "abcdefg'; DROP", "", &long] {
            assert!(!is_plain(other), "{other}");
        }
    }
}
