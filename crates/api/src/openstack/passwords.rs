//! Passwords that are rotated on a schedule, and how they stand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RotationSchedule, RotationStatus};

/// The passwords of a service.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Passwords {
    /// That of the user of its database. A rotation gives it another user, and replaces its pods (`database/rotate`).
    pub database: Option<Password>,
    /// That of its user in Keystone, which Keystone itself has none of. A rotation gives it another user, and replaces its pods
    /// (`identity/rotate`).
    pub identity: Option<Password>,
    /// That of Keystone's administrator, which Keystone alone has. A rotation ends the tokens of the administrator
    /// (`administrator/rotate`).
    pub administrator: Option<Password>,
}

/// The passwords of a cloud beside those of its services.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudPasswords {
    /// That of the administrator of its managed database server (`database/rotate`).
    pub database_server: Option<Password>,
}

/// A password.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Password {
    /// When it is rotated by itself: an hour or more between two times. Default: only when somebody has the step done
    /// (`windlass openstack run`).
    pub rotate: Option<RotationSchedule>,
}

/// How the passwords stand that are rotated on a schedule.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PasswordsStatus {
    /// That of the user of a service's database.
    pub database: Option<RotationStatus>,
    /// That of a service's user in Keystone.
    pub identity: Option<RotationStatus>,
    /// That of Keystone's administrator.
    pub administrator: Option<RotationStatus>,
    /// That of the administrator of a cloud's managed database server.
    pub database_server: Option<RotationStatus>,
}
