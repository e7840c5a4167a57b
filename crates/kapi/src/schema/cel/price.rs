//! What a call costs, in the units of Kubernetes: one for looking at a name, a tenth for a character.
//!
//! The same prices are asked twice: when a rule is checked, with the greatest sizes that the schema allows, and when it runs, with
//! the sizes that are there.

/// The size of an argument, and what it costs to look at all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub size: u64,
    pub weight: u64,
}

/// The price of a call, without that of its arguments.
pub(super) fn call(name: &str, arguments: &[Extent]) -> u64 {
    let at = |at: usize| {
        arguments
            .get(at)
            .copied()
            .unwrap_or(Extent { size: 0, weight: 0 })
    };
    let size = |place: usize| at(place).size;
    let all = || {
        arguments
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(one.weight))
    };
    let price = match name {
        "contains" => characters(size(0)).saturating_mul(characters(size(1))),
        "matches" | "find" | "findAll" => {
            characters(size(0).saturating_add(1)).saturating_mul(size(1).div_ceil(4))
        }
        "@in" => size(1),
        "startsWith" | "endsWith" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
            characters(size(0).min(size(1)))
        }
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => at(0).weight,
        "sets.contains" | "sets.intersects" => size(0).saturating_mul(size(1)),
        "sets.equivalent" => size(0).saturating_mul(size(1)).saturating_mul(2),
        "replace" | "split" | "ip.isCanonical" => characters(size(0).saturating_mul(2)),
        "join" | "format" => all(),
        // No name is checked by an expression of more than 128 characters.
        "validate" => characters(size(1)).saturating_mul(32),
        "_+_" | "bytes" | "string" | "strings.quote" | "url" | "isURL" | "lowerAscii"
        | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "ip" | "quantity"
        | "isQuantity" | "semver" | "isSemver" | "containsIP" | "containsCIDR" => {
            characters(size(0).saturating_add(size(1)))
        }
        _ => 1,
    };
    price.max(1)
}

/// The price of looking at characters once.
pub(super) fn characters(count: u64) -> u64 {
    count.div_ceil(10)
}

/// The most characters or elements that a call gives.
pub(super) fn result(name: &str, arguments: &[Extent], literal: Option<u64>) -> u64 {
    let size = |place: usize| arguments.get(place).map_or(0, |extent| extent.size);
    match name {
        "bytes" | "_+_" => arguments
            .iter()
            .fold(0, |sum: u64, one| sum.saturating_add(one.size)),
        "replace" => match literal {
            Some(old) if old >= size(2) => size(0),
            Some(old) if old > 0 => size(0)
                .div_ceil(old)
                .saturating_mul(size(2))
                .saturating_add(size(0)),
            _ => size(0)
                .saturating_add(1)
                .saturating_mul(size(2))
                .saturating_add(size(0)),
        },
        "join" => {
            let texts = arguments
                .first()
                .map_or(0, |list| list.weight.saturating_mul(10));
            texts.saturating_add(size(0).saturating_mul(size(1)))
        }
        "strings.quote" => size(0).saturating_mul(2).saturating_add(2),
        "validate" => 16,
        _ => size(0),
    }
}

/// Functions whose texts may be of any length.
pub(super) const UNBOUNDED: [&str; 10] = [
    "string",
    "charAt",
    "format",
    "min",
    "max",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
];

/// What a fold costs for each item beside its test: the names and calls of its macro.
pub(super) const FOLD: u64 = 4;

/// What it costs to compile a pattern from the object. Kubernetes asks nothing for it.
pub(super) const PATTERN: u64 = 20_000;

/// The price of making a list, and a map.
pub(super) const LIST: u64 = 10;
pub(super) const MAP: u64 = 30;
