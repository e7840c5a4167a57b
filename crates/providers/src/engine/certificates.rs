//! The certificates of webhooks in the API that is installed in, where no cert-manager makes them.

use std::collections::BTreeMap;

use api::provider::label;
use api::run::Failure;
use clusterctl::Object;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, Patch, PatchParams},
};
use runs::calls::{Ended, call, config};
use serde_json::json;
use workflow::StepOutcome;

use super::{
    Installer, done,
    objects::{self, Resources},
    prune,
};
use crate::{
    certificates::{self, CertificateError, Pair, Wanted, encode},
    names::{COMPONENTS_MANAGER, RENEWED_FROM},
    render,
};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";

impl Installer {
    /// Makes the certificates that are missing or near their end.
    pub(super) async fn issue(&self, there: &Client) -> Result<StepOutcome, Ended> {
        let asked = self.asked(there).await?;
        if asked.has_cert_manager {
            return Ok(done([]));
        }
        let wanted = certificates::wanted(&asked.objects).map_err(|error| refused(&error))?;
        if wanted.is_empty() {
            return Ok(done([]));
        }
        // They lie in the namespace that comes with everything else.
        let mut resources = Resources::default();
        for namespace in asked.objects.iter().filter(|one| render::is_namespace(one)) {
            let api = resources.api(there, namespace).await?;
            self.held()?;
            objects::apply(&api, namespace, None).await?;
        }
        let secrets = self.secrets(there).await?.into_iter();
        let resource = ApiResource::erase::<Secret>(&());
        let secrets = secrets.map(|(_, _, namespace, name)| (resource.clone(), namespace, name));
        self.begin(there, secrets).await?;
        let mut made = 0;
        for one in &wanted {
            made += usize::from(self.ensure(there, one).await?);
        }
        Ok(done([
            ("created", made),
            ("unchanged", wanted.len() - made),
        ]))
    }

    /// The objects, trusting the authorities that there are. Before these are made, nobody is trusted.
    pub(super) async fn trusting(
        &self,
        there: &Client,
        objects: Vec<Object>,
    ) -> Result<Vec<Object>, Failure> {
        let mut bundles = BTreeMap::new();
        for one in certificates::wanted(&objects).map_err(|error| refused(&error))? {
            let secret = secret(there, &one, &one.secret).await?;
            if let Some(bundle) = secret.as_ref().and_then(|secret| text(secret, AUTHORITY)) {
                bundles.insert(one.title(), certificates::marked(&bundle, &self.mark()));
            }
        }
        certificates::replace(objects, &bundles).map_err(|error| refused(&error))
    }

    /// The Secrets of certificates that were made here.
    pub(super) async fn secrets(&self, there: &Client) -> Result<Vec<prune::Key>, Failure> {
        let asked = self.asked(there).await?;
        if asked.has_cert_manager {
            return Ok(Vec::new());
        }
        let wanted = certificates::wanted(&asked.objects).map_err(|error| refused(&error))?;
        let keys = wanted.iter().flat_map(|one| {
            [one.secret.clone(), one.authority()].map(|name| {
                let group = String::new();
                (group, "Secret".to_owned(), one.namespace.clone(), name)
            })
        });
        Ok(keys.collect())
    }

    /// Whether one was made.
    async fn ensure(&self, there: &Client, wanted: &Wanted) -> Result<bool, Failure> {
        let now = Timestamp::now();
        let before = secret(there, wanted, &wanted.secret).await?;
        let trusted = before.as_ref().and_then(|secret| text(secret, AUTHORITY));
        let serving = before.as_ref().and_then(|secret| text(secret, CERTIFICATE));
        let is_good = serving.as_deref().and_then(certificates::read);
        let is_good = is_good.is_some_and(|(due, names)| due > now && covers(&names, wanted));
        if is_good && trusted.is_some() {
            return Ok(false);
        }
        let failed = |error: CertificateError| refused(&error);
        let kept = secret(there, wanted, &wanted.authority()).await?;
        let kept = kept.as_ref().and_then(pair);
        let is_valid =
            |pair: &Pair| certificates::read(&pair.certificate).is_some_and(|(due, _)| due > now);
        let authority = if let Some(authority) = kept.filter(is_valid) {
            authority
        } else {
            let authority = certificates::authority(wanted, now).map_err(failed)?;
            self.write(there, wanted, &wanted.authority(), &authority, None)
                .await?;
            authority
        };
        // Who serves with an older one, or with one of cert-manager's, is trusted until it has the new one.
        let trusted = trusted.unwrap_or_default();
        let bundle = if trusted.contains(authority.certificate.trim()) {
            trusted
        } else {
            authority.certificate.clone() + &trusted
        };
        let pair = certificates::sign(wanted, &authority, now).map_err(failed)?;
        self.write(there, wanted, &wanted.secret, &pair, Some(&bundle))
            .await?;
        Ok(true)
    }

    async fn write(
        &self,
        there: &Client,
        wanted: &Wanted,
        name: &str,
        pair: &Pair,
        bundle: Option<&str>,
    ) -> Result<(), Failure> {
        let due = certificates::read(&pair.certificate);
        let mut data = json!({
            CERTIFICATE: encode(pair.certificate.as_bytes()), KEY: encode(pair.key.as_bytes()),
        });
        if let Some(bundle) = bundle {
            data[AUTHORITY] = json!(encode(bundle.as_bytes()));
        }
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {
                "name": name, "namespace": wanted.namespace,
                "labels": {label::CLUSTERCTL: "", label::PROVIDER: self.provider.manifest_label()},
                "annotations": {RENEWED_FROM: due.map(|(due, _)| due.to_string()).unwrap_or_default()},
            },
            "data": data,
        });
        self.held()?;
        Api::<Secret>::namespaced(there.clone(), &wanted.namespace)
            .patch(
                name,
                &PatchParams::apply(COMPONENTS_MANAGER).force(),
                &Patch::Apply(&body),
            )
            .await
            .map(drop)
            .map_err(|error| call(format!("write Secret {}/{name}", wanted.namespace), &error))
    }
}

fn covers(names: &[String], wanted: &Wanted) -> bool {
    wanted.names.iter().all(|name| names.contains(name))
}

async fn secret(there: &Client, wanted: &Wanted, name: &str) -> Result<Option<Secret>, Failure> {
    Api::<Secret>::namespaced(there.clone(), &wanted.namespace)
        .get_opt(name)
        .await
        .map_err(|error| call(format!("read Secret {}/{name}", wanted.namespace), &error))
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

fn pair(secret: &Secret) -> Option<Pair> {
    Some(Pair {
        certificate: text(secret, CERTIFICATE)?,
        key: text(secret, KEY)?,
    })
}

fn refused(error: &CertificateError) -> Failure {
    config(
        "NoCertificate",
        controller::chain(error),
        "install cert-manager in that cluster, and retry the run",
    )
}
