//! Names for what people do not name.

/// Letters of the Greek alphabet, as the reference takes them.
const LETTERS: [&str; 24] = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi",
    "psi", "omega",
];

/// A name such as `phi-21-template`.
pub(crate) fn invented(what: &str) -> String {
    let chosen: u16 = rand::random();
    let letter = LETTERS
        .get(usize::from(chosen) % LETTERS.len())
        .copied()
        .unwrap_or("alpha");
    format!("{letter}-{}-{what}", chosen / 24 % 24 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invented_name_tells_what_it_is_of() {
        let name = invented("template");
        let parts: Vec<_> = name.split('-').collect();
        assert!(
            LETTERS.contains(&parts[0]) && parts[2] == "template",
            "{name}"
        );
        assert!(
            (1..=24).contains(&parts[1].parse::<u8>().unwrap()),
            "{name}"
        );
    }
}
