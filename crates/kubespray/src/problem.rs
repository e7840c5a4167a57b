//! What is wrong with what a person wrote: [`Problem`], and how an inventory says it.

use ansible::inventory::InventoryError;

pub use controller::problem::{Problem, nearest, text};

/// What an inventory refuses, as a problem.
pub fn of_inventory(error: InventoryError) -> Problem {
    Problem {
        field: error.field,
        value: error.value,
        rule: error.rule,
        remedy: error.remedy,
    }
}
