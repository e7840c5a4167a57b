//! `autoscaling/v1` Scale: the replicas of a custom object, for those who know nothing else of its kind.
//!
//! # Source
//! Kubernetes `apiextensions-apiserver/pkg/registry/customresource`, 1.34.

use serde_json::{Map, Value, json};

use crate::{
    failure::{Cause, Failure, Result},
    registry::{Form, Resource},
    shape::built_in_schema,
    table,
};

/// How the objects of a resource are scaled.
#[derive(Debug)]
pub(crate) struct Scale {
    /// Scale, as if it were a resource of the name of the scaled one.
    pub resource: Resource,
    /// How many there should be.
    wanted: Place,
    /// How many there are.
    present: Place,
    /// Which labels they have.
    selector: Option<Place>,
}

/// Where a field is, as the definition has it: `.spec.replicas`.
#[derive(Debug)]
struct Place(String);

impl Scale {
    /// By the `subresources.scale` of a definition; nothing where that does not say how.
    pub fn new(scale: &Value, scaled: &Resource) -> Option<Self> {
        let place = |name: &str| scale[name].as_str().map(|path| Place(path.to_owned()));
        Some(Self {
            wanted: place("specReplicasPath")?,
            present: place("statusReplicasPath")?,
            selector: place("labelSelectorPath").filter(|place| !place.0.is_empty()),
            resource: Resource {
                group: GROUP.into(),
                version: "v1".into(),
                kind: KIND.into(),
                list_kind: String::new(),
                short_names: Vec::new(),
                categories: Vec::new(),
                status: false,
                form: Form::Plain,
                schema: built_in_schema(KIND).ok()?,
                columns: table::crd_columns(&json!({"additionalPrinterColumns": [
                    {
                        "name": "Desired", "type": "integer", "jsonPath": ".spec.replicas",
                        "description": "Number of desired replicas",
                    },
                    {
                        "name": "Available", "type": "integer", "jsonPath": ".status.replicas",
                        "description": "Number of actual replicas",
                    },
                    {
                        "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                        "description": "Time since the object was created.",
                    },
                ]})),
                selectable: Vec::new(),
                kept: None,
                ..scaled.clone()
            },
        })
    }

    /// The Scale of an object, and whether the object says how many it wants.
    pub fn of(&self, object: &Value) -> Result<(Value, bool)> {
        let wanted = self.wanted.integer(object)?;
        let present = self.present.integer(object)?;
        let mut metadata = Map::new();
        for name in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            if let Some(value) = object["metadata"].get(name) {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        let mut scale = json!({
            "apiVersion": self.resource.api_version(), "kind": KIND, "metadata": metadata,
            "spec": {}, "status": {"replicas": present.unwrap_or_default()},
        });
        // None and zero look alike.
        if let Some(wanted) = wanted.filter(|wanted| *wanted != 0) {
            scale["spec"]["replicas"] = json!(wanted);
        }
        let selector = self.selector.as_ref().and_then(|place| place.find(object));
        if let Some(text) = selector
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            scale["status"]["selector"] = json!(text);
        }
        Ok((scale, wanted.is_some()))
    }

    /// The Scale of an object as it is before a change: a number that nobody may want stands for none.
    pub fn before(&self, object: &Value) -> Result<Value> {
        let (mut scale, is_wanted) = self.of(object)?;
        if !is_wanted {
            scale["spec"]["replicas"] = json!(NONE);
        }
        Ok(scale)
    }

    /// An object that wants as many as a Scale says.
    pub fn put(&self, object: &Value, scale: &Value) -> Result<Value> {
        let wanted = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        if wanted == NONE {
            return Err(self.empty());
        }
        let mut object = object.clone();
        self.wanted.set(&mut object, json!(wanted))?;
        let revision = &scale["metadata"]["resourceVersion"];
        if revision
            .as_str()
            .is_some_and(|revision| !revision.is_empty())
        {
            object["metadata"]["resourceVersion"] = revision.clone();
        }
        Ok(object)
    }

    /// The failure of an object that does not say how many it wants.
    pub fn unknown(&self) -> Failure {
        let place = &self.wanted.0;
        Failure::internal(format!("the spec replicas field {place:?} does not exist"))
    }

    /// What is wrong with the numbers of an object.
    pub fn causes(&self, object: &Value) -> Vec<Cause> {
        let places = [&self.wanted, &self.present].into_iter();
        places.filter_map(|place| place.cause(object)).collect()
    }

    fn empty(&self) -> Failure {
        let place = &self.wanted.0;
        Failure::bad_request(format!("the spec replicas field {place:?} cannot be empty"))
    }
}

impl Place {
    fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.trim_start_matches('.').split('.')
    }

    /// Null where there is nothing; none where something else is in the way.
    fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.steps().try_fold(object, |value, step| match value {
            Value::Object(fields) => Some(fields.get(step).unwrap_or(&Value::Null)),
            Value::Null => Some(value),
            _ => None,
        })
    }

    fn integer(&self, object: &Value) -> Result<Option<i64>> {
        match self.find(object) {
            Some(Value::Null) => Ok(None),
            value => value
                .and_then(Value::as_i64)
                .map(Some)
                .ok_or_else(|| Failure::internal(format!("{} is not an integer", self.0))),
        }
    }

    fn set(&self, object: &mut Value, value: Value) -> Result<()> {
        let mut at = object;
        for step in self.steps() {
            if at.is_null() {
                *at = json!({});
            }
            let fields = at.as_object_mut().ok_or_else(|| {
                Failure::internal(format!("{}: there is no object that holds it", self.0))
            })?;
            at = fields.entry(step).or_insert(Value::Null);
        }
        *at = value;
        Ok(())
    }

    fn cause(&self, object: &Value) -> Option<Cause> {
        let value = self.find(object);
        let (shown, rule) = match value.and_then(Value::as_i64) {
            None if value.is_some_and(Value::is_null) => return None,
            None => (0, "should be an integer".to_owned()),
            Some(number) if number < 0 => (number, "should be a non-negative integer".to_owned()),
            Some(number) if number > MOST => {
                (number, format!("should be less than or equal to {MOST}"))
            }
            Some(_) => return None,
        };
        Some(Cause {
            reason: "FieldValueInvalid".into(),
            message: format!("Invalid value: {shown}: {rule}"),
            field: self.0.clone(),
        })
    }
}

pub(crate) const GROUP: &str = "autoscaling";
pub(crate) const KIND: &str = "Scale";
const MOST: i64 = i32::MAX as i64;
const NONE: i64 = i32::MIN as i64;
