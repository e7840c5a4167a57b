//! What Windlass calls itself, and its things, towards the API.

/// The field manager of what is written of clouds and services.
pub const MANAGER: &str = "windlass-openstack";
/// The engine of the actions of their runs.
pub const ENGINE: &str = "openstack";
/// On what was made for a service: which of its parts it is.
pub const PART_LABEL: &str = "openstack.windlass.dev/part";
/// On ConfigMaps with configuration files.
pub const CONFIG_PART: &str = "config";

/// The Secret of an object of that word.
pub fn secret(object: &str, word: &str) -> String {
    format!("{object}-{word}")
}

/// The release of the pods that serve.
pub fn api(object: &str) -> String {
    format!("{object}-api")
}

/// The ConfigMap with the configuration files of this digest. Another text is another object: pods that stand keep theirs.
pub fn config(object: &str, digest: &str) -> String {
    format!("{object}-config-{digest}")
}
