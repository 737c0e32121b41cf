//! Lengths of functions.

use super::{Source, part_of_lab, read_all};

/// Most lines of code of a function, from its signature to its closing brace.
const LINES: usize = 80;

/// Functions of a source, each with its first line and its lines of code. In formatted code a function ends at a brace
/// in the column of its first line.
fn functions(source: &Source) -> Vec<(usize, usize)> {
    let lines: Vec<&(usize, String)> = source.code.iter().filter(|(_, line)| !line.trim().is_empty()).collect();
    let is_marked = |marks: &str| ["pub", "const ", "unsafe ", "async "].iter().any(|mark| marks.starts_with(mark));
    let begins = |line: &str| {
        let marks = line.trim_start().split_once("fn ").map(|(marks, _)| marks);
        marks.is_some_and(|marks| marks.is_empty() || is_marked(marks) && !marks.contains(": "))
    };
    let length = |at: usize| {
        let line = &lines[at].1;
        let close = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let end = lines[at..].iter().position(|(_, line)| *line == close);
        end.filter(|_| !line.ends_with([';', '}'])).map_or(1, |end| end + 1)
    };
    (0..lines.len()).filter(|at| begins(&lines[*at].1)).map(|at| (lines[at].0, length(at))).collect()
}

/// With `-- --nocapture` lists the long ones.
#[test]
fn functions_stay_short() {
    let sources = read_all();
    let own = sources.iter().filter(|source| part_of_lab(&source.path).is_none());
    let all = own.flat_map(|source| functions(source).into_iter().map(|(line, length)| (length, &source.path, line)));
    let mut long: Vec<(usize, &String, usize)> = all.filter(|(length, ..)| *length > LINES).collect();
    long.sort_unstable();
    long.reverse();
    println!("{} functions over {LINES} lines", long.len());
    for (length, path, line) in &long {
        println!("{length:>4} src/{path}:{line}");
    }
    assert!(long.is_empty(), "split them");
}

#[test]
fn the_scanner_sees_functions() {
    let code = "pub(crate) fn a(\n    b: u32,\n) -> u32 {\n    // c\n    fn d() {}\n\n    if b {\n    }\n}\nfn e() {\n    f()\n}";
    let source = Source { path: "x.rs".to_owned(), code: super::code_lines(code) };
    assert_eq!(functions(&source), [(1, 7), (5, 1), (10, 3)]);
}
