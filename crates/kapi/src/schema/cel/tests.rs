//! Rules of any form: they are refused or run, and never cost more than they may.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Budget, Stop, Val, Variables, declare, rule};
use crate::schema::{convert, node::Node};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_rule_or_is_refused(text in noise()) {
        evaluate(&text);
    }

    /// What the checker takes works for every value of its types: only `dyn` may turn out to be another one.
    #[test]
    fn what_is_taken_works_for_its_types(text in expression()) {
        for text in [text.clone(), format!("({text}) == ({text})"), format!("[{text}].size() > 0")] {
            let is_dynamic = DYNAMIC.iter().any(|word| text.contains(word));
            if let Some(Stop::Failed(why)) = evaluate(&text).filter(|_| !is_dynamic) {
                prop_assert!(why != "no such overload", "{text}");
                prop_assert!(!why.contains("Undeclared reference"), "{text}: {why}");
            }
        }
    }
}

/// Compiles and runs a rule. Returns why it stopped.
fn evaluate(text: &str) -> Option<Stop> {
    let node = node();
    let (this, _) = declare(&node, true).expect("it has a type");
    let variables = Variables {
        this,
        optional_old: false,
    };
    let compiled = rule(text, &variables).ok()?;
    let object = object();
    let value = Val::of(&object, &node);
    let mut budget = Budget::of_object();
    let answer = compiled.run(&value, Some(&value), &mut budget);
    assert!(budget.spent() <= 1_000_000, "{text}");
    answer.err()
}

/// Characters and words of the language in any order.
fn noise() -> impl Strategy<Value = String> {
    let words = [
        "self",
        "oldSelf",
        ".size",
        ".name",
        ".names",
        ".items",
        "[0]",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ".all(x, ",
        ".map(x, ",
        ".filter(",
        ".exists_one(i, ",
        "has(",
        "==",
        "&&",
        "||",
        "!",
        "?",
        ":",
        ",",
        ".",
        "'a'",
        "\"",
        "'",
        "r'",
        "b'x'",
        "1",
        "1u",
        "1.5e9",
        "-",
        "+",
        "*",
        "/",
        "%",
        "in",
        "null",
        "true",
        "x",
        "size(",
        ".matches(",
        "\\",
        "\u{0}",
        "ü",
        "💣",
        "self.name",
        "self.items.all(x, x.port > 0)",
        ".?",
        "[?",
        "duration('1h')",
        "timestamp(",
        "//",
        "\n",
        " ",
    ];
    let word = prop_oneof![
        proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        ".{0,3}"
    ];
    proptest::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

/// Expressions that are mostly well formed, of any type.
fn expression() -> impl Strategy<Value = String> {
    let leaves = [
        "self.size",
        "self.name",
        "self.names",
        "self.items",
        "self.labels",
        "self.ratio",
        "self.since",
        "self.wait",
        "self.data",
        "oldSelf.size",
        "1",
        "0",
        "-3",
        "2u",
        "1.5",
        "'a'",
        "'9'",
        "''",
        "true",
        "b'x'",
        "[]",
        "null",
        "quantity('1Gi')",
        "ip('10.0.0.1')",
        "cidr('10.0.0.0/8')",
        "url('https://a:1/b')",
        "duration('90s')",
        "x",
        "timestamp('2024-01-02T03:04:05Z')",
        "optional.none()",
        "optional.of(1)",
        "semver('1.2.3')",
        "9223372036854775807",
        "format.dns1123Label()",
        "self.names[0]",
        "self.items[0].name",
        "self.items[1].port",
        "self.labels['k']",
        "'%s %d %.2f %x'",
        "'[a-z]+'",
        "self",
        "{'a': 1}",
        "self.?name",
        "self.names[?7]",
    ];
    let leaf = proptest::sample::select(leaves.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let operators = [
            "==", "!=", "<", ">=", "+", "-", "*", "/", "%", "&&", "||", "in",
        ];
        let methods = [
            "size()",
            "contains(#)",
            "startsWith(#)",
            "matches(#)",
            "find(#)",
            "findAll(#)",
            "charAt(#)",
            "indexOf(#)",
            "lastIndexOf(#)",
            "indexOf('a', #)",
            "lowerAscii()",
            "replace(#, #)",
            "split(#)",
            "split(#, #)",
            "substring(#)",
            "substring(#, #)",
            "trim()",
            "join(#)",
            "join()",
            "isSorted()",
            "sum()",
            "min()",
            "max()",
            "format([#, #])",
            "all(x, #)",
            "exists(x, #)",
            "exists_one(x, #)",
            "map(x, #)",
            "map(x, #, #)",
            "filter(x, #)",
            "getHours()",
            "getFullYear()",
            "getMilliseconds()",
            "hasValue()",
            "value()",
            "orValue(#)",
            "or(#)",
            "isGreaterThan(#)",
            "add(#)",
            "sub(#)",
            "compareTo(#)",
            "asInteger()",
            "asApproximateFloat()",
            "sign()",
            "family()",
            "isLoopback()",
            "containsIP(#)",
            "containsCIDR(#)",
            "masked()",
            "prefixLength()",
            "ip()",
            "getPort()",
            "getQuery()",
            "getHost()",
            "validate(#)",
            "major()",
        ];
        let functions = [
            "size(#)",
            "string(#)",
            "int(#)",
            "uint(#)",
            "double(#)",
            "bytes(#)",
            "bool(#)",
            "type(#)",
            "dyn(#)",
            "duration(#)",
            "timestamp(#)",
            "quantity(#)",
            "isQuantity(#)",
            "ip(#)",
            "isIP(#)",
            "cidr(#)",
            "isCIDR(#)",
            "url(#)",
            "isURL(#)",
            "semver(#)",
            "isSemver(#)",
            "sets.contains(#, #)",
            "sets.intersects(#, #)",
            "optional.of(#)",
            "strings.quote(#)",
            "optional.ofNonZeroValue(#)",
            "ip.isCanonical(#)",
            "format.named(#)",
            "matches(#, #)",
            "!#",
            "-#",
            "[#, #]",
            "{#: #}",
            "# ? # : #",
            "#[#]",
            "#[?#]",
            "has(#.name)",
            "#.?port",
            "[?#]",
        ];
        let fill = |template: String, parts: Vec<String>| {
            let mut parts = parts.into_iter();
            let pieces = template.split('#').map(str::to_owned).collect::<Vec<_>>();
            let mut text = String::new();
            for (at, piece) in pieces.iter().enumerate() {
                text.push_str(piece);
                if at + 1 < pieces.len() {
                    text.push_str(&parts.next().unwrap_or_else(|| "1".to_owned()));
                }
            }
            text
        };
        let method =
            proptest::sample::select(methods.to_vec()).prop_map(|method| format!("(#).{method}"));
        let function = proptest::sample::select(functions.to_vec()).prop_map(str::to_owned);
        let operator = proptest::sample::select(operators.to_vec())
            .prop_map(|operator| format!("(#) {operator} (#)"));
        let template = prop_oneof![method, function, operator];
        (template, proptest::collection::vec(inner, 3))
            .prop_map(move |(template, parts)| fill(template, parts))
    })
}

fn node() -> Node {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "ratio": {"type": "number"}, "name": text,
        "names": {"type": "array", "items": text},
        "items": {"type": "array", "items": {"type": "object", "properties": {"name": text, "port": {"type": "integer"}}}},
        "labels": {"type": "object", "additionalProperties": text},
        "since": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "data": {"type": "string", "format": "byte"},
    }});
    convert::node(&schema, "", &mut Vec::new())
}

fn object() -> Value {
    json!({
        "size": 3, "ratio": 0.5, "name": "gädget", "names": ["b", "ä", ""], "items": [{"name": "one", "port": 1}, {"port": 2}],
        "labels": {"k": "v"}, "since": "2024-05-06T07:08:09Z", "wait": "-9000h", "data": "aGVsbG8=",
    })
}

/// What makes values of any type.
const DYNAMIC: [&str; 4] = ["dyn(", "[]", "optional.none()", "getQuery()"];
