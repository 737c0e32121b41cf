//! Detection of a file's kind from its content. The only place with the list of kinds, the commands that read them, and
//! the message for other files.

use std::path::Path;

use super::files::{beginning, read_text};
use super::{Limit, StoreError, nsys};
use habitat_base::text;
use habitat_step::op_list::looks_like_op_list;
use habitat_step::profile::FORMAT;
use habitat_traces::Format;
use habitat_traces::xplane::looks_like_xplane;

/// Number of bytes to examine.
const HEAD: u64 = 1 << 16;

/// Files with a recorded step, in words.
pub const STEPS: &str = "a profile (.habitat.json), a PyTorch trace (.json), both also .gz or .zst, an export of Nsight Systems (.sqlite), an XPlane recording (.xplane.pb) or an op list";

/// A file of several jobs, in words.
pub const JOBS: &str = "a jobs file";

/// A plan as TOML, in words.
pub const PLAN: &str = "a plan";

/// Kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A profile.
    Profile,
    /// A recording that has to be imported.
    Recording(Format),
    /// A list of traced operators.
    OpList,
    /// Totals of operator kinds.
    BlackBox,
    /// A file without a recorded step.
    Other(Other),
}

/// A file without a recorded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its apparent kind, with an article.
    pub what: String,
    /// Advice, in words.
    pub remedy: Option<String>,
}

impl Kind {
    /// Words for the kind, with an article.
    pub fn what(&self) -> &str {
        match self {
            Self::Profile => "a profile",
            Self::Recording(Format::Kineto) => "a PyTorch trace",
            Self::OpList => "an op list",
            Self::Recording(Format::Nsight) => "an SQLite file, like an export of Nsight Systems",
            Self::Recording(Format::Xplane) => "an XPlane recording",
            Self::BlackBox => "a black box",
            Self::Other(other) => &other.what,
        }
    }

    /// Command that reads it, in words; `None` if there is none.
    pub fn remedy(&self, path: &Path) -> Option<String> {
        let file = text::shell_word(&path.display().to_string());
        match self {
            Self::Profile => Some(format!("`habitat-tui {file}` opens it")),
            Self::Recording(_) | Self::OpList => {
                Some(format!("`habitat-tui import {file} -o FILE.habitat.json.zst` converts it to a profile"))
            }
            Self::BlackBox => Some(format!("`habitat-tui predict --black-box {file}` and `plan` read it")),
            Self::Other(other) => other.remedy.clone(),
        }
    }

    /// Error of a command that reads only files described by `accepted`.
    pub fn refused(&self, path: &Path, accepted: &str) -> StoreError {
        let remedy = self.remedy(path).map_or_else(String::new, |remedy| format!("; {remedy}"));
        StoreError::content(path, format!("looks like {}{remedy}. Expected {accepted}", self.what()))
    }
}

/// Detects the kind of a file.
///
/// # Errors
/// [`StoreError`] if it cannot be read or decompressed.
pub fn kind(path: &Path) -> Result<Kind, StoreError> {
    Ok(of(&beginning(path, HEAD)?, path))
}

/// Text of a TOML file that must be of the kind `wanted` ([`JOBS`], [`PLAN`]). Texts without the marks of any kind are
/// left to the parser, whose error has the line; an empty file has none.
///
/// # Errors
/// [`StoreError`] if the file cannot be read, or is of another kind: with the command that reads it.
pub fn read_toml(path: &Path, wanted: &str) -> Result<String, StoreError> {
    let text = read_text(path, Limit::PLAN)?;
    match of(text.as_bytes(), path) {
        Kind::Other(Other { what, .. }) if !text.starts_with('{') && (what == wanted || !OTHERS.contains(&&*what)) => {
            Ok(text)
        }
        other => Err(other.refused(path, wanted)),
    }
}

/// A file of nothing but white space.
const EMPTY: &str = "an empty file";

/// TOML files of this program that commands read, by their words, and empty ones.
const OTHERS: [&str; 5] = [JOBS, PLAN, "a price file", "a catalog file", EMPTY];

/// Kind of a TOML file of this program and advice, by tables and keys that only one kind has.
fn of_toml(text: &str, file: &str) -> Option<(&'static str, String)> {
    let lines = || text.lines().map(str::trim_start);
    let has = |start: &str| lines().any(|line| line.starts_with(start));
    let is = |key: &str| lines().any(|line| line.split('=').next().is_some_and(|name| name.trim_end() == key));
    if has("[[job]]") {
        Some((JOBS, format!("`habitat-tui plan-jobs {file}` plans its jobs")))
    } else if text.contains("\"habitat-plan\"") || (has("[plan]") && is("format")) {
        let remedy = format!(
            "`habitat-tui plan --from {file}` plans it again, `habitat-tui run --plan {file} -- python train.py` follows it"
        );
        Some((PLAN, remedy))
    } else {
        let what = match (has("[[offer]]") || is("provider"), is("slug")) {
            (true, _) => "a price file",
            (false, true) => "a catalog file",
            (false, false) => return None,
        };
        Some((what, format!("`habitat-tui check {file}` checks it; `habitat-tui config` prints the folder for it")))
    }
}

/// Detects the kind from the decompressed beginning of a file.
fn of(head: &[u8], path: &Path) -> Kind {
    let has = |mark: &str| head.windows(mark.len()).any(|window| window == mark.as_bytes());
    if nsys::looks_like_sqlite(head) {
        return Kind::Recording(Format::Nsight);
    }
    if looks_like_xplane(head) {
        return Kind::Recording(Format::Xplane);
    }
    if let Some(other) = of_bytes(head, path) {
        return Kind::Other(other);
    }
    let text = head.trim_ascii_start();
    let format = format_of(text);
    match format.as_deref() {
        Some(format) if format == FORMAT => return Kind::Profile,
        Some("habitat-black-box") => return Kind::BlackBox,
        _ => {}
    }
    if looks_like_op_list(head) || format.as_deref() == Some("habitat-op-list") {
        return Kind::OpList;
    }
    if let Some(other) = format.as_deref().and_then(of_ours) {
        return Kind::Other(other);
    }
    let marks = ["\"traceEvents\"", "\"deviceProperties\"", "\"schemaVersion\"", "\"baseTimeNanoseconds\""];
    let is_list = text.strip_prefix(b"[").is_some_and(|rest| matches!(rest.trim_ascii_start(), [] | [b'{' | b']', ..]));
    if is_list || (text.starts_with(b"{") && marks.iter().any(|mark| has(mark))) {
        return Kind::Recording(Format::Kineto);
    }
    // The field may be at the end of a long file.
    if has(FORMAT) {
        return Kind::Profile;
    }
    Kind::Other(of_text(text, path))
}

/// Value of a field `"format"` near the beginning of a JSON object.
fn format_of(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(&text[..text.len().min(512)]).unwrap_or_default();
    let rest = text.strip_prefix('{')?.split_once("\"format\"")?.1.trim_start().strip_prefix(':')?;
    let value = rest.trim_start().strip_prefix('"')?.split_once('"')?.0;
    Some(value.to_owned())
}

/// Files of this program without a recorded step.
fn of_ours(format: &str) -> Option<Other> {
    let (what, remedy) = match format {
        "habitat-kernel-wise" => ("linear models", "predict and plan read them with `--kernel-wise FILE`"),
        "habitat-black-box-model" => {
            ("a black-box model", "save it as blackbox.json in a folder and pass `--models DIR`")
        }
        "habitat-plan" => (
            "a plan as JSON",
            "it is the result for a recorded step: use that step; `plan --toml` writes plans that commands read",
        ),
        _ if format.starts_with("habitat-") => {
            let what = format!("output of this program ({})", text::clean(format, 40));
            let remedy = "use the recorded step that it was made from, or that its \"profile\" names";
            return Some(Other { what, remedy: Some(remedy.to_owned()) });
        }
        _ => return None,
    };
    Some(Other { what: what.to_owned(), remedy: Some(remedy.to_owned()) })
}

/// Kinds detected from the first bytes, or from the name for files that only one program can read.
fn of_bytes(head: &[u8], path: &Path) -> Option<Other> {
    let other =
        |what: &str, remedy: Option<&str>| Some(Other { what: what.to_owned(), remedy: remedy.map(str::to_owned) });
    if let Some((what, remedy)) = nsys::remedy(path) {
        return Some(Other { what: what.to_owned(), remedy: Some(remedy) });
    }
    if is_utf16(head) {
        let file = text::shell_word(&path.display().to_string());
        let remedy = format!("`iconv -f UTF-16 -t UTF-8 {file} > NEW.json` converts it");
        return other("text in UTF-16, as written by PowerShell's `>`", Some(&remedy));
    }
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        let remedy = "run `git lfs pull` in its repository";
        return other("a Git LFS pointer, not the file itself", Some(remedy));
    }
    if head.iter().all(u8::is_ascii_whitespace) {
        return other(EMPTY, Some("the program that wrote it may have ended early, or the disk was full"));
    }
    let pictures: [(&[u8], &str); 5] = [
        (b"\x89PNG", "a picture (PNG)"),
        (b"\xff\xd8\xff", "a picture (JPEG)"),
        (b"GIF8", "a picture (GIF)"),
        (b"%PDF", "a PDF"),
        (b"\x7fELF", "a program or library"),
    ];
    if let Some((_, what)) = pictures.iter().find(|(magic, _)| head.starts_with(magic)) {
        return other(what, None);
    }
    let step = "record a step with `habitat-tui run`, or trace one from the model's code with `trace-shapes`";
    if head.starts_with(b"PK\x03\x04") {
        return other("a zip archive, such as a PyTorch checkpoint", Some(step));
    }
    if head.starts_with(b"\x89HDF") || matches!(head, [0x80, 2..=5, ..]) {
        return other("a file of weights or data (HDF5 or pickle)", Some(step));
    }
    if head.len() > 9 && head[8] == b'{' && head[4..8] == [0; 4] && head[..3] != [0; 3] {
        return other("weights (safetensors)", Some(step));
    }
    if head.get(257..262) == Some(b"ustar") {
        return other("a tar archive", Some("unpack it first"));
    }
    // The text may be truncated within a character.
    let valid = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    let controls = head.iter().filter(|byte| **byte < 9 || (14..32).contains(*byte)).count();
    if !valid || controls > 0 { other("binary data of unknown kind", None) } else { None }
}

/// Whether bytes are UTF-16 text in either byte order: every letter has a zero byte next to it.
fn is_utf16(head: &[u8]) -> bool {
    let (marked, text) = match head {
        [0xff, 0xfe, rest @ ..] | [0xfe, 0xff, rest @ ..] => (true, rest),
        _ => (false, head),
    };
    let letters = |at: usize| {
        let pairs = text.as_chunks::<2>().0.iter().take(64);
        pairs.clone().next().is_some() && pairs.clone().all(|pair| pair[at] == 0 && (9..127).contains(&pair[1 - at]))
    };
    (marked || text.len() >= 8) && (letters(0) || letters(1))
}

/// Detects the kind of a text.
fn of_text(text: &[u8], path: &Path) -> Other {
    let text = String::from_utf8_lossy(text);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let is = |name: &str| extension.as_deref() == Some(name);
    let file = text::shell_word(&path.display().to_string());
    let other = |what: &str, remedy: Option<String>| Other { what: what.to_owned(), remedy };
    if text.starts_with('{') {
        let what = "JSON without the fields of a step";
        return other(
            what,
            Some("a profile contains \"format\": \"habitat-profile\", a trace \"traceEvents\"".to_owned()),
        );
    }
    if is("py") {
        let remedy = format!(
            "`habitat-tui run -- python {file}` records a step of it, `habitat-tui trace-shapes {file}:FUNCTION` traces one"
        );
        return other("a Python program", Some(remedy));
    }
    let is_section = |line: &str| line.starts_with('[') && line.trim_end().ends_with(']');
    if is("toml") || text.lines().take(20).any(is_section) {
        let unknown = || ("TOML", format!("`habitat-tui check {file}` shows its kind"));
        let (what, remedy) = of_toml(&text, &file).unwrap_or_else(unknown);
        return other(what, Some(remedy));
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).take(3);
    let columns = |line: &str| line.matches(',').count().max(line.matches('\t').count()).max(line.matches(';').count());
    let first = lines.next().map_or(0, columns);
    if is("csv") || is("tsv") || (first > 0 && lines.next().is_some_and(|line| columns(line) == first)) {
        let remedy = format!(
            "read a log of runs with `habitat-tui fit {file} --at 256x10000`, measured operators with `--measured DIR`"
        );
        return other("a table (CSV)", Some(remedy));
    }
    other("text", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, head: &[u8]) -> String {
        of(head, Path::new(name)).what().to_owned()
    }

    #[test]
    fn steps_are_told_by_their_content() {
        for (head, kind) in [
            (&b"{\"format\": \"habitat-profile\", \"version\": 1"[..], Kind::Profile),
            (b" \n{ \"traceEvents\": [", Kind::Recording(Format::Kineto)),
            (b"[\n {\"ph\": \"X\"", Kind::Recording(Format::Kineto)),
            (b"{\"schemaVersion\": 1, \"deviceProperties\": [", Kind::Recording(Format::Kineto)),
            (b"{\"info\": {}, \"ops\": [{\"op\": \"aten::mm\", \"inputs\": []", Kind::OpList),
            (b"{\"format\": \"habitat-op-list\", \"version\": 1", Kind::OpList),
            (b"SQLite format 3\0", Kind::Recording(Format::Nsight)),
            (b"\x0a\x05\x12\x09/host:CPU", Kind::Recording(Format::Xplane)),
            (b"{\"format\" : \"habitat-black-box\", \"gpu\"", Kind::BlackBox),
        ] {
            assert_eq!(of(head, Path::new("x")), kind, "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn what_is_no_step_is_told_too() {
        for (name, head, what) in [
            ("x.json", &b""[..], "an empty file"),
            ("x.json", b" \n", "an empty file"),
            ("x.png", b"\x89PNG\r\n\x1a\n\0\0", "a picture (PNG)"),
            ("x.pt", b"PK\x03\x04\x00", "a zip archive, such as a PyTorch checkpoint"),
            ("x", b"\x08\0\0\0\0\0\0\0{\"__met", "weights (safetensors)"),
            ("x.json", b"{\"a\": 1}", "JSON without the fields of a step"),
            ("x.json", b"{\"format\": \"habitat-kernel-wise\"", "linear models"),
            ("x.json", b"{\"format\": \"habitat-run\"", "output of this program (habitat-run)"),
            ("x.json", b"{\"format\": \"habitat-job\"", "output of this program (habitat-job)"),
            ("x.csv", b"batch,ms\n1,2\n", "a table (CSV)"),
            ("x", b"batch,iterations,seconds\n1,2,3\n", "a table (CSV)"),
            ("train.py", b"import torch\n", "a Python program"),
            ("x.toml", b"slug = \"l4\"", "a catalog file"),
            ("x.toml", b"provider = \"me\"", "a price file"),
            ("x.toml", b"theme = \"dark\"\n[plan]\naccept = []", "TOML"),
            ("x", b"# plan\n[plan]\nformat = 1", PLAN),
            ("x", b"[plan]\nformat = 1", PLAN),
            ("x", b"budget = 400\n[[job]]\nname = \"a\"", JOBS),
            ("x.txt", b"hello", "text"),
            ("x", b"\xff\xfe\x00\x01", "binary data of unknown kind"),
            ("x.json", b"\xff\xfe{\0\"\0", "text in UTF-16, as written by PowerShell's `>`"),
            ("x.json", b"\xfe\xff\0{\0\"", "text in UTF-16, as written by PowerShell's `>`"),
            ("x.json", b"{\0\"\0a\0\"\0", "text in UTF-16, as written by PowerShell's `>`"),
            (
                "x.json.gz",
                b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
                "a Git LFS pointer, not the file itself",
            ),
        ] {
            assert_eq!(told(name, head), what, "{name}");
        }
        assert!(told("a.nsys-rep", b"\0\0").starts_with("an Nsight Systems report"));
    }

    #[test]
    fn an_error_says_what_it_is_what_is_read_and_what_reads_it() {
        let said = of(b"{\"format\": \"habitat-black-box\"", Path::new("b.json")).refused(Path::new("b.json"), STEPS);
        let said = said.to_string();
        assert!(said.starts_with("b.json: looks like a black box; `habitat-tui predict --black-box b.json`"), "{said}");
        assert!(said.contains("Expected a profile (.habitat.json)"), "{said}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let _ = of(&bytes, Path::new("x"));
        }
    }
}
