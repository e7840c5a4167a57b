//! Throw-away hosts and the real Kubernetes programs, for the demo and the tests.
//!
//! Two sides. The build side makes, once and into a cache outside the checkout, what hosts need: the
//! Kubernetes programs ([`programs`]), older kubectl ([`kubectl`]), the Debian root of a host ([`base`]), container images
//! ([`images`]). The host side ([`Lab`]) starts booted Debian hosts from them: systemd, sshd, own network,
//! processes and control groups, on a bridge that only the lab can reach.
//!
//! Everything of a lab hangs on one owner process (see [`Lab`]), so that nothing stays behind however it
//! ends. Root is needed; no Docker, no systemd outside, no network once the cache is filled.

pub mod base;
pub mod cache;
pub mod command;
pub mod control_plane;
mod declare;
mod extent;
pub mod images;
pub mod kubectl;
mod lab;
mod node;
mod owner;
pub mod packages;
mod pip;
pub mod programs;
pub mod progress;
mod sweep;

pub use control_plane::ControlPlane;
pub use extent::Extent;
pub use lab::{Entrance, Host, Lab, LabOptions, Presence};
pub use node::Node;
pub use programs::Kubernetes;
pub use programs::by_hand::by_hand;
pub use programs::cloud_images::CloudImages;
pub use programs::cluster_api_operator::cluster_api_operator;
pub use programs::foreign::foreign;
pub use programs::helm::{helm, helm_4};
pub use programs::magnum::{Magnum, MagnumRelease};
pub use programs::maria_db::MariaDb;
pub use programs::module::{module, module_of_sum};
pub use programs::openbao::{OpenBao, openbao};
pub use programs::openstack::{OpenStack, kolla, kolla_ansible};
pub use programs::snapshots::snapshot_programs;
pub use programs::sops::sops_programs;
pub use programs::tempest::{Tempest, gophercloud};
pub use progress::Progress;
