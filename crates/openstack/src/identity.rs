//! Keystone as its administrators meet it, by the [Identity API v3](https://docs.openstack.org/api-ref/identity/v3/).
//!
//! What is made says in its description whose it is, and what does not is not changed: two clouds may share a Keystone, and people make
//! users of their own.

use std::{io, net::IpAddr, time::Duration};

use api::openstack::Existing;
use kube::Client;
use reqwest::{Method, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    names,
    reach::{self, Way},
};

/// How much an answer may hold. A token tells its catalogue, which is some kilobytes.
const LARGEST: usize = 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// How a token is asked about.
const VALIDATE: &str = "validate the token";
/// The domain of the users of services.
const DOMAIN: &str = "default";
/// The project of the users of services.
pub const PROJECT: &str = "service";

/// Who somebody is to Keystone.
#[derive(Clone)]
pub struct Login {
    /// The name, in the domain Default.
    pub username: String,
    /// The password.
    pub password: String,
    /// The project that the token is for. None: for no project, as it proves who somebody is.
    pub project: Option<String>,
}

/// Why it did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("{0} is no address that can be asked")]
    Address(String),
    /// There is no way to it.
    #[error("reach Keystone")]
    Reach(#[from] reach::Error),
    /// It did not answer.
    #[error("{asked}")]
    Call {
        /// What was asked.
        asked: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It answered something else.
    #[error("{asked}: HTTP {}{said}", status.as_u16())]
    Status {
        /// What was asked.
        asked: String,
        /// The status.
        status: StatusCode,
        /// The message in it, after a colon; empty where there is none.
        said: String,
    },
    /// It answered what nobody can use.
    #[error("{asked}: {what}")]
    Answer {
        /// What was asked.
        asked: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// What is about to be done cannot be noted.
    #[error("note what is done in Keystone")]
    Note(#[source] io::Error),
    /// It is there, and not known to be the service's.
    #[error("{what} is there already, and is described as {described:?}, not as {owner:?}")]
    Taken {
        /// What.
        what: String,
        /// What its description says.
        described: String,
        /// What that of the service's own says.
        owner: String,
    },
}

/// A service towards Keystone.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// Its user and its name in the catalogue.
    pub name: String,
    /// Its type in the catalogue.
    #[serde(rename = "type")]
    pub type_: String,
    /// What its user may in the project: `service` has the tokens of others validated.
    pub roles: Vec<String>,
    /// The region of its endpoints.
    pub region: String,
    /// Where it answers in the cluster.
    pub internal: String,
    /// Where it answers to others.
    pub public: String,
}

/// What is made to have an account in Keystone where nothing of it is there.
pub fn made(account: &Account) -> Vec<String> {
    let Account {
        name,
        roles,
        region,
        internal,
        public,
        ..
    } = account;
    let mut made = vec![object("project", PROJECT), object("user", name)];
    for role in roles {
        made.extend([object("role", role), grant(role, name)]);
    }
    made.extend([
        object("service", name),
        object("region", region),
        endpoint("internal", internal),
        endpoint("public", public),
        password(name),
    ]);
    made
}

/// What of that others need too, and may have made before.
pub fn shared(account: &Account) -> Vec<String> {
    let roles = account.roles.iter().map(|role| object("role", role));
    [
        object("project", PROJECT),
        object("region", &account.region),
    ]
    .into_iter()
    .chain(roles)
    .collect()
}

/// The users that a service has in turn: there is one of them, and while that is replaced, both.
pub fn users_of(service: &str) -> [String; 2] {
    [service.to_owned(), format!("{service}_2")]
}

/// The password of a user, as something that is set.
pub fn password(name: &str) -> String {
    format!("password of user {name}")
}

fn object(kind: &str, name: &str) -> String {
    format!("{kind} {name}")
}

fn grant(role: &str, user: &str) -> String {
    format!("role {role} for user {user} on project {PROJECT}")
}

fn endpoint(interface: &str, url: &str) -> String {
    format!("endpoint {interface} {url}")
}

/// Hears of each thing before it is made.
pub type Note<'a> = &'a (dyn Fn(&str) -> io::Result<()> + Send + Sync);

/// What is made, each noted before it is.
struct Made<'a> {
    words: Vec<String>,
    note: Note<'a>,
}

impl Made<'_> {
    fn add(&mut self, word: String) -> Result<(), Error> {
        (self.note)(&word).map_err(Error::Note)?;
        self.words.push(word);
        Ok(())
    }
}

/// Somebody who is logged in.
pub struct Session {
    http: reqwest::Client,
    base: Url,
    token: String,
    /// Lives as long as what goes over it.
    _way: Way,
}

/// What follows from a login.
pub enum LoggedIn {
    /// Keystone knows who it is.
    As(Box<Session>),
    /// It says that the name or the password is wrong.
    Refused,
}

impl Session {
    /// Logs in at a Keystone, as pods of the namespace reach it.
    ///
    /// # Errors
    ///
    /// There is no way to it, or it does not answer as a Keystone does. A login that it refuses is none.
    pub async fn begin(
        client: &Client,
        namespace: &str,
        address: &str,
        login: &Login,
    ) -> Result<LoggedIn, Error> {
        let none = || Error::Address(address.to_owned());
        let mut base = Url::parse(address).map_err(|_| none())?;
        let host = base.host_str().ok_or_else(none)?.to_owned();
        let port = base.port_or_known_default().ok_or_else(none)?;
        let way = reach::to(client, namespace, host.trim_matches(['[', ']']), port).await?;
        let there: IpAddr = way.host.parse().map_err(|_| none())?;
        base.set_port(Some(way.port)).map_err(|()| none())?;
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder();
        // The authorities of this machine are some hundred files, and who is asked in clear shows no certificate.
        if base.scheme() == "http" {
            http = http.tls_certs_only([]);
        }
        let http = http
            .timeout(PATIENCE)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // The address that was looked at, by the name that its certificate has.
            .resolve(&host, (there, way.port).into())
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .build();
        let asked = || format!("log in as {}", login.username);
        let http = http.map_err(|source| Error::Call {
            asked: asked(),
            source: source.without_url(),
        })?;
        let domain = json!({"id": DOMAIN});
        let mut auth = json!({"identity": {"methods": ["password"], "password": {"user": {
            "name": login.username, "domain": domain, "password": login.password,
        }}}});
        match &login.project {
            Some(project) => {
                auth["scope"] = json!({"project": {"name": project, "domain": domain}});
            }
            None => auth["scope"] = json!("unscoped"),
        }
        let mut session = Self {
            http,
            base,
            token: String::new(),
            _way: way,
        };
        let answer = session
            .send(
                &asked(),
                Method::POST,
                "auth/tokens",
                &[],
                Some(&json!({"auth": auth})),
            )
            .await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Ok(LoggedIn::Refused);
        }
        let token = answer
            .headers()
            .get("x-subject-token")
            .and_then(|token| token.to_str().ok())
            .map(str::to_owned);
        checked(&asked(), answer).await?;
        session.token = token.ok_or_else(|| Error::Answer {
            asked: asked(),
            what: "Keystone issued no token",
        })?;
        Ok(LoggedIn::As(Box::new(session)))
    }

    /// Has the own token validated.
    ///
    /// # Errors
    ///
    /// It is not valid, or of somebody else.
    pub async fn validate(&self, username: &str) -> Result<(), Error> {
        if self.user_of_token().await?["name"] != username {
            return Err(Error::Answer {
                asked: VALIDATE.to_owned(),
                what: "Keystone vouches for somebody else",
            });
        }
        Ok(())
    }

    /// Whose the own token is.
    async fn user_of_token(&self) -> Result<Value, Error> {
        let subject = [("x-subject-token", self.token.as_str())];
        let answer = self
            .send(VALIDATE, Method::GET, "auth/tokens", &subject, None)
            .await?;
        let mut told = checked(VALIDATE, answer).await?;
        Ok(told["token"]["user"].take())
    }

    /// Gives whoever is logged in another password, as users do that themselves: where Keystone is to have users change what others set
    /// (`change_password_upon_first_use`), nobody would be let in by one that an administrator had set. All tokens of the user end by it,
    /// the own one too.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer.
    pub async fn change_own_password(&self, former: &str, password: &str) -> Result<(), Error> {
        let user = id(&self.user_of_token().await?);
        if user.is_empty() {
            return Err(Error::Answer {
                asked: VALIDATE.to_owned(),
                what: "Keystone does not say whose it is",
            });
        }
        let body = json!({"user": {"original_password": former, "password": password}});
        let path = format!("users/{user}/password");
        self.call(Method::POST, &path, Some(&body)).await.map(drop)
    }

    /// Asks a service of the namespace with the own token, which goes nowhere else.
    ///
    /// # Errors
    ///
    /// It is not there, does not answer, or not as it should.
    pub async fn ask(
        &self,
        client: &Client,
        namespace: &str,
        (service, port): (&str, u16),
        path: &str,
    ) -> Result<(), Error> {
        let way = reach::inside(client, namespace, service, port).await?;
        let way =
            way.ok_or_else(|| Error::Address(format!("Service {service}, which is not there,")))?;
        let address = format!("http://{}:{}{path}", way.host, way.port);
        let asked = format!("GET {path}");
        let call = |source: reqwest::Error| Error::Call {
            asked: asked.clone(),
            source: source.without_url(),
        };
        let request = self.http.get(address).header("x-auth-token", &self.token);
        let answer = request.send().await.map_err(call)?;
        checked(&asked, answer).await.map(drop)
    }

    /// Makes what a service needs in Keystone, and mends what is its own, its user by that name. What is there stays; what was the former
    /// owner's is the owner's then.
    /// `note` hears of each thing before it is made or mended.
    ///
    /// # Errors
    ///
    /// Something of its name is there and not its own, unless it may be adopted; or Keystone refuses, or does not answer.
    pub async fn seed(
        &self,
        account: &Account,
        user: &str,
        own: Own<'_>,
        note: Note<'_>,
    ) -> Result<String, Error> {
        let owner = own.owner;
        let mut made = Made {
            words: Vec::new(),
            note,
        };
        let name = account.name.as_str();
        self.user_with_roles(user, &account.roles, own, &mut made)
            .await?;
        let found = self.find_service(account).await?;
        let found = self.kept("service", name, found, own, &mut made).await?;
        let found = self.described("service", found, own, &mut made).await?;
        let service = json!({"name": name, "type": account.type_, "description": owner});
        let service = self.or_make(found, "service", &service, &mut made).await?;
        self.region(&account.region, &mut made).await?;
        for (interface, url) in [("internal", &account.internal), ("public", &account.public)] {
            let place = [
                ("service_id", service.as_str()),
                ("interface", interface),
                ("region_id", account.region.as_str()),
            ];
            let wanted = json!({
                "service_id": service, "interface": interface, "region_id": account.region, "url": url,
            });
            match self.find("endpoint", &place).await? {
                Some(there) if there["url"] == url.as_str() && there["enabled"] != false => {}
                Some(there) => {
                    made.add(endpoint(interface, url))?;
                    let path = format!("endpoints/{}", text(&there["id"]));
                    let wanted = json!({"endpoint": {"url": url, "enabled": true}});
                    self.call(Method::PATCH, &path, Some(&wanted)).await?;
                }
                None => {
                    made.add(endpoint(interface, url))?;
                    self.make("endpoint", &wanted).await?;
                }
            }
        }
        Ok(if made.words.is_empty() {
            "it was there".to_owned()
        } else {
            format!("made {}", made.words.join(", "))
        })
    }

    /// A service's user with its roles in the project of services, by its id.
    async fn user_with_roles(
        &self,
        name: &str,
        roles: &[String],
        own: Own<'_>,
        made: &mut Made<'_>,
    ) -> Result<String, Error> {
        let found = self
            .find("project", &[("name", PROJECT), ("domain_id", DOMAIN)])
            .await?;
        let project = json!({"name": PROJECT, "domain_id": DOMAIN});
        let project = self.or_make(found.as_ref().map(id), "project", &project, made);
        let project = project.await?;
        let found = self.find_user(name).await?;
        let found = self.kept("user", name, found, own, made).await?;
        let found = self.described("user", found, own, made).await?;
        let user = json!({"name": name, "domain_id": DOMAIN, "description": own.owner});
        let user = self.or_make(found, "user", &user, made).await?;
        for role_name in roles {
            let found = self.find("role", &[("name", role_name)]).await?;
            let role = json!({"name": role_name});
            let role = self.or_make(found.as_ref().map(id), "role", &role, made);
            let role = role.await?;
            let grant = format!("projects/{project}/users/{user}/roles/{role}");
            // It stays where it is there.
            (made.note)(&self::grant(role_name, name)).map_err(Error::Note)?;
            self.call(Method::PUT, &grant, None).await?;
        }
        Ok(user)
    }

    /// Makes the user that takes the place of a service's user before: with the roles and the groups that one has, whoever gave them, and
    /// with this password.
    ///
    /// # Errors
    ///
    /// Somebody else has a user of that name, or Keystone refuses, or does not answer.
    pub async fn succeed(
        &self,
        account: &Account,
        (former, next): (&str, &str),
        password: &str,
        own: Own<'_>,
        note: Note<'_>,
    ) -> Result<(), Error> {
        let mut made = Made {
            words: Vec::new(),
            note,
        };
        let before = self.user(former, own).await?;
        // What is adopted is what was there before Windlass, and this one is made now.
        let own = Own {
            existing: Existing::Refuse,
            ..own
        };
        let user = self.user_with_roles(next, &account.roles, own, &mut made);
        let user = user.await?;
        if let Some(before) = before {
            self.give_the_same(&id(&before), (next, &user), note)
                .await?;
        }
        note(&self::password(next)).map_err(Error::Note)?;
        self.set_password(next, password, own).await
    }

    /// Gives a user the roles and the groups of another one.
    async fn give_the_same(
        &self,
        of: &str,
        (name, to): (&str, &str),
        note: Note<'_>,
    ) -> Result<(), Error> {
        let path = format!("role_assignments?user.id={of}");
        let assigned = self.call(Method::GET, &path, None).await?;
        for assignment in list(&assigned, "role_assignments") {
            let Some(path) = granted(assignment, to) else {
                continue;
            };
            let role = text(&assignment["role"]["id"]);
            note(&format!("role {role} for user {name}")).map_err(Error::Note)?;
            self.call(Method::PUT, &path, None).await?;
        }
        let path = format!("users/{of}/groups");
        let groups = self.call(Method::GET, &path, None).await?;
        for group in list(&groups, "groups") {
            let group = id(group);
            note(&format!("group {group} for user {name}")).map_err(Error::Note)?;
            let path = format!("groups/{group}/users/{to}");
            self.call(Method::PUT, &path, None).await?;
        }
        Ok(())
    }

    /// What goes with a service's user, and nobody can make anew: it is not for a rotation to end that.
    ///
    /// # Errors
    ///
    /// The user is somebody else's, or Keystone refuses, or does not answer.
    pub async fn belongings(&self, name: &str, own: Own<'_>) -> Result<Vec<String>, Error> {
        let Some(user) = self.user(name, own).await? else {
            return Ok(Vec::new());
        };
        let user = id(&user);
        let mut all = Vec::new();
        for (kind, path) in [
            (
                "application_credentials",
                format!("users/{user}/application_credentials"),
            ),
            ("credentials", format!("credentials?user_id={user}")),
        ] {
            let found = self.call(Method::GET, &path, None).await?;
            let what = kind.trim_end_matches('s').replace('_', " ");
            all.extend(list(&found, kind).map(|one| format!("{what} {}", id(one))));
        }
        Ok(all)
    }

    /// Whether there is a user of that name, whosever.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer.
    pub async fn has_user(&self, name: &str) -> Result<bool, Error> {
        self.find_user(name).await.map(|found| found.is_some())
    }

    /// Removes a service's user; one that is not there is none.
    ///
    /// # Errors
    ///
    /// It is somebody else's, or Keystone refuses, or does not answer.
    pub async fn remove_user(&self, name: &str, own: Own<'_>) -> Result<(), Error> {
        let Some(user) = self.user(name, own).await? else {
            return Ok(());
        };
        let path = format!("users/{}", id(&user));
        self.call(Method::DELETE, &path, None).await.map(drop)
    }

    /// Gives a service's user this password.
    ///
    /// # Errors
    ///
    /// The user is not there or not the service's own, or Keystone refuses, or does not answer.
    pub async fn set_password(
        &self,
        name: &str,
        password: &str,
        own: Own<'_>,
    ) -> Result<(), Error> {
        let user = self.user(name, own).await?;
        let user = user.as_ref().map(id).ok_or_else(|| Error::Answer {
            asked: format!("look for user {name}"),
            what: "it is gone meanwhile",
        })?;
        let body = json!({"user": {"password": password, "enabled": true}});
        self.call(Method::PATCH, &format!("users/{user}"), Some(&body))
            .await
            .map(drop)
    }

    /// Removes a service's users, and its place in the catalogue. What is not its own stays.
    ///
    /// # Errors
    ///
    /// Keystone refuses, or does not answer.
    pub async fn forget(&self, account: &Account, owner: &str) -> Result<(), Error> {
        let own = Own {
            owner,
            former: None,
            existing: Existing::Refuse,
        };
        match self.service(account, own).await {
            Ok(Some(found)) => {
                let path = format!("services/{}", id(&found));
                self.call(Method::DELETE, &path, None).await?;
            }
            Ok(None) | Err(Error::Taken { .. }) => {}
            Err(error) => return Err(error),
        }
        for user in users_of(&account.name) {
            match self.remove_user(&user, own).await {
                Ok(()) | Err(Error::Taken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn user(&self, name: &str, own: Own<'_>) -> Result<Option<Value>, Error> {
        let found = self.find_user(name).await?;
        found
            .map(|user| own.checked(&object("user", name), user))
            .transpose()
    }

    async fn find_user(&self, name: &str) -> Result<Option<Value>, Error> {
        self.find("user", &[("name", name), ("domain_id", DOMAIN)])
            .await
    }

    async fn service(&self, account: &Account, own: Own<'_>) -> Result<Option<Value>, Error> {
        let found = self.find_service(account).await?;
        found
            .map(|service| own.checked(&object("service", &account.name), service))
            .transpose()
    }

    async fn find_service(&self, account: &Account) -> Result<Option<Value>, Error> {
        let named = [("name", account.name.as_str()), ("type", &account.type_)];
        self.find("service", &named).await
    }

    /// What was found, unless it is to be made anew: then it goes.
    async fn kept(
        &self,
        kind: &str,
        name: &str,
        found: Option<Value>,
        own: Own<'_>,
        made: &mut Made<'_>,
    ) -> Result<Option<Value>, Error> {
        let Some(found) = found else {
            return Ok(None);
        };
        let what = object(kind, name);
        if own.is_replaced(&found) {
            made.add(format!("room for another {what}"))?;
            let path = format!("{kind}s/{}", id(&found));
            self.call(Method::DELETE, &path, None).await?;
            return Ok(None);
        }
        own.checked(&what, found).map(Some)
    }

    /// The id of what was found, which is described as the owner's from now on if it was described as the former one's.
    async fn described(
        &self,
        kind: &str,
        found: Option<Value>,
        own: Own<'_>,
        made: &mut Made<'_>,
    ) -> Result<Option<String>, Error> {
        let Some(found) = found else {
            return Ok(None);
        };
        let id = id(&found);
        if own.is_former(&found) {
            made.add(format!("the description of its {kind}"))?;
            let wanted = json!({kind: {"description": own.owner}});
            self.call(Method::PATCH, &format!("{kind}s/{id}"), Some(&wanted))
                .await?;
        }
        Ok(Some(id))
    }

    async fn region(&self, region: &str, made: &mut Made<'_>) -> Result<(), Error> {
        let asked = format!("look for region {region}");
        let path = format!("regions/{region}");
        let answer = self.send(&asked, Method::GET, &path, &[], None).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            made.add(object("region", region))?;
            return self.make("region", &json!({"id": region})).await.map(drop);
        }
        checked(&asked, answer).await.map(drop)
    }

    /// The one of that kind with these fields; the first where there are several.
    async fn find(&self, kind: &str, fields: &[(&str, &str)]) -> Result<Option<Value>, Error> {
        let mut query = self.base.clone();
        query.query_pairs_mut().clear().extend_pairs(fields);
        let path = format!("{kind}s?{}", query.query().unwrap_or_default());
        let mut found = self.call(Method::GET, &path, None).await?;
        let found = match found[format!("{kind}s")].take() {
            Value::Array(found) => found,
            _ => Vec::new(),
        };
        Ok(found.into_iter().find(|one| !text(&one["id"]).is_empty()))
    }

    /// What was found, or else is made and noted.
    async fn or_make(
        &self,
        found: Option<String>,
        kind: &str,
        fields: &Value,
        made: &mut Made<'_>,
    ) -> Result<String, Error> {
        if let Some(found) = found {
            return Ok(found);
        }
        let name = fields["name"].as_str().unwrap_or_default();
        made.add(object(kind, name))?;
        self.make(kind, fields).await
    }

    /// Makes one, and returns its id.
    async fn make(&self, kind: &str, fields: &Value) -> Result<String, Error> {
        let path = format!("{kind}s");
        let made = self
            .call(Method::POST, &path, Some(&json!({kind: fields})))
            .await?;
        let id = text(&made[kind]["id"]);
        if id.is_empty() {
            return Err(Error::Answer {
                asked: format!("make a {kind}"),
                what: "Keystone did not say what it is",
            });
        }
        Ok(id)
    }

    /// Whether a user of that id has that password, whatever it may.
    ///
    /// # Errors
    ///
    /// Keystone does not answer, or something else.
    pub(crate) async fn knows(&self, user: &str, password: &str) -> Result<bool, Error> {
        let body = json!({"auth": {"scope": "unscoped", "identity": {"methods": ["password"],
            "password": {"user": {"id": user, "password": password}}}}});
        let asked = format!("log in as user {user}");
        let answer = self
            .send(&asked, Method::POST, "auth/tokens", &[], Some(&body))
            .await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Ok(false);
        }
        checked(&asked, answer).await.map(|_| true)
    }

    /// Asks for something, or has something done.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let asked = format!("{method} /v3/{path}");
        let answer = self.send(&asked, method, path, &[], body).await?;
        checked(&asked, answer).await
    }

    async fn send(
        &self,
        asked: &str,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<&Value>,
    ) -> Result<reqwest::Response, Error> {
        let address = format!("{}/{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.http.request(method, address);
        if !self.token.is_empty() {
            request = request.header("x-auth-token", &self.token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.map_err(|source| Error::Call {
            asked: asked.to_owned(),
            source: source.without_url(),
        })
    }
}

/// Whose something must be.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// What its description says.
    pub owner: &'a str,
    /// What it says where it was brought from another cluster: that is the owner's, too.
    pub former: Option<&'a str>,
    /// What becomes of what says something else.
    pub existing: Existing,
}

impl Own<'_> {
    /// What is the service's own.
    fn checked(self, what: &str, found: Value) -> Result<Value, Error> {
        let described = description(&found);
        if described == self.owner || self.is_former(&found) || self.existing == Existing::Adopt {
            return Ok(found);
        }
        Err(Error::Taken {
            what: what.to_owned(),
            described: api::text::lines(described, 200),
            owner: self.owner.to_owned(),
        })
    }

    /// Whether it goes, and is made anew. What is of another object does not.
    fn is_replaced(self, found: &Value) -> bool {
        let described = description(found);
        self.existing == Existing::Replace && !self.is_former(found) && !names::is_owner(described)
    }

    fn is_former(self, found: &Value) -> bool {
        self.former == Some(description(found))
    }
}

fn description(found: &Value) -> &str {
    found["description"].as_str().unwrap_or_default()
}

/// What an answer holds, if it is one of success.
async fn checked(asked: &str, mut answer: reqwest::Response) -> Result<Value, Error> {
    let status = answer.status();
    let mut body = Vec::new();
    loop {
        let part = answer.chunk().await.map_err(|source| Error::Call {
            asked: asked.to_owned(),
            source: source.without_url(),
        })?;
        let Some(part) = part else { break };
        body.extend_from_slice(&part);
        if body.len() > LARGEST {
            return Err(Error::Answer {
                asked: asked.to_owned(),
                what: "the answer does not end",
            });
        }
    }
    let told = if body.is_empty() {
        Some(Value::Null)
    } else {
        serde_json::from_slice(&body).ok()
    };
    if !status.is_success() {
        let told = told.unwrap_or_default();
        // Keystone's own, and what the working group of the APIs wants of the others.
        let said = told["error"]["message"].as_str();
        let said = said.or_else(|| told["errors"][0]["detail"].as_str());
        return Err(Error::Status {
            asked: asked.to_owned(),
            status,
            said: said.map_or_else(String::new, |said| {
                format!(": {}", api::text::lines(said, 300))
            }),
        });
    }
    told.ok_or_else(|| Error::Answer {
        asked: asked.to_owned(),
        what: "the answer is no JSON",
    })
}

fn id(found: &Value) -> String {
    text(&found["id"])
}

fn list<'a>(found: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    found[kind].as_array().into_iter().flatten()
}

/// Where a user is given the role of another one's assignment, in the same place. None: it is of no place that is known.
fn granted(assignment: &Value, to: &str) -> Option<String> {
    let scope = &assignment["scope"];
    let of = |kind: &str| {
        let id = text(&scope[kind]["id"]);
        (!id.is_empty()).then(|| format!("{kind}s/{id}"))
    };
    let is_system = scope["system"]["all"] == true;
    let place = of("project")
        .or_else(|| of("domain"))
        .or_else(|| is_system.then(|| "system".to_owned()))?;
    let role = text(&assignment["role"]["id"]);
    let path = format!("{place}/users/{to}/roles/{role}");
    Some(match scope["OS-INHERIT:inherited_to"].as_str() {
        Some(_) => format!("OS-INHERIT/{path}/inherited_to_projects"),
        None => path,
    })
}

/// Ids come into paths: what is none becomes nothing that leads elsewhere.
fn text(id: &Value) -> String {
    let id = id.as_str().unwrap_or_default();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if id.chars().all(is_plain) {
        id.to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_given_where_the_other_user_has_it() {
        for (scope, path) in [
            (
                json!({"project": {"id": "p"}}),
                Some("projects/p/users/u/roles/r"),
            ),
            (
                json!({"domain": {"id": "d"}, "OS-INHERIT:inherited_to": "projects"}),
                Some("OS-INHERIT/domains/d/users/u/roles/r/inherited_to_projects"),
            ),
            (
                json!({"system": {"all": true}}),
                Some("system/users/u/roles/r"),
            ),
            (json!({"project": {"id": "../users"}}), None),
            (json!({}), None),
        ] {
            let assignment = json!({"role": {"id": "r"}, "user": {"id": "v"}, "scope": scope});
            assert_eq!(granted(&assignment, "u").as_deref(), path);
        }
    }

    #[test]
    fn what_the_cluster_before_described_is_own_where_it_is_named_alone() {
        let own = Own {
            owner: "windlass cloud/one-glance of cluster new",
            former: None,
            existing: Existing::Refuse,
        };
        let found = |description: &str| json!({"id": "1", "description": description});
        let old = "windlass cloud/one-glance of cluster old";
        assert!(own.checked("user", found(own.owner)).is_ok());
        let taken = own.checked("user", found(old)).unwrap_err();
        assert!(matches!(taken, Error::Taken { .. }), "{taken}");
        let restored = Own {
            former: Some(old),
            ..own
        };
        assert!(restored.checked("user", found(old)).is_ok());
        assert!(restored.is_former(&found(old)));
        assert!(restored.checked("user", found(own.owner)).is_ok());
        assert!(!restored.is_former(&found(own.owner)));
        for other in ["", "windlass cloud/two-glance of cluster old"] {
            assert!(restored.checked("user", found(other)).is_err(), "{other}");
        }
        let replacing = Own {
            existing: Existing::Replace,
            ..restored
        };
        assert!(replacing.is_replaced(&found("made by hand")));
        assert!(!own.is_replaced(&found("made by hand")));
        for kept in [own.owner, old, "windlass cloud/two-glance of cluster old"] {
            assert!(!replacing.is_replaced(&found(kept)), "{kept}");
        }
    }
}
