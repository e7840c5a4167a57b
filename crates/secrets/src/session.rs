//! Tokens of Vault: kept in memory alone, renewed before they end, replaced when they are refused.
//!
//! VaultSecrets of one namespace that log in alike share a token, so that a thousand of them are not a thousand leases in Vault.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use secrecy::{ExposeSecret, SecretString};

use crate::vault::{Error, Granted, Vault};

/// How long what nobody asked for is kept, and a place in which nobody is logged in.
const IDLE: Duration = Duration::from_hours(25);
const EMPTY: Duration = Duration::from_mins(1);
/// How long a server that refused, or did not answer, is not asked for the same again: whoever waited for that login has its answer.
const REMEMBERED: Duration = Duration::from_secs(5);
/// How often a token is replaced that is refused: a path that it may not read is refused whatever token asks.
const REPLACED: Duration = Duration::from_mins(10);
/// How long a token that could not be renewed is used before that is tried again.
const RENEWED_AGAIN: Duration = Duration::from_secs(30);

/// What somebody logs in with.
#[derive(Clone, Debug)]
pub enum Credential {
    /// An AppRole.
    AppRole {
        /// Where the method is mounted.
        mount: String,
        /// The id of the role.
        role: String,
        /// The secret id.
        secret: SecretString,
    },
    /// The token of a ServiceAccount, which is made when it is needed.
    ServiceAccount {
        /// Where the method is mounted.
        mount: String,
        /// The role.
        role: String,
    },
    /// A token that somebody made.
    Token(SecretString),
}

impl Credential {
    /// What is secret of it, to see whether it changed.
    fn secret(&self) -> Option<&str> {
        match self {
            Self::AppRole { secret, .. } | Self::Token(secret) => Some(secret.expose_secret()),
            Self::ServiceAccount { .. } => None,
        }
    }
}

/// Makes the token of a ServiceAccount.
pub trait Accounts {
    /// Makes one.
    fn token(&self) -> impl Future<Output = Result<SecretString, Error>> + Send;
}

#[derive(Debug)]
struct Session {
    /// What it was logged in with.
    with: Credential,
    token: SecretString,
    /// When it ends; without it never.
    ends: Option<Instant>,
    /// From when on it is renewed or replaced.
    renewed_from: Option<Instant>,
    is_renewable: bool,
}

impl Session {
    fn new(with: Credential, granted: Granted, now: Instant) -> Self {
        let Granted {
            token,
            lives,
            is_renewable,
        } = granted;
        // Somewhere from the half to two thirds of its life: those that began together do not come back together.
        let share = 0.5 + rand::random::<f64>() / 6.0;
        Self {
            with,
            token,
            ends: lives.and_then(|lives| now.checked_add(lives)),
            renewed_from: lives.and_then(|lives| now.checked_add(lives.mul_f64(share))),
            is_renewable,
        }
    }

    fn is_of(&self, credential: &Credential) -> bool {
        self.with.secret() == credential.secret()
    }

    fn standing(&self, now: Instant) -> Standing {
        let is_past = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if is_past(self.ends) {
            Standing::Ended
        } else if !is_past(self.renewed_from) {
            Standing::Good
        } else if self.is_renewable {
            Standing::Renew
        } else {
            match self.with {
                // There is no other one.
                Credential::Token(_) => Standing::Good,
                _ => Standing::Ended,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Good,
    Renew,
    Ended,
}

/// What is known of one who logs in somewhere.
#[derive(Debug, Default)]
struct Place {
    session: Option<Session>,
    /// Why the last login failed, and when.
    failed: Option<(Instant, Error)>,
    /// When a token was replaced last because it was refused.
    replaced: Option<Instant>,
}

impl Place {
    /// Whether a token that was refused is replaced now.
    fn replaces(&self, now: Instant) -> bool {
        let is_long_ago = |moment| now.saturating_duration_since(moment) >= REPLACED;
        self.replaced.is_none_or(is_long_ago)
    }

    /// Why nobody logs in now.
    fn refusal(&self, now: Instant) -> Option<Error> {
        let (when, error) = self.failed.as_ref()?;
        let is_new = now.saturating_duration_since(*when) < REMEMBERED;
        is_new.then(|| error.clone())
    }
}

type Slot = Arc<tokio::sync::Mutex<Place>>;

/// The sessions of an operator, by who logs in where.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<String, (Slot, Instant)>>);

/// A token to ask with.
#[derive(Debug)]
pub struct Held {
    /// The token.
    pub token: SecretString,
    /// When it is to be renewed, where only that keeps it alive.
    pub renewed_in: Option<Duration>,
}

/// A token that may not do what was asked with it.
#[derive(Debug)]
pub struct Refused {
    /// The token.
    pub token: SecretString,
    /// What was said.
    pub error: Error,
}

impl Refused {
    fn is_of(&self, session: &Session) -> bool {
        self.token.expose_secret() == session.token.expose_secret()
    }
}

impl Sessions {
    /// A token for `key`, which says who logs in where, and with what. With `refused` that is the one that was kept, and it is not good any
    /// more, unless it was replaced not long ago.
    ///
    /// # Errors
    ///
    /// The server refuses or does not answer.
    pub async fn token(
        &self,
        key: &str,
        (vault, accounts): (&Vault, &impl Accounts),
        credential: &Credential,
        refused: Option<Refused>,
    ) -> Result<Held, Error> {
        let slot = self.slot(key);
        let mut place = slot.lock().await;
        let now = Instant::now();
        if let Some(error) = place.refusal(now) {
            return Err(error);
        }
        let mut kept = place
            .session
            .take()
            .filter(|session| session.is_of(credential));
        // Somebody may have replaced it meanwhile.
        let is_kept = |refused: &Refused| kept.as_ref().is_none_or(|kept| refused.is_of(kept));
        if let Some(Refused { error, .. }) = refused.filter(is_kept) {
            let is_static = matches!(credential, Credential::Token(_));
            if is_static || !place.replaces(now) {
                place.session = kept;
                return Err(error);
            }
            place.replaced = Some(now);
            if let Some(session) = kept.take() {
                vault.revoke(&session.token).await;
            }
        }
        let found = match kept.map(|session| (session.standing(now), session)) {
            Some((Standing::Good, session)) => Ok(session),
            Some((Standing::Renew, mut session)) => match vault.renew(&session.token).await {
                Ok(granted) => Ok(Session::new(credential.clone(), granted, now)),
                // It is good until it ends.
                Err(error) if error.is_passing() => {
                    session.renewed_from = now.checked_add(RENEWED_AGAIN);
                    Ok(session)
                }
                Err(_) => log_in(vault, accounts, credential, now).await,
            },
            Some((Standing::Ended, _)) | None => log_in(vault, accounts, credential, now).await,
        };
        let session = match found {
            Ok(session) => session,
            Err(error) => {
                place.failed = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        };
        place.failed = None;
        let is_static = matches!(credential, Credential::Token(_)) && session.is_renewable;
        let held = Held {
            token: session.token.clone(),
            renewed_in: session
                .renewed_from
                .filter(|_| is_static)
                .map(|moment| moment.saturating_duration_since(now)),
        };
        place.session = Some(session);
        Ok(held)
    }

    fn slot(&self, key: &str) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        slots.retain(|_, (slot, used)| {
            let is_empty = slot.try_lock().is_ok_and(|place| place.session.is_none());
            now.saturating_duration_since(*used) < if is_empty { EMPTY } else { IDLE }
        });
        let (slot, used) = slots
            .entry(key.to_owned())
            .or_insert_with(|| (Slot::default(), now));
        *used = now;
        Arc::clone(slot)
    }
}

async fn log_in(
    vault: &Vault,
    accounts: &impl Accounts,
    credential: &Credential,
    now: Instant,
) -> Result<Session, Error> {
    let granted = match credential {
        Credential::AppRole {
            mount,
            role,
            secret,
        } => vault.by_app_role(mount, role, secret).await?,
        Credential::ServiceAccount { mount, role } => {
            let token = accounts.token().await?;
            vault.by_service_account(mount, role, &token).await?
        }
        Credential::Token(token) => vault.look_up(token.clone()).await?,
    };
    Ok(Session::new(credential.clone(), granted, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(with: Credential, lives: Option<u64>, is_renewable: bool) -> (Session, Instant) {
        let now = Instant::now();
        let granted = Granted {
            token: SecretString::from("t"),
            lives: lives.map(Duration::from_secs),
            is_renewable,
        };
        (Session::new(with, granted, now), now)
    }

    #[test]
    fn a_token_is_renewed_in_its_middle_and_replaced_at_its_end() {
        let role = || Credential::ServiceAccount {
            mount: "kubernetes".to_owned(),
            role: "a".to_owned(),
        };
        let token = || Credential::Token(SecretString::from("t"));
        for (with, lives, is_renewable, expected) in [
            (role(), Some(60), true, "Good Renew Ended"),
            (role(), Some(60), false, "Good Ended Ended"),
            (token(), Some(60), true, "Good Renew Ended"),
            (token(), Some(60), false, "Good Good Ended"),
            (token(), None, false, "Good Good Good"),
        ] {
            let (session, now) = session(with, lives, is_renewable);
            let standings = [29, 41, 61]
                .map(|second| format!("{:?}", session.standing(now + Duration::from_secs(second))));
            assert_eq!(standings.join(" "), expected, "{session:?}");
        }
    }

    #[test]
    fn what_failed_a_moment_ago_is_not_asked_again_and_a_token_is_replaced_at_times() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut place = Place {
            failed: Some((now, Error::Sealed)),
            ..Place::default()
        };
        assert!(place.refusal(later(4)).is_some());
        assert!(place.refusal(later(6)).is_none());
        assert!(place.replaces(now));
        place.replaced = Some(now);
        assert!(!place.replaces(later(599)) && place.replaces(later(600)));
    }

    #[test]
    fn a_changed_credential_is_another_session_and_none_is_shown() {
        let token = |text: &str| Credential::Token(SecretString::from(text));
        let (session, _) = session(token("canary"), None, false);
        assert!(session.is_of(&token("canary")) && !session.is_of(&token("other")));
        assert!(!format!("{session:?}").contains("canary"));
    }
}
