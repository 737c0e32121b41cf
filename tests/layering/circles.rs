//! Cycles of modules: modules in one folder, each of which uses the next, and the last the first.
//!
//! A path counts as a use of its module, also through names that a parent imports. The code of a folder's own file
//! (`plan.rs` beside `plan/`, `lib.rs`) may use its modules and be used by them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Source, read_all};

/// A module, as a path from the root of its crate.
type Module = Vec<String>;
/// Uses between sibling modules, each with its first line.
type Uses = BTreeMap<(String, String), String>;

/// A crate: the paths that each module imports by name, and all paths in its code.
#[derive(Default)]
struct Crate {
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    mentions: Vec<(Module, String, Vec<String>)>,
}

impl Crate {
    fn add(&mut self, source: &Source) {
        let module = module(&source.path);
        let names = self.names.entry(module.clone()).or_default();
        let place = |number: usize| format!("{}:{number}", source.path);
        for (number, code) in split(source).1 {
            let place = place(number);
            self.mentions.extend(paths(code).map(|path| (module.clone(), place.clone(), path)));
        }
        for (number, path, name) in brought(source) {
            self.mentions.push((module.clone(), place(number), path.clone()));
            names.insert(name, path);
        }
    }

    /// The module of a path in `at`, seen from `from`; names of modules that are not parents of `from` stay private.
    /// `None` outside the crate.
    fn find(&self, from: &[String], at: &[String], path: &[String], steps: usize) -> Option<Module> {
        let mut found = at.to_vec();
        let mut rest = path.iter().map(String::as_str).peekable();
        match rest.peek()? {
            &"crate" => {
                found.clear();
                rest.next();
            }
            &"self" => drop(rest.next()),
            &"super" => {
                while rest.next_if_eq(&"super").is_some() {
                    found.pop()?;
                }
            }
            first => {
                let is_module = self.names.contains_key(&[at, &[(*first).to_owned()]].concat());
                (is_module || self.names.get(at)?.contains_key(*first)).then_some(())?;
            }
        }
        while let Some(name) = rest.next() {
            let inner = [&found[..], &[name.to_owned()]].concat();
            if self.names.contains_key(&inner) {
                found = inner;
                continue;
            }
            let brought = self.names.get(&found).and_then(|names| names.get(name));
            let Some(brought) = brought.filter(|brought| from.starts_with(&found) && steps > 0 && brought.len() > 1)
            else {
                break;
            };
            let whole = brought.iter().cloned().chain(rest.map(str::to_owned)).collect::<Vec<_>>();
            return self.find(from, &found, &whole, steps - 1);
        }
        Some(found)
    }

    /// Uses between the modules of each folder.
    fn uses(&self) -> BTreeMap<Module, Uses> {
        let mut all: BTreeMap<Module, Uses> = BTreeMap::new();
        for (from, place, path) in &self.mentions {
            let Some(to) = self.find(from, from, path, 8) else { continue };
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (from.get(shared), to.get(shared)) {
                let uses = all.entry(from[..shared].to_vec()).or_default();
                uses.entry((user.clone(), used.clone())).or_insert_with(|| format!("{place} {}", path.join("::")));
            }
        }
        all
    }
}

/// Numbered lines.
type Numbered<T> = Vec<(usize, T)>;

/// The `use` statements of a file, and its other lines of code.
fn split(source: &Source) -> (Numbered<String>, Numbered<&str>) {
    let (mut statements, mut others) = (Vec::new(), Vec::new());
    let mut open: Option<(usize, String)> = None;
    for (number, line) in &source.code {
        let code = line.trim();
        let unscoped = code.strip_prefix("pub").map_or(code, |rest| {
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest).trim_start()
        });
        match (&mut open, unscoped.strip_prefix("use ")) {
            (Some((_, text)), _) => text.push_str(code),
            (None, Some(rest)) => open = Some((*number, rest.to_owned())),
            (None, None) => others.push((*number, code)),
        }
        statements.extend(open.take_if(|(_, text)| text.ends_with(';')));
    }
    (statements, others)
}

/// Paths that the `use` statements of a file import: line, path, name.
pub(super) fn brought(source: &Source) -> Vec<(usize, Vec<String>, String)> {
    let mut all = Vec::new();
    for (number, text) in split(source).0 {
        let mut found = Vec::new();
        expand(text.trim_end_matches(';'), &[], &mut found);
        all.extend(found.into_iter().map(|(path, name)| (number, path, name)));
    }
    all
}

/// The module of a file, from its path under `src/` (the first part of which is the crate).
fn module(path: &str) -> Module {
    let parts = path.trim_end_matches(".rs").split('/').skip(1);
    parts.filter(|part| !["lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// The paths of at least two parts in a line.
fn paths(line: &str) -> impl Iterator<Item = Vec<String>> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.map(|word| word.split("::").take_while(|part| !part.is_empty() && !part.contains(':')));
    paths.map(|parts| parts.map(str::to_owned).collect::<Vec<_>>()).filter(|path| path.len() > 1)
}

/// The paths of a `use`, each with the name that it imports.
fn expand(tree: &str, before: &[&str], found: &mut Vec<(Vec<String>, String)>) {
    if let Some((head, inner)) = tree.split_once('{') {
        let before: Vec<&str> =
            before.iter().copied().chain(head.split("::").filter(|part| !part.is_empty())).collect();
        let (mut depth, mut start) = (0, 0);
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let one = inner[start..at].trim();
                    if !one.is_empty() {
                        expand(one, &before, found);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, name) = tree.trim().split_once(" as ").map_or((tree.trim(), None), |(path, name)| (path, Some(name)));
    let mut path: Vec<String> = before.iter().copied().chain(path.split("::")).map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = name.map(str::to_owned).or_else(|| path.last().cloned()).unwrap_or_default();
    found.push((path, name));
}

/// The cycles of each folder, the shortest per module: its modules, and the line of each use.
fn circles(sources: &[Source]) -> Vec<(String, String)> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains('/')) {
        crates.entry(super::crate_of(&source.path)).or_default().add(source);
    }
    let mut found = Vec::new();
    for (name, own) in &crates {
        for (folder, uses) in own.uses() {
            let folder = std::iter::once((*name).to_owned()).chain(folder).collect::<Vec<_>>().join("/");
            // Each cycle once, from its first module by name.
            for start in uses.keys().map(|(user, _)| user).collect::<BTreeSet<_>>() {
                let Some(circle) = circle(start, &uses) else { continue };
                let modules: Vec<&str> = circle.iter().filter_map(|way| way.split(' ').next()).collect();
                if modules.iter().min().is_some_and(|first| first == start) {
                    found.push((format!("{folder}: {}", modules.join(" → ")), circle.join(", ")));
                }
            }
        }
    }
    found
}

/// The shortest path from a module back to itself.
fn circle(start: &String, uses: &Uses) -> Option<Vec<String>> {
    let mut ways: VecDeque<(&String, Vec<String>)> = VecDeque::from([(start, Vec::new())]);
    let mut seen = BTreeSet::new();
    while let Some((at, way)) = ways.pop_front() {
        for ((user, used), line) in uses.iter().filter(|((user, _), _)| user == at) {
            let way = [&way[..], &[format!("{user} → {used} ({line})")]].concat();
            if used == start {
                return Some(way);
            }
            if seen.insert(used) {
                ways.push_back((used, way));
            }
        }
    }
    None
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let found: Vec<String> =
        circles(&read_all()).iter().map(|(circle, lines)| format!("{circle}\n  {lines}")).collect();
    assert!(found.is_empty(), "move the code that closes a cycle to its module:\n{}", found.join("\n"));
}

#[test]
fn circles_are_seen_through_names_of_modules_above() {
    let source = |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), code: super::code_lines(text) };
    let of = |all: &[(&str, &str)]| {
        let found = circles(&all.iter().map(source).collect::<Vec<_>>());
        found.into_iter().map(|(circle, lines)| format!("{circle} ({lines})")).collect::<Vec<_>>()
    };
    let root = ("x/lib.rs", "mod a;\npub mod b;\nuse a::A;");
    let user = ("x/a.rs", "use crate::b::{\n    c::{self, C},\n    D,\n};");
    assert!(of(&[root, user, ("x/b.rs", "use crate::d;")]).is_empty());
    let closed = of(&[root, user, ("x/b.rs", ""), ("x/b/c.rs", "fn of(a: &super::super::A) {}")]);
    assert_eq!(closed, ["x: a → b (a → b (x/a.rs:1 crate::b::c), b → a (x/b/c.rs:1 super::super::A))"]);
    let inner = [("x/b.rs", "mod c;\nmod d;\npub use d::{D as E};"), ("x/b/c.rs", "use crate::b;\nfn e() -> b::E {}")];
    assert!(of(&inner).is_empty());
    let both = of(&[inner[0], inner[1], ("x/b/d.rs", "use super::c;")]);
    assert_eq!(both, ["x/b: c → d (c → d (x/b/c.rs:2 b::E), d → c (x/b/d.rs:1 super::c))"]);
}
