//! Relative links in the papers lead somewhere: files are there, and so are headings.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

/// Every `*.md` below `folder`, without what is built or hidden.
fn papers(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(papers(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// Targets of `[text](target)`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let papers = papers(root);
    assert!(papers.iter().any(|path| path.ends_with("docs/guide.md")));
    let (mut broken, mut checked) = (Vec::new(), 0);
    for paper in papers {
        let text = std::fs::read_to_string(&paper).unwrap();
        for target in targets(&text).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { paper.clone() } else { paper.parent().unwrap().join(file) };
            let is_right = there.exists()
                && (anchor.is_empty()
                    || anchors(&std::fs::read_to_string(&there).unwrap()).iter().any(|it| it == anchor));
            checked += 1;
            if !is_right {
                broken.push(format!("{}: {target}", paper.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checked > 50, "{checked} links");
}
