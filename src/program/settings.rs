//! User settings: arguments, the settings file, keys and themes as data.

pub mod args;
mod choices;
pub mod file;
pub mod goal_args;
pub mod jobs;

/// The TOML example in the header of a source file.
#[cfg(test)]
fn example(source: &str) -> String {
    let lines = source.lines().skip_while(|line| !line.starts_with("//! ```toml")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("//! ```"));
    lines.flat_map(|line| [line.trim_start_matches("//!").trim_start(), "\n"]).collect()
}
