//! Steps in Keystone.

use api::run::{Failure, FailureClass, Step};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use reqwest::StatusCode;
use runs::calls::{call, config, failure, transient};

use crate::{
    action::Ask,
    definition::Definition,
    engine::{Done, Worker, misplaced},
    identity::{Error, LoggedIn, Login, Own, PROJECT, Session},
    names, reach,
    service::{Identity, Inputs, internal_url},
};

impl Worker {
    pub(super) async fn issue_token(&self, definition: &Definition) -> Done {
        let secret = names::secret(self.name(), "admin");
        let url = internal_url(self.name(), &self.namespace(), definition.port);
        let url = format!("{url}{}", definition.path);
        let login = self.login(&secret, Some("project")).await?;
        let session = self.begin(&url, &login, &secret).await?;
        session
            .validate(&login.username)
            .await
            .map_err(|error| said(&error))?;
        Ok(Some(format!(
            "a token of {} was issued and validated",
            login.username
        )))
    }

    pub(super) async fn seed_identity(&self, inputs: &Inputs, step: &Step) -> Done {
        let identity = inputs.identity.as_ref().ok_or_else(|| misplaced(step))?;
        self.seed(inputs, identity, None).await
    }

    /// Makes the service known to Keystone, which may know it as the one of the cluster before.
    pub(super) async fn seed(
        &self,
        inputs: &Inputs,
        identity: &Identity,
        former: Option<&str>,
    ) -> Done {
        let owner = self.owner().await?;
        let own = Own {
            owner: &owner,
            former,
            adopt: inputs.adopt,
        };
        let admin = self.administrator(identity).await?;
        self.held()?;
        let account = &identity.account;
        let made = admin.seed(account, own).await;
        let mut detail = made.map_err(|error| said(&error))?;
        // A password that is right is left alone: setting it would end all tokens of the user.
        let secret = names::secret(self.name(), "identity");
        let login = self.login(&secret, None).await?;
        if let LoggedIn::Refused = self.try_login(&identity.url, &login).await? {
            self.held()?;
            admin
                .set_password(&account.name, &login.password, own)
                .await
                .map_err(|error| said(&error))?;
            detail.push_str(", set the password");
        }
        Ok(Some(detail))
    }

    pub(super) async fn ask(
        &self,
        inputs: &Inputs,
        definition: &Definition,
        ask: &Ask,
        step: &Step,
    ) -> Done {
        let identity = inputs.identity.as_ref().ok_or_else(|| misplaced(step))?;
        // By the service's own user: a token of an administrator's is nothing for pods.
        let secret = names::secret(self.name(), "identity");
        let mut login = self.login(&secret, None).await?;
        login.project = Some(PROJECT.to_owned());
        let session = self.begin(&identity.url, &login, &secret).await?;
        let place = (self.name(), definition.port);
        session
            .ask(&self.work.client, &self.namespace(), place, &ask.path)
            .await
            .map_err(|error| said(&error))?;
        Ok(Some(format!("GET {} was answered", ask.path)))
    }

    /// A Keystone that is gone knows nobody: a service whose cloud goes with everything must not wait for it.
    pub(super) async fn forget_identity(&self, inputs: &Inputs) -> Done {
        let Some(identity) = &inputs.identity else {
            return Ok(None);
        };
        if self.is_gone(identity).await? {
            return Ok(Some("Keystone is gone".to_owned()));
        }
        let owner = self.owner().await?;
        let admin = self.administrator(identity).await?;
        self.held()?;
        admin
            .forget(&identity.account, &owner)
            .await
            .map_err(|error| said(&error))?;
        Ok(None)
    }

    /// Whether it was a Service of the namespace that is not there, or whose administrator's Secret is not.
    async fn is_gone(&self, identity: &Identity) -> Result<bool, Failure> {
        let url = reqwest::Url::parse(&identity.url).ok();
        let host = url.as_ref().and_then(|url| url.host_str());
        let Some(service) = reach::service_of(host.unwrap_or_default(), &self.namespace()) else {
            return Ok(false);
        };
        let failed = |error: kube::Error| call("look for Keystone", &error);
        let secrets = self.secrets();
        let secret = secrets.get_metadata_opt(&identity.admin_secret).await;
        let services = Api::<Service>::namespaced(self.work.client.clone(), &self.namespace());
        let service = services.get_metadata_opt(service).await;
        Ok(secret.map_err(failed)?.is_none() || service.map_err(failed)?.is_none())
    }

    async fn administrator(&self, identity: &Identity) -> Result<Session, Failure> {
        let login = self.login(&identity.admin_secret, Some("project")).await?;
        self.begin(&identity.url, &login, &identity.admin_secret)
            .await
    }

    /// Who a Secret speaks of, for the project under that key, or the administrator's.
    async fn login(&self, secret: &str, project: Option<&str>) -> Result<Login, Failure> {
        let project = match project {
            Some(key) => {
                let named = self.optional_value(secret, key).await?;
                Some(named.unwrap_or_else(|| ADMIN_PROJECT.to_owned()))
            }
            None => None,
        };
        Ok(Login {
            username: self.secret_value(secret, "username").await?,
            password: self.secret_value(secret, "password").await?,
            project,
        })
    }

    async fn begin(&self, url: &str, login: &Login, secret: &str) -> Result<Session, Failure> {
        match self.try_login(url, login).await? {
            LoggedIn::As(session) => Ok(*session),
            LoggedIn::Refused => Err(config(
                "WrongPassword",
                format!(
                    "Keystone knows no {} with the password in Secret {secret}, or not in its project",
                    login.username
                ),
                "give the right one there, and retry the run",
            )),
        }
    }

    async fn try_login(&self, url: &str, login: &Login) -> Result<LoggedIn, Failure> {
        Session::begin(&self.work.client, &self.namespace(), url, login)
            .await
            .map_err(|error| said(&error))
    }
}

/// The project of an administrator whose Secret names none, as `keystone-manage bootstrap` makes it.
const ADMIN_PROJECT: &str = "admin";

fn said(error: &Error) -> Failure {
    let message = format!("failed to {}", controller::chain(error));
    match error {
        Error::Taken { .. } => config(
            "Taken",
            message,
            "remove it, or set existing: Adopt to take it over, and retry the run",
        ),
        Error::Status {
            status: StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST,
            ..
        } => failure(
            FailureClass::External,
            "Refused",
            message,
            "mend what Keystone names, and retry the run",
        ),
        _ => transient("Keystone", message),
    }
}
