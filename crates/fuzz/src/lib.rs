//! Throws damaged input at what reads what others wrote: kubeconfigs, answers of hosts, events of playbooks, archives, patches.
//!
//! A target is a test whose name ends in `survives_fuzzing` or `survive_fuzzing`. It gives a small corpus of whole inputs and a
//! function that takes bytes, reads them and checks what must be true of the result whatever they are; a panic is a finding, and
//! so is a case that takes [`LONGEST`].
//!
//! ```
//! fuzz::bytes("a number", &[b"-17", b"42"], |bytes| {
//!     let Ok(text) = std::str::from_utf8(bytes) else { return };
//!     if let Ok(number) = text.parse::<i32>() {
//!         assert_eq!(number.to_string().parse(), Ok(number));
//!     }
//! });
//! ```
//!
//! In the default run of the tests every target gets the same few hundred inputs each time. `cargo xtask fuzz` gives each a
//! minute with inputs that nobody has seen, and `--seconds` more; `WINDLASS_FUZZ_SEED` repeats what it found. A finding, which the
//! test prints as small as it could be made, goes into the corpus with the mend.
//!
//! Inputs are made from the corpus: pieces are removed, repeated, exchanged with those of another input, and replaced by numbers,
//! words and bytes that such code is known to stumble over; some inputs are noise. That is proptest with a strategy of its own, for
//! engines that watch the coverage need a compiler that is not stable, and those that run without it make noise, which a parser
//! of text refuses at its first byte.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner},
};

/// How long one case may take, by the code of a test and on a machine that is busy.
pub const LONGEST: Duration = Duration::from_secs(10);

/// The variable with the seconds that each target gets.
pub const SECONDS: &str = "WINDLASS_FUZZ_SECONDS";

/// The variable with the seed of a run that found something.
pub const SEED: &str = "WINDLASS_FUZZ_SEED";

/// How many cases the default run has, and how many one seed of a long one.
const CASES: u32 = 400;

/// No input gets longer, in bytes: more of the same finds nothing new.
const LIMIT: usize = 1 << 16;

/// What code that reads text stumbles over.
const WORDS: &[&[u8]] = &[
    b"",
    b"\0",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\"",
    b"'",
    b"\\",
    b"{{ lookup('pipe', 'id') }}",
    b"{%",
    b"../",
    b"/",
    b"//",
    b"~",
    b"$(id)",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xc3",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x92\xa9",
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b",",
    b"-",
    b"&a",
    b"*a",
    b"<<",
    b"!!python/object:os.system",
    b"null",
    b"true",
    b"NaN",
    b"-1",
    b"0",
    b"2147483648",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"1e999",
    b"0x7fffffff",
    b"\xff\xff\xff\xff\x0f",
];

/// What is done to an input.
#[derive(Clone, Debug)]
enum Damage {
    Remove(Index, Index),
    Repeat(Index, Index, u16),
    Put(Index, Vec<u8>),
    Replace(Index, Index, Vec<u8>),
    Flip(Index, u8),
    /// Goes on with another input of the corpus from some place on.
    Splice(Index, Index, Index),
}

/// Gives damaged inputs to a target, and whole ones first.
///
/// # Panics
///
/// On a finding.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn bytes(name: &str, corpus: &[&[u8]], target: impl Fn(&[u8])) {
    for whole in corpus {
        target(whole);
    }
    let seconds = number(SECONDS).map(Duration::from_secs);
    let given = number(SEED);
    // The same inputs each time, unless there is time for others.
    let mut seed = given.unwrap_or_else(|| match seconds {
        Some(_) => RandomState::new().hash_one(name),
        None => 1,
    });
    let start = Instant::now();
    loop {
        let config = Config {
            cases: CASES,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            max_shrink_time: 30_000,
            rng_algorithm: RngAlgorithm::ChaCha,
            rng_seed: RngSeed::Fixed(seed),
            ..Config::default()
        };
        let found = TestRunner::new(config).run(&inputs(corpus), |input| {
            let began = Instant::now();
            target(&input);
            let took = began.elapsed();
            if took < LONGEST {
                Ok(())
            } else {
                Err(TestCaseError::fail(format!("it took {took:?}")))
            }
        });
        if let Err(proptest::test_runner::TestError::Fail(why, input)) = found {
            panic!(
                "{name}: {why}\n  input: b\"{}\"\n  again: {SEED}={seed}",
                input.escape_ascii()
            );
        } else if let Err(error) = found {
            panic!("{name}: {error}");
        }
        if given.is_some() || seconds.is_none_or(|seconds| start.elapsed() >= seconds) {
            return;
        }
        seed = seed.wrapping_add(1);
    }
}

/// Gives damaged texts to a target; what is no UTF-8 is mended with the replacement character.
///
/// # Panics
///
/// On a finding.
pub fn text(name: &str, corpus: &[&str], target: impl Fn(&str)) {
    let corpus: Vec<&[u8]> = corpus.iter().map(|text| text.as_bytes()).collect();
    bytes(name, &corpus, |bytes| {
        target(&String::from_utf8_lossy(bytes));
    });
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    text.parse().ok()
}

fn inputs(corpus: &[&[u8]]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|whole| whole.to_vec()).collect();
    let start = if corpus.is_empty() {
        Just(Vec::new()).boxed()
    } else {
        select(corpus.clone()).boxed()
    };
    let damaged = (start, vec(damage(), 1..6)).prop_map(move |(mut input, damages)| {
        for damage in damages {
            damage.apply(&mut input, &corpus);
        }
        input
    });
    let noise = vec(any::<u8>(), 0..256);
    prop_oneof![12 => damaged, 1 => noise]
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let piece = || {
        prop_oneof![
            4 => select(WORDS).prop_map(<[u8]>::to_vec),
            2 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            1 => vec(any::<u8>(), 1..8),
        ]
    };
    prop_oneof![
        2 => (at(), at()).prop_map(|(from, to)| Damage::Remove(from, to)),
        1 => (at(), at(), prop_oneof![2..4_u16, 100..1000_u16])
            .prop_map(|(from, to, times)| Damage::Repeat(from, to, times)),
        3 => (at(), piece()).prop_map(|(at, piece)| Damage::Put(at, piece)),
        3 => (at(), at(), piece()).prop_map(|(from, to, piece)| Damage::Replace(from, to, piece)),
        1 => (at(), any::<u8>()).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        1 => (at(), at(), at()).prop_map(|(from, other, to)| Damage::Splice(from, other, to)),
    ]
}

impl Damage {
    fn apply(self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self {
            Self::Remove(from, to) => drop(input.drain(range(from, to, input.len()))),
            Self::Repeat(from, to, times) => {
                let range = range(from, to, input.len());
                let piece = input.get(range.clone()).unwrap_or_default();
                let fit = LIMIT.saturating_sub(input.len()) / piece.len().max(1);
                let many = piece.repeat(fit.min(times.into()));
                input.splice(range.start..range.start, many);
            }
            Self::Put(at, piece) => {
                let at = place(at, input.len());
                input.splice(at..at, piece);
            }
            Self::Replace(from, to, piece) => {
                let range = token(from, to, input);
                input.splice(range, piece);
            }
            Self::Flip(at, mask) => {
                let at = place(at, input.len());
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= mask;
                }
            }
            Self::Splice(from, other, to) => {
                if corpus.is_empty() {
                    return;
                }
                let other = other.get(corpus);
                input.truncate(place(from, input.len()));
                input.extend_from_slice(other.get(place(to, other.len())..).unwrap_or_default());
            }
        }
        input.truncate(LIMIT);
    }
}

/// A place in so many bytes, or behind them.
fn place(index: Index, length: usize) -> usize {
    index.index(length.saturating_add(1))
}

fn range(from: Index, to: Index, length: usize) -> std::ops::Range<usize> {
    let (from, to) = (place(from, length), place(to, length));
    from.min(to)..from.max(to)
}

/// The word at a place, or where there is none the bytes up to another place.
fn token(from: Index, to: Index, input: &[u8]) -> std::ops::Range<usize> {
    let at = place(from, input.len());
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let (before, after) = input.split_at(at);
    let start = at - before.iter().rev().take_while(is_word).count();
    let end = at + after.iter().take_while(is_word).count();
    if start < end {
        start..end
    } else {
        range(from, to, input.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn all(name: &str, corpus: &[&[u8]]) -> Vec<Vec<u8>> {
        let seen = RefCell::new(Vec::new());
        bytes(name, corpus, |input| seen.borrow_mut().push(input.to_vec()));
        seen.into_inner()
    }

    #[test]
    fn the_default_run_is_the_same_each_time_and_begins_with_the_whole_inputs() {
        let corpus: &[&[u8]] = &[b"users: [{name: a}]", b"clusters: []"];
        let seen = all("a", corpus);
        assert_eq!(
            seen.get(..2),
            Some(
                &corpus
                    .iter()
                    .map(|whole| whole.to_vec())
                    .collect::<Vec<_>>()[..]
            )
        );
        assert!(seen.iter().all(|input| input.len() <= LIMIT));
        let mut different = seen.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 300, "{}", different.len());
        if env::var(SECONDS).is_err() {
            assert_eq!(seen, all("a", corpus));
        }
    }

    #[test]
    fn a_finding_is_made_small_and_can_be_repeated() {
        let found = std::panic::catch_unwind(|| {
            bytes("finds", &[b"{\"a\": 1, \"b\": 2}"], |input| {
                assert!(!input.windows(2).any(|two| two == b"{{"), "two braces");
            });
        });
        let said = found.expect_err("two braces are among what is put in");
        let said = said.downcast_ref::<String>().expect("a text");
        assert!(
            said.contains("two braces") && said.contains("again: WINDLASS_FUZZ_SEED=1"),
            "{said}"
        );
    }
}
