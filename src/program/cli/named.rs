//! Default names of recordings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Extension of profiles with a default name.
const PROFILE: &str = "habitat.json.zst";

/// Name of a job: its script, module or program.
pub(super) fn job_name(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let stem = |word: &str| {
        Path::new(word).file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned())
    };
    let file = words.iter().skip(1).find(|word| Path::new(&***word).extension().is_some_and(|e| e == "py"));
    let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
    match (file, words.first()) {
        (Some(file), _) => stem(file),
        (None, first) => module()
            .map(ToString::to_string)
            .or_else(|| first.map(|program| stem(program)))
            .unwrap_or_else(|| "job".to_owned()),
    }
}

/// Longest stem of a file name in bytes. Most file systems allow 255 for a whole name, and ours have a date, a number and
/// an extension.
const LONGEST: usize = 100;

/// Turns a name into the stem of a file name.
pub(super) fn file_stem(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let clean = clean.trim_start_matches('.');
    let end = (0..=clean.len().min(LONGEST)).rev().find(|end| clean.is_char_boundary(*end));
    clean[..end.unwrap_or_default()].to_owned()
}

/// An unused profile name in the current folder; its log's name is unused, too.
pub(super) fn unused_profile(job: &str) -> PathBuf {
    let stem = format!("{}-{}", file_stem(job), jiff::Zoned::now().date());
    let is_free = |name: &String| [PROFILE, "log"].iter().all(|end| !Path::new(&format!("{name}.{end}")).exists());
    let name =
        (1..10_000).map(|number| if number == 1 { stem.clone() } else { format!("{stem}-{number}") }).find(is_free);
    PathBuf::from(format!("{}.{PROFILE}", name.unwrap_or(stem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_by_its_script() {
        let named = |line: &str| job_name(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named("python -u runs/train.py --lr 1"), "train");
        assert_eq!(named("python -m my.train"), "my.train");
        assert_eq!(named("python -m torch.distributed.run --nproc 2 pre.py"), "pre");
        assert_eq!(named("/bin/sh run.sh"), "sh");
        // A name of Japanese characters is three bytes for each.
        assert_eq!([file_stem(&"x".repeat(300)).len(), file_stem(&"学".repeat(300)).len()], [100, 99]);
        let unused = unused_profile("../x");
        assert!(unused.to_string_lossy().starts_with("-x-20"), "{unused:?}");
    }
}
