//! A cluster's own credential: what its servers, networks and load balancers are made by.
//!
//! Two application credentials are made with the token of who asks for the cluster, without the role of an administrator. The one that
//! is used is restricted, so that nobody makes others by it, ends after [`LASTS`], and is put beside what builds the cluster. The
//! other one, the keeper, is in nobody's hands but the operator's, in the Secret [`name`]: by it both are renewed while nobody asks
//! for anything, and both are taken away with the cluster. So no user of a service is needed, and there is none.
//!
//! Keystone takes both away with their user. A rotation makes them those of who asks for it.
//!
//! What is in that Secret is the only means to take them away by. So it is [held](FINALIZER) until they are, whoever deletes it, and
//! [found](LABEL) without its cluster where that is gone, or never came to be.
//!
//! # Source
//! Identity API v3, `/v3/users/{user_id}/application_credentials`.

use std::collections::BTreeMap;

use api::magnum::CLUSTER_LABEL;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::ObjectMeta;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cloud::{CloudError, KEYSTONE, Key, Session},
    identity::Keystone,
    machines::CLOUD,
};

/// How long a credential is good; it is renewed after half of that.
pub(crate) const LASTS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How long a keeper is good. There is another one with each that is used, and one that is left behind ends.
const KEEPER_LASTS: SignedDuration = SignedDuration::from_hours(60 * 24);
/// Keeps the Secret with a credential until that is taken away.
pub(crate) const FINALIZER: &str = "magnum.windlass.dev/credential";
/// On that Secret: the UUID of the cluster.
pub(crate) const LABEL: &str = "magnum.windlass.dev/credential-of";
/// What Cluster API reads.
pub(crate) const CLOUDS: &str = "clouds.yaml";
/// What is kept beside it, and given to nobody.
const RECORD: &str = "credential.json";
/// The role that no cluster gets.
const ADMIN: &str = "admin";
/// What Keystone calls them.
const ALL: &str = "application_credentials";

/// The Secret with the credential of a cluster, in the namespace of its project.
pub(crate) fn name(cluster: &str) -> String {
    format!("{cluster}-cloud-config")
}

/// A credential, with what keeps it.
pub(crate) struct Credential {
    clouds: String,
    record: Record,
}

/// What is kept of a credential.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The id of the one that is used.
    used: String,
    expires: Timestamp,
    keeper: Keeper,
    /// Those that are used no more and not taken away yet.
    #[serde(default)]
    former: Vec<Former>,
    /// Whether nothing is left of the cluster that is taken away by it.
    #[serde(default)]
    cleared: bool,
}

#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Keeper {
    user_id: String,
    key: Key,
}

/// A keeper that is used no more, or not alone, with those that it kept.
#[derive(Clone, Deserialize, Serialize)]
struct Former {
    #[serde(flatten)]
    keeper: Keeper,
    /// Their ids.
    #[serde(default)]
    used: Vec<String>,
}

/// What came of taking away those that are used no more.
pub(crate) struct Tidied {
    /// What is kept from now on, where that is something else.
    pub(crate) data: Option<BTreeMap<String, ByteString>>,
    /// The first user of whom some are left, and why.
    pub(crate) failed: Option<(String, CloudError)>,
}

/// What came of taking away all of them.
#[derive(Default)]
pub(crate) struct Withdrawn {
    /// The first user for whose credentials it is tried again, and why.
    pub(crate) failed: Option<(String, CloudError)>,
    /// Users whom Keystone does not let in, of whom some are left for good that were used no more.
    pub(crate) left: Vec<String>,
}

impl Credential {
    /// A new one, of whose session this is, instead of another one if there is one.
    pub(crate) async fn found(
        session: &Session,
        cluster: &str,
        instead: Option<Record>,
        now: Timestamp,
    ) -> Result<Self, CloudError> {
        let what = "keeps the credential of a cluster of Windlass";
        let expires = after(now, KEEPER_LASTS);
        let key = session.make(cluster, what, Kind::Keeper(expires)).await?;
        let keeper = Keeper {
            user_id: session.user_id.clone(),
            key,
        };
        let former = instead.map(Record::retired).unwrap_or_default();
        let found = Self::issued(session, cluster, keeper.clone(), former, now).await;
        if found.is_err() {
            session.discard(&keeper.key.id).await;
        }
        found
    }

    /// The next one of the same user.
    pub(crate) async fn next(
        keystone: &Keystone,
        cluster: &str,
        record: Record,
        now: Timestamp,
    ) -> Result<Self, CloudError> {
        let session = record.session(keystone).await?;
        Self::found(&session, cluster, Some(record), now).await
    }

    async fn issued(
        session: &Session,
        cluster: &str,
        keeper: Keeper,
        former: Vec<Former>,
        now: Timestamp,
    ) -> Result<Self, CloudError> {
        let address = session.address(&["identity"]);
        let address = address.ok_or(CloudError::Unavailable(KEYSTONE))?;
        let expires = after(now, LASTS);
        let what = "is used by a cluster of Windlass";
        let Key { id, secret } = session.make(cluster, what, Kind::Used(expires)).await?;
        let mut cloud = json!({
            "auth_type": "v3applicationcredential",
            "identity_api_version": 3,
            "interface": "public",
            "auth": {
                "auth_url": address,
                "application_credential_id": id,
                "application_credential_secret": secret,
            },
        });
        if let Some(region) = &session.region {
            cloud["region_name"] = json!(region);
        }
        Ok(Self {
            // JSON is YAML.
            clouds: json!({"clouds": {CLOUD: cloud}}).to_string(),
            record: Record {
                used: id,
                expires,
                keeper,
                former,
                cleared: false,
            },
        })
    }

    /// What the Secret holds.
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        BTreeMap::from([
            (
                CLOUDS.to_owned(),
                ByteString(self.clouds.clone().into_bytes()),
            ),
            (RECORD.to_owned(), self.record.bytes()),
        ])
    }

    /// The Secret of a new cluster.
    pub(crate) fn secret(&self, cluster: &str) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(name(cluster)),
                labels: Some(
                    [CLUSTER_LABEL, LABEL]
                        .map(|label| (label.to_owned(), cluster.to_owned()))
                        .into(),
                ),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            data: Some(self.data()),
            ..Secret::default()
        }
    }

    /// Whether this is what a Secret holds.
    pub(crate) fn is_in(&self, secret: &Secret) -> bool {
        Record::of(secret).is_some_and(|record| record.used == self.record.used)
    }

    /// Takes away what was made and cannot be kept, and says whether nothing is left. What remains ends by itself.
    pub(crate) async fn discard(self, session: &Session) -> bool {
        // By the keeper it is tried again, where that is kept after all.
        session.discard(&self.record.used).await
            && session.discard(&self.record.keeper.key.id).await
    }
}

impl Record {
    /// What a Secret holds. None: nothing of ours.
    pub(crate) fn of(secret: &Secret) -> Option<Self> {
        let ByteString(bytes) = secret.data.as_ref()?.get(RECORD)?;
        serde_json::from_slice(bytes).ok()
    }

    /// Whether it is time for the next one.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now.duration_until(self.expires) < LASTS / 2
    }

    /// Whether all of them have ended, the keeper last. Keystone lets nobody in by them any more.
    pub(crate) fn has_ended(&self, now: Timestamp) -> bool {
        now.duration_since(self.expires) > KEEPER_LASTS - LASTS
    }

    /// When the one that is used ends.
    pub(crate) const fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Of whom it is.
    pub(crate) fn user_id(&self) -> &str {
        &self.keeper.user_id
    }

    /// Whether there are some that are used no more.
    pub(crate) const fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// Whether nothing is left of the cluster that is taken away by it.
    pub(crate) const fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// What is kept once that is so: from then on the credential itself may go.
    pub(crate) fn cleared(&self) -> BTreeMap<String, ByteString> {
        let mut record = self.clone();
        record.cleared = true;
        record.data()
    }

    /// Takes away those that are used no more, by what is kept of them: others of their names may be in the making. What cannot be
    /// taken away is kept.
    ///
    /// # Errors
    ///
    /// One that is used is not there, and so none is taken away.
    pub(crate) async fn tidied(
        mut self,
        keystone: &Keystone,
        cluster: &str,
    ) -> Result<Tidied, CloudError> {
        let session = self.session(keystone).await?;
        if !session.made(cluster).await?.contains(&self.used) {
            return Err(CloudError::Gone);
        }
        let (mut left, mut failed) = (Vec::new(), None);
        let all = std::mem::take(&mut self.former);
        let before = all.len();
        for former in all {
            if let Err(error) = self.end(&former, &session, keystone).await {
                failed.get_or_insert((former.keeper.user_id.clone(), error));
                left.push(former);
            }
        }
        self.former = left;
        Ok(Tidied {
            data: (self.former.len() < before).then(|| self.data()),
            failed,
        })
    }

    /// Takes one away that is used no more, with those that it kept, and itself last. Those of the same user need no key of their own.
    async fn end(
        &self,
        former: &Former,
        own: &Session,
        keystone: &Keystone,
    ) -> Result<(), CloudError> {
        let theirs;
        let session = if former.keeper.user_id == self.keeper.user_id {
            own
        } else {
            theirs = match keystone.enter(&former.keeper.key).await {
                Err(CloudError::Gone) => return Ok(()),
                session => session?,
            };
            &theirs
        };
        for id in former.used.iter().filter(|id| **id != self.used) {
            session.take(id).await?;
        }
        if former.keeper != self.keeper {
            session.take(&former.keeper.key.id).await?;
        }
        Ok(())
    }

    /// As whom the cluster uses the cloud.
    pub(crate) async fn session(&self, keystone: &Keystone) -> Result<Session, CloudError> {
        keystone.enter(&self.keeper.key).await
    }

    /// Takes away all of them, and whatever goes by the name of the cluster. One that fails holds up none of the others.
    pub(crate) async fn withdraw(self, keystone: &Keystone, cluster: &str) -> Withdrawn {
        let current = &self.keeper;
        let former = self.former.iter().map(|former| &former.keeper);
        let former = former.filter(|keeper| *keeper != current);
        let mut withdrawn = Withdrawn::default();
        for keeper in former.chain([current]) {
            match keeper.withdraw(keystone, cluster).await {
                Ok(()) => {}
                // By others the cluster has been used since: nothing waits for a user who may never be back.
                Err(CloudError::Unknown(_)) if keeper != current => {
                    withdrawn.left.push(keeper.user_id.clone());
                }
                Err(error) => {
                    withdrawn
                        .failed
                        .get_or_insert((keeper.user_id.clone(), error));
                }
            }
        }
        withdrawn
    }

    /// What is used no more where there is another one.
    fn retired(self) -> Vec<Former> {
        let mut all = self.former;
        let same = all.iter_mut().find(|one| one.keeper == self.keeper);
        match same {
            Some(same) => same.used.push(self.used),
            None => all.push(Former {
                keeper: self.keeper,
                used: vec![self.used],
            }),
        }
        all
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        BTreeMap::from([(RECORD.to_owned(), self.bytes())])
    }

    fn bytes(&self) -> ByteString {
        ByteString(json!(self).to_string().into_bytes())
    }
}

impl Keeper {
    /// Takes away what its user has for the cluster, and itself last, by which it is tried again.
    async fn withdraw(&self, keystone: &Keystone, cluster: &str) -> Result<(), CloudError> {
        let session = match keystone.enter(&self.key).await {
            Err(CloudError::Gone) => return Ok(()),
            session => session?,
        };
        let mut failed = None;
        let ids = session.made(cluster).await?;
        for id in ids.iter().filter(|id| **id != self.key.id) {
            if let Err(error) = session.take(id).await {
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => session.take(&self.key.id).await,
        }
    }
}

/// What an application credential is for.
enum Kind {
    Keeper(Timestamp),
    Used(Timestamp),
}

impl Session {
    async fn make(&self, cluster: &str, what: &str, kind: Kind) -> Result<Key, CloudError> {
        let roles = self.roles.iter();
        let roles = roles.filter(|role| !role.name.eq_ignore_ascii_case(ADMIN));
        let roles: Vec<_> = roles.map(|role| json!({"id": role.id})).collect();
        // Where none is named, Keystone takes all.
        if roles.is_empty() {
            return Err(CloudError::Refused {
                service: "Windlass",
                status: http::StatusCode::FORBIDDEN,
                message: format!(
                    "user {} has no role in the project but {ADMIN}, which no cluster gets: give them the role member",
                    self.user_id
                ),
            });
        }
        let number: u32 = rand::random();
        let (is_keeper, expires) = match kind {
            Kind::Keeper(expires) => (true, expires),
            Kind::Used(expires) => (false, expires),
        };
        let wanted = json!({
            "name": format!("{}{number:08x}", prefix(cluster)),
            "description": format!("{cluster}: {what}"),
            "roles": roles,
            "unrestricted": is_keeper,
            "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let body = json!({"application_credential": wanted});
        let url = self.own(ALL);
        let made = self.ask(KEYSTONE, |client| client.post(url).json(&body));
        let mut made = made.await?;
        let made = made.get_mut("application_credential").map(Value::take);
        serde_json::from_value(made.unwrap_or_default())
            .map_err(|_| CloudError::Unavailable(KEYSTONE))
    }

    /// The ids of those that the user has for a cluster.
    async fn made(&self, cluster: &str) -> Result<Vec<String>, CloudError> {
        let url = self.own(ALL);
        let listed = self.ask(KEYSTONE, |client| client.get(url)).await?;
        let all = listed["application_credentials"].as_array();
        let prefix = prefix(cluster);
        let is_ours = |entry: &&Value| {
            let name = entry["name"].as_str();
            name.is_some_and(|name| name.starts_with(&prefix))
        };
        let ids = all.into_iter().flatten().filter(is_ours);
        Ok(ids
            .filter_map(|entry| entry["id"].as_str().map(str::to_owned))
            .collect())
    }

    async fn take(&self, id: &str) -> Result<(), CloudError> {
        let url = format!("{}/{id}", self.own(ALL));
        let url = Url::parse(&url).map_err(|_| CloudError::Unavailable(KEYSTONE))?;
        self.remove(KEYSTONE, url).await
    }

    async fn discard(&self, id: &str) -> bool {
        let taken = self.take(id).await;
        if let Err(error) = &taken {
            let error = controller::chain(error);
            tracing::warn!(error, id, "an application credential is left");
        }
        taken.is_ok()
    }
}

fn after(now: Timestamp, lasts: SignedDuration) -> Timestamp {
    now.checked_add(lasts).unwrap_or(Timestamp::MAX)
}

/// What the names begin with of those that are for a cluster.
fn prefix(cluster: &str) -> String {
    format!("windlass-{cluster}-")
}
