//! Files and images for clusters without a network: what is wanted, and a directory that has it.
//!
//! [`list`] says what is wanted: where it is from, where it lies in a mirror, and what it must be. [`store`] is the directory of a
//! mirror, [`fetch`] fills it, [`serve`] gives what is in it to hosts, [`push`] brings its images into a registry, [`check`] says what
//! is missing there, or where hosts are told to look. Nothing here knows kubespray.
//!
//! ```text
//! files/HOST/PATH                       the file https://HOST/PATH
//! registry/manifests/NAME/TAG           the hex digest of the manifest of an image, whatever registry it is from
//! registry/blobs/HEX                    manifests, configurations and layers
//! digests.json                          of files that came without a checksum, the one that was seen first
//! partial/                              what has not come whole yet
//! ```

pub mod check;
mod client;
pub mod fetch;
pub mod list;
pub mod push;
pub mod serve;
pub mod store;

pub use list::{Checksum, Endpoint, File, Image, ImageName, InvalidName, List, Place};
pub use store::Store;

/// An error with all that caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    api::text::plain(&text, 600)
}
