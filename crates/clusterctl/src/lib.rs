//! Cluster API providers: what they are called, what their releases hold, and what is made of it.
//!
//! All but [`source`] is pure: it takes text and values and gives objects or reasons. A provider is a type and a name
//! ([`Provider`]); its releases have a `metadata.yaml` ([`Metadata`]) and a file of components, which [`Components::render`]
//! turns into the objects that `clusterctl generate provider` would print for it. [`patch`] and [`customize`] do what the custom resources of the existing operator ask for, and [`upgrade`] says which versions may follow which.
//! [`describe`] says what a cluster that providers raise waits for, and [`rights`] what whoever installs a provider must be allowed.
//!
//! What clusterctl does is what counts as right, and tests compare with it. `docs/providers.md` lists where Windlass differs.

mod catalogue;
mod components;
pub mod customize;
pub mod describe;
pub mod difference;
mod image;
mod inventory;
mod linger;
mod manifest;
mod mark;
mod metadata;
mod object;
pub mod patch;
mod provider;
pub mod rights;
mod scope;
mod selector;
mod side_by_side;
pub mod source;
pub mod upgrade;
mod version;

pub use catalogue::{CatalogueEntry, catalogue, entry};
pub use components::{Components, ComponentsError, Release, Substitution};
pub use image::{Image, ImageOverride, ImageOverrides, InvalidImage, NonCanonical};
pub use inventory::{Installed, InventoryError};
pub use linger::linger;
pub use manifest::{ManifestError, parse as parse_manifest};
pub use mark::mark_pods;
pub use metadata::{Contract, InvalidOverlay, Metadata, MetadataError, Overlay, ReleaseSeries};
pub use object::{Lack, Object};
pub use provider::{InvalidProvider, Provider, ProviderType, label};
pub use scope::{Scope, Scopes};
pub use selector::InvalidSelector;
pub use side_by_side::side_by_side;
pub use version::{InvalidVersion, Version};
