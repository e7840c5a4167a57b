//! The providers that clusterctl knows by name, and where their releases are.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::{Provider, ProviderType};

/// A provider that is known by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The provider.
    pub provider: Provider,
    /// Where the components of its newest release are.
    pub url: String,
}

/// All of them, in the order in which clusterctl lists them.
///
/// # Source
///
/// `clusterctl config repositories` of 1.14.2, with which a test compares.
pub fn catalogue() -> &'static [CatalogueEntry] {
    &CATALOGUE
}

/// The entry of a provider.
pub fn entry(provider: &Provider) -> Option<&'static CatalogueEntry> {
    catalogue().iter().find(|entry| entry.provider == *provider)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    r#type: ProviderType,
    name: String,
    url: String,
}

static CATALOGUE: LazyLock<Vec<CatalogueEntry>> = LazyLock::new(|| {
    // A row that is none would be missing, which the test below finds.
    let rows: Vec<Row> = serde_json::from_str(ROWS).unwrap_or_default();
    let entry = |row: Row| {
        let provider = Provider::new(row.r#type, &row.name).ok()?;
        Some(CatalogueEntry {
            provider,
            url: row.url,
        })
    };
    rows.into_iter().filter_map(entry).collect()
});

const ROWS: &str = include_str!("catalogue.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_an_entry_and_they_are_sorted() {
        let rows: Vec<Row> = serde_json::from_str(ROWS).unwrap();
        assert_eq!(catalogue().len(), rows.len());
        let providers: Vec<_> = catalogue().iter().map(|entry| &entry.provider).collect();
        assert!(providers.is_sorted());
        for entry in catalogue() {
            let (start, file) = entry.url.rsplit_once('/').unwrap();
            assert!(start.starts_with("https://"), "{entry:?}");
            assert!(file.contains("components"), "{entry:?}");
        }
        let core = Provider::new(ProviderType::Core, "cluster-api").unwrap();
        assert!(entry(&core).is_some());
    }
}
