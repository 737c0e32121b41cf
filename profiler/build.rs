//! Embeds the recorder for CUDA programs (`cupti`) in release builds, so that `cargo install` includes it. Other builds
//! have it beside the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECORDER: &str = "cupti";
const LIBRARY: &str = "libhabitat_cupti.so";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_recorder)");
    println!("cargo::rerun-if-changed=build.rs");
    // Packages of crates.io do not contain other packages.
    let is_there = Path::new(RECORDER).join("Cargo.toml").exists();
    if !is_there || text("CARGO_CFG_TARGET_OS") != "linux" || text("PROFILE") != "release" {
        return;
    }
    println!("cargo::rerun-if-changed={RECORDER}");
    match build() {
        Ok(()) => println!("cargo::rustc-cfg=has_recorder"),
        Err(why) => println!("cargo::warning=built without the recorder for `run --cupti`: {why}"),
    }
}

fn text(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// Builds the library in its own target folder, and copies it to the path that the program includes.
fn build() -> Result<(), String> {
    let out = PathBuf::from(text("OUT_DIR"));
    let folder = out.join("recorder");
    // It is loaded into programs that use the system's C library, whatever ours links to.
    let target = text("TARGET").replace("musl", "gnu");
    let status = Command::new(text("CARGO"))
        .args(["build", "--release", "--quiet", "--target", &target, "--target-dir"])
        .arg(&folder)
        .args(["--manifest-path", &format!("{RECORDER}/Cargo.toml")])
        // Flags for the program, such as those of a static build, do not apply to the library.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .status()
        .map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("cargo build of {RECORDER}: {status}"));
    }
    let library = folder.join(target).join("release").join(LIBRARY);
    std::fs::copy(&library, out.join(LIBRARY)).map_err(|error| format!("{}: {error}", library.display()))?;
    Ok(())
}
