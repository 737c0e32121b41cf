//! Sentences for what the other crates found, and their JSON form with a stable code.

pub mod assumed;
mod memory;
mod no_plan;
pub mod plan;
pub mod prediction;
pub mod price;
mod reason;
mod scaling;

pub use no_plan::no_plan;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Value that has words.
pub trait Words {
    /// The words: a sentence without a capital and a full stop, or a part of one.
    fn words(&self) -> String;

    /// Short form, for places with little room.
    fn brief(&self) -> String {
        self.words()
    }

    /// Words of what it rests on: `why` in its JSON form.
    fn why(&self) -> Option<String> {
        None
    }
}

/// Sentences of some findings. Numbers that differ only in digits that are not shown give one sentence.
pub fn all<T: Words>(all: &[T]) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in of_all(all) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences
}

/// The words of each of several.
pub fn of_all<T: Words>(all: &[T]) -> impl Iterator<Item = String> + Clone {
    all.iter().map(Words::words)
}

/// The words of all, joined.
pub fn joined<T: Words>(all: &[T], between: &str) -> String {
    self::all(all).join(between)
}

/// A note or reason.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NoteJson")]
pub struct Note {
    /// Stable name; docs/formats.md lists all.
    code: String,
    /// The same in words, which may change.
    text: String,
    /// Numbers and names in the text; absent if unknown.
    #[serde(flatten)]
    facts: Map<String, Value>,
}

impl Note {
    /// The JSON form of something with a code.
    pub(crate) fn new<T: Serialize + Words>(what: &T) -> Self {
        let mut facts = match serde_json::to_value(what).map(known) {
            Ok(Value::Object(facts)) => facts,
            _ => Map::new(),
        };
        let code = facts.shift_remove("code");
        let code = code.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        facts.extend(what.why().map(|why| ("why".to_owned(), Value::String(why))));
        Self { code, text: what.words(), facts }
    }

    /// The JSON form of several.
    pub(crate) fn all<T: Serialize + Words>(all: &[T]) -> Vec<Self> {
        all.iter().map(Self::new).collect()
    }
}

/// Without what is unknown.
fn known(value: Value) -> Value {
    match value {
        Value::Object(all) => {
            all.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, known(value))).collect()
        }
        Value::Array(all) => all.into_iter().map(known).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests;
