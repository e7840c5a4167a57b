//! Releases of OpenStack, and which of them may follow which. Pure.
//!
//! There are two a year, `2026.1` and `2026.2`. Each is followed by the next one; the first of a year, which is called a SLURP release, also by
//! the first of the next year, for whoever upgrades once a year
//! ([the resolution](https://governance.openstack.org/tc/resolutions/20220210-release-cadence-adjustment.html)).

use controller::Problem;
use serde_json::{Map, Value};

/// What two wishes differ in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Not in the release, as far as anybody says.
    None,
    /// In the release.
    Release,
}

/// What the release changes by, from the inputs of a plan to those of another.
///
/// # Errors
///
/// Nobody can go from the one to the other.
pub fn change(from: &Map<String, Value>, to: &Map<String, Value>) -> Result<Change, Problem> {
    let of = |inputs: &Map<String, Value>| inputs.get("release")?.as_str().map(str::to_owned);
    let (Some(from), Some(to)) = (of(from), of(to)) else {
        return Ok(Change::None);
    };
    if from == to {
        return Ok(Change::None);
    }
    let (Some(before), Some(after)) = (Release::parse(&from), Release::parse(&to)) else {
        return Ok(Change::Release);
    };
    let refused = |rule: String, remedy: String| Problem::new("spec.release", &to, rule, remedy);
    if after < before {
        return Err(refused(
            format!("what is there is of {from}, and tables do not go back to a release before"),
            format!(
                "name {from}, with an image that works; if nothing of it has reached the tables, delete the run that tried"
            ),
        ));
    }
    let next = before.next();
    if next.contains(&after) {
        return Ok(Change::Release);
    }
    let ways: Vec<_> = next.iter().map(Release::to_string).collect();
    Err(refused(
        format!(
            "from {from} there is a way to {} alone",
            ways.join(" and to ")
        ),
        format!(
            "upgrade to {} first",
            ways.first().map_or("", String::as_str)
        ),
    ))
}

/// Whether a release comes after another one, as far as both can be compared.
pub fn is_newer(release: Option<&str>, than: Option<&str>) -> bool {
    let of = |release: Option<&str>| release.and_then(Release::parse);
    matches!((of(release), of(than)), (Some(release), Some(than)) if release > than)
}

/// A release.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Release {
    year: u16,
    /// Of the year: 1 or 2.
    number: u16,
}

impl Release {
    /// None: a word that cannot be compared, such as `master`.
    fn parse(text: &str) -> Option<Self> {
        let (year, number) = text.split_once('.')?;
        let (year, number) = (year.parse().ok()?, number.parse().ok()?);
        (year > 2000 && (1..=2).contains(&number)).then_some(Self { year, number })
    }

    /// Those that may follow, the nearest first.
    fn next(self) -> Vec<Self> {
        let of = |year, number| Self { year, number };
        let next_year = of(self.year.saturating_add(1), 1);
        if self.number == 1 {
            vec![of(self.year, 2), next_year]
        } else {
            vec![next_year]
        }
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.year, self.number)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(from: &Value, to: &Value) -> String {
        let inputs = |release: &Value| {
            let mut inputs = Map::new();
            if !release.is_null() {
                inputs.insert("release".to_owned(), release.clone());
            }
            inputs
        };
        match change(&inputs(from), &inputs(to)) {
            Ok(change) => format!("{change:?}"),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn releases_follow_each_other_by_one_or_from_slurp_to_slurp() {
        for (from, to, expected) in [
            ("2026.1", "2026.1", "None"),
            ("2026.1", "2026.2", "Release"),
            ("2026.1", "2027.1", "Release"),
            ("2026.2", "2027.1", "Release"),
            ("master", "2026.2", "Release"),
        ] {
            assert_eq!(told(&json!(from), &json!(to)), expected, "{from} {to}");
        }
        assert_eq!(told(&Value::Null, &json!("2026.2")), "None");
    }

    #[test]
    fn who_skips_a_release_or_goes_back_is_told_the_way() {
        let skipped = told(&json!("2025.2"), &json!("2026.2"));
        assert!(
            skipped.contains("there is a way to 2026.1 alone"),
            "{skipped}"
        );
        assert!(skipped.contains("upgrade to 2026.1 first"), "{skipped}");
        let far = told(&json!("2025.1"), &json!("2026.2"));
        assert!(far.contains("a way to 2025.2 and to 2026.1 alone"), "{far}");
        let back = told(&json!("2026.2"), &json!("2026.1"));
        assert!(back.contains("do not go back"), "{back}");
    }
}
