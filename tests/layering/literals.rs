//! Sentences in crates that compute: findings are data there, and `reports/words` has their sentences.

use super::{Source, crate_of, read_all};

/// Words from which a literal counts as a sentence.
const WORDS: usize = 4;

/// Most sentences of a crate outside its errors. They may only become fewer.
const SENTENCES: [(&str, usize); 2] = [("prediction", 86), ("planning", 21)];

/// Files, or folders with the same name, with sentences that are errors or go into price files.
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

/// Code before a literal of an error, an impossible panic, or a lint.
const APART: [&str; 9] =
    ["#[error(", "Error::", "error(", "Err(", "form(", "ensure(", "expect(", "::Form(", "reason ="];

/// Literals of a source, each with its line and with the code from the beginning of the statement.
fn literals(source: &Source) -> Vec<(usize, String, String)> {
    let (mut found, mut before) = (Vec::new(), String::new());
    let mut open: Option<(usize, String, String)> = None;
    for (number, line) in &source.code {
        let mut rest = line.as_str();
        while !rest.is_empty() {
            if let Some((begun, mut text, end)) = open.take() {
                let is_raw = end.len() > 1;
                let escaped =
                    |at: usize| !is_raw && rest[..at].chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
                let close = rest.match_indices(&end).map(|(at, _)| at).find(|at| !escaped(*at));
                text.push_str(&rest[..close.unwrap_or(rest.len())]);
                if let Some(at) = close {
                    rest = &rest[at + end.len()..];
                    found.push((begun, text, before.clone()));
                } else {
                    text.push(' ');
                    open = Some((begun, text, end));
                    rest = "";
                }
                continue;
            }
            let Some(at) = rest.find(['"', ';', '{', '}', ']']) else {
                before.push_str(rest);
                break;
            };
            before.push_str(&rest[..at]);
            if rest[at..].starts_with('"') && !before.ends_with('\'') {
                let marks = before.chars().rev().take_while(|c| *c == '#').count();
                let is_raw = before.trim_end_matches('#').ends_with('r');
                let end = if is_raw { format!("\"{}", "#".repeat(marks)) } else { "\"".to_owned() };
                open = Some((*number, String::new(), end));
            } else if !rest[at..].starts_with('"') {
                before.clear();
            }
            rest = &rest[at + 1..];
        }
    }
    found
}

/// Whether a literal is a sentence outside of errors.
fn is_sentence(text: &str, before: &str) -> bool {
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    words >= WORDS && !APART.iter().any(|apart| before.contains(apart))
}

fn sentences(sources: &[Source], own: &str) -> Vec<String> {
    let is_error = |path: &str| {
        let is_in = |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '/']));
        path.ends_with("error.rs") || ERRORS.iter().any(|place| is_in(place))
    };
    let of_crate = sources.iter().filter(|source| crate_of(&source.path) == own && !is_error(&source.path));
    let found = of_crate.flat_map(|source| literals(source).into_iter().map(|found| (source.path.clone(), found)));
    found
        .filter(|(_, (_, text, before))| is_sentence(text, before))
        .map(|(path, (number, text, _))| format!("src/{path}:{number}: {text}"))
        .collect()
}

/// With `-- --nocapture` lists them.
#[test]
fn sentences_lie_in_reports() {
    let sources = read_all();
    for (own, most) in SENTENCES {
        let found = sentences(&sources, own);
        println!("{own}: {} sentences\n{}", found.len(), found.join("\n"));
        assert!(found.len() <= most, "src/{own} has {} sentences, not {most}: words lie in reports/words", found.len());
    }
}

#[test]
fn the_scanner_sees_literals() {
    let code = "#[error(\"a b c d e\")]\nA,\nfn f() {\n    let x = \"one \\\"two\\\" three four\";\n    y('\"');\n    let z = r#\"a \"b\" c\nd\"#;\n}";
    let source = Source { path: "x.rs".to_owned(), code: super::code_lines(code) };
    let found = literals(&source);
    let texts: Vec<&str> = found.iter().map(|(_, text, _)| text.as_str()).collect();
    assert_eq!(texts, ["a b c d e", "one \\\"two\\\" three four", "a \"b\" c d"]);
    let is_ours: Vec<bool> = found.iter().map(|(_, text, before)| is_sentence(text, before)).collect();
    assert_eq!(is_ours, [false, true, true]);
}
