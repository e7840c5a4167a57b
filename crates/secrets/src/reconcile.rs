//! One pass over a VaultSecret: reads Vault, writes the Secret where it differs, and tells how that stands.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::secrets::{
    ADDRESS_ANNOTATION, AUDIENCE_ANNOTATION, AppRoleAuth, Auth, CREDENTIALS_TYPE,
    KEEP_KEYS_ANNOTATION, KeyRef, KubernetesAuth, MOUNT, OWN_SUFFIXES, SERVICE_ACCOUNT, SecretType,
    TokenAuth, VaultSecret, VaultSecretSpec, VaultSecretStatus,
};
use controller::{
    BackOff, Conditions, Events, Occurrence, Severity, Standing, Status, Summary,
    backoff::jittered,
    conditions::{self, observed_generation},
    problem::chain,
    stream::readable,
};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap, ObjectReference, Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::{
    digests,
    session::{Accounts, Credential, Refused, Sessions},
    vault::{self, Held, Vault},
};

/// Who writes Secrets and the status.
const MANAGER: &str = "windlass-vault";
/// The condition that Vault could not be read, and what it held last counts.
pub const STALE: &str = "Stale";
/// How often a secret is read, where the spec says nothing, and the bounds of that.
const EVERY: Duration = Duration::from_mins(5);
const MOST_OFTEN: Duration = Duration::from_secs(30);
const LEAST_OFTEN: Duration = Duration::from_hours(24);
/// How long a pass may take: it holds a place of the whole operator.
const LONGEST: Duration = Duration::from_secs(45);
/// How many passes of one namespace are under way at once: whose Vault does not answer leaves places to others.
const AT_ONCE: usize = 4;
/// How long one waits that comes beside these.
const TURN: Duration = Duration::from_secs(2);
/// The soonest that a token is renewed which only that keeps alive.
const RENEWED: Duration = Duration::from_secs(5);
/// How long the token of a ServiceAccount lives: the least that Kubernetes makes.
const LIVES: i64 = 600;
/// The most data of a Secret.
///
/// # Source
/// Kubernetes `MaxSecretSize`.
const LARGEST: usize = 1024 * 1024;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The VaultSecrets.
    pub own: Store<DeserializeGuard<VaultSecret>>,
    /// What happened.
    pub events: Events,
    /// The sessions in Vaults.
    pub sessions: Sessions,
    /// How long what failed waits.
    pub back_off: BackOff,
    /// Whose passes are under way.
    pub turns: Turns,
    /// Whether a Vault at loopback is asked: in a pod that is the operator itself.
    pub loopback: bool,
    /// The namespace with the key of digests.
    pub keys: String,
}

/// How many passes of each namespace are under way.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, usize>>);

/// One of them, until it ends.
struct Turn<'a>(&'a Turns, &'a str);

impl Turns {
    fn take<'a>(&'a self, namespace: &'a str) -> Option<Turn<'a>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = turns.entry(namespace.to_owned()).or_default();
        if *taken >= AT_ONCE {
            return None;
        }
        *taken += 1;
        Some(Turn(self, namespace))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(turns, namespace) = self;
        let mut turns = turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = turns.get_mut(*namespace) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                turns.remove(*namespace);
            }
        }
    }
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// The status could not be written.
    #[error("apply")]
    Apply(#[source] controller::apply::Error),
}

/// Why a VaultSecret is not as it should be.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// Somebody must change an object here.
    #[error("{what}; {remedy}")]
    Here {
        reason: &'static str,
        what: String,
        remedy: &'static str,
        /// Whether the change is one of the VaultSecret itself, which wakes its controller.
        is_spec: bool,
    },
    /// Vault.
    #[error("{0}; {remedy}", remedy = .0.advice().1)]
    Vault(#[from] vault::Error),
    /// The API.
    #[error(transparent)]
    Api(Error),
}

impl Trouble {
    fn reason(&self) -> &'static str {
        match self {
            Self::Here { reason, .. } => reason,
            Self::Vault(error) => error.advice().0,
            Self::Api(_) => "ApiRefused",
        }
    }

    fn api(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |error| Self::Api(Error::Api(what, error))
    }
}

/// What a pass did.
#[derive(Debug)]
struct Kept {
    secret: String,
    version: Option<i64>,
    /// What tells that a value changed, by its key; nothing where there is no key to tell it with.
    digests: Option<BTreeMap<String, String>>,
    /// The same of all that is in Vault, where it has no version there.
    contents: Option<String>,
    /// The keys of the Secret, and its version in the API, where it was written.
    written: Option<(Vec<String>, String)>,
    /// When the token must be renewed, where only that keeps it alive.
    renewed_in: Option<Duration>,
}

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer. That Vault does is no error: the status says it.
pub async fn reconcile(
    object: Arc<DeserializeGuard<VaultSecret>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(object) = readable(&object) else {
        return Ok(Action::await_change());
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let every = object.spec.refresh_every.map_or(EVERY, Duration::from);
    let namespace = object.namespace().unwrap_or_default();
    let Some(_turn) = context.turns.take(&namespace) else {
        return Ok(Action::requeue(jittered(TURN)));
    };
    let id = format!("{namespace}/{}", object.name_any());
    let kept = tokio::time::timeout(LONGEST, keep(object, &context)).await;
    let kept = match kept {
        Ok(Err(Trouble::Api(error))) => return Err(error),
        Ok(kept) => kept,
        Err(_) => Err(Trouble::Vault(vault::Error::Away(
            "the server takes too long".to_owned(),
        ))),
    };
    tell(object, &kept, &context).await?;
    Ok(match kept {
        Ok(kept) => {
            context.back_off.reset(&id);
            let wait = jittered(every);
            let renewed = kept.renewed_in.map(|renewed| renewed.max(RENEWED));
            Action::requeue(renewed.map_or(wait, |renewed| wait.min(renewed)))
        }
        Err(Trouble::Here { is_spec: true, .. }) => Action::await_change(),
        // No sooner than it would be read anyway where that is often.
        Err(_) => Action::requeue(context.back_off.failed(&id).min(every)),
    })
}

/// Reads Vault, and writes the Secret where it differs.
async fn keep(object: &VaultSecret, context: &Context) -> Result<Kept, Trouble> {
    let spec = &object.spec;
    check(object)?;
    let namespace = object.namespace().unwrap_or_default();
    let authorities = authorities(object, &namespace, context).await?;
    let vault = Vault::new(&spec.vault, authorities.as_deref(), context.loopback);
    let vault = vault.map_err(|error| match error {
        vault::Error::Unusable(what) => invalid(what, "correct the spec"),
        // What it refers to is looked at again.
        error => Trouble::Vault(error),
    })?;
    let credential = credential(&spec.vault, &namespace, context).await?;
    let accounts = Account {
        client: &context.client,
        namespace: &namespace,
        address: &spec.vault.address,
        audience: audience(&spec.vault.auth),
    };
    // Not of another namespace, whose credentials are another's.
    let key = controller::digest(&[&namespace, &json!(spec.vault).to_string()], 32);
    let (held, renewed_in) = read(object, &key, (&vault, &accounts), &credential, context).await?;
    let data = vault::data(&held, &spec.keys)?;
    let size: usize = data
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if size > LARGEST {
        return Err(vault::Error::Refused(format!(
            "what is read has {size} bytes, and a Secret holds {LARGEST}: choose with spec.keys"
        ))
        .into());
    }
    let secret = name_of(object);
    // Values are kept whether or not anything can be told of them.
    let digests = match digests::key(&context.client, &context.keys).await {
        Ok(key) => Some((
            digests::of(&key, (&namespace, &secret), &data),
            contents(&key, spec, &held),
        )),
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(
                namespace,
                secret,
                "no change of its values is told: {error}"
            );
            None
        }
    };
    let written = write(object, &namespace, data, context).await?;
    let (digests, contents) = digests.unzip();
    Ok(Kept {
        secret,
        version: held.version,
        digests,
        contents: contents.flatten(),
        written,
        renewed_in,
    })
}

/// What tells that others have read the same, where no version does.
fn contents(key: &[u8], spec: &VaultSecretSpec, held: &Held) -> Option<String> {
    if held.version.is_some() {
        return None;
    }
    let namespace = spec.vault.namespace.as_deref().unwrap_or_default();
    let mount = spec.mount.as_deref().unwrap_or(MOUNT);
    // As who compares them has it: what is one place there is one here.
    let place = api::secrets::place(&spec.vault.address, namespace, mount, &spec.path);
    digests::of_contents(key, &place, &held.fields)
}

/// Reads the secret. A token that is refused is replaced, once, and not at every pass: it may have been revoked.
async fn read(
    object: &VaultSecret,
    key: &str,
    (vault, accounts): (&Vault, &Account<'_>),
    credential: &Credential,
    context: &Context,
) -> Result<(Held, Option<Duration>), Trouble> {
    let spec = &object.spec;
    let mount = spec.mount.as_deref().unwrap_or(MOUNT);
    let engine = spec.engine.unwrap_or_default();
    let mut refused = None;
    loop {
        let is_second = refused.is_some();
        let held = context
            .sessions
            .token(key, (vault, accounts), credential, refused)
            .await?;
        let read = vault
            .read(&held.token, (mount, engine), &spec.path, spec.version)
            .await;
        match read {
            Err(error @ vault::Error::Denied(_)) if !is_second => {
                let token = held.token;
                refused = Some(Refused { token, error });
            }
            read => return Ok((read?, held.renewed_in)),
        }
    }
}

/// What no schema says.
fn check(object: &VaultSecret) -> Result<(), Trouble> {
    if let Some(every) = object.spec.refresh_every
        && !(MOST_OFTEN..=LEAST_OFTEN).contains(&Duration::from(every))
    {
        return Err(invalid(
            format!("spec.refreshEvery {every} is not from 30s to 24h"),
            "write for example 5m",
        ));
    }
    let name = name_of(object);
    if let Some(suffix) = OWN_SUFFIXES
        .into_iter()
        .find(|suffix| name.ends_with(suffix))
    {
        return Err(invalid(
            format!("Secret {name} ends as those that Windlass makes beside a Cluster: {suffix}"),
            "write another in spec.secret.name",
        ));
    }
    // In CEL it would cost more than a schema may.
    if let Some(key) = object.spec.keys.keys().find(|key| !vault::is_key(key)) {
        return Err(invalid(
            format!("spec.keys has {key:?}, which cannot be the key of a Secret"),
            "write letters, digits, dots, hyphens and underscores",
        ));
    }
    Ok(())
}

fn invalid(what: String, remedy: &'static str) -> Trouble {
    Trouble::Here {
        reason: "InvalidSpec",
        what,
        remedy,
        is_spec: true,
    }
}

async fn authorities(
    object: &VaultSecret,
    namespace: &str,
    context: &Context,
) -> Result<Option<String>, Trouble> {
    let Some(KeyRef { name, key }) = &object.spec.vault.ca_config_map_ref else {
        return Ok(None);
    };
    let key = key.as_deref().unwrap_or("ca.crt");
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    let map = api.get_opt(name).await;
    let map = map.map_err(Trouble::api("read a ConfigMap"))?;
    let text = map.and_then(|map| map.data?.remove(key));
    text.map(Some).ok_or_else(|| Trouble::Here {
        reason: "CredentialsMissing",
        what: format!(
            "spec.vault.caConfigMapRef: ConfigMap {name} of namespace {namespace} has no key {key}"
        ),
        remedy: "make it; it is looked for again by itself",
        is_spec: false,
    })
}

/// What to log in with.
async fn credential(
    vault: &api::secrets::Vault,
    namespace: &str,
    context: &Context,
) -> Result<Credential, Trouble> {
    let (auth, address) = (&vault.auth, &vault.address);
    let secret = |field, reference, default| async move {
        let of = (namespace, address.as_str());
        let found = found((field, reference, default), of, &context.client).await?;
        Ok::<_, Trouble>(SecretString::from(found.trim().to_owned()))
    };
    let mount =
        |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    match auth {
        Auth {
            kubernetes: Some(KubernetesAuth {
                mount: at, role, ..
            }),
            ..
        } => Ok(Credential::ServiceAccount {
            mount: mount(at, "kubernetes"),
            role: role.clone(),
        }),
        Auth {
            app_role:
                Some(AppRoleAuth {
                    mount: at,
                    role_id,
                    secret_id_secret_ref,
                }),
            ..
        } => Ok(Credential::AppRole {
            mount: mount(at, "approle"),
            role: role_id.clone(),
            secret: secret(
                "spec.vault.auth.appRole.secretIdSecretRef",
                secret_id_secret_ref,
                "secretId",
            )
            .await?,
        }),
        Auth {
            token: Some(TokenAuth { secret_ref }),
            ..
        } => Ok(Credential::Token(
            secret("spec.vault.auth.token.secretRef", secret_ref, "token").await?,
        )),
        Auth { .. } => Err(invalid(
            "spec.vault.auth is empty".to_owned(),
            "set exactly one of kubernetes, appRole and token",
        )),
    }
}

/// The text of a key of a Secret with credentials.
async fn found(
    (field, reference, default): (&str, &KeyRef, &str),
    (namespace, address): (&str, &str),
    client: &Client,
) -> Result<String, Trouble> {
    let missing = |what: &str, remedy| Trouble::Here {
        reason: "CredentialsMissing",
        what: format!(
            "{field}: Secret {} of namespace {namespace} {what}",
            reference.name
        ),
        remedy,
        is_spec: false,
    };
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(&reference.name).await;
    let secret = secret.map_err(Trouble::api("read a Secret"))?;
    let again = "make it; it is looked for again by itself";
    let secret = secret.ok_or_else(|| missing("is not there", again))?;
    if secret.type_.as_deref() != Some(CREDENTIALS_TYPE) {
        return Err(missing(
            &format!("is not of the type {CREDENTIALS_TYPE}, and nothing else is sent to a Vault"),
            "make it with kubectl create secret generic --type",
        ));
    }
    if !is_for(&secret, address) {
        return Err(missing(
            &format!(
                "has no annotation {ADDRESS_ANNOTATION} that names {address:?}, and is sent to no other server"
            ),
            "annotate it, if its credentials are for that server",
        ));
    }
    let key = reference.key.as_deref().unwrap_or(default);
    let bytes = secret.data.and_then(|mut data| data.remove(key));
    let bytes = bytes.ok_or_else(|| missing(&format!("has no key {key}"), again))?;
    String::from_utf8(bytes.0).map_err(|_| missing(&format!("has no text under {key}"), again))
}

/// Whether somebody who may write it says that it is for a server.
fn is_for<K: Resource>(object: &K, address: &str) -> bool {
    let told = object.meta().annotations.as_ref();
    let told = told.and_then(|told| told.get(ADDRESS_ANNOTATION));
    let plain = |address: &str| address.trim_end_matches('/').to_owned();
    told.is_some_and(|told| plain(told) == plain(address))
}

/// Whom tokens are for where nobody says it.
const AUDIENCE: &str = "vault";

fn audience(auth: &Auth) -> &str {
    let method = auth.kubernetes.as_ref();
    method
        .and_then(|method| method.audience.as_deref())
        .unwrap_or(AUDIENCE)
}

/// The ServiceAccount of a namespace.
struct Account<'a> {
    client: &'a Client,
    namespace: &'a str,
    address: &'a str,
    audience: &'a str,
}

impl Account<'_> {
    /// That whoever may write the account says whom its tokens are for.
    fn check(&self, account: &ServiceAccount) -> Result<(), vault::Error> {
        let named = || {
            format!(
                "ServiceAccount {SERVICE_ACCOUNT} of namespace {}",
                self.namespace
            )
        };
        if !is_for(account, self.address) {
            return Err(vault::Error::Denied(format!(
                "{} has no annotation {ADDRESS_ANNOTATION} that names {:?}, and its tokens are sent to no other server",
                named(),
                self.address
            )));
        }
        let audiences = account.annotations().get(AUDIENCE_ANNOTATION);
        let allowed = audiences.map_or(AUDIENCE, String::as_str);
        if self.audience == allowed {
            return Ok(());
        }
        Err(vault::Error::Denied(format!(
            "spec.vault.auth.kubernetes.audience is {:?}, and tokens of {} are for {allowed:?} (its annotation {AUDIENCE_ANNOTATION})",
            self.audience,
            named()
        )))
    }
}

impl Accounts for Account<'_> {
    async fn token(&self) -> Result<SecretString, vault::Error> {
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), self.namespace);
        let unmade = |error: kube::Error| {
            vault::Error::Denied(format!(
                "no token for ServiceAccount {SERVICE_ACCOUNT} of namespace {}: {}: make the ServiceAccount",
                self.namespace,
                chain(&error)
            ))
        };
        self.check(&api.get(SERVICE_ACCOUNT).await.map_err(unmade)?)?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![self.audience.to_owned()],
                expiration_seconds: Some(LIVES),
                bound_object_ref: None,
            },
            ..TokenRequest::default()
        };
        let made = api
            .create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request)
            .await;
        let made = made.map_err(unmade)?;
        let token = made.status.map(|status| status.token.into());
        token.ok_or_else(|| vault::Error::Denied("the API made an empty token".to_owned()))
    }
}

fn name_of(object: &VaultSecret) -> String {
    let made = object.spec.secret.as_ref();
    made.and_then(|made| made.name.clone())
        .unwrap_or_else(|| object.name_any())
}

/// Makes the Secret, or changes what differs. Returns the keys that it has then, and its version, where it was written.
async fn write(
    object: &VaultSecret,
    namespace: &str,
    data: BTreeMap<String, Vec<u8>>,
    context: &Context,
) -> Result<Option<(Vec<String>, String)>, Trouble> {
    let name = name_of(object);
    let kind = object.spec.secret.as_ref().and_then(|made| made.kind);
    let kind = kind.unwrap_or_default();
    let data: BTreeMap<_, _> = data
        .into_iter()
        .map(|(key, value)| (key, ByteString(value)))
        .collect();
    let keys = data.keys().cloned().collect();
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let there = api.get_opt(&name).await;
    let there = there.map_err(Trouble::api("read a Secret"))?;
    let written = match there {
        None => {
            let made = Secret {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    owner_references: Some(vec![owner(object)]),
                    ..ObjectMeta::default()
                },
                type_: Some(kind.as_str().to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            let parameters = PostParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PostParams::default()
            };
            api.create(&parameters, &made).await
        }
        Some(there) => {
            ours(object, &there, kind)?;
            let had = there.data.unwrap_or_default();
            let Some(data) = changed(&had, &data, Former::of(object)) else {
                return Ok(None);
            };
            // Refused where somebody wrote it meanwhile: the next pass begins with that.
            let patch = json!({
                "metadata": {"resourceVersion": there.metadata.resource_version},
                "data": data,
            });
            let parameters = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            api.patch(&name, &parameters, &Patch::Merge(&patch)).await
        }
    };
    match written {
        Ok(secret) => Ok(Some((keys, secret.resource_version().unwrap_or_default()))),
        // What the data of a type must have, for example.
        Err(kube::Error::Api(status)) if status.code == 422 => Err(Trouble::Here {
            reason: "SecretRefused",
            // Not the API's words: they may quote the value.
            what: format!(
                "Secret {name} of the type {} is refused with the keys {}",
                kind.as_str(),
                list(&keys)
            ),
            remedy: "choose the keys that the type has with spec.keys, or another type in spec.secret.type",
            is_spec: false,
        }),
        Err(error) => Err(Trouble::api("write a Secret")(error)),
    }
}

/// What becomes of keys that a Secret has and that were not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Former {
    /// They stay: somebody still reads them.
    Stay,
    /// They go.
    Go,
}

impl Former {
    fn of(object: &VaultSecret) -> Self {
        if object.annotations().contains_key(KEEP_KEYS_ANNOTATION) {
            Self::Stay
        } else {
            Self::Go
        }
    }
}

/// What is written of the data of a Secret so that it holds what was read; a key without a value goes. None: nothing differs.
fn changed(
    had: &BTreeMap<String, ByteString>,
    read: &BTreeMap<String, ByteString>,
    former: Former,
) -> Option<Value> {
    let gone: Vec<_> = match former {
        Former::Stay => Vec::new(),
        Former::Go => had.keys().filter(|key| !read.contains_key(*key)).collect(),
    };
    let is_as_read = read.iter().all(|(key, value)| had.get(key) == Some(value));
    if is_as_read && gone.is_empty() {
        return None;
    }
    let mut data = json!(read);
    for key in gone {
        data[key] = Value::Null;
    }
    Some(data)
}

/// That a Secret is the one that was made for this VaultSecret, and is of the type.
fn ours(object: &VaultSecret, there: &Secret, kind: SecretType) -> Result<(), Trouble> {
    let refused = |reason, what, remedy| Trouble::Here {
        reason,
        what: format!("Secret {} {what}", name_of(object)),
        remedy,
        is_spec: false,
    };
    let mut owners = there.owner_references().iter();
    let is_own = |owner: &OwnerReference| Some(&owner.uid) == object.metadata.uid.as_ref();
    if there.owner_references().is_empty() || !owners.all(is_own) {
        return Err(refused(
            "SecretTaken",
            "is there and was not made for this VaultSecret".to_owned(),
            "delete it if nobody needs it, or name another in spec.secret.name",
        ));
    }
    let has = there.type_.as_deref().unwrap_or("Opaque");
    if has != kind.as_str() {
        return Err(refused(
            "TypeDiffers",
            format!("is of the type {has}, which no Secret changes"),
            "delete it: it is made anew of the type of spec.secret.type",
        ));
    }
    Ok(())
}

fn owner(object: &VaultSecret) -> OwnerReference {
    OwnerReference {
        api_version: VaultSecret::api_version(&()).into_owned(),
        kind: VaultSecret::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn list(keys: &[String]) -> String {
    keys.join(", ")
}

/// Writes the status if it changed, and an Event where something happened.
async fn tell(
    object: &VaultSecret,
    kept: &Result<Kept, Trouble>,
    context: &Context,
) -> Result<(), Error> {
    let before = object.status.clone().unwrap_or_default();
    let told = told(&before, object.metadata.generation, kept, Timestamp::now());
    for occurrence in occurrences(object, (&before, &told), kept) {
        let regarding = ObjectReference {
            namespace: object.namespace(),
            ..object.object_ref(&())
        };
        let published = context.events.publish(&regarding, &occurrence).await;
        published.map_err(|error| Error::Api("publish an Event", error))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.own,
        MANAGER,
        (object, object.status.as_ref()),
        &told,
    )
    .await
    .map_err(Error::Apply)
}

/// The status after a pass. Pure.
fn told(
    before: &VaultSecretStatus,
    generation: Option<i64>,
    kept: &Result<Kept, Trouble>,
    now: Timestamp,
) -> VaultSecretStatus {
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    let mut told = before.clone();
    let summary = match kept {
        Ok(kept) => {
            conditions.set(STALE, Status::False, "Read", "Vault was read");
            told.secret = Some(kept.secret.clone());
            told.version = kept.version;
            if let Some(digests) = &kept.digests {
                told.digests.clone_from(digests);
            }
            told.contents.clone_from(&kept.contents);
            if kept.written.is_some() || told.changed_at.is_none() {
                told.changed_at = Some(Time(now));
            }
            Summary {
                standing: Standing::Ready,
                reason: "InVault",
                message: format!("Secret {} is as it is in Vault", kept.secret),
            }
        }
        Err(trouble) => {
            let reason = trouble.reason();
            let passing = matches!(trouble, Trouble::Vault(error) if error.is_passing());
            let was_ready = conditions::is_true(&before.conditions, conditions::READY);
            conditions.set(STALE, Status::True, reason, trouble.to_string());
            let standing = match trouble {
                Trouble::Here { is_spec: true, .. } => Standing::Stalled,
                // What it holds counts until Vault can be read.
                _ if passing && was_ready => Standing::Ready,
                _ if passing => Standing::AtWork,
                _ => Standing::Unhealthy,
            };
            Summary {
                standing,
                reason,
                message: match (&before.secret, standing) {
                    (Some(secret), Standing::Ready) => {
                        format!("Secret {secret} is as Vault was read last; {trouble}")
                    }
                    _ => trouble.to_string(),
                },
            }
        }
    };
    conditions.summarise(&summary);
    told.observed_generation =
        observed_generation(before.observed_generation, generation, summary.standing);
    told.conditions = conditions.into_vec();
    told
}

/// What happened, at its edges.
fn occurrences(
    object: &VaultSecret,
    (before, told): (&VaultSecretStatus, &VaultSecretStatus),
    kept: &Result<Kept, Trouble>,
) -> Vec<Occurrence> {
    let mut occurrences = Vec::new();
    if let Ok(kept) = kept
        && let Some((keys, written)) = &kept.written
    {
        let version = kept.version.map(|version| format!(", version {version}"));
        occurrences.push(Occurrence {
            severity: Severity::Normal,
            reason: "SecretWritten".to_owned(),
            note: format!(
                "Secret {} has {} from {}{}",
                kept.secret,
                list(keys),
                object.spec.path,
                version.unwrap_or_default()
            ),
            edge: written.clone(),
        });
    }
    let reason_of = |status: &VaultSecretStatus| {
        let mut conditions = status.conditions.iter();
        let stale = conditions.find(|condition| condition.type_ == STALE)?;
        Some((stale.status.clone(), stale.reason.clone()))
    };
    let (was, is) = (reason_of(before), reason_of(told));
    let stale = told.conditions.iter().find(|it| it.type_ == STALE);
    if let Some(stale) = stale.filter(|_| was != is) {
        let since = stale.last_transition_time.0;
        let is_true = stale.status == Status::True.as_str();
        // That it could be read from the beginning is no news.
        if is_true || was.is_some() {
            occurrences.push(Occurrence {
                severity: if is_true {
                    Severity::Warning
                } else {
                    Severity::Normal
                },
                reason: if is_true {
                    stale.reason.clone()
                } else {
                    "VaultRead".to_owned()
                },
                note: stale.message.clone(),
                edge: since.to_string(),
            });
        }
    }
    occurrences
}

#[cfg(test)]
mod tests;
