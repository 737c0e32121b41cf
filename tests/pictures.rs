//! The pictures of README and docs equal what the program draws.
//!
//! `UPDATE_PICTURES=1 cargo test --test commands pictures::` redraws them.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The program's picture for these arguments, without the user's settings.
fn drawn(arguments: &[&str], size: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("picture.svg");
    let output = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .args(arguments)
        .args(["--size", size, "--color", "true", "--theme", "dark", "--screenshot"])
        .arg(&file)
        .current_dir(root())
        .env("HABITAT_TUI_CONFIG_DIR", home.path())
        .env("LANG", "C.UTF-8")
        // The age of prices counts from this day, 2026-11-22.
        .env("SOURCE_DATE_EPOCH", "1795305600")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(&file).unwrap()
}

/// Compares a picture with the stored one, or stores it.
fn check(name: &str, fresh: &str) {
    let kept = folder().join(name);
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(kept, fresh).unwrap();
        return;
    }
    assert!(
        std::fs::read_to_string(kept).unwrap_or_default() == fresh,
        "{name} is out of date: UPDATE_PICTURES=1 cargo test --test commands pictures::, then look at it"
    );
}

/// The letters of a picture, without shapes.
fn words(picture: &str) -> String {
    let pieces = picture.split("</text>").filter_map(|piece| piece.rsplit_once('>')).map(|(_, letters)| letters);
    pieces.collect::<Vec<_>>().join(" ")
}

fn folder() -> PathBuf {
    root().join("tests/snapshots/pictures")
}

#[test]
fn pictures_show_the_program_as_it_is() {
    for screen in ["overview", "profile", "predict", "plan"] {
        for size in ["80x24", "120x40"] {
            check(&format!("{screen}-{size}.svg"), &drawn(&["--screen", screen], size));
        }
    }
}

/// Text on the screen that answers each question, at every size.
const ANSWERS: [&str; 10] = [
    "recommendation",
    "by family",
    "GeForce RTX 4090",
    "times as long",
    "what if: GeForce RTX 4090 with changed specifications",
    "in amp-bf16",
    "batch size on GeForce RTX 4090",
    "1 h",
    "best trade-offs (Pareto front)",
    "longer",
];

/// Each question of docs/questions.md names the keys that answer it, and shows the resulting screen.
#[test]
fn the_questions_are_answered_by_the_keys_they_name() {
    let text = std::fs::read_to_string(root().join("docs/questions.md")).unwrap();
    let mut count = 0;
    for question in text.split("\n## ").skip(1) {
        count += 1;
        let line = question.lines().find(|line| line.starts_with("Keys: ")).unwrap_or_else(|| panic!("{question}"));
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let (keys, command) = (quoted[0], quoted.get(1).copied().unwrap_or("habitat-tui"));
        let files: Vec<&str> = command.split_whitespace().skip(1).collect();
        for size in ["80x24", "120x40"] {
            let name = format!("question-{count}-{size}.svg");
            assert!(question.contains(&format!("(../tests/snapshots/pictures/{name})")), "{name}: {question}");
            let picture = drawn(&[&files[..], &["--keys", keys]].concat(), size);
            let words = words(&picture);
            assert!(words.contains(ANSWERS[count - 1]), "{name} does not say {:?}: {words}", ANSWERS[count - 1]);
            check(&name, &picture);
        }
    }
    assert_eq!(count, ANSWERS.len());
}

/// Keys in turn, and the caption of each.
const TOUR: [(&str, &str); 10] = [
    ("", "One step was recorded: which GPU, how long, what it costs"),
    ("2", "2: where the time of the step goes, operation by operation"),
    ("2 b b", "b: the same by kind of operation, and the step as a line"),
    ("2 R", "R: which operations reach what the GPU can do"),
    ("3", "3: the step on every GPU, with its range and method"),
    ("3 / 4 0 9 0 enter", "/: one of them, with what a dollar buys"),
    ("3 / 4 0 9 0 enter D", "D: which operations make the difference"),
    ("3 / 4 0 9 0 enter F l l l l", "F: what if it had twice the memory bandwidth?"),
    ("4 down = 1 h enter", "4: what to rent to be done within an hour"),
    ("4 v v tab", "v: every plan that none beats in both cost and time"),
];
/// Seconds per screen.
const SECONDS: usize = 4;
/// Height of the caption below.
const CAPTION: f64 = 34.0;

/// The screens of the tour in turn, in one file that is animated in a browser. Without animation (reduced motion, or
/// viewers without CSS) the first screen shows.
#[test]
fn the_tour_is_what_the_program_shows() {
    let (mut frames, mut size) = (String::new(), [0.0; 2]);
    for (at, (keys, words)) in TOUR.iter().enumerate() {
        let picture = drawn(&["--keys", keys], "100x30");
        let attribute = |name: &str| -> f64 {
            let from = picture.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
            picture[from..].split('"').next().unwrap().parse().unwrap()
        };
        size = [attribute("width"), attribute("height")];
        let inside = &picture[picture.find("<rect").unwrap()..picture.rfind("</svg>").unwrap()];
        let inside = inside.replace("height=\"100%\"", &format!("height=\"{}\"", size[1]));
        write!(
            frames,
            "<g class=\"frame\"{} style=\"animation-delay:{}s\">\n{inside}<text x=\"14\" y=\"{:.0}\" font-family=\"sans-serif\" \
             font-size=\"17\" fill=\"#4f9bd9\">{}</text>\n</g>\n",
            if at == 0 { "" } else { " visibility=\"hidden\"" },
            at * SECONDS,
            size[1] + CAPTION - 11.0,
            words.replace('&', "&amp;")
        )
        .unwrap();
    }
    let [width, height] = [size[0], size[1] + CAPTION];
    let tour = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-labelledby=\"title\">\n<title id=\"title\">habitat-tui: ten screens, {SECONDS} seconds each</title>\n\
         <style>.frame{{animation:frame {}s step-end infinite}}\
         @keyframes frame{{0%{{visibility:visible}}{}%{{visibility:hidden}}}}\
         @media(prefers-reduced-motion:reduce){{.frame{{animation:none}}}}</style>\n\
         {frames}</svg>\n",
        SECONDS * TOUR.len(),
        100 / TOUR.len(),
    );
    // Without the style sheet, one frame is visible: no attribute hides its letters.
    let frames: Vec<&str> = tour.split("<g class=\"frame\"").skip(1).collect();
    let shown: Vec<_> = frames.iter().filter(|frame| !frame.starts_with(" visibility=\"hidden\"")).collect();
    assert!(shown.len() == 1 && words(shown[0]).contains("recommendation"));
    check("tour.svg", &tour);
}
