//! The gate for text that is not ours: what a host, a server, a playbook or a file of others said.
//!
//! Such text goes into status, conditions, Events, errors, logs and onto terminals. There it must not move a cursor, colour or
//! hide what we say, forge a line of ours, turn the reading direction or fill an object: [`plain`] and [`lines`] leave only
//! what a reader sees as what it is. Escape sequences go as a whole, so that `ESC[31mred` becomes `red` and not `[31mred`.

/// One line of foreign text, of at most `limit` bytes: every run of line breaks and tabs becomes one space.
///
/// ```
/// assert_eq!(api::text::plain("\u{1b}[2Jgone\r\nand \u{202e}back", 64), "gone and back");
/// assert_eq!(api::text::plain("a long story", 8), "a lon…");
/// ```
pub fn plain(text: &str, limit: usize) -> String {
    gate(text, limit, |character, out| {
        if !out.is_empty() && !out.ends_with(' ') {
            out.push(' ');
        }
        debug_assert!(is_break(character), "only breaks come here");
    })
    .trim_end()
    .to_owned()
}

/// Foreign text of several lines, of at most `limit` bytes: line breaks and tabs stay, a lone carriage return is a line break.
///
/// ```
/// assert_eq!(api::text::lines("one\r\n\ttwo\u{7}\rthree", 64), "one\n\ttwo\nthree");
/// ```
pub fn lines(text: &str, limit: usize) -> String {
    let text = text.replace("\r\n", "\n");
    gate(&text, limit, |character, out| {
        out.push(if character == '\t' { '\t' } else { '\n' });
    })
}

/// Cuts a text to at most `limit` bytes, at a character.
pub fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let mut end = limit.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
}

/// Whether a text is what [`plain`] would leave of it, but for its length.
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(is_unseen) && !text.chars().any(is_break)
}

/// Takes out what is unseen. Stops soon after the limit, however long the text is.
fn gate(text: &str, limit: usize, mut on_break: impl FnMut(char, &mut String)) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if out.len() > limit {
            break;
        }
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            character if is_break(character) => on_break(character, &mut out),
            character if is_unseen(character) => {}
            character => out.push(character),
        }
    }
    cut(&mut out, limit);
    out
}

const fn is_break(character: char) -> bool {
    matches!(
        character,
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Control characters, and the format characters that turn the reading direction, join, hide or have no width.
///
/// # Source
/// Unicode 16, general categories Cc and Cf and the tags block; UAX #9 for the marks of direction.
const fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{0}'..='\u{8}'
            | '\u{e}'..='\u{1f}'
            | '\u{7f}'..='\u{84}'
            | '\u{86}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// # Source
/// ECMA-48: a control sequence is `ESC [`, parameters, intermediates and one final character; a string is opened by `ESC` and one
/// of `P X ] ^ _` and ends with `ESC \` or, as terminals take it, with BEL; other sequences are intermediates and one final.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    match rest.clone().next() {
        Some('[') => {
            rest.next();
            skip_control_sequence(rest);
        }
        Some('P' | 'X' | ']' | '^' | '_') => {
            rest.next();
            skip_string(rest);
        }
        Some(' '..='/') => {
            while matches!(rest.clone().next(), Some(' '..='/')) {
                rest.next();
            }
            skip_if(rest, |character| matches!(character, '0'..='~'));
        }
        _ => skip_if(rest, |character| matches!(character, '0'..='~')),
    }
}

fn skip_control_sequence(rest: &mut std::str::Chars<'_>) {
    while matches!(rest.clone().next(), Some(' '..='?')) {
        rest.next();
    }
    skip_if(rest, |character| matches!(character, '@'..='~'));
}

/// A string that never ends is no string: then only its opening goes, so that one byte does not swallow a whole report.
fn skip_string(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    for _ in 0..STRING_LIMIT {
        match ahead.next() {
            Some('\u{7}' | '\u{9c}') => {
                *rest = ahead;
                return;
            }
            Some('\u{1b}') => {
                skip_if(&mut ahead, |character| character == '\\');
                *rest = ahead;
                return;
            }
            Some('\n' | '\r') | None => return,
            Some(_) => {}
        }
    }
}

fn skip_if(rest: &mut std::str::Chars<'_>, wanted: impl Fn(char) -> bool) {
    if rest.clone().next().is_some_and(wanted) {
        rest.next();
    }
}

/// The longest string of a control function that is taken out as a whole: titles and links are shorter.
const STRING_LIMIT: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_reader_would_not_see_is_taken_out() {
        for (name, text, expected) in [
            ("colour", "\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("colour in eight bits", "\u{9b}31mred", "red"),
            ("clear screen", "\u{1b}[2J\u{1b}[Hgone", "gone"),
            ("title", "\u{1b}]0;owned\u{7}text", "text"),
            (
                "link",
                "\u{1b}]8;;http://x\u{1b}\\text\u{1b}]8;;\u{1b}\\",
                "text",
            ),
            ("device string", "\u{1b}P1$r0m\u{1b}\\text", "text"),
            ("character set", "\u{1b}(0text", "text"),
            ("reset", "\u{1b}ctext", "text"),
            ("unfinished string", "\u{1b}]text\nnext", "text next"),
            ("bare escape", "text\u{1b}", "text"),
            ("backspace and bell", "te\u{8}xt\u{7}", "text"),
            ("overwritten line", "bad\rgood", "bad good"),
            ("forged line", "ok\n\nReady   True", "ok Ready   True"),
            ("override", "exe\u{202e}txt\u{202c}", "exetxt"),
            ("isolates", "\u{2066}a\u{2069}\u{200f}b", "ab"),
            ("no width", "a\u{200b}b\u{feff}c\u{2060}d\u{ad}e", "abcde"),
            ("tags", "a\u{e0041}\u{e0042}", "a"),
            ("line separator", "a\u{2028}b\u{85}c", "a b c"),
            ("words of the world", "Grüße, 世界 — ok", "Grüße, 世界 — ok"),
        ] {
            assert_eq!(plain(text, 256), expected, "{name}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(plain("ééé", 5), "é…");
        assert_eq!(plain(&"x".repeat(1 << 20), 64).len(), 64);
    }

    proptest! {
        #[test]
        fn whatever_passes_is_plain_and_within_the_limit(text in any::<String>(), limit in 8_usize..200) {
            let passed = plain(&text, limit);
            prop_assert!(is_plain(&passed), "{passed:?}");
            prop_assert!(passed.len() <= limit);
            prop_assert_eq!(plain(&passed, limit), passed.clone());
            let passed = lines(&text, limit);
            prop_assert!(passed.split(['\n', '\t']).all(is_plain), "{passed:?}");
            prop_assert!(passed.len() <= limit);
        }
    }
}
