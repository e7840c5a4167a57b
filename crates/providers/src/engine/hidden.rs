//! What is secret of a run stays out of what it tells: the values of its variables stand in names and fields of objects, which failures of the API
//! quote. What a template makes of a value, where that is not its text, is not known here; so what the manifests name is told in their own words
//! where it can be.

use api::run::Failure;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use workflow::StepOutcome;

/// Shorter values are no secrets, and stand in many words.
const SHORTEST: usize = 4;
/// Nor are these.
const PLAIN: [&str; 2] = ["true", "false"];
/// What is quoted of a long value may end within it: it is hidden by parts.
const PART: usize = 32;

/// The forms of values, in small letters.
#[derive(Debug)]
pub(super) struct Hidden(Vec<String>);

impl Hidden {
    /// Of values, the longest form first, so that one within another leaves no trace of it.
    pub(super) fn of<'a>(values: impl IntoIterator<Item = &'a String>) -> Self {
        let mut forms: Vec<_> = values.into_iter().flat_map(|value| forms(value)).collect();
        forms.retain(|form| form.len() >= SHORTEST && !PLAIN.contains(&form.as_str()));
        forms.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        forms.dedup();
        Self(forms)
    }

    pub(super) fn text(&self, text: &str) -> String {
        let forms = self.0.iter().filter(|form| form.len() <= text.len());
        forms.fold(text.to_owned(), |text, form| without(&text, form))
    }

    pub(super) fn failure(&self, failure: Failure) -> Failure {
        Failure {
            message: self.text(&failure.message),
            remedy: failure.remedy.map(|remedy| self.text(&remedy)),
            ..failure
        }
    }

    pub(super) fn outcome(&self, outcome: StepOutcome) -> StepOutcome {
        match outcome {
            StepOutcome::Succeeded {
                results,
                unreachable,
                detail,
            } => StepOutcome::Succeeded {
                results,
                unreachable,
                detail: detail.map(|detail| self.text(&detail)),
            },
            outcome => outcome,
        }
    }
}

/// As it is, by lines, by parts where it is long, and in base64.
fn forms(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut forms = vec![value.to_owned(), STANDARD.encode(value)];
    forms.extend(value.lines().map(|line| line.trim().to_owned()));
    let letters: Vec<_> = value.chars().collect();
    if letters.len() > PART {
        forms.extend(
            letters
                .chunks(PART)
                .map(|part| part.iter().collect::<String>()),
        );
    }
    forms.iter().map(|form| form.to_ascii_lowercase()).collect()
}

/// Without a form, whatever its case.
fn without(text: &str, form: &str) -> String {
    // Small letters have the places of those that they are of.
    let small = text.to_ascii_lowercase();
    let (mut told, mut from) = (String::new(), 0);
    for (at, _) in small.match_indices(form) {
        told += text.get(from..at).unwrap_or_default();
        told += "***";
        from = at + form.len();
    }
    told + text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_told_in_any_case_nor_a_part_of_a_long_one() {
        let long = "0123456789abcdef".repeat(20);
        let values = [
            "Hunter2.s3cr3t",
            "one line\nanother line",
            "true",
            "ab",
            &long,
        ]
        .map(str::to_owned);
        let hidden = Hidden::of(&values);
        for (text, expected) in [
            ("group hunter2.S3CR3T/v1 is none", "group ***/v1 is none"),
            ("said another line, true, ab", "said ***, true, ab"),
            ("SHVudGVyMi5zM2NyM3Q=", "***"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(hidden.text(text), expected);
        }
        let quoted = hidden.text(&format!("it is {}...", &long[..100]));
        assert!(!quoted.contains("0123456789abcdef"), "{quoted}");
        assert_eq!(Hidden::of(&Vec::new()).text("a"), "a");
    }
}
