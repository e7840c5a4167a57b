//! The command that was typed, once more with what it lacked. A command that lost one of its options is another operation.

use std::{ffi::OsString, fmt};

use crate::cli::Global;

/// The words of a command, without the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typed(Vec<String>);

impl Typed {
    /// The words of a process, the first of which is its program.
    pub(crate) fn new(words: impl IntoIterator<Item = OsString>) -> Self {
        let words = words.into_iter().skip(1);
        Self(
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
        )
    }

    /// With more words. They are options, so that they stand before what a `--` ends.
    fn and(mut self, more: &[&str]) -> Self {
        let end = self.options();
        let more = more.iter().map(|word| (*word).to_owned());
        self.0.splice(end..end, more);
        self
    }

    /// Without an option that has a value.
    fn without(self, option: &str) -> Self {
        let end = self.options();
        let mut kept = Vec::new();
        let mut words = self.0.into_iter().enumerate();
        while let Some((at, word)) = words.next() {
            let value = word.strip_prefix(option);
            match value {
                Some("") if at < end => drop(words.next()),
                Some(value) if at < end && value.starts_with('=') => {}
                _ => kept.push(word),
            }
        }
        Self(kept)
    }

    /// How many words there are before what a `--` ends.
    fn options(&self) -> usize {
        let end = self.0.iter().position(|word| word == "--");
        end.unwrap_or(self.0.len())
    }
}

impl fmt::Display for Typed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("windlass")?;
        let mut words = self.0.iter();
        words.try_for_each(|word| write!(formatter, " {}", quoted(word)))
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@+%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Global {
    /// The command, confirmed by a name. A wrong one that was typed gives way to it.
    pub(crate) fn confirmed(&self, name: &str) -> Typed {
        let typed = self.typed.clone().without("--confirm");
        typed.and(&["--confirm", name])
    }

    /// The command, confirmed by these names too.
    pub(crate) fn confirmed_too(&self, names: &[String]) -> Typed {
        let confirmed = |typed: Typed, name: &String| typed.and(&["--confirm", name]);
        names.iter().fold(self.typed.clone(), confirmed)
    }

    /// The command with `--yes`.
    pub(crate) fn carried_out(&self) -> Typed {
        self.typed.clone().carried_out()
    }

    /// The same with these options too, so that it does not choose anew what it has chosen by itself.
    pub(crate) fn carried_out_with(&self, options: &[&str]) -> Typed {
        self.typed.clone().and(options).carried_out()
    }
}

impl Typed {
    /// With `--yes`.
    pub(crate) fn carried_out(self) -> Self {
        let end = self.options();
        let said = self.0.iter().take(end).any(|word| word == "--yes");
        if said { self } else { self.and(&["--yes"]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn read(line: &str) -> Cli {
        Cli::read(line.split(' ').map(OsString::from))
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// What is typed is done, with every option that it had.
    #[test]
    fn the_printed_command_is_the_typed_one_and_what_it_lacked() {
        type Lacking = fn(&Global) -> Typed;
        let named: Lacking = |global| global.confirmed("first");
        let was = "confirm: None";
        let is = r#"confirm: Some("first")"#;
        let carried_out: Lacking = Global::carried_out;
        let chosen: Lacking = |global| global.carried_out_with(&["--before", "r2"]);
        let both: Lacking = |global| {
            global
                .confirmed_too(&["core".to_owned(), "ipam-x".to_owned()])
                .carried_out()
        };
        for (typed, lacking, (before, after)) in [
            (
                "windlass -n p2 node replace first --by master-4 --force",
                named,
                (was, is),
            ),
            (
                "windlass node replace --by=master-4 first -o json",
                named,
                (was, is),
            ),
            ("windlass --data-dir /d node reset first", named, (was, is)),
            ("windlass reset first", named, (was, is)),
            ("windlass reset -- first", named, (was, is)),
            (
                "windlass recover --give-up node1,node2 --rejoin node3",
                named,
                (was, is),
            ),
            (
                "windlass recover first --from-snapshot /s.db --give-up a",
                named,
                (was, is),
            ),
            (
                "windlass recover --roll-back --from-snapshot 2026-11-25T06-00-00Z",
                named,
                (was, is),
            ),
            (
                "windlass openstack restore first 2026-11-25T06-00-00Z --from-cluster u",
                named,
                (was, is),
            ),
            (
                "windlass providers delete --infrastructure first",
                named,
                (was, is),
            ),
            // A name that was mistyped.
            (
                "windlass node replace first --confirm frist --by master-4 --force",
                named,
                (r#"Some("frist")"#, r#"Some("first")"#),
            ),
            (
                "windlass reset --confirm=frist first",
                named,
                (r#"Some("frist")"#, r#"Some("first")"#),
            ),
            (
                "windlass component upgrade etcd first",
                carried_out,
                ("yes: false", "yes: true"),
            ),
            (
                "windlass inventory rollback --skip shop",
                chosen,
                (
                    r#"before: None, skip: ["shop"], yes: false"#,
                    r#"before: Some("r2"), skip: ["shop"], yes: true"#,
                ),
            ),
            (
                "windlass providers upgrade --to core=v1.2.3",
                carried_out,
                ("yes: false", "yes: true"),
            ),
            (
                "windlass providers upgrade --to core=v1.2.3 --yes --confirm addon-y",
                both,
                (r#""addon-y"]"#, r#""addon-y", "core", "ipam-x"]"#),
            ),
        ] {
            let typed = read(typed);
            let printed = lacking(&typed.global).to_string();
            let expected = format!("{:?}", typed.command);
            assert!(expected.contains(before), "{expected}");
            let expected = expected.replace(before, after);
            let again = read(&printed);
            assert_eq!(format!("{:?}", again.command), expected, "{printed}");
            assert_eq!(again.global.namespace, typed.global.namespace);
            assert_eq!(again.global.data_dir, typed.global.data_dir);
        }
    }

    #[test]
    fn a_shell_takes_a_word_as_it_was_typed() {
        let words = ["kubectl-windlass", "reset", "it's", "", "a=b,c", "--"];
        let typed = Typed::new(words.map(OsString::from));
        assert_eq!(typed.to_string(), r"windlass reset 'it'\''s' '' a=b,c --");
    }
}
