//! The contract: what goes over the wire, and nothing of what is done about it.
//!
//! - [`version`]: microversions and their headers;
//! - [`fault`]: every answer that is none of success, with its body;
//! - [`fields`]: the members of a request's body, each read once, the unknown ones refused;
//! - [`patch`]: the part of JSON patch that is spoken, with values as [`literal`]s of Python;
//! - [`page`]: limit, marker and order of lists;
//! - [`objects`]: the objects as clients read them;
//! - [`nodes`]: labels and taints that nodes may have.
//!
//! Status codes, names, defaults and the shape of bodies are those of Magnum 23; wordings are ours, for no client parses them.
//!
//! # Source
//! The Container Infrastructure Management API reference, and what a running Magnum 23.0.0 answered.

pub mod fault;
pub mod fields;
pub mod literal;
pub mod nodes;
pub mod objects;
pub mod page;
pub mod patch;
pub mod version;

pub use fault::Fault;
pub use fields::Fields;
pub use version::Version;
