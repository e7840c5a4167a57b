//! What a caller may do: the defaults of the service's policy.
//!
//! A reader reads and a member writes, in the token's own project. An administrator does both, and in every project what
//! [`Caller::is_admin`] is asked for. What is in a project that a caller does not see is not found, rather than forbidden.
//!
//! Whoever runs the service may have other rules, in a [`Policy`]: what one says of a request holds instead of who reads and writes.
//!
//! # Source
//! Magnum 23.0.0, the defaults of its policies.

use crate::{contract::Fault, identity::Caller};

mod rules;

pub(crate) use rules::Grant;
pub use rules::{NAMES, Policy, PolicyError};

impl Caller {
    /// Whether the caller has the role of an administrator.
    pub fn is_admin(&self) -> bool {
        self.has("admin")
    }

    /// Lets pass who may read.
    ///
    /// # Errors
    ///
    /// The caller has no role that reads.
    pub fn may_read(&self) -> Result<(), Fault> {
        self.one_of(&["reader", "member", "admin"])
    }

    /// Lets pass who may write.
    ///
    /// # Errors
    ///
    /// The caller has no role that writes.
    pub fn may_write(&self) -> Result<(), Fault> {
        self.one_of(&["member", "admin"])
    }

    /// Lets pass administrators.
    ///
    /// # Errors
    ///
    /// The caller is none.
    pub fn may_administer(&self) -> Result<(), Fault> {
        self.one_of(&["admin"])
    }

    /// Lets pass the user who made a cluster, for its certificates are as good as its administrator's.
    ///
    /// # Errors
    ///
    /// The caller is somebody else.
    pub fn must_be(&self, user_id: &str) -> Result<(), Fault> {
        if self.user_id == user_id {
            return Ok(());
        }
        Err(denied())
    }

    fn one_of(&self, roles: &[&str]) -> Result<(), Fault> {
        if roles.iter().any(|role| self.has(role)) {
            return Ok(());
        }
        Err(denied())
    }

    fn has(&self, role: &str) -> bool {
        self.roles.contains(role)
    }
}

pub(crate) fn denied() -> Fault {
    Fault::forbidden("Policy does not allow this request to be performed.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_what_it_may() {
        for (role, reads, writes, administers) in [
            ("reader", true, false, false),
            ("member", true, true, false),
            ("admin", true, true, true),
            ("service", false, false, false),
        ] {
            let caller = Caller {
                user_id: "u".to_owned(),
                project_id: "p".to_owned(),
                roles: [role.to_owned()].into(),
            };
            assert_eq!(caller.may_read().is_ok(), reads, "{role}");
            assert_eq!(caller.may_write().is_ok(), writes, "{role}");
            assert_eq!(caller.may_administer().is_ok(), administers, "{role}");
            assert_eq!(caller.must_be("v").unwrap_err().status(), 403, "{role}");
        }
    }
}
