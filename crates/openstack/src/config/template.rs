//! What people write into files that Kolla renders: Jinja, rendered as Ansible does, but strict.
//!
//! A text without Jinja is left as it is, byte for byte. What a template may name is the caller's business: nothing secret is among it, so
//! nothing secret can get into a file by it. There is nothing that a template could include, and it may do so much and no more.
//!
//! # Source
//! `merge_configs` and `merge_yaml` of kolla-ansible 22 have Ansible render each source.

use std::borrow::Cow;

use jinja::Text;
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::{
    bounds::RENDERED,
    config::{Source, ini::Unreadable},
};

/// Renders a source.
///
/// # Errors
///
/// It is no template, names what is not set, or does too much.
pub fn render(name: String, text: &str, values: &Value) -> Result<Source, Unreadable> {
    if !is_template(text) {
        return Ok(Source::new(name, text));
    }
    jinja::deep(|| {
        let environment = jinja::environment();
        let rendered =
            one(&environment, text, values).map_err(|error| refused(&error, text, values))?;
        // A second time with a mark in each line: that tells which line became which, and nothing else is taken of it.
        let marked = one(&environment, &marked(text), values);
        let marked = marked.ok().filter(|_| !text.contains([OPEN, CLOSE]));
        let lines = lines(&rendered, marked.as_deref());
        Ok(Source {
            name,
            text: rendered,
            lines,
        })
    })
}

/// Whether a text is to be rendered.
pub fn is_template(text: &str) -> bool {
    TAGS.iter().any(|(open, _)| text.contains(open))
}

fn one(environment: &Environment<'_>, text: &str, values: &Value) -> Result<String, Error> {
    let mut written = Text::of_at_most(RENDERED);
    environment
        .template_from_str(text)?
        .render_captured_to(values.clone(), &mut written)?;
    Ok(written.into_string())
}

/// In the words of who wrote it. Of the text nothing is shown but what is between the signs of a tag: beside it may stand anything.
fn refused(error: &Error, text: &str, values: &Value) -> Unreadable {
    let rule = match error.kind() {
        ErrorKind::UndefinedError => {
            let named = error.range().and_then(|range| text.get(range));
            let named = api::text::plain(named.unwrap_or_default(), 80);
            let known: Vec<_> = values.try_iter().into_iter().flatten().collect();
            let mut known: Vec<_> = known.iter().map(Value::to_string).collect();
            known.sort();
            format!(
                "{named} is not set: a template knows {}, and nothing that is secret",
                known.join(", ")
            )
        }
        ErrorKind::OutOfFuel => {
            "the template does too much: it may take some thousand steps".into()
        }
        ErrorKind::WriteFailure => format!("the template gives more than {RENDERED} bytes"),
        _ => {
            let detail = error.detail().map(str::to_owned);
            let detail = detail.unwrap_or_else(|| error.kind().to_string());
            let detail = api::text::plain(&detail, 200);
            format!("it is no template that can be rendered: {detail}")
        }
    };
    Unreadable {
        line: error.line().unwrap_or(1),
        rule: Cow::Owned(rule),
    }
}

/// The template with a mark behind what stands last in each of its lines, where that is text or a value.
fn marked(text: &str) -> String {
    let mut marked = String::new();
    // The end of the tag that is open.
    let mut open: Option<&str> = None;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let mut rest = line;
        loop {
            let next = match open {
                Some(end) => rest.find(end).map(|found| (found + end.len(), None)),
                None => TAGS
                    .iter()
                    .filter_map(|(tag, end)| Some((rest.find(tag)? + tag.len(), Some(*end))))
                    .min_by_key(|(found, _)| *found),
            };
            let Some((found, now)) = next else { break };
            open = now;
            rest = rest.get(found..).unwrap_or_default();
        }
        let words = line.trim_end();
        // A block or a comment takes the line break with it, and a sign of white space takes all of that.
        let is_shown = !words.is_empty()
            && open.is_none()
            && !["%}", "#}", "-}}"].iter().any(|end| words.ends_with(end));
        if is_shown {
            let blank = line.get(words.len()..).unwrap_or_default();
            marked.push_str(&format!("{words}{OPEN}{}{CLOSE}{blank}", at + 1));
        } else {
            marked.push_str(line);
        }
    }
    marked
}

/// Of each line of what was rendered, which line of the template it is of; one that cannot be told is of the one before.
fn lines(rendered: &str, marked: Option<&str>) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut whole = String::new();
    for line in marked.unwrap_or_default().split('\n') {
        let mut parts = line.split([OPEN, CLOSE]);
        let mut last = lines.last().copied().unwrap_or(1);
        let mut text = parts.next().unwrap_or_default().to_owned();
        let mut first = None;
        while let (Some(number), Some(after)) = (parts.next(), parts.next()) {
            first = first.or(number.parse().ok());
            text.push_str(after);
        }
        last = first.unwrap_or(last);
        lines.push(last);
        whole.push_str(&text);
        whole.push('\n');
    }
    whole.pop();
    // A template may do with marks what it likes: then they tell nothing.
    if whole == rendered { lines } else { vec![1] }
}

/// The signs of Jinja, and what ends each.
const TAGS: [(&str, &str); 3] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
/// Of private use, so nobody writes them.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;
    use crate::config::Merged;

    fn rendered(text: &str) -> Result<Source, Unreadable> {
        let values = context! {service => "keystone", servers => vec!["a", "b"]};
        render("mine".to_owned(), text, &values)
    }

    #[test]
    fn what_has_no_template_is_left_as_it_is() {
        let text = "a = { {b} }\r\n\n# %(c)s\n";
        assert_eq!(rendered(text).unwrap(), Source::new("mine", text));
    }

    #[test]
    fn lines_are_those_of_who_wrote_them() {
        let text = concat!(
            "[a]\n{# why\nand how #}\n{% if service == 'keystone' %}\nb = {{ service }}\n{% endif %}\n\n",
            "{% for server in servers %}\nc = {{ server }}\n{% endfor %}\nd = {{\n  service }}\ne = 1\n",
        );
        let source = rendered(text).unwrap();
        let merged = Merged::of(&[source]).unwrap();
        let told = merged.settings().map(|(_, setting)| {
            let values: Vec<_> = setting.values().collect();
            format!(
                "{} = {} {}",
                setting.key,
                values.join("|"),
                setting.origins[0].line
            )
        });
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            ["b = keystone 5", "c = a|b 9", "d = keystone 12", "e = 1 13"]
        );
    }

    #[test]
    fn a_template_that_does_with_marks_what_it_likes_is_rendered_all_the_same() {
        let text = "{% set x %}\nabc\n{% endset %}\na = {{ x | trim | length }}\nb = {{ x | replace('c', 'd') }}";
        let source = rendered(text).unwrap();
        assert_eq!(source.text, "a = 3\nb = abd\n");
        assert_eq!(source.written(2), 1);
    }

    #[test]
    fn what_is_wrong_with_a_template_is_told_by_line_and_without_the_rest_of_it() {
        for (text, line, words) in [
            (
                "a = s3cret\nb = s3cret {{ database_password }}",
                2,
                "database_password is not set: a template knows servers, service, and nothing that is secret",
            ),
            (
                "a = 1\n\nb = {{ service",
                3,
                "no template that can be rendered",
            ),
            (
                "{% include 'other' %}",
                1,
                "no template that can be rendered",
            ),
            (
                "{% for a in range(90000) %}{{ a }}{% endfor %}",
                1,
                "does too much",
            ),
            ("a = {{ 'x' * 300000 }}", 1, "more than 262144 bytes"),
        ] {
            let Unreadable { line: told, rule } = rendered(text).unwrap_err();
            assert_eq!(told, line, "{rule}");
            assert!(rule.contains(words) && !rule.contains("s3cret"), "{rule}");
        }
    }

    #[test]
    fn an_error_in_what_was_rendered_is_at_the_line_that_was_written() {
        let source = rendered("{% if true %}\n[a]\n{% endif %}\nword\n").unwrap();
        let error = Merged::of(&[source]).unwrap_err();
        assert_eq!(error.at.line, 4);
    }
}
