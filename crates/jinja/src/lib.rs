//! Templates in the language of Jinja, of people who may write an object and no more: strict, and bounded in all that they do.
//!
//! They are rendered in the process that works for everybody, so none may end it or fill its memory. A template has so many steps
//! ([`FUEL`]) and gives so many bytes ([`Text`]). It can name nothing but what it is given, include nothing, and build no value that contains
//! itself: such a one is printed for ever, and never freed. What it builds may still be nested as deep as it has steps, and to print or free
//! that takes a frame for each level, so all of it happens within [`deep`].
//!
//! # Source
//! The language is that of [minijinja](https://docs.rs/minijinja). White space is as with Ansible's `template`: the line break after a
//! block goes (`trim_blocks`), and so does white space before one (`lstrip_blocks`).

use std::io;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, syntax::SyntaxConfig};

/// Where templates are rendered. What is not set is an error.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    if let Ok(syntax) = syntax {
        environment.set_syntax(syntax);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(64);
    environment.remove_global("debug");
    // The one thing that can be put into itself.
    environment.remove_global("namespace");
    environment
}

/// Runs something where values may be nested as deep as a template can nest them with its steps: to run out of a stack ends the process.
/// None of them may outlive it.
pub fn deep<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

/// What a template gives, which does not grow without an end.
#[derive(Debug)]
pub struct Text {
    written: Vec<u8>,
    most: usize,
}

impl Text {
    /// With no more than so many bytes.
    pub fn of_at_most(most: usize) -> Self {
        Self {
            written: Vec::new(),
            most,
        }
    }

    /// What was written.
    pub fn into_string(self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }
}

impl io::Write for Text {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.written.len() + more.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.written.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Enough for a thousand turns of a loop with something to do in each, and done in a few milliseconds.
pub const FUEL: u64 = 100_000;
/// Pages of it that nobody touches are none.
const STACK: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use std::thread;

    use minijinja::context;

    use super::*;

    /// Rendered as a thread of an operator does, whose stack is small.
    fn rendered(text: &str) -> Result<String, String> {
        let text = text.to_owned();
        let render = move || {
            deep(|| {
                let mut written = Text::of_at_most(1 << 20);
                let environment = environment();
                let template = environment.template_from_str(&text);
                let rendered = template
                    .and_then(|it| it.render_captured_to(context! {}, &mut written).map(drop));
                rendered
                    .map(|()| written.into_string())
                    .map_err(|error| error.to_string())
            })
        };
        let small = thread::Builder::new().stack_size(2 << 20).spawn(render);
        small.unwrap().join().unwrap()
    }

    #[test]
    fn nothing_can_be_put_into_itself() {
        let told = rendered("{% set n = namespace() %}{% set n.a = n %}{{ n }}").unwrap_err();
        assert!(told.contains("namespace"), "{told}");
        // A name that is set anew has what was there before.
        assert_eq!(
            rendered("{% set x = [] %}{% set x = [x] %}{{ x }}").unwrap(),
            "[[]]"
        );
        // Neither a map nor what is called can be written to.
        for text in [
            "{% set m = {} %}{% set m.a = m %}",
            "{% set m = dict() %}{% set m.a = m %}",
            "{% macro m() %}{% endmacro %}{% set m.a = m %}",
        ] {
            let told = rendered(text).unwrap_err();
            assert!(told.contains("can only assign to namespaces"), "{told}");
        }
    }

    #[test]
    fn what_is_nested_as_deep_as_a_text_can_say_it_ends_no_process() {
        let level = |inner: &str| format!("{}{inner}{}", "[".repeat(50), "]".repeat(50));
        let deeper = format!("{{% set x = {} %}}", level("x")).repeat(600);
        let text = format!("{{% set x = [] %}}{deeper}");
        assert_eq!(rendered(&text).unwrap(), "");
        let printed = rendered(&format!("{text}{{{{ x }}}}")).unwrap();
        assert_eq!(printed.len(), 60_002);
    }

    #[test]
    fn steps_and_bytes_have_an_end() {
        let told = rendered("{% for a in range(90000) %}{{ a }}{% endfor %}").unwrap_err();
        assert!(told.contains("fuel"), "{told}");
        assert!(rendered("{{ 'x' * 2000000 }}").is_err());
    }
}
