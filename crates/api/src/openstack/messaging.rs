//! A RabbitMQ, by reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
