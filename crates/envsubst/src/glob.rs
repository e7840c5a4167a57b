//! The globs that trim values: `*`, `?`, `[a-z]`, `[^a-z]` and `\` before a character that stands for itself.
//!
//! A star is as short as it can be and never tried again when what follows it fails; a pattern that is broken matches nothing,
//! and is only found broken where the text reaches that part of it. Text is bytes, except that `?` and a class take a character.

/// What is matched must not be longer: beginnings of every length are tried.
pub(crate) const LONGEST: usize = 4096;

/// A pattern that is broken where it was needed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Whether a pattern matches the whole of a text.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> Result<bool, Broken> {
    let (mut pattern, mut text) = (pattern, text);
    while !pattern.is_empty() {
        let (has_star, chunk, rest) = chunk(pattern);
        pattern = rest;
        if has_star && chunk.is_empty() {
            return Ok(true);
        }
        let is_last = rest.is_empty();
        let fits = |left: &[u8]| left.is_empty() || !is_last;
        let mut from = text;
        let found = loop {
            match begins(chunk, from)? {
                Some(left) if fits(left) => break Some(left),
                _ if !has_star => break None,
                _ => match from.split_first() {
                    Some((_, next)) => from = next,
                    None => break None,
                },
            }
        };
        match found {
            Some(left) => text = left,
            None => return Ok(false),
        }
    }
    Ok(text.is_empty())
}

/// Whether stars stand at the beginning, what follows up to the next one, and the rest.
fn chunk(pattern: &[u8]) -> (bool, &[u8], &[u8]) {
    let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
    let (_, pattern) = pattern.split_at(stars);
    let (mut end, mut is_in_class, mut is_escaped) = (pattern.len(), false, false);
    for (at, byte) in pattern.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'[' => is_in_class = true,
            b']' => is_in_class = false,
            b'*' if !is_in_class => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let (chunk, rest) = pattern.split_at(end);
    (stars > 0, chunk, rest)
}

/// What is left of a text behind a chunk, which has no stars.
fn begins<'a>(mut chunk: &[u8], mut text: &'a [u8]) -> Result<Option<&'a [u8]>, Broken> {
    while let Some((first, rest)) = chunk.split_first() {
        if text.is_empty() {
            return Ok(None);
        }
        chunk = rest;
        let wanted = match first {
            b'[' => {
                let (character, left) = character(text);
                text = left;
                let (is_member, rest) = class(chunk, character)?;
                chunk = rest;
                if !is_member {
                    return Ok(None);
                }
                continue;
            }
            b'?' => {
                text = character(text).1;
                continue;
            }
            b'\\' => {
                let (escaped, rest) = chunk.split_first().ok_or(Broken)?;
                chunk = rest;
                escaped
            }
            byte => byte,
        };
        match text.split_first() {
            Some((byte, left)) if byte == wanted => text = left,
            _ => return Ok(None),
        }
    }
    Ok(Some(text))
}

/// Whether a class holds a character, and what follows the class.
fn class(chunk: &[u8], character: u32) -> Result<(bool, &[u8]), Broken> {
    let (is_negated, mut chunk) = match chunk.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, chunk),
    };
    let mut holds = false;
    let mut is_first = true;
    loop {
        if let Some(rest) = chunk.strip_prefix(b"]")
            && !is_first
        {
            return Ok((holds != is_negated, rest));
        }
        let (low, rest) = bound(chunk)?;
        let (high, rest) = match rest.strip_prefix(b"-") {
            Some(rest) => bound(rest)?,
            None => (low, rest),
        };
        holds |= (low..=high).contains(&character);
        chunk = rest;
        is_first = false;
    }
}

/// One end of a range; a class does not end with it.
fn bound(chunk: &[u8]) -> Result<(u32, &[u8]), Broken> {
    let chunk = match chunk.first() {
        None | Some(b'-' | b']') => return Err(Broken),
        Some(b'\\') => chunk.get(1..).unwrap_or_default(),
        Some(_) => chunk,
    };
    let (bound, rest) = character(chunk);
    if rest.is_empty() || (bound == INVALID && rest.len() + 1 == chunk.len()) {
        return Err(Broken);
    }
    Ok((bound, rest))
}

/// The first character and what follows it. A byte that belongs to none counts as one, the replacement character.
fn character(text: &[u8]) -> (u32, &[u8]) {
    let longest = text.get(..4).unwrap_or(text);
    let valid = match std::str::from_utf8(longest) {
        Ok(valid) => valid,
        Err(error) => longest
            .get(..error.valid_up_to())
            .and_then(|valid| std::str::from_utf8(valid).ok())
            .unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(character) => (
            u32::from(character),
            text.get(character.len_utf8()..).unwrap_or_default(),
        ),
        None => (INVALID, text.get(1..).unwrap_or_default()),
    }
}

const INVALID: u32 = 0xFFFD;
