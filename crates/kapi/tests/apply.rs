//! Server-side apply against transcripts of a real API server (1.34.4).

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use kapi::{
    apply::{self, Options},
    schema::{self, Schema},
};
use serde_json::{Value, json};

#[test]
fn applies_and_tracks_as_the_real_server_does() {
    let golden: Value = serde_json::from_str(include_str!("golden/apply.json")).unwrap();
    let widget = Schema::compile(&golden["schema"]).unwrap();
    let mut wrong = Vec::new();
    for scenario in golden["scenarios"].as_array().unwrap() {
        let shape = match scenario["kind"].as_str().unwrap() {
            "Widget" => &widget,
            kind => schema::builtin(kind).unwrap(),
        };
        wrong.extend(replay(scenario, shape));
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs the steps of a scenario, each from the object that the real server had.
fn replay(scenario: &Value, shape: &Schema) -> Vec<String> {
    let mut live: Option<Value> = None;
    let mut wrong = Vec::new();
    for (at, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        let real = &step["result"];
        let ours = run(step, live.as_ref(), shape);
        let expected = match step["code"].as_u64().unwrap() {
            200 | 201 => Ok(comparable(real)),
            _ => Err(real["message"].as_str().unwrap().to_owned()),
        };
        if ours != expected {
            let name = format!("{} step {at}", scenario["scenario"]);
            wrong.push(format!(
                "{name}\n  ours {}\n  real {}",
                shown(&ours),
                shown(&expected)
            ));
        }
        if expected.is_ok() {
            live = Some(real.clone());
        }
    }
    wrong
}

fn shown(outcome: &Result<Value, String>) -> String {
    match outcome {
        Ok(object) => object.to_string(),
        Err(message) => message.clone(),
    }
}

fn run(step: &Value, live: Option<&Value>, shape: &Schema) -> Result<Value, String> {
    let options = Options {
        manager: step["by"].as_str().unwrap(),
        force: step["force"] == json!(true),
        subresource: step["sub"].as_str(),
        api_version: step["body"]["apiVersion"].as_str().unwrap(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let mut result = if step["op"] == "apply" {
        apply::apply(live, &step["body"], &options, shape).map_err(|error| error.to_string())?
    } else {
        let mut new = step["body"].clone();
        if let Some(live) = live {
            let mut metadata = live["metadata"].clone();
            metadata
                .as_object_mut()
                .unwrap()
                .extend(new["metadata"].as_object().unwrap().clone());
            new["metadata"] = metadata;
            if options.subresource.is_some() {
                let status = new["status"].take();
                new = live.clone();
                new["status"] = status;
            }
        }
        shape.default(&mut new);
        apply::track_update(live, &mut new, &options, shape);
        new
    };
    shape.default(&mut result);
    Ok(comparable(&result))
}

/// Without what a server sets, and without times.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "namespace",
    ] {
        metadata.remove(name);
    }
    metadata.retain(|_, value| *value != json!([]));
    if let Some(entries) = metadata
        .get_mut("managedFields")
        .and_then(Value::as_array_mut)
    {
        for entry in entries.iter_mut() {
            entry.as_object_mut().unwrap().remove("time");
        }
        entries.sort_by_key(|entry| {
            ["operation", "manager", "subresource"].map(|name| entry[name].to_string())
        });
    }
    object
}
