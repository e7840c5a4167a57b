//! What is true of every text.

use envsubst::{SubstituteError, Template};
use proptest::{prelude::*, proptest};

proptest! {
    #[test]
    fn text_without_references_and_escapes_is_unchanged(text in r"(\PC|[\n\t\r{}:=#%/^,\\]|\$[^${])*") {
        prop_assume!(!text.contains("${") && !text.contains("$$"));
        let template = Template::parse(&text).unwrap();
        prop_assert!(template.variables().is_empty());
        prop_assert_eq!(template.substitute(|_| None), Ok(text));
    }

    #[test]
    fn escaped_text_is_what_it_was(text in r"(\PC|[\n${}:=#%/^,\\]|\$\{[A-Z]{1,3}\})*") {
        let template = Template::parse(&text.replace('$', "$$")).unwrap();
        prop_assert!(template.variables().is_empty());
        prop_assert_eq!(template.substitute(|_| None), Ok(text));
    }

    #[test]
    fn values_are_put_in_as_they_are(value in r"(\PC|[\n${}\\])*", before in "[a-z: ]*", after in "[a-z: ]*") {
        let template = Template::parse(&format!("{before}${{V}}{after}")).unwrap();
        let expected = format!("{before}{value}{after}");
        prop_assert_eq!(template.substitute(|_| Some(value.as_str())), Ok(expected));
    }
}

const CORPUS: &[&str] = &[
    "apiVersion: v1\nkind: Secret\nstringData: {key: \"${KEY:=${OTHER}}\", name: '${ NAME }'}\n",
    "- --feature-gates=A=${EXP_A:=false},B=${EXP_B:-true}\n- $${LITERAL} $(POD_IP) $$ $HOME\n",
    "${A^^}${A,}${#A}${A:1:2}${A:${B:=-1}}${A##*/}${A%[a-z]}${A//\\//${B}}${A/#x/y}${A/%x/y}",
    "${A=${B=${C=${D:=deep}}}}",
];

#[test]
fn templates_survive_fuzzing() {
    fuzz::text("template", CORPUS, |text| {
        let Ok(template) = Template::parse(text) else {
            return;
        };
        let required: Vec<String> = template
            .variables()
            .into_iter()
            .filter(|(_, default)| default.is_none())
            .map(|(name, _)| name.to_owned())
            .collect();
        match template.substitute(|_| None) {
            Err(SubstituteError::Unset(names)) => assert_eq!(names, required),
            Err(_) => {}
            Ok(_) => assert!(required.is_empty()),
        }
        for value in ["", "-1", "väl/ue*[x]"] {
            match template.substitute(|_| Some(value)) {
                Err(SubstituteError::Unset(names)) => panic!("{names:?} are set"),
                Err(error) => assert!(!error.to_string().contains("väl")),
                Ok(_) => {}
            }
        }
    });
}
