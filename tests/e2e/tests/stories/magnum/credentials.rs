//! A cluster's own credential in a real Keystone. Cluster API is not there, so nothing is made by it.

use e2e::{Token, wait_until};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::{LIMIT, World};

/// A member of the project, who asks without a command line: that takes its seconds.
struct Asking<'a> {
    world: &'a World,
    http: Client,
    token: Token,
}

impl World {
    /// It is made with the cluster, replaced when somebody asks for that, and gone with it.
    pub(super) fn gives_a_cluster_its_own_credential(&self) {
        // Whoever comes first has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ann = Asking {
            world: self,
            http: Client::builder().no_proxy().build().unwrap(),
            token: self.keystone.token("ann").unwrap(),
        };
        let template = json!({
            "name": "servers", "coe": "kubernetes", "image_id": "ubuntu", "flavor_id": "small", "labels": {"kube_tag": "v1.34.3"},
        });
        let template = ann.magnum(Method::POST, "clustertemplates", &template);
        let cluster = json!({"name": "second", "cluster_template_id": template["uuid"]});
        let cluster = ann.magnum(Method::POST, "clusters", &cluster);
        let uuid = cluster["uuid"].as_str().unwrap();
        let first = ann.credentials(uuid);
        let mut kinds: Vec<_> = first
            .iter()
            .map(|one| one["unrestricted"] == true)
            .collect();
        kinds.sort_unstable();
        assert_eq!(kinds, [false, true], "{first:?}");
        for one in &first {
            assert!(one["expires_at"].is_string(), "it never ends: {one}");
        }

        let rotate = format!("credentials/{uuid}");
        let rotated = ann.magnum(Method::PATCH, &rotate, &Value::Null);
        assert_eq!(rotated, json!({"uuid": uuid}));
        // Those before are left until something is made by the new ones.
        assert_eq!(ann.credentials(uuid).len(), 4);

        ann.magnum(Method::DELETE, &format!("clusters/{uuid}"), &Value::Null);
        wait_until("the credentials to be gone", LIMIT, || {
            Ok(ann.credentials(uuid).is_empty().then_some(()))
        })
        .unwrap();
    }
}

impl Asking<'_> {
    fn magnum(&self, method: Method, path: &str, body: &Value) -> Value {
        let url = format!("{}/{path}", self.world.address);
        self.ask(method, &url, body)
    }

    /// What the user has in Keystone for a cluster.
    fn credentials(&self, cluster: &str) -> Vec<Value> {
        let (keystone, user) = (&self.world.keystone.address, &self.token.user);
        let url = format!("{keystone}/users/{user}/application_credentials");
        let listed = self.ask(Method::GET, &url, &Value::Null);
        let mut all = listed["application_credentials"]
            .as_array()
            .unwrap()
            .clone();
        all.retain(|one| {
            one["name"]
                .as_str()
                .unwrap()
                .starts_with(&format!("windlass-{cluster}-"))
        });
        all
    }

    fn ask(&self, method: Method, url: &str, body: &Value) -> Value {
        let version = "container-infra latest";
        let request = self
            .http
            .request(method, url)
            .header("openstack-api-version", version);
        let request = request.header("x-auth-token", &self.token.id);
        let request = if body.is_null() {
            request
        } else {
            request.json(body)
        };
        self.world.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            let status = answer.status();
            let text = answer.text().await.unwrap();
            assert!(status.is_success(), "{url}: {status} {text}");
            serde_json::from_str(&text).unwrap_or_default()
        })
    }
}
