//! Names that are made from what they name, and outlive the program that made them: the same for every release and machine.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The first `length` digits, in hex, of the SHA-256 of these parts; 64 at most. What is told apart by its parts is told apart
/// by the digest.
pub fn digest(parts: &[&str], length: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_string());
        hasher.update(":");
        hasher.update(part);
    }
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs, Events and directories of an earlier release are found again by these.
    #[test]
    fn a_digest_is_the_same_for_ever() {
        assert_eq!(digest(&["first-create-1"], 16), "dfc7794f8aed4cd1");
        assert_eq!(digest(&["a", "bc"], 8), "5310a587");
        assert_ne!(digest(&["ab", "c"], 64), digest(&["a", "bc"], 64));
        assert_eq!(digest(&[], 99).len(), 64);
    }
}
