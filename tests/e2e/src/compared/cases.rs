//! The requests. Members of bodies meet all values that a client could send; what is asked of a cluster comes after it was made.

use serde_json::{Value, json};

use super::{Case, Who};

mod clusters;
mod site;
mod templates;

/// What is asked while there is no cluster. The last one makes it, as `cluster`.
pub fn before() -> Vec<Case> {
    let mut all = site::cases();
    all.extend(templates::cases());
    all.extend(clusters::refused());
    all.push(clusters::made());
    all
}

/// What is asked when the cluster is complete.
pub fn after() -> Vec<Case> {
    clusters::cases()
}

/// What a client could send for anything.
fn junk() -> Vec<Value> {
    vec![
        Value::Null,
        json!(""),
        json!("word"),
        json!("1"),
        json!("-1"),
        json!("true"),
        json!("maybe"),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(70_000),
        json!(4_294_967_296_u64),
        json!(true),
        json!([]),
        json!(["word"]),
        json!({}),
        json!({"word": "other"}),
        json!("x".repeat(256)),
    ]
}

/// Bodies that are none, for a path that takes an object.
fn no_bodies(method: &'static str, path: &str) -> Vec<Case> {
    let request = || Case::new(method, path);
    vec![
        request(),
        request().raw("application/json", ""),
        request().raw("application/json", "{"),
        request().json(json!([])),
        request().json(json!("word")),
        request().json(json!({})),
        request().json(json!({"word": 1})),
        request().raw("text/plain", "word"),
        request().raw("application/xml", "<a/>"),
    ]
}

/// Patches that are none.
fn no_patches(path: &str) -> Vec<Case> {
    let bodies = [
        json!([]),
        json!({}),
        json!([1]),
        json!([{}]),
        json!([{"op": "replace", "path": "/name"}]),
        json!([{"op": "replace", "value": "a"}]),
        json!([{"path": "/name", "value": "a"}]),
        json!([{"op": "move", "from": "/name", "path": "/tags"}]),
        json!([{"op": "copy", "from": "/name", "path": "/tags"}]),
        json!([{"op": "test", "path": "/name", "value": "a"}]),
        json!([{"op": "replace", "path": "name", "value": "a"}]),
        json!([{"op": "replace", "path": "/", "value": "a"}]),
        json!([{"op": "replace", "path": "", "value": "a"}]),
        json!([{"op": "replace", "path": "/na me", "value": "a"}]),
        json!([{"op": "replace", "path": "/name", "value": "a", "word": 1}]),
        json!([{"op": "replace", "path": "/word", "value": "a"}]),
        json!([{"op": "remove", "path": "/word"}]),
        json!([{"op": "add", "path": "/word", "value": "a"}]),
        json!([{"op": "add", "path": "/name", "value": "a"}]),
        json!([{"op": "replace", "path": "/uuid", "value": "a"}]),
        json!([{"op": "replace", "path": "/id", "value": 1}]),
        json!([{"op": "replace", "path": "/links", "value": "a"}]),
        json!([{"op": "replace", "path": "/project_id", "value": "a"}]),
        json!([{"op": "replace", "path": "/user_id", "value": "a"}]),
        json!([{"op": "replace", "path": "/created_at", "value": "a"}]),
        json!([{"op": "remove", "path": "/updated_at"}]),
    ];
    let mut all = no_bodies("PATCH", path);
    all.extend(bodies.map(|body| Case::new("PATCH", path).json(body)));
    all
}

/// Arguments of a list, good ones and others. Not the order by `uuid`: it is chance, for each has UUIDs of its own.
fn pages(path: &str) -> Vec<Case> {
    let nobody = "00000000-0000-4000-8000-000000000000";
    let queries = [
        "limit=1",
        "limit=2",
        "limit=0",
        "limit=-1",
        "limit=word",
        "limit=5000",
        "limit=",
        "sort_key=name&limit=3",
        "sort_key=name&sort_dir=desc&limit=2",
        "sort_key=created_at",
        "sort_key=id",
        "sort_key=word",
        "sort_key=node_count",
        "sort_dir=desc&limit=1",
        "sort_dir=word",
        "word=1",
        &format!("marker={nobody}"),
        "marker=word",
    ]
    .map(|query| Case::new("GET", format!("{path}?{query}")));
    queries.to_vec()
}

/// Everybody asks the same.
fn everybody(case: &Case) -> Vec<Case> {
    [
        Who::Ann,
        Who::Bob,
        Who::Eve,
        Who::Admin,
        Who::Forger,
        Who::Nobody,
    ]
    .map(|who| case.clone().by(who))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::compared::Body;

    #[test]
    fn there_are_four_hundred_and_more_and_each_is_asked_once() {
        let all: Vec<_> = before().into_iter().chain(after()).collect();
        let different: BTreeSet<_> = all.iter().map(ToString::to_string).collect();
        assert!(different.len() >= 400, "{}", different.len());
    }

    #[test]
    fn what_is_named_was_kept_before() {
        let mut kept = BTreeSet::new();
        for case in before().into_iter().chain(after()) {
            let mut text = case.path.clone();
            if let Body::Json(body) = &case.body {
                text += &body.to_string();
            }
            for name in ["small", "large", "twin", "open", "cluster"] {
                let is_named = text.contains(&format!("{{{name}}}"));
                assert!(!is_named || kept.contains(name), "{case}");
            }
            kept.extend(case.keep);
        }
    }
}
