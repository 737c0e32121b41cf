//! Problems of values in plain words.

use habitat_base::text;

/// Types as errors name them, and words for people who write TOML.
const TYPES: [(&str, &str); 5] = [
    ("expected a sequence", "expected a list, such as [\"a\", \"b\"]"),
    ("expected u64", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("invalid type: ", ""),
];

/// A problem without the names of types. An unknown key has near names instead of all.
pub(super) fn words(problem: &str) -> String {
    if let Some((unknown, known)) = problem.split_once(", expected one of ") {
        let mut quoted = unknown.split('`');
        let name = quoted.nth(1).unwrap_or_default();
        let near = text::nearest(name, known.split('`').skip(1).step_by(2), 3);
        if !near.is_empty() && unknown.starts_with("unknown field") {
            return format!("{unknown} (near: {})", near.join(", "));
        }
    }
    TYPES.iter().fold(problem.to_owned(), |problem, (typed, plain)| problem.replace(typed, plain))
}
