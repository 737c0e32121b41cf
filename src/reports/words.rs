//! Sentences for what the program finds. The crates below find values; this is the room for their words.

pub mod prediction;

use schemars::JsonSchema;
use serde::Serialize;

/// Finding that has a sentence.
pub trait Words {
    /// The sentence, without a capital and a full stop.
    fn words(&self) -> String;

    /// Short form, for places with little room.
    fn brief(&self) -> String;
}

/// Sentences of some findings. Numbers that differ only in digits that are not shown give one sentence.
pub fn all<T: Words>(findings: &[T]) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in findings.iter().map(Words::words) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences
}

/// Sentences of some findings in one cell.
pub fn joined<T: Words>(findings: &[T]) -> String {
    all(findings).join("; ")
}

/// Finding in JSON: its code, its numbers and its sentence.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Spoken<T> {
    /// Code and numbers.
    #[serde(flatten)]
    pub finding: T,
    /// The sentence.
    pub text: String,
}

/// Findings for JSON.
pub fn spoken<T: Words + Clone>(findings: &[T]) -> Vec<Spoken<T>> {
    findings.iter().map(|finding| Spoken { finding: finding.clone(), text: finding.words() }).collect()
}
