//! Rules in CEL: which are taken with a definition, what they say of objects, and what they may cost.

use kapi::schema::Schema;
use serde_json::{Value, json};

#[test]
fn a_rule_that_cannot_work_is_refused_with_its_definition() {
    for (rule, why) in [
        ("self.nope == 1", "undefined field 'nope'"),
        ("self.item.nope == 1", "undefined field 'nope'"),
        ("nope == 1", "undeclared reference to 'nope'"),
        (
            "self.size == 'one'",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "self.size < self.name",
            "found no matching overload for '_<_'",
        ),
        ("self.size + 1", "must evaluate to a bool"),
        ("self.name", "must evaluate to a bool"),
        (
            "!self.size",
            "found no matching overload for '!_' applied to '(int)'",
        ),
        ("self.size && true", "found no matching overload for '_&&_'"),
        (
            "self.name.shout() == 'A'",
            "undeclared reference to 'shout'",
        ),
        (
            "self.name.size(1) == 1",
            "found no matching overload for 'size'",
        ),
        (
            "self.size.size() == 1",
            "found no matching overload for 'size' applied to 'int.()'",
        ),
        (
            "self.size.all(x, true)",
            "cannot be range of a comprehension",
        ),
        (
            "self.names.all(x, x > 1)",
            "found no matching overload for '_>_' applied to '(string, int)'",
        ),
        (
            "self.names.map(x, x.size()).all(x, x.startsWith('a'))",
            "found no matching overload for 'startsWith'",
        ),
        (
            "self.names.exists(x, self.size)",
            "expected type 'bool' but found 'int'",
        ),
        (
            "has(self.name.first)",
            "type 'string' does not support field selection",
        ),
        (
            "has(self.size)  && has(self)",
            "invalid argument to has() macro",
        ),
        ("self.name.matches('(')", "invalid matches argument"),
        (
            "duration('soon') < duration('1h')",
            "invalid duration argument",
        ),
        (
            "Thing{name: 'a'} == self.item",
            "undeclared reference to 'Thing'",
        ),
        ("math.greatest(1, 2) == 2", "undeclared reference"),
        (
            "self.names.all(i, n, n != '')",
            "undeclared reference to 'all'",
        ),
        (
            "[1, 'a'].size() == 2",
            "expected type 'int' but found 'string'",
        ),
        ("self.loose.anything == 1", "undefined field 'loose'"),
        ("self.size ==", "Syntax error"),
        ("oldSelf.nope == 1", "undefined field 'nope'"),
        ("1 in self.names", "found no matching overload for '@in'"),
        (
            "self.size == null",
            "found no matching overload for '_==_' applied to '(int, null)'",
        ),
    ] {
        let problems = Schema::compile(&with(&json!([{"rule": rule}]))).unwrap_err();
        let place = "openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: apiextensions.ValidationRule{Rule:";
        assert!(problems[0].starts_with(place), "{rule}: {problems:?}");
        assert!(problems[0].contains(why), "{rule}: {problems:?}");
        assert_eq!(problems.len(), 1, "{rule}: {problems:?}");
    }
}

#[test]
fn what_belongs_to_a_rule_is_checked_with_it() {
    let rule = "self.size > 0";
    for (given, place, why) in [
        (
            json!({"rule": " "}),
            "rule",
            "Required value: rule is not specified",
        ),
        (
            json!({"rule": "self.size\n> 0"}),
            "message",
            "message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": rule, "message": "a\nb"}),
            "message",
            "must not contain line breaks",
        ),
        (
            json!({"rule": rule, "messageExpression": "self.size"}),
            "messageExpression",
            "messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": rule, "messageExpression": "self.nope"}),
            "messageExpression",
            "messageExpression compilation failed: undefined field 'nope'",
        ),
        (
            json!({"rule": rule, "reason": "Because"}),
            "reason",
            "Unsupported value: \"Because\"",
        ),
        (
            json!({"rule": rule, "fieldPath": ".nope"}),
            "fieldPath",
            "must be a valid path",
        ),
        (
            json!({"rule": rule, "fieldPath": ".names[0]"}),
            "fieldPath",
            "must be a valid path",
        ),
        (
            json!({"rule": rule, "optionalOldSelf": true}),
            "optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        ),
    ] {
        let problems = Schema::compile(&with(&json!([given]))).unwrap_err();
        let place =
            format!("openAPIV3Schema.properties[spec].x-kubernetes-validations[0].{place}: ");
        assert!(problems[0].starts_with(&place), "{given}: {problems:?}");
        assert!(problems[0].contains(why), "{given}: {problems:?}");
    }
    let mut schema = with(&json!([]));
    let item = json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    schema["properties"]["spec"]["properties"]["names"]["items"] = item;
    let problems = Schema::compile(&schema).unwrap_err();
    assert!(
        problems[0].contains("oldSelf cannot be used on the uncorrelatable portion"),
        "{problems:?}"
    );
    let mut schema = with(&json!([]));
    schema["properties"]["spec"]["anyOf"] =
        json!([{"x-kubernetes-validations": [{"rule": "true"}]}]);
    let problems = Schema::compile(&schema).unwrap_err();
    assert!(
        problems[0].contains("anyOf[0].x-kubernetes-validations: Forbidden"),
        "{problems:?}"
    );
}

#[test]
fn the_rules_of_our_own_definitions_are_taken() {
    let mut rules = 0;
    for definition in api::custom_resource_definitions() {
        let definition = serde_json::to_value(definition).unwrap();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let source = &version["schema"]["openAPIV3Schema"];
            rules += source.to_string().matches("\"rule\":").count();
            let problems = Schema::compile(source).err().unwrap_or_default();
            assert_eq!(problems, [""; 0], "{}", definition["metadata"]["name"]);
        }
    }
    assert_ne!(rules, 0, "there are rules");
}

#[test]
fn rules_say_of_objects_what_they_mean() {
    let spec = json!({
        "size": 3, "name": "gadget", "ratio": 2, "names": ["a", "b"], "set": ["x", "y"], "either": "50%",
        "item": {"name": "i", "port": 80}, "items": [{"name": "one", "port": 1}, {"name": "two", "port": 2}],
        "labels": {"a": "1", "b.c": "2"}, "with-dash": 1, "namespace": "n", "a__b": 2, "a_b": 3,
        "since": "2024-05-06T07:08:09Z", "wait": "90s", "data": "aGVsbG8=", "absent": null,
    });
    for (rule, expected) in [
        ("self.size == 3 && self.name == 'gadget'", None),
        ("self.size > 3", Some("failed rule: self.size > 3")),
        ("self.ratio == 2.0 && self.ratio / 4.0 == 0.5", None),
        ("self.size < 3.5 && self.ratio > 1", None),
        (
            "self.names == ['a', 'b'] && 'b' in self.names && self.names[1] == 'b'",
            None,
        ),
        ("self.set == ['x', 'y'] && self.set.size() == 2", None),
        (
            "type(self.either) == string && self.either.endsWith('%')",
            None,
        ),
        (
            "self.either == 'x' || int(self.either.replace('%', '')) == 50",
            None,
        ),
        (
            "self.item.port == 80 && has(self.item.name) && !has(self.item.other)",
            None,
        ),
        (
            "self.item.other == 1",
            Some("no such key: other evaluating rule: self.item.other == 1"),
        ),
        ("self.item.other == 1 || true", None),
        ("!(self.item.other == 1 && false)", None),
        (
            "self.items.all(i, i.port < 3) && self.items.exists(i, i.port == 2)",
            None,
        ),
        ("self.items.exists_one(i, i.port == 2)", None),
        (
            "self.items.filter(i, i.port > 1).map(i, i.name) == ['two']",
            None,
        ),
        ("self.items.map(i, i.port > 1, i.port).sum() == 2", None),
        (
            "self.items.map(i, i.port).max() == 2 && self.names.join(',') == 'a,b'",
            None,
        ),
        (
            "self.labels.all(k, self.labels[k] != '') && self.labels['b.c'] == '2'",
            None,
        ),
        (
            "'a' in self.labels && self.labels.a == '1' && self.labels.size() == 2",
            None,
        ),
        (
            "self.with__dash__dash == 1 && self.__namespace__ == 'n'",
            None,
        ),
        ("self.a__underscores__b == 2 && self.a_b == 3", None),
        (
            "self.since < timestamp('2025-01-01T00:00:00Z') && self.since.getFullYear() == 2024",
            None,
        ),
        (
            "self.wait == duration('1m30s') && self.wait.getSeconds() == 90",
            None,
        ),
        ("self.data == b'hello' && size(self.data) == 5", None),
        (
            "self.name.matches('^g.*t$') && self.name.find('[ad]+') == 'ad'",
            None,
        ),
        (
            "self.name.substring(0, 3).upperAscii() + '!' == 'GAD!'",
            None,
        ),
        (
            "'%s is %d'.format([self.name, self.size]) == 'gadget is 3'",
            None,
        ),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", None),
        (
            "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            None,
        ),
        (
            "url('https://example.org:80/x').getPort() == '80' && isURL('/x')",
            None,
        ),
        (
            "!format.dns1123Label().validate('a.b').hasValue()",
            Some("failed rule"),
        ),
        (
            "sets.contains(['a', 'b'], self.names) && self.names.isSorted()",
            None,
        ),
        (
            "self.?item.?other.orValue(7) == 7 && self.?size.value() == 3",
            None,
        ),
        ("optional.of(1).or(optional.none()).value() == 1", None),
        (
            "self.size / 0 == 1",
            Some("evaluating rule: self.size / 0 == 1"),
        ),
        ("self.names[7] == 'a'", Some("index out of bounds")),
        ("self.name.charAt(99) == 'a'", Some("evaluating rule")),
        ("size('äö') == 2", None),
    ] {
        let rules = json!([{"rule": rule}]);
        let errors = match Schema::compile(&with(&rules)) {
            Ok(schema) => {
                let errors = schema.validate(&json!({"spec": spec}), None);
                errors.iter().map(ToString::to_string).collect()
            }
            Err(problems) => problems,
        };
        match (expected, errors.as_slice()) {
            (None, []) => {}
            (Some(why), [error]) if error.contains(why) => {}
            _ => panic!("{rule}: {errors:?}"),
        }
    }
}

#[test]
fn complaints_stand_where_and_for_what_the_rule_says() {
    let errors = |given: Value| {
        let schema = Schema::compile(&with(&json!([given]))).unwrap();
        let errors = schema.validate(&json!({"spec": {"size": 1, "name": "x"}}), None);
        errors
            .iter()
            .map(|error| format!("{} {error}", error.reason))
            .collect::<Vec<_>>()
    };
    let rule = "self.size > 1";
    assert_eq!(
        errors(
            json!({"rule": rule, "fieldPath": ".item.name", "message": "too small", "reason": "FieldValueForbidden"})
        ),
        ["FieldValueForbidden spec.item.name: Forbidden: too small"]
    );
    assert_eq!(
        errors(json!({"rule": rule, "messageExpression": "'is %d'.format([self.size])"})),
        ["FieldValueInvalid spec: Invalid value: \"object\": is 1"]
    );
    for bad in [
        "self.item.name",
        "' '",
        "'a\\nb'",
        "string(1 / (self.size - 1))",
    ] {
        assert_eq!(
            errors(json!({"rule": rule, "message": "plain", "messageExpression": bad})),
            ["FieldValueInvalid spec: Invalid value: \"object\": plain"],
            "{bad}"
        );
    }
}

#[test]
fn rules_on_what_is_stored_run_when_there_is_something() {
    let schema = |optional: Value| {
        let mut rule = json!({"rule": "self.size >= oldSelf.size", "message": "shrinks"});
        if optional == true {
            rule = json!({"rule": "oldSelf.hasValue() || self.size == 0", "message": "not zero", "optionalOldSelf": true});
        }
        Schema::compile(&with(&json!([rule]))).unwrap()
    };
    let object = |size: u64| json!({"spec": {"size": size}});
    let plain = schema(json!(false));
    assert_eq!(plain.validate(&object(1), None), []);
    assert_eq!(plain.validate(&object(1), Some(&object(2))).len(), 1);
    assert_eq!(plain.validate(&object(2), Some(&object(2))), []);
    let optional = schema(json!(true));
    assert_eq!(optional.validate(&object(1), None).len(), 1);
    assert_eq!(optional.validate(&object(1), Some(&object(2))), []);
}

#[test]
fn no_rule_goes_on_for_ever() {
    let cubic = "self.many.all(a, self.many.all(b, self.many.all(c, a + b + c >= 0)))";
    let problems = Schema::compile(&with(&json!([{"rule": cubic}]))).unwrap_err();
    assert!(
        problems[0].contains(
            "rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x"
        ),
        "{problems:?}"
    );
    // A definition that was stored before anybody asked: what it costs is counted.
    let schema =
        Schema::compile_stored(&with(&json!([{"rule": cubic}, {"rule": "false"}]))).unwrap();
    let many: Vec<u64> = (0..200).collect();
    let errors = schema.validate(&json!({"spec": {"many": many}}), None);
    assert_eq!(
        errors.len(),
        1,
        "the rules after it are not run: {errors:?}"
    );
    assert!(
        errors[0]
            .message
            .contains("operation cancelled: actual cost limit exceeded"),
        "{errors:?}"
    );
    let fewer: Vec<u64> = (0..20).collect();
    let errors = schema.validate(&json!({"spec": {"many": fewer}}), None);
    assert!(
        errors[0].message.ends_with("failed rule: false"),
        "{errors:?}"
    );

    // An error is no way around the budget, nor is a text that grows.
    let doubled = format!(
        "{}.size() > 0",
        "[self.name + self.name]".to_owned() + &".map(s, s + s)".repeat(30) + "[0]"
    );
    for rule in [
        "self.many.exists(a, self.many.exists(b, self.many.exists(c, self.item.other == 1)))",
        doubled.as_str(),
        "self.name.replace('', self.name).replace('', self.name).replace('', self.name).replace('', self.name).size() > 0",
        "self.many.all(a, self.many == self.many && self.many.all(b, b in self.many))",
        "self.many.all(a, self.name.matches(self.pattern + string(a)))",
        "self.many.map(a, self.many.map(b, self.many.map(c, [a, b, c]))).size() > 0",
    ] {
        let schema = Schema::compile_stored(&with(&json!([{"rule": rule}]))).unwrap();
        let many: Vec<u64> = (0..2000).collect();
        let spec = json!({"many": many, "name": "0123456789".repeat(50), "item": {"name": "i"}, "pattern": "(\\w{9}){9}x"});
        let errors = schema.validate(&json!({"spec": spec}), None);
        assert!(
            errors[0].message.contains("cost limit exceeded"),
            "{rule}: {errors:?}"
        );
    }
}

#[test]
fn the_rules_of_one_object_have_one_budget() {
    let text =
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.contains(self)"}]});
    let texts = json!({"type": "object", "properties": {"spec": {"type": "array", "items": text}}});
    let problems = Schema::compile(&texts).unwrap_err();
    assert!(
        problems[0].contains("Forbidden: estimated rule cost exceeds budget"),
        "{problems:?}"
    );
    let schema = Schema::compile_stored(&texts).unwrap();
    // One costs nearly what an evaluation may: a tenth of the length, squared.
    let object = |count: usize| json!({"spec": vec!["x".repeat(9900); count]});
    assert_eq!(schema.validate(&object(10), None), []);
    let errors = schema.validate(&object(50), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].message.contains("running out of cost budget"),
        "{errors:?}"
    );
}

#[test]
fn bounds_in_the_schema_make_a_rule_affordable() {
    let schema = |bound: Value| {
        let mut schema =
            with(&json!([{"rule": "self.many.all(a, self.many.exists_one(b, a == b))"}]));
        schema["properties"]["spec"]["properties"]["many"]["maxItems"] = bound;
        Schema::compile(&schema)
    };
    assert!(schema(json!(100_000)).is_err());
    assert!(schema(json!(500)).is_ok());
    let expensive = json!({"rule": "self.many.all(a, self.many.exists_one(b, a == b))"});
    let mut total = with(&Value::Array(vec![expensive; 30]));
    total["properties"]["spec"]["properties"]["many"]["maxItems"] = json!(800);
    let problems = Schema::compile(&total).unwrap_err();
    let all = "openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total";
    assert!(problems[4].starts_with(all), "{problems:?}");
    assert!(problems[0].contains("contributed to estimated rule cost total"));
}

#[test]
fn rules_run_where_an_update_changes_something() {
    let mut schema = with(&json!([]));
    let fields = &mut schema["properties"]["spec"]["properties"];
    fields["size"]["x-kubernetes-validations"] = json!([{"rule": "self < 0"}]);
    fields["items"]["items"]["x-kubernetes-validations"] = json!([{"rule": "self.port < 0"}]);
    let schema = Schema::compile(&schema).unwrap();
    let old = json!({"spec": {"size": 1, "name": "a", "items": [{"name": "one", "port": 1}]}});
    let after = |spec: Value| {
        let errors = schema.validate(&json!({"spec": spec}), Some(&old));
        errors
            .into_iter()
            .map(|error| error.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        after(
            json!({"size": 1, "name": "b", "items": [{"name": "two", "port": 2}, {"name": "one", "port": 1}]})
        ),
        ["spec.items[0]"]
    );
    assert_eq!(
        after(json!({"size": 2, "items": [{"name": "one", "port": 1}]})),
        ["spec.size"]
    );
    assert_eq!(
        after(json!({"size": 1, "items": [{"name": "one", "port": 2}]})),
        ["spec.items[0]"]
    );
}

#[test]
fn defaults_that_do_not_fit_are_refused_with_the_definition() {
    for (field, why) in [
        (
            json!({"type": "integer", "default": "x"}),
            "must be of type integer",
        ),
        (
            json!({"type": "string", "enum": ["a"], "default": "b"}),
            "Unsupported value: \"b\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            "must not have unknown fields",
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": {}}),
            "Required value",
        ),
        (
            json!({"type": "array", "items": {"type": "string", "default": 1}}),
            "must be of type string",
        ),
        (
            json!({"type": "integer", "default": 5, "x-kubernetes-validations": [{"rule": "self < 5"}]}),
            "failed rule: self < 5",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "default": ["a", "a"]}),
            "Duplicate value",
        ),
    ] {
        let schema = json!({"type": "object", "properties": {"field": field}});
        let problems = Schema::compile(&schema).unwrap_err();
        assert!(
            problems[0].starts_with("openAPIV3Schema.properties[field]"),
            "{problems:?}"
        );
        assert!(
            problems[0].contains(".default") && problems[0].contains(why),
            "{problems:?}"
        );
        assert!(
            Schema::compile_stored(&schema).is_ok(),
            "what is stored is served"
        );
    }
    let fits = json!({"type": "object", "properties": {"field": {"type": "object", "default": {}, "properties": {
        "mode": {"type": "string", "enum": ["a"], "default": "a"}, "at": {"type": "string", "nullable": true, "default": null},
    }}}});
    assert!(Schema::compile(&fits).is_ok());
}

#[test]
fn a_rule_may_be_long_but_not_deep() {
    let many = |part: &str, count: usize| vec![part; count].join(" && ");
    assert!(Schema::compile(&with(&json!([{"rule": many("self.size > 0", 500)}]))).is_ok());
    for rule in [
        format!("{}true{}", "(".repeat(5000), ")".repeat(5000)),
        format!("{}self.size > 0", "1+".repeat(7000)),
        format!("self{}", ".a".repeat(7000)),
        format!("self{}", "[0]".repeat(4000)),
        format!("{}true", "true ? true : ".repeat(1000)),
        "[".repeat(5000),
        many("self.size > 0", 5000),
    ] {
        let answer = Schema::compile(&with(&json!([{"rule": rule}])));
        let problems = answer.err().unwrap_or_default();
        let is_refused = problems
            .iter()
            .any(|problem| problem.contains("compilation failed"));
        assert!(
            is_refused,
            "{}...: {} problems",
            &rule[..40],
            problems.len()
        );
    }
}

/// A schema with fields of each kind and rules about all of them.
fn with(rules: &Value) -> Value {
    let text = json!({"type": "string"});
    let named = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "port": {"type": "integer"}, "other": {"type": "integer"},
    }});
    json!({"type": "object", "properties": {"spec": {
        "type": "object", "x-kubernetes-validations": rules,
        "properties": {
            "size": {"type": "integer"}, "name": text, "ratio": {"type": "number"}, "pattern": text,
            "names": {"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 50}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 50, "items": text},
            "many": {"type": "array", "items": {"type": "integer"}},
            "item": named,
            "items": {"type": "array", "maxItems": 50, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": named},
            "labels": {"type": "object", "maxProperties": 50, "additionalProperties": {"type": "string", "maxLength": 50}},
            "either": {"x-kubernetes-int-or-string": true, "maxLength": 20},
            "loose": {"x-kubernetes-preserve-unknown-fields": true},
            "with-dash": {"type": "integer"}, "namespace": text, "a__b": {"type": "integer"}, "a_b": {"type": "integer"},
            "since": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
            "data": {"type": "string", "format": "byte", "maxLength": 100}, "absent": {"type": "string", "nullable": true},
        },
    }}})
}
