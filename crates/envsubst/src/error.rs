//! What can be wrong with a template or with what is put into it.

/// A template that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// The line of the reference, from 1.
    pub line: usize,
    /// Its first character in that line, from 1, after white space in braces was removed.
    pub column: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// `${}`, `${ A B}`.
    #[error(
        "the reference begins with no name of letters, digits and underscores; write ${{NAME}}, or $${{ for the text ${{"
    )]
    Name,
    /// `${A`, `${A-b}`.
    #[error(
        "the name is followed by neither a closing brace nor a function; write ${{NAME}} or ${{NAME:=default}}, or $${{ for the text ${{"
    )]
    Brace,
    /// `${A:=b`, `${A#}`.
    #[error("the function lacks an argument or its end; complete it and close it with }}")]
    Argument,
    /// `${A:1:2${B}}`, `${#}`.
    #[error(
        "the function is not written as one; see the forms that are known, such as ${{NAME:=default}}, ${{NAME:0:3}} or ${{NAME/a/b}}"
    )]
    Form,
    /// References in defaults in defaults.
    #[error("references are nested more than {DEEPEST} deep; make it fewer", DEEPEST = crate::parse::DEEPEST)]
    Deep,
}

/// A template that cannot be filled in with these values. Values are in none of its messages: they may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubstituteError {
    /// Unset variables without a default, sorted.
    #[error("the variables {} are not set and have no default; set each", .0.join(", "))]
    Unset(Vec<String>),
    /// A substring whose length is negative.
    #[error(
        "${{{variable}:…}} asks for {length} characters; the length of a substring is 0 or more"
    )]
    Length {
        /// The variable.
        variable: String,
        /// The length asked for.
        length: i64,
    },
    /// A substring or a glob that ends in a character of several bytes.
    #[error(
        "a function of ${{{variable}}} cuts a character of its value in two; it counts bytes: give it a place between characters"
    )]
    Cut {
        /// The variable.
        variable: String,
    },
    /// More text than any file of a provider has.
    #[error(
        "with the values of its variables the text has more than {} bytes, which no file of a provider has; see what ${{{variable}}} becomes",
        crate::LARGEST
    )]
    Large {
        /// The variable at which it grew too long.
        variable: String,
    },
    /// A glob on a long value, which costs the square of its length.
    #[error(
        "the value of ${{{variable}}} has {length} bytes and is to be matched by a glob; {} are the most, so give it a shorter value",
        crate::glob::LONGEST
    )]
    Long {
        /// The variable.
        variable: String,
        /// The length of its value in bytes.
        length: usize,
    },
}
