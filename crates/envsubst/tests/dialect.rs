//! What each form means, case by case.

use envsubst::{Problem, SubstituteError, Template};

/// The values of every case: `U` is unset, `E` is set and empty.
fn value(name: &str) -> Option<&'static str> {
    Some(match name {
        "V" => "value",
        "E" => "",
        "N" => "3",
        "PATH" => "/usr/local/lib/libc.so.6",
        "DOTS" => "a.b.c",
        "TITLE" => "Good Morning",
        "WORD" => "straße",
        "GREEK" => "ᾳξιος",
        "GLOB" => "[x]*y",
        "PRICE" => "5$",
        "Ä1" => "umlaut",
        _ => return None,
    })
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let result = Template::parse(text).map(|template| template.substitute(value));
        assert_eq!(result, Ok(Ok((*expected).to_owned())), "{text}");
    }
}

#[test]
fn values_and_text() {
    check(&[
        ("", ""),
        ("plain: text", "plain: text"),
        ("${V}", "value"),
        ("a ${V} b ${N} c", "a value b 3 c"),
        ("${V}${N}", "value3"),
        ("[${E}]", "[]"),
        ("${Ä1}", "umlaut"),
        ("a\n${V}\nc\n", "a\nvalue\nc\n"),
    ]);
}

#[test]
fn dollar_signs_that_are_no_references() {
    check(&[
        ("$V", "$V"),
        ("$", "$"),
        ("cost: 5$ or $6", "cost: 5$ or $6"),
        ("$(V)", "$(V)"),
        ("$${V}", "${V}"),
        ("$$", "$"),
        ("$$$", "$$"),
        ("$$$$", "$$"),
        ("$$${V}", "$value"),
        ("$$$${V}", "$${V}"),
        ("$$V", "$V"),
        // What is put in is not read again.
        ("${PRICE}{V}", "5${V}"),
        // Escapes do not count in defaults.
        ("${U:=$$}", "$$"),
        ("${U:=a$b}", "a$b"),
    ]);
}

#[test]
fn defaults() {
    check(&[
        ("${U=d}", "d"),
        ("${U:=d}", "d"),
        ("${U:-d}", "d"),
        ("${U:?d}", "d"),
        ("${U:+d}", "d"),
        ("${V=d}", "value"),
        ("${V:=d}", "value"),
        ("${V:-d}", "value"),
        ("${V:+d}", "value"),
        // Empty and unset are the same.
        ("${E=d}", "d"),
        ("${E:=d}", "d"),
        ("${E:-d}", "d"),
        ("${E:=}", ""),
        ("${U:=two words, and: a colon}", "two words, and: a colon"),
        ("${U:= spaced }", " spaced "),
        ("${U:=\"quoted\"}", "\"quoted\""),
        ("${U:=a=b:-c}", "a=b:-c"),
        ("${U==d}", "=d"),
        ("${U:=-d}", "-d"),
        ("${U:=$${V}}", "$value"),
    ]);
}

#[test]
fn references_in_defaults() {
    check(&[
        ("${U:=${V}}", "value"),
        ("${U=${W:=${N}}}", "3"),
        ("${U:=a${V}b${N}c}", "avalueb3c"),
        ("${U:=${V^^}-${N}}", "VALUE-3"),
        ("${V:=${U}}", "value"),
        // Only the outer one is asked for; the inner one is empty.
        ("[${U:=${W}}]", "[]"),
        ("${U:=${V}}}", "value}"),
    ]);
}

#[test]
fn lengths_and_cases() {
    check(&[
        ("${#V}", "5"),
        ("${#E}", "0"),
        ("${#WORD}", "7"),
        ("${V^}", "Value"),
        ("${V^^}", "VALUE"),
        ("${TITLE,}", "good Morning"),
        ("${TITLE,,}", "good morning"),
        ("${E^}${E^^}${E,}${E,,}", ""),
        ("${V^,}", "value"),
        ("${TITLE,^}", "Good Morning"),
        // One character for one.
        ("${WORD^^}", "STRAßE"),
        ("${GREEK^}", "ᾼξιος"),
    ]);
}

#[test]
fn substrings() {
    check(&[
        ("${V:0}", "value"),
        ("${V:2}", "lue"),
        ("${V:5}", ""),
        ("${V:9}", ""),
        ("${V:1:3}", "alu"),
        ("${V:1:0}", ""),
        ("${V:1:9}", "alue"),
        ("${V:9:1}", ""),
        ("${V: -2}", "value"),
        ("${V:+2}", "value"),
        ("${V:0:9223372036854775807}", "value"),
        ("${V:1:9223372036854775807}", "alue"),
        // A negative place would be a default, but not out of a variable.
        ("${V:${M:=-2}}", "ue"),
        ("${V:${M:=-2}:1}", "u"),
        ("${V:${M:=-9}:1}", "v"),
        // What is no number changes nothing.
        ("${V:x}", "value"),
        ("${V:1:x}", "value"),
        ("${V:99999999999999999999}", "value"),
        // Several colons count as one.
        ("${V:1::3}", "alu"),
        ("${V:${N}}", "ue"),
        ("${WORD:0:4}", "stra"),
    ]);
}

#[test]
fn trims() {
    check(&[
        ("${PATH#/usr}", "/local/lib/libc.so.6"),
        ("${PATH#usr}", "/usr/local/lib/libc.so.6"),
        ("${PATH#*/}", "usr/local/lib/libc.so.6"),
        ("${PATH##*/}", "libc.so.6"),
        ("${PATH%/*}", "/usr/local/lib"),
        ("${PATH%%/*}", ""),
        ("${DOTS%.*}", "a.b"),
        ("${DOTS%%.*}", "a"),
        ("${DOTS#?}", ".b.c"),
        ("${DOTS#??}", "b.c"),
        ("${DOTS#[a-c]}", ".b.c"),
        ("${DOTS#[^a-c]}", "a.b.c"),
        ("${DOTS#[abc].}", "b.c"),
        ("${DOTS##*}", ""),
        ("${DOTS#*}", ".b.c"),
        ("${V#${E}}", "value"),
        ("${V%${U:=ue}}", "val"),
        // Against the end a class is read from behind, and is none.
        ("${V%[a-z]}", "value"),
        // Broken ones change nothing.
        ("${V#[}", "value"),
        ("${V#[v}", "value"),
        ("${V#[]}", "value"),
        ("${V#[-a]}", "value"),
        ("${V#v\\}", "value"),
        ("${GLOB#\\[x\\]\\*}", "y"),
        ("${GLOB#[[]x]}", "*y"),
        ("${V###v}", "value"),
        ("${V%%%e}", "value"),
    ]);
}

#[test]
fn replacements() {
    check(&[
        ("${DOTS/./-}", "a-b.c"),
        ("${DOTS//./-}", "a-b-c"),
        ("${DOTS/./}", "ab.c"),
        ("${DOTS//./}", "abc"),
        ("${DOTS/#a/x}", "x.b.c"),
        ("${DOTS/#b/x}", "a.b.c"),
        ("${DOTS/%c/x}", "a.b.x"),
        ("${DOTS/%b/x}", "a.b.c"),
        // These two remove nothing.
        ("${DOTS/#a/}", "a.b.c"),
        ("${DOTS/%c/}", "a.b.c"),
        ("${DOTS/x/y}", "a.b.c"),
        // A pattern is text.
        ("${DOTS/*/y}", "a.b.c"),
        ("${PATH//\\//:}", ":usr:local:lib:libc.so.6"),
        ("${PATH/\\/usr/\\/opt}", "/opt/local/lib/libc.so.6"),
        ("${V/v/\\\\}", "\\alue"),
        ("${V/v/$$}", "$alue"),
        ("${V/${E}/x}", "xvalue"),
        ("${V//${E}/-}", "-v-a-l-u-e-"),
        ("${V/${U:=v}/${N}}", "3alue"),
        // Several slashes count as one, and what is replaced may hold a brace.
        ("${DOTS/b//x}", "a.x.c"),
        ("${V/}x/y}", "value"),
    ]);
}

#[test]
fn white_space_in_braces() {
    check(&[
        ("${ V }", "value"),
        ("${ V}", "value"),
        ("${V }", "value"),
        ("${\tV\n}", "value"),
        ("$${ V }", "${V}"),
        ("${ V }${ N }", "value3"),
        ("a ${  V  } b", "a value b"),
        ("${U:=${ V }}", "value"),
        ("${U:= ${ V } }", " value "),
    ]);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    use Problem::{Argument, Brace, Deep, Form, Name};
    let deep = "${A:=".repeat(40) + &"}".repeat(40);
    let cases = [
        ("${", Name),
        ("${}", Name),
        ("${ }", Name),
        ("${ V :=d}", Name),
        ("${-}", Name),
        ("${V", Brace),
        ("${V-d}", Brace),
        ("${V d}", Brace),
        ("${V.W}", Brace),
        ("${V@Q}", Brace),
        ("${V:=d", Argument),
        ("${V:=${W}", Argument),
        ("${V:", Argument),
        ("${V:}", Argument),
        ("${V::1}", Argument),
        ("${V:1:}", Argument),
        ("${V:é}", Form),
        ("${V:1:2", Form),
        ("${V:1${N}}", Form),
        ("${V#}", Argument),
        ("${V%%}", Argument),
        ("${V#a${W}}", Form),
        ("${V^^^}", Form),
        ("${V,", Form),
        ("${V/}", Form),
        ("${V/a}", Form),
        ("${V/a/", Argument),
        ("${V/a/b", Form),
        ("${#}", Form),
        ("${#V:=1}", Form),
        ("${#V", Form),
        (deep.as_str(), Deep),
    ];
    for (text, problem) in cases {
        let error = Template::parse(text).expect_err(text);
        assert_eq!(error.problem, problem, "{text}: {error}");
    }
    let error = Template::parse("a: ${A}\nb: ü ${B").unwrap_err();
    assert_eq!((error.line, error.column), (2, 6), "{error}");
}

#[test]
fn all_unset_variables_are_named_at_once_and_sorted() {
    let text = "${ZONE} ${V} ${AREA^^} ${DEFAULTED:=${INNER}} ${ZONE} ${FIRST} ${FIRST:=d} ${SECOND:=d} ${SECOND}";
    let template = Template::parse(text).unwrap();
    let error = template.substitute(value).unwrap_err();
    let names = ["AREA", "FIRST", "ZONE"].map(str::to_owned).to_vec();
    assert_eq!(error, SubstituteError::Unset(names));
    assert_eq!(
        error.to_string(),
        "the variables AREA, FIRST, ZONE are not set and have no default; set each"
    );
    // Set and empty is not unset.
    let template = Template::parse("[${E}]").unwrap();
    assert_eq!(template.substitute(value).as_deref(), Ok("[]"));
}

#[test]
fn variables_are_told_with_the_default_of_their_first_place() {
    let text = "${B:=two} ${A} ${A:=late} ${C=${D:=x}y} ${E:0:3} ${#F} ${B:=other}";
    let template = Template::parse(text).unwrap();
    let told: Vec<_> = template.variables().into_iter().collect();
    let some = |text: &str| Some(text.to_owned());
    let expected = vec![
        ("A", None),
        ("B", some("two")),
        ("C", some("${D}y")),
        ("E", some("03")),
        ("F", None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn results_that_are_no_text_are_refused() {
    let refused = |text: &str, value: &str| {
        let template = Template::parse(text).unwrap();
        template.substitute(|_| Some(value)).unwrap_err()
    };
    let variable = || "V".to_owned();
    assert_eq!(
        refused("${V:1:${M:=-1}}", "-1"),
        SubstituteError::Length {
            variable: variable(),
            length: -1
        }
    );
    let cut = SubstituteError::Cut {
        variable: variable(),
    };
    assert_eq!(refused("${V:1}", "é"), cut);
    assert_eq!(refused("${V#?}", "é"), cut);
    let long = "a".repeat(5000);
    assert_eq!(
        refused("${V##*a}", &long),
        SubstituteError::Long {
            variable: variable(),
            length: 5000
        }
    );
}

#[test]
fn messages_tell_no_values() {
    for text in ["${V:1}", "${V#?}", "${V:0:${W:=-1}}"] {
        let template = Template::parse(text).unwrap();
        let error = template.substitute(|_| Some("éhunter2"));
        let Err(error) = error else { continue };
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn what_grows_beyond_a_file_of_a_provider_is_refused_before_it_is_made() {
    let value = "x".repeat(10);
    let mut text = "y".to_owned();
    for _ in 0..10 {
        text = format!("${{A//x/{text}}}");
    }
    let large = SubstituteError::Large {
        variable: "A".to_owned(),
    };
    let template = Template::parse(&text).unwrap();
    assert_eq!(template.substitute(|_| Some(&value)), Err(large.clone()));
    assert!(large.to_string().contains("33554432 bytes"), "{large}");

    let value = "x".repeat(1 << 20);
    let many = Template::parse(&"${A}".repeat(33)).unwrap();
    assert_eq!(many.substitute(|_| Some(&value)), Err(large.clone()));
    let many = Template::parse(&"${A}".repeat(32)).unwrap();
    let text = many.substitute(|_| Some(&value)).unwrap();
    assert_eq!(text.len(), envsubst::LARGEST);
    // Nor is it made to be thrown away.
    let thrown = "${B:0:${A//x/xx}}".repeat(33);
    let thrown = Template::parse(&thrown).unwrap();
    let refused = thrown.substitute(|_| Some(&value)).unwrap_err();
    assert!(
        matches!(refused, SubstituteError::Large { .. }),
        "{refused}"
    );
}
