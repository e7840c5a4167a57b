//! The JSON of an object as it is kept, in memory as on disk: compressed, and without its revision.
//!
//! Objects are text that repeats itself, and most are read far less often than they are there, so they are kept at a
//! half to a fifth of their size. The revision is put in when an object is read: so the one writer, which gives it, has
//! nothing to compress.

use std::sync::Arc;

use lz4_flex::block::{DecompressError, compress_into, decompress_into, get_maximum_output_size};
use serde_json::{Map, Value};

/// JSON that only lacks its revision.
#[derive(Debug)]
pub(crate) struct Text {
    json: Vec<u8>,
    /// Where the revision goes.
    split: usize,
}

impl Text {
    pub fn new(value: &Value) -> Self {
        let empty = Map::new();
        let object = value.as_object().unwrap_or(&empty);
        let mut json = Vec::with_capacity(USUAL);
        json.push(b'{');
        for name in ["apiVersion", "kind"] {
            if let Some(value) = object.get(name) {
                json.extend_from_slice(format!("\"{name}\":{value},").as_bytes());
            }
        }
        json.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
        let split = json.len();
        json.push(b'"');
        let metadata = object.get("metadata").and_then(Value::as_object);
        for (name, value) in metadata.unwrap_or(&empty) {
            if name != "resourceVersion" {
                member(&mut json, name, value);
            }
        }
        json.push(b'}');
        for (name, value) in object {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                member(&mut json, name, value);
            }
        }
        json.push(b'}');
        Self { json, split }
    }

    pub fn len(&self) -> usize {
        self.json.len()
    }

    pub fn at(&self, revision: u64) -> Vec<u8> {
        let (head, tail) = self.json.split_at(self.split);
        [head, revision.to_string().as_bytes(), tail].concat()
    }

    pub fn pack(&self) -> Packed {
        let mut packed = vec![0; HEAD + get_maximum_output_size(self.json.len())];
        packed[0] = MARK;
        packed[SPLIT].copy_from_slice(&number(self.split));
        packed[LENGTH].copy_from_slice(&number(self.json.len()));
        // It can only fail for want of room, and this is the most it takes.
        let size = compress_into(&self.json, &mut packed[HEAD..]).unwrap_or_default();
        Packed(packed[..HEAD + size].into())
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &Value) {
    out.push(b',');
    // Writing JSON into a vector cannot fail: there is no I/O, and keys of a value are strings.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

/// A [`Text`], compressed: one byte that says so, where the revision goes, the length of the text, and a block of LZ4.
#[derive(Debug, Clone)]
pub(crate) struct Packed(Arc<[u8]>);

impl Packed {
    /// What the backend has. Until its format 2 that was the JSON itself.
    pub fn stored(bytes: &[u8]) -> Result<Self, Damaged> {
        if bytes.first() == Some(&b'{') {
            return Ok(Text::new(&serde_json::from_slice(bytes)?).pack());
        }
        if bytes.len() < HEAD || bytes[0] != MARK {
            return Err(Damaged::Head);
        }
        let packed = Self(bytes.into());
        if packed.split() > packed.length() || packed.length() > LONGEST {
            return Err(Damaged::Head);
        }
        Ok(packed)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How long [`Self::json`] is.
    pub fn len_at(&self, revision: u64) -> usize {
        self.length() + digits(revision)
    }

    pub fn json(&self, revision: u64) -> Result<Vec<u8>, Damaged> {
        let digits = digits(revision);
        let mut json = vec![0; self.length() + digits];
        let written = decompress_into(&self.0[HEAD..], &mut json[digits..])?;
        if written != self.length() {
            return Err(Damaged::Head);
        }
        let split = self.split();
        json.copy_within(digits..digits + split, 0);
        json[split..split + digits].copy_from_slice(revision.to_string().as_bytes());
        Ok(json)
    }

    fn split(&self) -> usize {
        read(&self.0[SPLIT])
    }

    fn length(&self) -> usize {
        read(&self.0[LENGTH])
    }
}

/// Why what is stored cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damaged {
    #[error("it is neither JSON nor compressed JSON")]
    Head,
    #[error("it cannot be decompressed: {0}")]
    Block(#[from] DecompressError),
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
}

fn digits(revision: u64) -> usize {
    revision.checked_ilog10().unwrap_or_default() as usize + 1
}

fn number(size: usize) -> [u8; 4] {
    u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes()
}

fn read(bytes: &[u8]) -> usize {
    let number = bytes.try_into().map_or(0, u32::from_le_bytes);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// No JSON begins with it.
const MARK: u8 = 1;
const SPLIT: std::ops::Range<usize> = 1..5;
const LENGTH: std::ops::Range<usize> = 5..9;
const HEAD: usize = 9;
/// Most objects are smaller.
const USUAL: usize = 4 << 10;
/// Far above what a request may bring: a damaged length shall not take all memory.
const LONGEST: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(data: &str) -> Value {
        json!({"kind": "ConfigMap", "data": {"d": data}, "metadata": {"name": "m", "resourceVersion": "3"}})
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_at_any_revision(data in ".{0,300}", revision: u64) {
            let text = Text::new(&object(&data));
            let packed = text.pack();
            prop_assert_eq!(packed.len_at(revision), text.at(revision).len());
            let json = Packed::stored(packed.as_bytes()).unwrap().json(revision).unwrap();
            prop_assert_eq!(&json, &text.at(revision));
            let mut expected = object(&data);
            expected["metadata"]["resourceVersion"] = json!(revision.to_string());
            prop_assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), expected);
        }

        /// Damage is an error or another text: it never panics, and never takes all memory.
        #[test]
        fn damage_is_survived(data in "[a-c]{0,300}", at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = Text::new(&object(&data)).pack().as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(packed) = Packed::stored(&bytes)
                && let Ok(json) = packed.json(7)
            {
                prop_assert_eq!(json.len(), packed.len_at(7));
            }
        }
    }

    #[test]
    fn json_of_before_is_read() {
        let text = Text::new(&object("x"));
        let packed = Packed::stored(&text.at(5)).unwrap();
        assert_eq!(packed.json(5).unwrap(), text.at(5));
    }
}
