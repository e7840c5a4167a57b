//! How much people may say, in bytes. Bounds of single fields stand in their schema.

/// All that a Run carries, as JSON: etcd takes 1.5 MiB with what the Run tells of itself in its status, and a ConfigMap with files of it
/// holds 1 MiB.
pub(crate) const CARRIED: usize = 1024 * 1024;
/// Files that are given whole, together.
pub(crate) const WHOLE: usize = 256 * 1024;
/// What a template gives.
pub(crate) const RENDERED: usize = 256 * 1024;
/// A key of a file, and the name of a section: no option of oslo.config is a quarter of it.
pub(crate) const NAMED: usize = 255;
