//! Steps in Keystone.

use api::run::{Failure, FailureClass, Step};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use reqwest::StatusCode;
use runs::calls::{call, config, failure, transient};

use crate::{
    action::Ask,
    audit,
    definition::Definition,
    engine::{Done, Worker, account::Turn, misplaced},
    identity::{self, Error, LoggedIn, Own, Session},
    reach,
    service::{Identity, Inputs},
};

impl Worker {
    pub(super) async fn issue_token(&self, definition: &Definition) -> Done {
        let who = self.site().issue_token(self.name(), definition).await?;
        Ok(Some(format!("a token of {who} was issued and validated")))
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
            existing: self.existing(inputs),
        };
        let admin = self.administrator(identity).await?;
        self.held()?;
        let account = &identity.account;
        let turn = Turn::of_keystone(self.name(), &account.name);
        let login = self.site().login(&turn.current, None).await?;
        let user = turn.in_turn(login.username.clone(), &turn.current)?;
        let user = user.as_str();
        let note = |what: &str| self.noted_in_keystone(what);
        let made = admin.seed(account, user, own, &note).await;
        let mut detail = made.map_err(|error| said(&error))?;
        // A password that is right is left alone: setting it would end all tokens of the user.
        if let LoggedIn::Refused = self.site().try_login(&identity.url, &login).await? {
            self.about(&audit::in_keystone(&identity::password(user)))?;
            admin
                .set_password(user, &login.password, own)
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
        let session = self.site().begin_as(self.name(), identity).await?;
        let place = (self.name(), definition.port);
        self.site().ask(place, &session, ask).await?;
        Ok(Some(format!("GET {} was answered", ask.path)))
    }

    /// A Keystone that is gone knows nobody: a service whose cloud goes with everything must not wait for it.
    pub(super) async fn forget_identity(&self, inputs: &Inputs) -> Done {
        let Some(identity) = &inputs.identity else {
            return Ok(None);
        };
        if self.is_gone(&identity.url, &identity.admin_secret).await? {
            return Ok(Some("Keystone is gone".to_owned()));
        }
        let owner = self.owner().await?;
        let admin = self.administrator(identity).await?;
        let gone = audit::in_keystone(&identity.account.name);
        self.about(&audit::removed(&gone))?;
        admin
            .forget(&identity.account, &owner)
            .await
            .map_err(|error| said(&error))?;
        Ok(None)
    }

    /// Whether it was a Service of the namespace that is not there, or whose administrator's Secret is not.
    pub(super) async fn is_gone(&self, url: &str, admin_secret: &str) -> Result<bool, Failure> {
        let url = reqwest::Url::parse(url).ok();
        let host = url.as_ref().and_then(|url| url.host_str());
        let host = host.unwrap_or_default();
        if reach::service_of(host, &self.namespace()).is_none() {
            return Ok(false);
        }
        let secrets = self.secrets();
        let secret = secrets.get_metadata_opt(admin_secret).await;
        let secret =
            secret.map_err(|error| call(format!("look for Secret {admin_secret}"), &error));
        Ok(secret?.is_none() || self.is_service_gone(host).await?)
    }

    /// Whether a host was a Service of the namespace that is not there.
    pub(super) async fn is_service_gone(&self, host: &str) -> Result<bool, Failure> {
        let Some(service) = reach::service_of(host, &self.namespace()) else {
            return Ok(false);
        };
        let services = Api::<Service>::namespaced(self.work.client.clone(), &self.namespace());
        let found = services.get_metadata_opt(service).await;
        let found = found.map_err(|error| call(format!("look for Service {service}"), &error));
        Ok(found?.is_none())
    }

    pub(super) fn noted_in_keystone(&self, what: &str) -> std::io::Result<()> {
        audit::note(&self.work.directory, &audit::in_keystone(what))
    }

    pub(super) async fn administrator(&self, identity: &Identity) -> Result<Session, Failure> {
        let login = self
            .site()
            .login(&identity.admin_secret, Some("project"))
            .await?;
        self.site()
            .begin(&identity.url, &login, &identity.admin_secret)
            .await
    }
}

/// What Keystone said, or did not.
pub(super) fn said(error: &Error) -> Failure {
    told("Keystone", error)
}

/// What a service said that was asked with a token, or did not.
pub(super) fn said_by_service(error: &Error) -> Failure {
    told("Service", error)
}

fn told(code: &str, error: &Error) -> Failure {
    let message = format!("failed to {}", controller::chain(error));
    match error {
        Error::Taken { .. } => config(
            "Taken",
            message,
            "remove it, or set spec.existing to Adopt to take it over, and retry the run; Replace removes what is no other object's, in an installation",
        ),
        Error::Status {
            status: StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST,
            ..
        } => failure(
            FailureClass::External,
            "Refused",
            message,
            "mend what it names, and retry the run",
        ),
        _ => transient(code, message),
    }
}
