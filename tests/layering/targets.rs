//! Files of tests and benchmarks that no target contains: with `autotests` off they would never run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::rust_files;

/// Path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
        plain
    })
}

/// Possible files of a source's modules: as `#[path]` says, else in its folder.
fn declared(file: &Path, text: &str, is_root: bool) -> Vec<PathBuf> {
    let beside = file.parent().unwrap();
    let own = if is_root || file.ends_with("mod.rs") { beside.to_owned() } else { file.with_extension("") };
    let (mut found, mut path) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            path = Some(plain(&beside.join(named)));
        }
        let module = line.strip_suffix(';').and_then(|line| line.split_once("mod "));
        if let Some((_, name)) = module.filter(|(before, _)| before.is_empty() || before.starts_with("pub")) {
            let usual = || vec![own.join(format!("{name}.rs")), own.join(name).join("mod.rs")];
            found.extend(path.take().map_or_else(usual, |path| vec![path]));
        }
    }
    found
}

/// Files under `tests/` that no root reaches through module declarations.
fn orphans(files: &BTreeMap<PathBuf, String>, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut reached: BTreeSet<PathBuf> = roots.iter().cloned().collect();
    let mut open = roots.to_vec();
    while let Some(file) = open.pop() {
        let Some(text) = files.get(&file) else { continue };
        open.extend(
            declared(&file, text, roots.contains(&file)).into_iter().filter(|file| reached.insert(file.clone())),
        );
    }
    files.keys().filter(|file| file.starts_with("tests") && !reached.contains(*file)).cloned().collect()
}

#[test]
fn every_file_of_tests_is_in_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut files = BTreeMap::new();
    for folder in ["tests", "src", "models/lab"] {
        for path in rust_files(&root.join(folder)) {
            files.insert(path.strip_prefix(root).unwrap().to_owned(), read(&path));
        }
    }
    let mut roots: Vec<PathBuf> =
        files.keys().filter(|path| path.ends_with("lib.rs") || path.starts_with("models/lab/tests")).cloned().collect();
    for folder in ["", "tests/fuzz"] {
        let manifest = read(&root.join(folder).join("Cargo.toml"));
        let targets = manifest.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
        roots.extend(targets.map(|target| Path::new(folder).join(target)));
    }
    let orphans = orphans(&files, &roots);
    assert!(orphans.is_empty(), "in no target (a line in commands, library or machine): {orphans:?}");
}

#[test]
fn the_scanner_sees_orphans() {
    let files = [
        ("tests/all.rs", "#[path = \"common/one.rs\"]\n#[allow(dead_code)]\nmod one;\nmod two;\nmod three;"),
        ("tests/common/one.rs", "#[path = \"../beside.rs\"]\npub(crate) mod beside;"),
        ("tests/beside.rs", ""),
        ("tests/two.rs", "mod inner;\n// mod lost;"),
        ("tests/two/inner.rs", ""),
        ("tests/two/lost.rs", ""),
        ("tests/three/mod.rs", "pub mod deep;"),
        ("tests/three/deep.rs", ""),
        ("tests/three/lost.rs", ""),
    ];
    let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned())).into();
    let lost = ["tests/three/lost.rs", "tests/two/lost.rs"].map(PathBuf::from);
    assert_eq!(orphans(&files, &["tests/all.rs".into()]), lost);
}
