//! What clients may not touch.

use crate::{
    failure::{Failure, Result},
    registry::Resource,
    state::Api,
};

/// The definitions that are part of this program are not for clients to change.
pub(crate) fn guard(api: &Api, resource: &Resource, definition: &str) -> Result<()> {
    if !api.registry.owns(definition) {
        return Ok(());
    }
    Err(Failure::forbidden(
        resource,
        definition,
        "it is part of this program, which brings it to its own version at every start; it cannot be changed or deleted",
    ))
}
