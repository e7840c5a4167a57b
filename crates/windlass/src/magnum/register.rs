//! `windlass magnum register`: puts the service into Keystone's catalogue, where clients look for it.
//!
//! What is there already stays; an endpoint of another address is changed. So it can be done again, also by every start of a
//! deployment.

use std::{fs, time::Duration};

use anyhow::{Context, bail};
use reqwest::{Certificate, Client, Method, StatusCode, redirect::Policy};
use serde_json::{Value, json};

use super::cloud::Cloud;
use crate::cli::Register;

/// The kind of service that clients ask the catalogue for.
const KIND: &str = "container-infra";
/// How long Keystone may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Registers the service, and says what was done.
pub(crate) async fn register(options: &Register) -> anyhow::Result<()> {
    let cloud = Cloud::of(|name| std::env::var(name).ok())?;
    let keystone = Keystone::of(&cloud).await?;
    let region = options.region.clone().or(cloud.region_name);
    for done in keystone.register(options, region.as_deref()).await? {
        println!("{done}");
    }
    Ok(())
}

/// A Keystone that knows who asks.
struct Keystone {
    client: Client,
    address: String,
    token: String,
}

impl Keystone {
    async fn of(cloud: &Cloud) -> anyhow::Result<Self> {
        let mut builder = Client::builder().timeout(TIMEOUT).redirect(Policy::none());
        if let Some(file) = &cloud.cacert {
            let text =
                fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
            let authorities = Certificate::from_pem_bundle(&text)
                .with_context(|| format!("{} holds no certificates", file.display()))?;
            builder = builder.tls_certs_merge(authorities);
        }
        let client = builder
            .build()
            .context("failed to make a client of Keystone")?;
        let address = cloud.keystone().to_owned();
        let url = format!("{address}/v3/auth/tokens");
        let answer = client.post(&url).json(&cloud.request()?).send().await;
        let answer = answer.with_context(|| format!("failed to ask {url} for a token"))?;
        let status = answer.status();
        let token = answer.headers().get("x-subject-token");
        let token = token
            .and_then(|token| token.to_str().ok())
            .map(str::to_owned);
        match token.filter(|_| status == StatusCode::CREATED) {
            Some(token) => Ok(Self {
                client,
                address,
                token,
            }),
            None => bail!("Keystone gives no token ({status}): check user, project and password"),
        }
    }

    async fn register(
        &self,
        options: &Register,
        region: Option<&str>,
    ) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        let service = self.service(&options.name, &mut done).await?;
        let query = format!("endpoints?service_id={service}");
        let there = self.ask(Method::GET, &query, None).await?;
        let there = there["endpoints"].as_array().cloned().unwrap_or_default();
        let other = |url: &Option<String>| url.clone().unwrap_or_else(|| options.url.clone());
        for (interface, url) in [
            ("public", options.url.clone()),
            ("internal", other(&options.internal_url)),
            ("admin", other(&options.admin_url)),
        ] {
            let url = format!("{url}/v1");
            let known = there.iter().find(|endpoint| {
                endpoint["interface"] == interface && endpoint["region_id"].as_str() == region
            });
            let word = match known {
                Some(known) if known["url"] == url => "is there",
                Some(known) => {
                    let id = known["id"].as_str().unwrap_or_default();
                    let body = json!({"endpoint": {"url": url, "enabled": true}});
                    self.ask(Method::PATCH, &format!("endpoints/{id}"), Some(body))
                        .await?;
                    "was changed"
                }
                None => {
                    let body = json!({"endpoint": {
                        "service_id": service, "interface": interface, "url": url, "region_id": region, "enabled": true,
                    }});
                    self.ask(Method::POST, "endpoints", Some(body)).await?;
                    "was made"
                }
            };
            done.push(format!("endpoint {interface} {url} {word}"));
        }
        Ok(done)
    }

    /// The id of the service, which is made where there is none.
    async fn service(&self, name: &str, done: &mut Vec<String>) -> anyhow::Result<String> {
        let query = format!("services?type={KIND}");
        let there = self.ask(Method::GET, &query, None).await?;
        let there = there["services"].as_array().cloned().unwrap_or_default();
        let (service, word) = match &there[..] {
            [] => {
                let body = json!({"service": {"type": KIND, "name": name, "enabled": true}});
                let made = self.ask(Method::POST, "services", Some(body)).await?;
                (made["service"].clone(), "was made")
            }
            [service] => (service.clone(), "is there"),
            _ => bail!("the catalogue has several services of type {KIND}: delete all but one"),
        };
        done.push(format!("service {KIND} {word}"));
        let id = service["id"].as_str();
        id.map(str::to_owned)
            .context("Keystone told no id of the service")
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let url = format!("{}/v3/{path}", self.address);
        let what = format!("{method} {url}");
        let mut request = self.client.request(method, &url);
        request = request.header("x-auth-token", &self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await;
        let answer = answer.with_context(|| format!("failed to ask {what}"))?;
        match answer.status() {
            status if status.is_success() => {}
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                bail!("Keystone does not let this user {what}: take one with the role admin")
            }
            status => bail!("Keystone answers {what} with {status}"),
        }
        let answer = answer.json().await;
        answer.with_context(|| format!("failed to read the answer to {what}"))
    }
}

#[cfg(test)]
mod tests;
