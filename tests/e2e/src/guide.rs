//! Guides, whose commands the stories run: read from the document, so that what a reader types is what is tried.

use std::fs;

use anyhow::{Context, Result};

use crate::root;

/// Blocks of commands that nobody has run yet.
#[derive(Debug)]
pub struct Guide(Vec<String>);

impl Guide {
    /// Every block of commands in a document of the repository, as `docs/in-cluster.md`.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read(document: &str) -> Result<Self> {
        let text = fs::read_to_string(root().join(document));
        let text = text.with_context(|| format!("read {document}"))?;
        let mut blocks = Vec::new();
        let mut lines = text.lines();
        while let Some(fence) = lines.by_ref().find(|line| line.trim() == "```sh") {
            // A block in a list stands further in; what stands further in within it means something to its reader.
            let indent = fence.len() - fence.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block: Vec<_> = block
                .map(|line| line.get(indent..).unwrap_or_default())
                .collect();
            blocks.push(block.join("\n"));
        }
        Ok(Self(blocks))
    }

    /// Puts what the test has in the place of what the reader has.
    #[must_use]
    pub fn with(self, readers: &str, own: &str) -> Self {
        let blocks = self.0.iter().map(|block| block.replace(readers, own));
        Self(blocks.collect())
    }

    /// Takes the first block out that has these words.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn take(&mut self, words: &[&str]) -> String {
        let has = |block: &String| words.iter().all(|word| block.contains(word));
        let place = self.0.iter().position(has);
        assert!(place.is_some(), "the guide has no block with {words:?}");
        self.0.remove(place.unwrap_or_default())
    }

    /// Leaves all blocks that begin so to other stories.
    ///
    /// # Panics
    ///
    /// There is none.
    pub fn leave(&mut self, start: &str) {
        let before = self.0.len();
        self.0.retain(|block| !block.starts_with(start));
        assert!(
            self.0.len() < before,
            "the guide has no block that begins with {start}"
        );
    }

    /// Nothing in the guide is untried.
    ///
    /// # Panics
    ///
    /// A block is left.
    pub fn is_done(self) {
        assert!(self.0.is_empty(), "nobody runs these: {:#?}", self.0);
    }
}
