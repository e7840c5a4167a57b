//! Whether a service answers: its database and its API are asked what only those that work can answer. That pods are ready says less:
//! Kubernetes asks them for a page that needs neither.
//!
//! What was answered is kept for a while, so that a pass that a run's progress begins asks nobody. Since when something does not answer
//! stands in the status, and outlives the operator.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::{
    Run,
    openstack::OpenStackService,
    run::{Failure, FailureClass},
};
use kube::{Client, ResourceExt};
use runs::calls::transient;
use tokio::time::timeout;

use crate::{
    action::Action,
    definition::{self, Definition},
    engine::{database_said, site::Site},
    names,
    service::Inputs,
    sql, wish,
};

/// The condition of a service that says whether it answers.
pub const ENDPOINT_HEALTHY: &str = "EndpointHealthy";
/// How long one may take to answer, and its database before it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How old an answer may be: somewhat less than the shortest time between two looks at what is well, and at what is not.
const FRESH: (Duration, Duration) = (Duration::from_secs(14), Duration::from_secs(3));
/// For how long what nobody asks about any more is kept.
const KEPT: Duration = Duration::from_hours(1);

/// A part of a service that may be what keeps it from its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Its pods.
    Pods,
    /// Its database.
    Database,
    /// The Keystone that knows its users, or is it.
    Keystone,
    /// Its API.
    Api,
}

impl Part {
    /// The part that a failure of a step speaks of.
    pub fn of(failure: &Failure) -> Option<Self> {
        match failure.code.as_str() {
            "DatabaseServer" | "Unreachable" => Some(Self::Database),
            "Keystone" => Some(Self::Keystone),
            "Service" => Some(Self::Api),
            _ => None,
        }
    }

    /// As a reason of conditions and Events.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Pods => "DoesNotServe",
            Self::Database => "DatabaseUnavailable",
            Self::Keystone => "KeystoneUnavailable",
            Self::Api => "ApiUnavailable",
        }
    }

    /// As steps wait for it.
    pub const fn awaited(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Database => "database/health",
            Self::Keystone => "keystone/health",
            Self::Api => "api/health",
        }
    }

    const fn told(self) -> &'static str {
        match self {
            Self::Pods => "its pods cannot be used",
            Self::Database => "its database cannot be used",
            Self::Keystone => "Keystone cannot be used",
            Self::Api => "its API cannot be used",
        }
    }
}

/// Why a service does not answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Down {
    /// What does not.
    pub part: Part,
    /// What was seen, for people.
    pub why: String,
    /// How many times in a row it was asked in vain.
    pub attempts: u32,
}

impl Down {
    /// For people, the same as long as it is the same.
    pub fn message(&self) -> String {
        match self.part {
            Part::Pods => self.why.clone(),
            part => format!("{}: {}", part.told(), self.why),
        }
    }
}

/// What somebody waits for, and what is seen of it: `glance/identity/seed waits for keystone/health: HTTP 503 for 42 s, attempt 7`.
pub fn waits(who: &str, part: Part, why: &str, seconds: i64, attempt: u32) -> String {
    let awaited = part.awaited();
    let what = if who == awaited {
        who.to_owned()
    } else {
        format!("{who} waits for {awaited}")
    };
    let why = why.strip_prefix("failed to ").unwrap_or(why);
    format!("{what}: {why} for {} s, attempt {attempt}", seconds.max(0))
}

/// What services answered when they were asked last.
#[derive(Debug, Default)]
pub struct Probes(Mutex<HashMap<String, Known>>);

#[derive(Clone, Debug)]
struct Known {
    /// The run that made what was asked.
    made_by: Option<String>,
    asked: Instant,
    down: Option<Down>,
    /// Whether it stays so until a person changes something: a wrong password that is tried often locks its user out.
    is_persons: bool,
}

impl Known {
    fn is_fresh(&self, age: Duration) -> bool {
        let fresh = if self.down.is_none() || self.is_persons {
            FRESH.0
        } else {
            FRESH.1
        };
        age < fresh
    }
}

impl Probes {
    /// Asks a service that a run has made, unless it was asked a moment ago. None: it answers.
    pub async fn ask(&self, client: &Client, service: &OpenStackService, by: &Run) -> Option<Down> {
        let uid = service.uid().unwrap_or_default();
        let made_by = by.uid();
        let before = self.known().get(&uid).cloned();
        if let Some(known) = &before
            && known.made_by == made_by
            && known.is_fresh(known.asked.elapsed())
        {
            return known.down.clone();
        }
        let site = Site {
            client: client.clone(),
            namespace: service.namespace().unwrap_or_default(),
        };
        let failed = probe(&site, &service.name_any(), by).await.err();
        let is_persons =
            matches!(&failed, Some((_, failure)) if failure.class == FailureClass::Config);
        let attempts = before.and_then(|known| Some(known.down?.attempts));
        let down = failed.map(|(part, failure)| Down {
            part: Part::of(&failure).unwrap_or(part),
            why: failure
                .message
                .strip_prefix("failed to ")
                .unwrap_or(&failure.message)
                .to_owned(),
            attempts: attempts.unwrap_or_default().saturating_add(1),
        });
        let now = Known {
            made_by,
            asked: Instant::now(),
            down: down.clone(),
            is_persons,
        };
        let mut known = self.known();
        known.retain(|_, known| known.asked.elapsed() < KEPT);
        known.insert(uid, now);
        down
    }

    /// Takes it that a service has answered a moment ago.
    #[cfg(test)]
    pub(crate) fn answers(&self, uid: String, by: &Run) {
        let now = Known {
            made_by: by.uid(),
            asked: Instant::now(),
            down: None,
            is_persons: false,
        };
        self.known().insert(uid, now);
    }

    /// A pass that panicked left whole entries.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks what a run has made, by what that run worked from: what is wished for since may be elsewhere.
async fn probe(site: &Site, name: &str, by: &Run) -> Result<(), (Part, Failure)> {
    let inputs: Inputs = wish::read(&by.spec.plan.inputs).ok_or_else(|| unknown(by))?;
    let definition = definition::find(&inputs.service).ok_or_else(|| unknown(by))?;
    within(Part::Database, database(site, name, &inputs, definition)).await?;
    // The last question of its steps is the one that needs most of it.
    for step in definition.steps.iter().rev() {
        match (&step.does, &inputs.identity) {
            (Action::IssueToken, _) => {
                return within(Part::Keystone, site.issue_token(name, definition))
                    .await
                    .map(drop);
            }
            (Action::Ask(ask), Some(identity)) => {
                let session = within(Part::Keystone, site.begin_as(name, identity)).await?;
                let place = (name, definition.port);
                return within(Part::Api, site.ask(place, &session, ask)).await;
            }
            _ => {}
        }
    }
    Ok(())
}

/// By the service's own user: what an administrator may says nothing of that.
async fn database(
    site: &Site,
    name: &str,
    inputs: &Inputs,
    definition: &Definition,
) -> Result<(), Failure> {
    let server = &inputs.database;
    let secret = names::secret(name, "database");
    let (_way, login) = site.database((&server.host, server.port), &secret).await?;
    let session = sql::Session::open(&login).await;
    let mut session = session.map_err(|error| database_said(&error))?;
    let used = session.execute(&[sql::within(&definition.database)]).await;
    session.close().await;
    used.map_err(|error| database_said(&error))
}

async fn within<T>(
    part: Part,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, (Part, Failure)> {
    let late = || {
        let why = format!("no answer within {} s", PATIENCE.as_secs());
        transient("Late", why)
    };
    let answer = timeout(PATIENCE, asked).await;
    let answer = answer.unwrap_or_else(|_| Err(late()));
    answer.map_err(|failure| (part, failure))
}

fn unknown(by: &Run) -> (Part, Failure) {
    let why = format!("run {} does not tell what it made", by.name_any());
    (Part::Pods, transient("Unreadable", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_names_what_it_waits_for_and_what_is_seen_of_it() {
        assert_eq!(
            waits(
                "glance/identity/seed",
                Part::Keystone,
                "failed to log in as admin: HTTP 503",
                42,
                7
            ),
            "glance/identity/seed waits for keystone/health: log in as admin: HTTP 503 for 42 s, attempt 7"
        );
        assert_eq!(
            waits("keystone/health", Part::Keystone, "HTTP 500", 0, 1),
            "keystone/health: HTTP 500 for 0 s, attempt 1"
        );
    }

    #[test]
    fn what_a_step_failed_at_is_what_it_waits_for() {
        for (code, part) in [
            ("Keystone", Some(Part::Keystone)),
            ("DatabaseServer", Some(Part::Database)),
            ("Unreachable", Some(Part::Database)),
            ("Service", Some(Part::Api)),
            ("JobFailed", None),
        ] {
            assert_eq!(Part::of(&transient(code, "x")), part, "{code}");
        }
    }

    #[test]
    fn what_a_person_must_mend_is_asked_less_often() {
        let known = |down: bool, is_persons: bool| Known {
            made_by: None,
            asked: Instant::now(),
            down: down.then(|| Down {
                part: Part::Database,
                why: String::new(),
                attempts: 1,
            }),
            is_persons,
        };
        assert!(known(false, false).is_fresh(FRESH.1));
        assert!(!known(true, false).is_fresh(FRESH.1));
        assert!(known(true, true).is_fresh(FRESH.1));
        assert!(!known(false, false).is_fresh(FRESH.0));
    }
}
