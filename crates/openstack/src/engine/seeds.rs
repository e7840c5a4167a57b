//! Steps of a seed in Keystone.

use std::collections::BTreeMap;

use api::{
    openstack::{IdentitySeed, SeedLeft, SeedUser},
    run::{Failure, FailureClass, Step},
};
use controller::Problem;
use kube::Api;
use runs::calls::{Seen, call, config, until};
use workflow::StepContext;

use crate::{
    action::Action,
    audit,
    engine::{Done, Worker, accounts::said, misplaced, site::Site},
    identity::Session,
    seed::{Inputs, Sort, Thing, Wrong, walk::Walk},
};

/// How much a step tells of what it did.
const TOLD: usize = 1000;

impl Worker {
    pub(super) async fn act_on_seed(
        &self,
        inputs: &Inputs,
        action: Action,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        match action {
            Action::AwaitKeystone => self.await_keystone(inputs, step, context).await,
            Action::Seed(of) => self.seed_sort(inputs, of.sort).await,
            Action::RemoveLeft => self.remove_left(inputs).await,
            Action::RemoveSeed => self.remove_seed(inputs).await,
            _ => Err(misplaced(step).into()),
        }
    }

    /// A cloud may be made meanwhile, and its Keystone with it. A password that is wrong is tried once: a person has to mend it.
    async fn await_keystone(
        &self,
        inputs: &Inputs,
        step: &Step,
        context: &mut StepContext,
    ) -> Done {
        let site = self.site();
        until(step, context, || async {
            match administrator(&site, inputs).await {
                Ok(_) => Ok(Seen::There(None)),
                Err(failure) if failure.code == MISSING => Ok(Seen::Missing(failure.message)),
                Err(failure) if failure.class == FailureClass::Transient => {
                    Ok(Seen::Missing(failure.message))
                }
                Err(failure) => Err(failure),
            }
        })
        .await
    }

    async fn seed_sort(&self, inputs: &Inputs, sort: Sort) -> Done {
        let mut passwords = BTreeMap::new();
        if sort == Sort::Users {
            for (place, user) in inputs.users.iter().enumerate() {
                let password = password(&self.site(), user).await?;
                let password = password.map_err(|problem| failed(&Wrong::Refused(problem)))?;
                passwords.insert(place, password);
            }
        }
        let owner = self.owner().await?;
        let session = administrator(&self.site(), inputs).await?;
        self.held()?;
        let note = |what: &str| audit::note(&self.work.directory, &audit::in_keystone(what));
        let mut walk = Walk::looking(&session, inputs, &owner, passwords).mending(&note);
        let done = walk.go(sort).await;
        done.map_err(|wrong| failed(&wrong))?;
        Ok(Some(told(&walk.differs, &[])))
    }

    async fn remove_left(&self, inputs: &Inputs) -> Done {
        let left = self.left().await?;
        self.remove_seeded(inputs, &[], &left, inputs).await
    }

    /// A Keystone that is gone knows nobody, and without its administrator nothing of it can be changed: nobody waits for that.
    async fn remove_seed(&self, inputs: &Inputs) -> Done {
        if self.is_gone(&inputs.url, &inputs.admin_secret).await? {
            return Ok(Some("Keystone is gone".to_owned()));
        }
        let secret = self.secrets().get_metadata_opt(&inputs.admin_secret).await;
        let secret = secret.map_err(|error| call("look for the administrator", &error))?;
        if secret.is_none() {
            let secret = &inputs.admin_secret;
            return Ok(Some(format!("Secret {secret} is gone: all of it stays")));
        }
        let left = self.left().await?;
        let none = Inputs::default();
        self.remove_seeded(&none, std::slice::from_ref(inputs), &left, inputs)
            .await
    }

    /// Removes what is the seed's and not named.
    async fn remove_seeded(
        &self,
        named: &Inputs,
        former: &[Inputs],
        left: &[SeedLeft],
        keystone: &Inputs,
    ) -> Done {
        let owner = self.owner().await?;
        let session = administrator(&self.site(), keystone).await?;
        self.held()?;
        let note = |what: &str| audit::note(&self.work.directory, &audit::in_keystone(what));
        let mut walk = Walk::looking(&session, named, &owner, BTreeMap::new()).mending(&note);
        let left = walk.left(former, left).await;
        let left = left.map_err(|wrong| failed(&wrong))?;
        let stays = walk.remove(&left).await.map_err(|wrong| failed(&wrong))?;
        Ok(Some(told(&walk.differs, &stays)))
    }

    /// What the seed is told to have left.
    async fn left(&self) -> Result<Vec<SeedLeft>, Failure> {
        let seeds = Api::<IdentitySeed>::namespaced(self.work.client.clone(), &self.namespace());
        let seed = seeds.get_opt(self.name()).await;
        let seed = seed.map_err(|error| call("read the IdentitySeed", &error))?;
        let status = seed.and_then(|seed| seed.status);
        Ok(status.unwrap_or_default().left)
    }
}

/// Logs in as the administrator of a seed's Keystone.
pub(crate) async fn administrator(site: &Site, inputs: &Inputs) -> Result<Session, Failure> {
    let secret = &inputs.admin_secret;
    let login = site.login(secret, Some("project")).await?;
    site.begin(&inputs.url, &login, secret).await
}

/// The password of a user, or why there is none.
pub(crate) async fn password(
    site: &Site,
    user: &SeedUser,
) -> Result<Result<String, Problem>, Failure> {
    let secret = &user.password_secret;
    let key = secret.key.as_deref().unwrap_or("password");
    let wrong = |rule: String| {
        Problem::new(
            format!("{}.passwordSecret", Thing::User(user).field()),
            &secret.name,
            rule,
            format!("make the Secret with the password under the key {key}, or name another one"),
        )
    };
    match site.secret_value(&secret.name, key).await {
        Ok(password) if password.is_empty() => Ok(Err(wrong(format!("its key {key} is empty")))),
        Ok(password) => Ok(Ok(password)),
        Err(failure) if failure.code == MISSING => Ok(Err(wrong(failure.message))),
        Err(failure) => Err(failure),
    }
}

/// The code of a Secret or a key that is not there.
const MISSING: &str = "SecretMissing";

/// Why a way through Keystone ended.
pub(crate) fn failed(wrong: &Wrong) -> Failure {
    match wrong {
        Wrong::Keystone(error) => said(error),
        Wrong::Refused(problem) => config(
            "SeedRefused",
            format!("{} is {:?}: {}", problem.field, problem.value, problem.rule),
            &format!("{}, and retry the run", problem.remedy),
        ),
    }
}

fn told(differs: &[String], stays: &[String]) -> String {
    let mut told = if differs.is_empty() {
        "it was as it should be".to_owned()
    } else {
        format!("did {}", differs.join(", "))
    };
    for one in stays {
        told.push_str("; ");
        told.push_str(one);
    }
    api::text::plain(&told, TOLD)
}
