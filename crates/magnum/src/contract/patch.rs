//! The part of JSON patch that is spoken: a list of `{path, op, value}` with add, replace and remove.
//!
//! An `add` of a member needs one that is known and not set. All else is as RFC 6902 has it. Values may be maps and lists here, which
//! the reference refuses: no client can tell, for none sends what is refused.

use serde_json::{Map, Value};

use super::Fault;

/// Members that nobody patches, whatever they belong to.
const INTERNAL: [&str; 7] = [
    "created_at",
    "id",
    "links",
    "updated_at",
    "uuid",
    "project_id",
    "user_id",
];

/// More operations than members is none of a person's patches.
const MOST: usize = 256;

/// What a patch may do to an object.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The only members that may change; none: all but the internal ones.
    pub only: Option<&'static [&'static str]>,
    /// Members that nobody patches, beside those of every object.
    pub internal: &'static [&'static str],
    /// Members that stay.
    pub mandatory: &'static [&'static str],
}

/// Operations, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch(Vec<Operation>);

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    path: Vec<String>,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Add(Value),
    Replace(Value),
    Remove,
}

impl Patch {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// It is no list of operations of the three kinds, or one has another member.
    pub fn of_body(body: &[u8]) -> Result<Self, Fault> {
        let operations: Vec<Map<String, Value>> = serde_json::from_slice(body)
            .map_err(|_| Fault::invalid("A patch is a list of operations."))?;
        if operations.len() > MOST {
            return Err(Fault::invalid(format!(
                "A patch has at most {MOST} operations."
            )));
        }
        let operations = operations.into_iter().map(Operation::read);
        operations.collect::<Result<_, _>>().map(Self)
    }

    /// Whether it changes nothing.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members that it speaks of.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Operation::member)
    }

    /// What an object is with it. A member that was removed is null.
    ///
    /// # Errors
    ///
    /// The rules do not allow a change, or the path is not there.
    pub fn apply(
        &self,
        object: &Map<String, Value>,
        rules: &Rules,
    ) -> Result<Map<String, Value>, Fault> {
        let mut object = object.clone();
        for operation in &self.0 {
            operation.check(rules)?;
            operation.apply(&mut object)?;
        }
        Ok(object)
    }
}

impl Operation {
    fn read(mut members: Map<String, Value>) -> Result<Self, Fault> {
        let wrong = |reason: &str| Fault::invalid(format!("Wrong patch: {reason}."));
        let path = members.remove("path");
        let path = path.as_ref().and_then(Value::as_str).and_then(path_of);
        let path = path.ok_or_else(|| wrong("a path is made of /word parts"))?;
        let op = members.remove("op");
        let value = members.remove("value");
        if !members.is_empty() {
            return Err(wrong(
                "an operation has path, op and value, and nothing else",
            ));
        }
        let change = match (op.as_ref().and_then(Value::as_str), value) {
            (Some("add"), Some(value)) => Change::Add(value),
            (Some("replace"), Some(value)) => Change::Replace(value),
            (Some("remove"), _) => Change::Remove,
            (Some("add" | "replace"), None) => return Err(wrong("there is no value")),
            _ => return Err(wrong("op is one of add, replace and remove")),
        };
        Ok(Self { path, change })
    }

    fn member(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    fn check(&self, rules: &Rules) -> Result<(), Fault> {
        let member = self.member();
        let is_free = rules.only.is_none_or(|only| only.contains(&member));
        if !is_free || INTERNAL.contains(&member) || rules.internal.contains(&member) {
            return Err(Fault::invalid(format!(
                "'/{member}' is an internal attribute and can not be updated."
            )));
        }
        let nothing = matches!(self.change, Change::Remove | Change::Replace(Value::Null));
        let removes = nothing && self.path.len() == 1;
        if removes && rules.mandatory.contains(&member) {
            return Err(Fault::invalid(format!(
                "'/{member}' is a mandatory attribute and can not be removed."
            )));
        }
        Ok(())
    }

    fn apply(&self, object: &mut Map<String, Value>) -> Result<(), Fault> {
        let missing = || {
            Fault::invalid(format!(
                "Couldn't apply patch: there is no /{}.",
                self.path.join("/")
            ))
        };
        let (last, parents) = self.path.split_last().ok_or_else(missing)?;
        let mut place = object;
        for parent in parents {
            place = place
                .get_mut(parent)
                .and_then(Value::as_object_mut)
                .ok_or_else(missing)?;
        }
        let is_root = parents.is_empty();
        match &self.change {
            Change::Add(_) if is_root && place.get(last).is_none_or(|old| !old.is_null()) => {
                return Err(Fault::invalid(format!(
                    "Adding a new attribute (/{last}) to the root of the resource is not allowed."
                )));
            }
            Change::Add(value) => drop(place.insert(last.clone(), value.clone())),
            Change::Replace(value) => *place.get_mut(last).ok_or_else(missing)? = value.clone(),
            Change::Remove if is_root => *place.get_mut(last).ok_or_else(missing)? = Value::Null,
            Change::Remove => drop(place.shift_remove(last).ok_or_else(missing)?),
        }
        Ok(())
    }
}

fn path_of(text: &str) -> Option<Vec<String>> {
    let rest = text.strip_prefix('/')?;
    let is_word = |word: &&str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        !word.is_empty() && word.len() <= 256 && word.chars().all(is_part)
    };
    let words: Vec<_> = rest.split('/').collect();
    (words.len() <= 8 && words.iter().all(is_word))
        .then(|| words.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const RULES: Rules = Rules {
        only: None,
        internal: &["stack_id"],
        mandatory: &["coe"],
    };

    fn patched(patch: &Value) -> Result<Value, Fault> {
        let object = json!({"name": "a", "flavor_id": null, "coe": "kubernetes", "labels": {"a": "b"}, "uuid": "u", "stack_id": "s"});
        let patch = Patch::of_body(patch.to_string().as_bytes())?;
        patch
            .apply(object.as_object().unwrap(), &RULES)
            .map(Value::Object)
    }

    #[test]
    fn the_three_operations_do_what_they_say() {
        let after = patched(&json!([
            {"op": "replace", "path": "/name", "value": "b"},
            {"op": "add", "path": "/flavor_id", "value": "m1"},
            {"op": "add", "path": "/labels/c", "value": "d"},
            {"op": "remove", "path": "/labels/a"},
        ]))
        .unwrap();
        assert_eq!(
            (&after["name"], &after["flavor_id"]),
            (&json!("b"), &json!("m1"))
        );
        assert_eq!(after["labels"], json!({"c": "d"}));
        assert_eq!(
            patched(&json!([{"op": "remove", "path": "/name"}])).unwrap()["name"],
            Value::Null
        );
    }

    #[test]
    fn what_is_not_spoken_or_not_allowed_is_a_bad_request() {
        for operation in [
            json!({"op": "move", "from": "/name", "path": "/coe"}),
            json!({"op": "replace", "path": "/name", "value": "b", "from": "/coe"}),
            json!({"op": "replace", "path": "name", "value": "b"}),
            json!({"op": "replace", "path": "/", "value": "b"}),
            json!({"op": "replace", "path": "/name"}),
            json!({"op": "replace", "path": "/nothing", "value": 1}),
            json!({"op": "add", "path": "/name", "value": "b"}),
            json!({"op": "add", "path": "/nothing", "value": "b"}),
            json!({"op": "add", "path": "/name/x", "value": "b"}),
            json!({"op": "remove", "path": "/labels/x"}),
            json!({"op": "remove", "path": "/coe"}),
            json!({"op": "replace", "path": "/uuid", "value": "v"}),
            json!({"op": "replace", "path": "/stack_id", "value": "v"}),
            json!({}),
        ] {
            let fault = patched(&json!([operation])).unwrap_err();
            assert_eq!(fault.status(), 400, "{operation}");
        }
        for body in [json!({}), json!(1), json!([1])] {
            assert_eq!(patched(&body).unwrap_err().status(), 400, "{body}");
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing() {
        assert!(Patch::of_body(b"[]").unwrap().is_empty());
    }

    proptest! {
        /// Whatever a patch does, what is internal stays as it was.
        #[test]
        fn no_patch_touches_what_is_internal(
            op in prop::sample::select(vec!["add", "replace", "remove"]),
            path in "(/(uuid|name|stack_id|labels|coe|x)){1,3}",
            value in prop::sample::select(vec![json!(1), json!("x"), json!(null), json!({})]),
        ) {
            if let Ok(after) = patched(&json!([{"op": op, "path": path, "value": value}])) {
                prop_assert_eq!(&after["uuid"], &json!("u"));
                prop_assert_eq!(&after["stack_id"], &json!("s"));
                prop_assert_ne!(&after["coe"], &Value::Null);
            }
        }
    }
}
