//! How much may still be written.

use crate::{LARGEST, error::SubstituteError};

/// Room for so many bytes more.
#[derive(Debug)]
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(LARGEST)
    }
}

impl Room {
    /// Takes it before it is filled.
    pub(crate) fn take(&mut self, variable: &str, bytes: usize) -> Result<(), SubstituteError> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or_else(|| SubstituteError::Large {
            variable: variable.to_owned(),
        })?;
        Ok(())
    }
}
