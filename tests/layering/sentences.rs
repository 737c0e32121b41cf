//! Sentences in crates that compute: string literals of four or more words. What such a crate says is data, and
//! `reports/words` makes the sentences; only errors say themselves what is wrong.

use super::{Source, crate_of, read_all};

/// Sentences that each crate may have; a ratchet, to be lowered. Those of planning are names of places, of assumptions
/// in errors, and of uses of time.
const MOST: [(&str, usize); 1] = [("planning", 31)];

/// Files, or folders with the same name, whose sentences are errors or are written into price files.
const ERRORS: [&str; 8] = [
    "planning/deadline",
    "planning/values",
    "planning/plan/error",
    "planning/plan/check",
    "planning/plan/jobs/check",
    "planning/pricing/import",
    "planning/pricing/intensity",
    "planning/pricing/snapshot",
];

/// The string literals of a file, but for those in `#[error(…)]`.
fn literals(source: &Source) -> Vec<String> {
    let mut is_error = false;
    let mut code = String::new();
    for (_, line) in &source.code {
        is_error |= line.trim_start().starts_with("#[error(");
        if !is_error {
            code.push_str(&line.replace("'\"'", ""));
            code.push('\n');
        }
        is_error &= !line.trim_end().ends_with(")]");
    }
    let (mut found, mut inside, mut is_escaped) = (Vec::new(), None::<String>, false);
    for c in code.chars() {
        match (&mut inside, c) {
            (None, '"') => inside = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') if !is_escaped => found.extend(inside.take()),
            (Some(text), c) => {
                text.push(c);
                is_escaped = c == '\\' && !is_escaped;
            }
        }
    }
    found
}

/// With `-- --nocapture` it prints them.
#[test]
fn what_computes_makes_no_sentences() {
    let sources = read_all();
    for (name, most) in MOST {
        let is_error = |path: &str| {
            ERRORS.iter().any(|place| path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '/'])))
        };
        let own = sources.iter().filter(|source| crate_of(&source.path) == name && !is_error(&source.path));
        let all = own.flat_map(|source| literals(source).into_iter().map(|text| (source.path.clone(), text)));
        let sentences: Vec<_> = all.filter(|(_, text)| text.split_whitespace().count() >= 4).collect();
        for (path, text) in &sentences {
            println!("{path}: {text}");
        }
        let found = sentences.len();
        assert!(found <= most, "src/{name} has {found} sentences, at most {most}: move new ones to reports/words");
        assert!(found == most, "src/{name} has only {found} sentences: lower the number here from {most}");
    }
}

#[test]
fn the_scanner_sees_literals() {
    let lines =
        ["#[error(", "    \"an error is left out\"", ")]", "let a = (\"one \\\"two\\\" three\", '\"', \"four\");"];
    let code = lines.into_iter().map(|line| (0, line.to_owned())).collect();
    assert_eq!(literals(&Source { path: String::new(), code }), ["one \\\"two\\\" three", "four"]);
}
