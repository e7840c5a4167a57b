//! Pages of lists.

use serde_json::Value;
use uuid::Uuid;

use super::Fault;

/// How many entries a page has at most, and where no limit is given.
pub const MOST: usize = 1000;

/// The marker of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marker {
    /// The UUID of an entry.
    Uuid,
    /// Its number.
    Id,
}

impl Marker {
    const fn key(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::Id => "id",
        }
    }
}

/// Which part of a list, in which order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    limit: usize,
    marker: Option<String>,
    sort_key: String,
    descends: bool,
    by: Marker,
}

impl Page {
    /// Reads the arguments of a query; those in `others` are for somebody else.
    ///
    /// # Errors
    ///
    /// An argument is unknown, or its value is none.
    pub fn read(
        query: &[(String, String)],
        by: Marker,
        columns: &[&str],
        others: &[&str],
    ) -> Result<Self, Fault> {
        let mut page = Self {
            limit: MOST,
            marker: None,
            sort_key: "id".to_owned(),
            descends: false,
            by,
        };
        for (name, value) in query {
            match name.as_str() {
                "limit" => page.limit = limit(value)?,
                "marker" => page.marker = Some(page.checked(value)?),
                "sort_key" if value == "id" || columns.contains(&value.as_str()) => {
                    page.sort_key.clone_from(value);
                }
                "sort_key" => {
                    return Err(Fault::invalid(format!(
                        "The sort_key value \"{value}\" is an invalid field for sorting."
                    )));
                }
                "sort_dir" => page.descends = descends(value)?,
                other if others.contains(&other) => {}
                other => return Err(Fault::invalid(format!("Unknown argument: {other}."))),
            }
        }
        Ok(page)
    }

    fn checked(&self, marker: &str) -> Result<String, Fault> {
        let fits = match self.by {
            Marker::Uuid => Uuid::try_parse(marker).is_ok(),
            Marker::Id => marker.parse::<u32>().is_ok(),
        };
        if fits {
            return Ok(marker.to_owned());
        }
        Err(Fault::invalid(format!(
            "Expected a uuid but received {marker}."
        )))
    }

    /// The entries of the page out of all, which are in the order in which they were made. The second value is the query of the
    /// next page, which there is where this one is full.
    ///
    /// # Errors
    ///
    /// The marker is none of them.
    pub fn cut(&self, mut entries: Vec<Value>) -> Result<(Vec<Value>, Option<String>), Fault> {
        if self.sort_key != "id" {
            // Stable, so that what is equal stays in the order in which it was made.
            entries.sort_by(|a, b| ordered(&a[&self.sort_key], &b[&self.sort_key]));
        }
        if self.descends {
            entries.reverse();
        }
        let begin = match &self.marker {
            None => 0,
            Some(marker) => {
                let at = entries
                    .iter()
                    .position(|entry| self.is_marker(entry, marker));
                at.ok_or_else(|| Fault::not_found("Marker", marker))? + 1
            }
        };
        let page: Vec<_> = entries.into_iter().skip(begin).take(self.limit).collect();
        let is_full = page.len() == self.limit;
        let next = page.last().filter(|_| is_full).map(|last| self.next(last));
        Ok((page, next))
    }

    fn is_marker(&self, entry: &Value, marker: &str) -> bool {
        text(&entry[self.by.key()]) == marker
    }

    fn next(&self, last: &Value) -> String {
        format!(
            "sort_key={}&sort_dir={}&limit={}&marker={}",
            self.sort_key,
            if self.descends { "desc" } else { "asc" },
            self.limit,
            text(&last[self.by.key()]),
        )
    }
}

fn limit(value: &str) -> Result<usize, Fault> {
    match value.parse::<u64>() {
        Ok(limit) if limit > 0 => Ok(usize::try_from(limit).unwrap_or(MOST).min(MOST)),
        _ => Err(Fault::invalid("Limit must be positive.")),
    }
}

fn descends(value: &str) -> Result<bool, Fault> {
    match value {
        "asc" => Ok(false),
        "desc" => Ok(true),
        _ => Err(Fault::invalid(format!(
            "Invalid sort direction: {value}. Acceptable values are 'asc' or 'desc'."
        ))),
    }
}

fn ordered(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => text(a).cmp(&text(b)),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "00000000-0000-4000-8000-00000000000a";
    const B: &str = "00000000-0000-4000-8000-00000000000b";

    fn page(query: &[(&str, &str)]) -> Result<Page, Fault> {
        let query: Vec<_> = query
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Page::read(&query, Marker::Uuid, &["name"], &[])
    }

    fn entries() -> Vec<Value> {
        vec![
            json!({"uuid": A, "name": "z"}),
            json!({"uuid": B, "name": "y"}),
        ]
    }

    #[test]
    fn a_full_page_names_the_next_one() {
        let (first, next) = page(&[("limit", "1"), ("sort_key", "name")])
            .unwrap()
            .cut(entries())
            .unwrap();
        assert_eq!(first[0]["uuid"], B);
        assert_eq!(
            next.unwrap(),
            format!("sort_key=name&sort_dir=asc&limit=1&marker={B}")
        );
        let (rest, next) = page(&[("limit", "2"), ("sort_key", "name"), ("marker", B)])
            .unwrap()
            .cut(entries())
            .unwrap();
        assert_eq!((rest.len(), next), (1, None));
    }

    #[test]
    fn the_order_can_be_turned() {
        let (all, _) = page(&[("sort_dir", "desc")])
            .unwrap()
            .cut(entries())
            .unwrap();
        assert_eq!(all[0]["uuid"], B);
    }

    #[test]
    fn a_wrong_argument_is_a_bad_request_and_a_lost_marker_is_not_found() {
        for query in [
            ("limit", "0"),
            ("limit", "-1"),
            ("limit", "x"),
            ("marker", "x"),
            ("sort_key", "node_count"),
            ("sort_dir", "up"),
            ("x", "1"),
        ] {
            assert_eq!(page(&[query]).unwrap_err().status(), 400, "{query:?}");
        }
        let lost = page(&[("marker", "00000000-0000-4000-8000-00000000000c")]).unwrap();
        assert_eq!(lost.cut(entries()).unwrap_err().status(), 404);
    }
}
