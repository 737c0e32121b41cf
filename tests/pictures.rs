//! The README's pictures are what the program draws of the embedded sample.
//!
//! `UPDATE_PICTURES=1 cargo test --test pictures` draws them anew.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::Path;
use std::process::Command;

/// Draws one screen to `file`, with no settings of the user's.
fn draw(screen: &str, size: &str, file: &Path) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .args(["--screen", screen, "--size", size, "--color", "true", "--theme", "dark", "--force", "--screenshot"])
        .arg(file)
        .env("HABITAT_TUI_CONFIG_DIR", home.path())
        .env("LANG", "C.UTF-8")
        // The age of prices is that of this day, 2026-11-22.
        .env("SOURCE_DATE_EPOCH", "1795305600")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pictures_show_the_program_as_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/pictures");
    let update = std::env::var_os("UPDATE_PICTURES").is_some();
    let scratch = tempfile::tempdir().unwrap();
    for screen in ["overview", "profile", "predict", "plan"] {
        for size in ["80x24", "120x40"] {
            let name = format!("{screen}-{size}.svg");
            if update {
                std::fs::create_dir_all(&folder).unwrap();
                draw(screen, size, &folder.join(&name));
                continue;
            }
            let fresh = scratch.path().join(&name);
            draw(screen, size, &fresh);
            let (fresh, kept) =
                (std::fs::read_to_string(&fresh).unwrap(), std::fs::read_to_string(folder.join(&name)).unwrap());
            assert!(
                fresh == kept,
                "{name} is out of date: UPDATE_PICTURES=1 cargo test --test pictures, then look at it"
            );
        }
    }
}
