//! Random cases.
//!
//! Mostly sensible ones: values of the right type, few names, so that requests meet. Some are not, because what is refused
//! must be refused alike.

use proptest::{option, prelude::*, sample::select, strategy::Union};
use serde_json::{Map, Value, json};

use crate::{
    case::{Case, Step, Verb},
    kinds::{Kind, Shape},
};

/// Who writes.
const MANAGERS: [&str; 3] = ["one", "two", "three"];

/// How a value is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// As in an object.
    Whole,
    /// As in a merge patch: null deletes.
    Changes,
    /// As in a strategic merge patch: with directives too.
    Directed,
}

/// Objects that are patched in every way there is.
pub fn patches(kinds: Vec<Kind>) -> impl Strategy<Value = Case> {
    select(kinds).prop_flat_map(|kind| {
        let mut all = vec![
            (3, changed(&kind, Verb::Merge, Style::Changes)),
            (3, operated(&kind)),
            (1, changed(&kind, Verb::Replace, Style::Whole)),
        ];
        if !kind.custom {
            all.push((4, changed(&kind, Verb::Strategic, Style::Directed)));
        }
        cases(
            &kind,
            changed(&kind, Verb::Create, Style::Whole).boxed(),
            all,
        )
    })
}

/// Objects that several managers apply, and that others write between.
pub fn applies(kinds: Vec<Kind>) -> impl Strategy<Value = Case> {
    select(kinds).prop_flat_map(|kind| {
        let all = vec![
            (6, changed(&kind, Verb::Apply, Style::Whole)),
            (3, changed(&kind, Verb::Force, Style::Whole)),
            (1, changed(&kind, Verb::Merge, Style::Changes)),
            (1, changed(&kind, Verb::Replace, Style::Whole)),
        ];
        let first = prop_oneof![
            2 => changed(&kind, Verb::Apply, Style::Whole),
            1 => changed(&kind, Verb::Create, Style::Whole),
        ];
        cases(&kind, first.boxed(), all)
    })
}

fn cases(
    kind: &Kind,
    first: BoxedStrategy<Step>,
    others: Vec<(u32, BoxedStrategy<Step>)>,
) -> impl Strategy<Value = Case> + use<> {
    let first = first.prop_map(|first| Step {
        status: false,
        ..first
    });
    let others = proptest::collection::vec(Union::new_weighted(others), 1..6);
    let kind = kind.clone();
    (first, others).prop_map(move |(first, others)| Case {
        kind: kind.clone(),
        steps: std::iter::once(first).chain(others).collect(),
    })
}

fn changed(kind: &Kind, verb: Verb, style: Style) -> BoxedStrategy<Step> {
    let least = kind.least.clone();
    let status = if kind.status && kind.custom {
        proptest::bool::weighted(0.2).boxed()
    } else {
        Just(false).boxed()
    };
    (proper(&kind.shape, style), select(&MANAGERS[..]), status)
        .prop_map(move |(mut body, manager, status)| {
            if style == Style::Whole
                && let Some(body) = body.as_object_mut()
            {
                for (name, field) in least.as_object().into_iter().flatten() {
                    body.entry(name.clone()).or_insert_with(|| field.clone());
                }
            }
            Step {
                verb,
                manager,
                status,
                body,
            }
        })
        .boxed()
}

fn operated(kind: &Kind) -> BoxedStrategy<Step> {
    let mut places = Vec::new();
    pointers(&kind.shape, "", &mut places);
    let paths: Vec<String> = places.iter().map(|(path, _)| path.clone()).collect();
    let operation = (
        select(places).prop_flat_map(|(path, shape)| (Just(path), value(&shape, Style::Whole))),
        select(paths),
        prop_oneof![
            4 => Just("add"), 4 => Just("replace"), 4 => Just("remove"),
            1 => Just("test"), 1 => Just("move"), 1 => Just("copy"),
        ],
    )
        .prop_map(|((path, value), from, op)| match op {
            "remove" => json!({"op": op, "path": path}),
            "move" | "copy" => json!({"op": op, "path": path, "from": from}),
            _ => json!({"op": op, "path": path, "value": value}),
        });
    (
        proptest::collection::vec(operation, 1..4),
        select(&MANAGERS[..]),
    )
        .prop_map(|(operations, manager)| Step {
            verb: Verb::Json,
            manager,
            status: false,
            body: Value::Array(operations),
        })
        .boxed()
}

/// JSON pointers into objects of a shape, each with what may stand there.
fn pointers(shape: &Shape, path: &str, all: &mut Vec<(String, Shape)>) {
    let mut below = |name: &str, shape: &Shape| {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        all.push((path.clone(), shape.clone()));
        pointers(shape, &path, all);
    };
    match shape {
        Shape::Scalar(_) => {}
        Shape::Record(fields) => fields.iter().for_each(|(name, shape)| below(name, shape)),
        Shape::Map(keys, shape) => keys.iter().for_each(|key| below(key, shape)),
        Shape::List(items) => ["0", "1", "-", "-1", "7"]
            .iter()
            .for_each(|at| below(at, items)),
        Shape::Keyed(keys, fields) => {
            let item = Shape::Record(keys.iter().chain(fields).cloned().collect());
            for at in ["0", "1", "-"] {
                below(at, &item);
            }
        }
    }
}

fn value(shape: &Shape, style: Style) -> BoxedStrategy<Value> {
    prop_oneof![60 => proper(shape, style), 1 => stranger()].boxed()
}

fn proper(shape: &Shape, style: Style) -> BoxedStrategy<Value> {
    match shape {
        Shape::Scalar(all) => select(all.clone()).boxed(),
        Shape::Record(fields) => record(fields, 0.4, style),
        Shape::Map(keys, shape) => {
            let fields: Vec<_> = keys.iter().map(|key| (*key, (**shape).clone())).collect();
            record(&fields, 0.4, style)
        }
        Shape::List(items) => list(value(items, inner(style)), style),
        Shape::Keyed(keys, fields) => {
            let item = (
                record(keys, 0.97, Style::Whole),
                record(fields, 0.4, inner(style)),
            )
                .prop_map(|(mut keys, fields)| {
                    if let (Some(keys), Value::Object(fields)) = (keys.as_object_mut(), fields) {
                        keys.extend(fields);
                    }
                    keys
                });
            let item = match style {
                Style::Directed => {
                    let deleted = record(keys, 0.97, Style::Whole).prop_map(|mut keys| {
                        keys["$patch"] = json!("delete");
                        keys
                    });
                    prop_oneof![4 => item, 1 => deleted].boxed()
                }
                _ => item.boxed(),
            };
            list(item, style)
        }
    }
}

/// Lists in merge patches are whole; in strategic ones they may have directives.
fn inner(style: Style) -> Style {
    if style == Style::Changes {
        Style::Whole
    } else {
        style
    }
}

fn stranger() -> impl Strategy<Value = Value> {
    select(vec![
        json!(null),
        json!({}),
        json!([]),
        json!("x"),
        json!(7),
        json!({"stranger": 1}),
    ])
}

fn record(fields: &[(&'static str, Shape)], present: f64, style: Style) -> BoxedStrategy<Value> {
    let mut all: BoxedStrategy<Vec<(String, Value)>> = Just(Vec::new()).boxed();
    for (name, shape) in fields {
        let field = match style {
            Style::Whole => value(shape, style),
            Style::Changes | Style::Directed => {
                prop_oneof![4 => value(shape, style), 1 => Just(Value::Null)].boxed()
            }
        };
        let lists = style == Style::Directed
            && matches!(shape, Shape::List(items) if matches!(&**items, Shape::Scalar(all) if all.iter().all(Value::is_string)));
        let deletes = if lists {
            option::weighted(0.15, value(shape, Style::Whole)).boxed()
        } else {
            Just(None).boxed()
        };
        let name = *name;
        all = (all, option::weighted(present, field), deletes)
            .prop_map(move |(mut all, field, deletes)| {
                // Not both: which of them comes first is chance in the real server.
                match (deletes, field) {
                    (Some(deletes), _) => {
                        all.push((format!("$deleteFromPrimitiveList/{name}"), deletes));
                    }
                    (None, Some(field)) => all.push((name.to_owned(), field)),
                    (None, None) => {}
                }
                all
            })
            .boxed();
    }
    let directive = match style {
        Style::Directed => {
            option::weighted(0.06, select(vec!["replace", "delete", "merge"])).boxed()
        }
        _ => Just(None).boxed(),
    };
    (all, directive)
        .prop_map(|(all, directive)| {
            let mut record: Map<String, Value> = all.into_iter().collect();
            if let Some(directive) = directive {
                record.insert("$patch".to_owned(), json!(directive));
            }
            Value::Object(record)
        })
        .boxed()
}

fn list(item: BoxedStrategy<Value>, style: Style) -> BoxedStrategy<Value> {
    let items = proptest::collection::vec(item, 0..4);
    if style != Style::Directed {
        return items.prop_map(Value::Array).boxed();
    }
    (
        items,
        option::weighted(0.1, Just(json!({"$patch": "replace"}))),
    )
        .prop_map(|(mut items, directive)| {
            items.extend(directive);
            Value::Array(items)
        })
        .boxed()
}
