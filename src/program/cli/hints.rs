//! Suggested next commands after a profile was written, ready to copy.

use std::path::Path;

use clap::Parser;

use crate::settings::args::{Cli, Command};
use crate::store::{self, Paths};
use habitat_base::text::{CommandLine, shell_word};
use habitat_step::catalog::candidates;
use habitat_step::profile::Profile;

/// The current command with the value of `flag` replaced, or with the flag appended.
pub(super) fn with_flag(flag: &str, value: &str) -> String {
    let mut line = typed();
    line.set(flag, value);
    line.to_string()
}

/// The current command, so that it can be typed again. A job's own command follows after `--`.
pub(super) fn typed() -> CommandLine {
    let mut words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let command = Cli::try_parse_from(std::env::args_os()).ok().and_then(|cli| cli.command);
    if let Some(Command::Run(args)) = command
        && let Some(at) = words.len().checked_sub(args.command.len())
        && words[..at].last().is_none_or(|word| word != "--")
    {
        words.insert(at, "--".to_owned());
    }
    words.into_iter().collect()
}

/// A command line of this program.
pub(super) fn command_of(words: &[impl AsRef<str>]) -> String {
    words.iter().map(|word| word.as_ref().to_owned()).collect::<CommandLine>().to_string()
}

/// The lines that end a report: `next: habitat-tui FILE`, and the candidates if the catalog does not know the measured
/// GPU.
pub(super) fn lines(output: &Path, profile: &Profile) -> String {
    lines_for(&format!("habitat-tui {}", shell_word(&output.display().to_string())), profile)
}

/// The same for another command than the one that opens the screens.
pub(super) fn lines_for(command: &str, profile: &Profile) -> String {
    let plain = || format!("next: {command}");
    let Some(origin) = profile.origin.as_ref().filter(|origin| origin.gpu.is_none()) else { return plain() };
    // The command that needs the catalog reports that it cannot be read.
    let Ok(catalog) = store::catalog(&Paths::find()) else { return plain() };
    let candidates = candidates(profile, &catalog);
    if candidates.gpus.is_empty() {
        let which = if origin.gpu_name.is_some() {
            "the GPU is not in the catalog"
        } else {
            "the recording does not name the GPU"
        };
        let mine = Paths::find().catalog();
        let remedy = format!(
            "  {which}, which predictions need: pass `--origin GPU` (`habitat-tui gpus` lists all; add your own to {})",
            mine.display()
        );
        let has_shapes = profile.operations.iter().any(|operation| !operation.inputs.is_empty());
        return if has_shapes {
            format!("next: {command} --ignore-origin\n{remedy}, or predict from shapes alone, as above")
        } else {
            format!("next: {command}\n{remedy}; measured figures are shown without it")
        };
    }
    let why = candidates.why.map_or_else(String::new, |why| format!(" ({why})"));
    let commands: Vec<String> = candidates.gpus.iter().map(|gpu| format!("\n  {command} --origin {gpu}")).collect();
    format!("next, choose the recording GPU{why}:{}", commands.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::GpuSlug;

    #[test]
    fn what_is_missing_is_in_the_command() {
        let mut profile = store::bundled::sample(habitat_step::profile::Sample::default());
        let path = Path::new("x.habitat.json");
        assert_eq!(lines(path, &profile), "next: habitat-tui x.habitat.json");
        let origin = profile.origin.as_mut().unwrap();
        origin.gpu = None;
        origin.gpu_name = Some("NVIDIA H100 of another make".to_owned());
        let said = lines(path, &profile);
        assert!(said.contains("\n  habitat-tui x.habitat.json --origin h100-sxm5-80gb"), "{said}");
        profile.origin.as_mut().unwrap().gpu_name = Some("unnamed AMD GPU, compute capability 9.5".to_owned());
        assert!(lines(path, &profile).starts_with("next: habitat-tui x.habitat.json --ignore-origin\n"));
        profile.origin.as_mut().unwrap().gpu = Some(GpuSlug::new("l4").unwrap());
        assert_eq!(lines(path, &profile), "next: habitat-tui x.habitat.json");
    }
}
