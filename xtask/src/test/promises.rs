//! `docs/security.md` names a test for each promise, and `docs/magnum.md` for each feature that was asked for: each of them is there.

use std::{fs, path::Path};

use crate::named::missing;

#[test]
fn each_promise_has_the_test_that_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/security.md")).unwrap();
    assert_eq!(missing(&root, &text), [""; 0]);
    let dead = "| a promise | `xtask` `test/promises.rs`: `nobody_wrote_this`; `xtask` `gone.rs` |";
    assert_eq!(missing(&root, dead).len(), 2);
}

#[test]
fn each_feature_of_magnum_s_proposal_has_the_test_that_it_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/magnum.md")).unwrap();
    let table = text.split("<!-- proposal -->").nth(1).unwrap();
    // The heads of the columns, and fourteen features.
    assert_eq!(table.trim().lines().count(), 2 + 14);
    assert!(
        table
            .lines()
            .skip(3)
            .all(|row| row.is_empty() || row.contains(".rs`: `"))
    );
    assert_eq!(missing(&root, table), [""; 0]);
}
