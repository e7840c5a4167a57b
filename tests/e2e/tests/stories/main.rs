//! Stories of users, end to end: a file or folder each. One executable, because each one more is linked with all of Windlass.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

mod adopt;
mod advised;
mod api_faults;
mod bad_input;
mod by_hand;
mod component;
mod describe;
mod drift;
mod edges;
mod faults;
mod first_cluster;
mod fleet;
mod foreign;
mod gapped;
mod in_cluster;
mod install_guide;
mod kubespray_checkout;
mod magnum;
mod magnum_hosts;
mod magnum_machines;
mod management;
mod management_machines;
mod openstack;
mod patched;
mod planes;
mod plugin;
mod providers;
mod recover;
mod relocation;
mod replace;
mod scheduled;
mod self_managing;
mod snapshots;
mod told;
mod upgrade;
mod whole;
