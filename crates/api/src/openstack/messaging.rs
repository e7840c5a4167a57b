//! A RabbitMQ: by reference, or one that is made.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Storage;

/// The RabbitMQ of a cloud: one of the two.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.managed) != has(self.transportUrlSecret)", "a RabbitMQ is managed, or its address stands in a Secret: give one of the two"))]
pub struct CloudMessaging {
    /// One that Windlass makes: a single server.
    pub managed: Option<ManagedRabbitmq>,
    /// The Secret with the address of one that is there, and the user and the password in it:
    /// `rabbit://USER:PASSWORD@rabbitmq.example.org:5672/VHOST`, as oslo.messaging takes it.
    pub transport_url_secret: Option<TransportUrl>,
}

/// A single RabbitMQ in the namespace of the cloud.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(oldSelf.storage) || has(self.storage)", "storage that was given cannot be taken away: what lies there would be out of reach"))]
pub struct ManagedRabbitmq {
    /// Its image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Where its messages are kept. Default: nowhere, they go with its pod.
    pub storage: Option<Storage>,
}

/// A RabbitMQ that is there.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Messaging {
    /// The Secret with its address, and the user and the password in it: `rabbit://USER:PASSWORD@rabbitmq.example.org:5672/VHOST`, as
    /// oslo.messaging takes it.
    pub transport_url_secret: TransportUrl,
}

/// A key of a Secret of the same namespace, with an address of oslo.messaging.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransportUrl {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data. Default: `transport_url`.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}
