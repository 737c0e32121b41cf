//! Inputs that the fuzz targets found or start from (`fuzz/corpus/`), through the same functions. Each kind of input
//! has its own process, with a limit on time and memory.
//!
//! `HABITAT_TUI_FUZZ_FILE=kineto/name` reads one file in this process, for a debugger. `fuzz/run` makes new files.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/needs.rs"]
mod needs;
#[cfg(target_os = "linux")]
#[path = "fuzz/readers.rs"]
mod readers;

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    if let Ok(asked) = std::env::var("HABITAT_TUI_FUZZ_FILE") {
        corpus::replay(&asked);
        return std::process::ExitCode::SUCCESS;
    }
    needs::run([
        #[cfg(target_os = "linux")]
        corpus::trials(),
    ])
}

#[cfg(target_os = "linux")]
mod corpus {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use libtest_mimic::Trial;

    use super::needs::trial;
    use super::readers::{READERS, run};

    /// Limits for all files of a kind: CPU seconds, and kilobytes of memory including reserved memory.
    const SECONDS: u64 = 60;
    const MEMORY: u64 = 1_000_000;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus")
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Reads one file, or all of a kind.
    pub(super) fn replay(asked: &str) {
        let (reader, file) = asked.split_once('/').unwrap_or((asked, ""));
        let folder = folder().join(reader);
        let files = if file.is_empty() { names(&folder) } else { vec![file.to_owned()] };
        for name in files {
            eprintln!("{reader}/{name}");
            run(reader, &std::fs::read(folder.join(name)).unwrap());
        }
    }

    pub(super) fn trials() -> Vec<Trial> {
        let mut all = vec![trial("every_reader_has_a_corpus", || Ok(()), |()| every_reader_has_a_corpus())];
        all.extend(READERS.map(|(reader, _)| trial(reader, || Ok(()), move |()| is_read(reader))));
        all
    }

    fn every_reader_has_a_corpus() {
        let mut readers = READERS.map(|(reader, _)| reader);
        readers.sort_unstable();
        assert_eq!(names(&folder()), readers);
        let targets = std::fs::read_to_string(folder().with_file_name("Cargo.toml")).unwrap();
        for reader in readers {
            assert!(!names(&folder().join(reader)).is_empty(), "{reader}");
            assert!(targets.contains(&format!("[[bin]]\nname = \"{reader}\"\n")), "{reader} is not a target");
        }
    }

    fn is_read(reader: &str) {
        let limits = format!("ulimit -v {MEMORY}; ulimit -t {SECONDS}; ulimit -c 0; exec \"$0\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(limits).arg(std::env::current_exe().unwrap()).env("HABITAT_TUI_FUZZ_FILE", reader);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = said.lines().rev().take(30).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        assert!(output.status.success(), "{}, the last lines:\n{}", output.status, last.join("\n"));
    }
}
