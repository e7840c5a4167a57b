//! The marks of a move on objects: who may act on them, and what tells how old they were.
//!
//! A move marks an object with [`MOVING`] before it is copied, and the copy carries the mark from its first moment. No
//! reconciler and no runner acts on a marked object, so neither side does anything until the mark goes, which on the side that
//! the objects leave it never does. A mark on each object, not one of the namespace: what is read with an object cannot be
//! older than it.
//!
//! Pure: an operator asks [`of`] at the beginning of each pass, and [`created`] and [`generation`] wherever it would read the
//! age or the generation of an object that moves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ObjectMeta};

/// The annotation of an object that is being moved: nobody acts on it. Its value says where from and where to.
pub const MOVING: &str = "windlass.dev/moving";
/// The annotation of a root that was moved for good, beside [`MOVING`]: the other side is, or is about to be, at work.
pub const MOVED: &str = "windlass.dev/moved-to";
/// The annotation of a copy that says which object it was copied from.
pub const MOVED_FROM: &str = "windlass.dev/moved-from";
/// The annotation of a copy with the time at which its first original was created. Hosts of an inventory that was adopted have it
/// too, with times that keep their order.
pub const CREATED: &str = "windlass.dev/created";
/// The annotation of a copied root with what is to be added to its generation, so that what is planned from it next is not
/// older than what the side planned that it came from.
pub const GENERATIONS: &str = "windlass.dev/generations-before";

/// Annotations that belong to a move, not to what is moved.
pub(crate) const ALL: [&str; 5] = [MOVING, MOVED, MOVED_FROM, CREATED, GENERATIONS];

/// How the mark of a copy begins.
const ARRIVING: &str = "being moved here from ";
/// How the mark of what is being moved away begins.
const LEAVING: &str = "being moved to ";
/// How the mark of a root begins whose move is being taken back.
const RETURNING: &str = "being taken back from ";

/// Where an object is being moved from or to, if it is.
pub fn of(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, MOVING)
}

/// Whether a mark is that of a copy, whose status is its original's until it is at work.
pub fn is_arriving(mark: &str) -> bool {
    mark.starts_with(ARRIVING)
}

/// When the object, or the first one that it is a copy of, was created.
pub fn created(meta: &ObjectMeta) -> Option<Time> {
    annotation(meta, CREATED)
        .and_then(|text| text.parse().ok())
        .map(Time)
        .or_else(|| meta.creation_timestamp.clone())
}

/// The generation of an object, counted on over its moves.
pub fn generation(meta: &ObjectMeta) -> i64 {
    let before: i64 = annotation(meta, GENERATIONS)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    before.saturating_add(meta.generation.unwrap_or_default())
}

/// The mark of what is being moved to `place`.
pub(crate) fn leaving(place: &str) -> String {
    format!("{LEAVING}{place}")
}

/// The mark of a root whose move to `place` is being taken back.
pub(crate) fn returning(place: &str) -> String {
    format!("{RETURNING}{place}")
}

/// The mark of the copy of what is being moved from `place`.
pub(crate) fn arriving(place: &str) -> String {
    format!("{ARRIVING}{place}")
}

/// Where to an object is being moved, or was before its move began to be taken back; none: it is a copy.
pub(crate) fn destination(mark: &str) -> Option<&str> {
    let leaving = mark.strip_prefix(LEAVING);
    leaving.or_else(|| mark.strip_prefix(RETURNING))
}

/// What a copy says of where it is from.
pub(crate) fn origin(place: &str, uid: &str) -> String {
    format!("{uid} in {place}")
}

/// Whether an object is a copy of one of `place`.
pub(crate) fn is_from(object: &DynamicObject, place: &str) -> bool {
    annotation(&object.metadata, MOVED_FROM)
        .and_then(|origin| origin.split_once(" in "))
        .is_some_and(|(_, from)| from == place)
}

/// Whether an object carries the mark.
pub(crate) fn is_marked(object: &DynamicObject) -> bool {
    object.annotations().contains_key(MOVING)
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn meta(annotations: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            generation: Some(2),
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            annotations: Some(
                annotations
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_copy_is_as_old_as_its_original_and_counts_its_generations_on() {
        let copy = meta(&[(CREATED, "2026-11-01T10:00:00Z"), (GENERATIONS, "4")]);
        assert_eq!(
            created(&copy).map(|time| time.0.to_string()),
            Some("2026-11-01T10:00:00Z".to_owned())
        );
        assert_eq!(generation(&copy), 6);
        assert_eq!(created(&meta(&[])), Some(Time(Timestamp::UNIX_EPOCH)));
        assert_eq!(generation(&meta(&[(GENERATIONS, "many")])), 2);
    }
}
