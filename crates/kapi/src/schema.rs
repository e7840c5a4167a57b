//! What a kind looks like: compiled structural schemas.
//!
//! One schema drives everything that depends on the shape of a kind: defaults, pruning, validation and the ownership
//! of fields in server-side apply ([`crate::apply`]). Custom kinds bring theirs in a CustomResourceDefinition; the
//! kinds that every API has come from [`builtin`]. The modules are pure: a value in, a value or errors out.
//!
//! Validation is written here and not delegated to a JSON Schema crate because its dialect (OpenAPI v3 with Kubernetes'
//! extensions), its order and its messages are part of what people and programs see.

mod builtins;
mod cel;
mod convert;
mod decode;
mod defaults;
mod error;
mod formats;
mod node;
mod old;
mod prune;
mod rules;
mod structural;
mod validate;

use serde_json::Value;

pub(crate) use self::builtins::metadata;
pub(crate) use self::node::{Additional, ListType, Node, Type};
use self::rules::Rules;
pub use self::{
    builtins::builtin,
    cel::{Budget, Expression, Unanswered},
    error::{FieldError, Reason},
};

/// Which fields of an object are of typed structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// All of them: the kind is built in.
    All,
    /// The metadata alone.
    Metadata,
}

/// The compiled schema of one version of a kind.
#[derive(Debug)]
pub struct Schema {
    pub(crate) root: Node,
    rules: Option<Rules>,
    source: Value,
    status_in_main: bool,
    built_in: bool,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a CustomResourceDefinition's version, as a client hands it in.
    ///
    /// # Errors
    ///
    /// Every reason why Kubernetes would refuse the schema: it is not structural, a pattern or a rule does not compile or may
    /// cost too much, a default does not fit.
    pub fn compile(openapi_v3_schema: &Value) -> Result<Self, Vec<String>> {
        let (schema, problems) = Self::read(openapi_v3_schema)?;
        if problems.is_empty() {
            Ok(schema)
        } else {
            Err(problems)
        }
    }

    /// Compiles a schema that is stored. It may have been taken when less was asked: rules that do not compile fail where they
    /// run, and defaults are what they are.
    ///
    /// # Errors
    ///
    /// The schema is not structural, or a pattern does not compile.
    pub fn compile_stored(openapi_v3_schema: &Value) -> Result<Self, Vec<String>> {
        Ok(Self::read(openapi_v3_schema)?.0)
    }

    /// A schema that is structural, and what is wrong with its rules and defaults.
    fn read(source: &Value) -> Result<(Self, Vec<String>), Vec<String>> {
        let problems = structural::problems(source);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut problems = Vec::new();
        let mut root = convert::node(source, "openAPIV3Schema", &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        builtins::embed_metadata(&mut root);
        let rules = rules::compile(source, &root, &mut problems);
        defaults::problems(&root, rules.as_ref(), "openAPIV3Schema", &mut problems);
        let schema = Self {
            root,
            rules,
            source: source.clone(),
            status_in_main: false,
            built_in: false,
        };
        Ok((schema, problems))
    }

    /// Compiles a schema that we wrote ourselves, without the structural checks.
    fn trusted(source: &Value) -> Self {
        let mut root = convert::node(source, "openAPIV3Schema", &mut Vec::new());
        builtins::embed_metadata(&mut root);
        Self {
            root,
            rules: None,
            source: source.clone(),
            status_in_main: false,
            built_in: true,
        }
    }

    /// For kinds without the status subresource: `status` is a field like any other.
    #[must_use]
    pub fn status_in_main(mut self) -> Self {
        self.status_in_main = true;
        self
    }

    /// Whether `status` is only written through its subresource.
    pub fn separate_status(&self) -> bool {
        !self.status_in_main && self.root.properties.contains_key("status")
    }

    /// Whether the kind is part of Kubernetes.
    pub(crate) fn is_built_in(&self) -> bool {
        self.built_in
    }

    /// The fields of a built-in kind that are structs, and so are never absent.
    pub(crate) fn structs(&self) -> impl Iterator<Item = &str> {
        let fields = self.root.properties.iter().filter(|(name, field)| {
            self.built_in && *name != "metadata" && !field.properties.is_empty()
        });
        fields.map(|(name, _)| name.as_str())
    }

    /// The schema as it was handed in, for the OpenAPI document.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Fills in the defaults of absent fields; a null where null is not allowed counts as absent.
    pub fn default(&self, object: &mut Value) {
        prune::default(&self.root, object);
    }

    /// As [`Self::default`], but a null that is not allowed stays, for the validation to complain about: a server-side apply
    /// is not decoded like other bodies.
    pub fn default_keeping_nulls(&self, object: &mut Value) {
        prune::default_keeping_nulls(&self.root, object);
    }

    /// What Kubernetes cannot decode: its metadata, and kinds that are built in, are of typed structs. The first place with
    /// a value of another type, and what is wrong there.
    pub fn undecodable(&self, object: &Value, all: Fields) -> Option<String> {
        let metadata = self.root.properties.get("metadata");
        match all {
            Fields::All => decode::wrong(&self.root, object, ""),
            Fields::Metadata => decode::wrong(metadata?, object.get("metadata")?, "metadata"),
        }
    }

    /// Leaves out what a typed struct leaves out when it is encoded: empty maps, lists and texts, and nulls.
    pub fn tidy(&self, object: &mut Value, all: Fields) {
        match all {
            Fields::All => decode::tidy(&self.root, object),
            Fields::Metadata => {
                let metadata = self.root.properties.get("metadata");
                if let (Some(node), Some(metadata)) = (metadata, object.get_mut("metadata")) {
                    decode::tidy(node, metadata);
                }
            }
        }
    }

    /// Removes fields that the schema does not know. Returns their paths as kubectl shows them: `spec.list[0].bar`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Checks an object as it is about to be stored: the schema first, then the rules where the schema leaves sense in it.
    ///
    /// `old` is the stored object on update: rules that mention `oldSelf` run only then, and what the update leaves as it is
    /// is not held against it.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::validate(&self.root, object, old);
        if self.separate_status() && old.is_some_and(|old| old::same_but_status(old, object)) {
            // Whoever writes the status cannot mend the rest.
            errors.retain(|error| error.path.starts_with("status"));
        }
        if !self.built_in {
            // Go's structs have no sets and no keyed lists.
            let twice = validate::twice(&self.root, object);
            // What occurred twice before may go on doing so.
            let known = |old| !validate::twice(&self.root, old).is_empty();
            if !twice.is_empty() && !old.is_some_and(known) {
                errors.extend(twice);
            }
        }
        let Some(rules) = &self.rules else {
            return errors;
        };
        if errors.iter().any(|error| error.reason.blocks_rules()) {
            errors.push(FieldError::invalid("", &Value::Null, RULES_NOT_CHECKED));
        } else {
            errors.extend(rules.validate(&self.root, object, old));
        }
        errors
    }
}

/// What is said where an object is too wrong for its rules to be asked.
pub const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
