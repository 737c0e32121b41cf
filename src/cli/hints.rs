//! What to type next, now that a profile was written: commands that run as they stand.

use std::path::Path;

use crate::predict::origin::candidates;
use crate::profile::Profile;
use crate::store::{self, Paths};
use crate::text::{self, shell_word};

/// What was typed, with `flag VALUE` in place of the value that the flag had, or at the end.
pub(super) fn with_flag(flag: &str, value: &str) -> String {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    retyped(&typed, flag, value)
}

/// What was typed, as a command that can be typed again.
pub(super) fn typed() -> String {
    command_of(&std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
}

fn retyped(typed: &[String], flag: &str, value: &str) -> String {
    let equals = format!("{flag}=");
    let mut words = typed.to_vec();
    // What follows `--` is another program's.
    let own = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let place = (0..own).find(|at| typed[*at] == flag || typed[*at].starts_with(&equals));
    match place {
        Some(at) if typed[at] == flag && at + 1 < own => value.clone_into(&mut words[at + 1]),
        Some(at) => words[at] = format!("{equals}{value}"),
        None => drop(words.splice(own..own, [flag.to_owned(), value.to_owned()])),
    }
    command_of(&words)
}

/// A command of this program, its words as a shell takes them; what begins with a dash is a flag.
pub(super) fn command_of(words: &[impl AsRef<str>]) -> String {
    let shown = words.iter().map(|word| match word.as_ref() {
        flag if flag.starts_with('-') => match flag.split_once('=') {
            Some((name, value)) => format!("{}={}", text::clean(name, 100), shell_word(value)),
            None => text::clean(flag, 100),
        },
        word => shell_word(word),
    });
    format!("habitat-tui {}", shown.collect::<Vec<_>>().join(" "))
}

/// The lines that end a report: `next: habitat-tui FILE`, and where the catalog does not
/// know the GPU that was measured, what there is to choose from.
pub(super) fn lines(output: &Path, profile: &Profile) -> String {
    lines_for(&format!("habitat-tui {}", shell_word(&output.display().to_string())), profile)
}

/// The same for a command that is not to open the screens.
pub(super) fn lines_for(command: &str, profile: &Profile) -> String {
    let plain = || format!("next: {command}");
    let Some(origin) = profile.origin.as_ref().filter(|origin| origin.gpu.is_none()) else { return plain() };
    // A catalog that cannot be read is told by the command that needs it.
    let Ok(catalog) = store::catalog(&Paths::find()) else { return plain() };
    let candidates = candidates(profile, &catalog);
    if candidates.gpus.is_empty() {
        let which =
            if origin.gpu_name.is_some() { "the catalog does not have the GPU" } else { "the GPU is not named" };
        let mine = Paths::find().catalog();
        let remedy = format!(
            "  {which}: predictions need to know which it was (`--origin GPU`; `habitat-tui gpus` lists all, your own go into {})",
            mine.display()
        );
        let has_shapes = profile.operations.iter().any(|operation| !operation.inputs.is_empty());
        return if has_shapes {
            format!("next: {command} --ignore-origin\n{remedy}, or start from the shapes alone, as this does")
        } else {
            format!("next: {command}\n{remedy}; what was measured is shown without")
        };
    }
    let why = candidates.why.map_or_else(String::new, |why| format!(" ({why})"));
    let commands: Vec<String> = candidates.gpus.iter().map(|gpu| format!("\n  {command} --origin {gpu}")).collect();
    format!("next, by the GPU that it was recorded on{why}:{}", commands.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GpuSlug;

    #[test]
    fn a_command_is_typed_again_with_another_value() {
        let with_flag = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            retyped(&typed, "--origin", "l4")
        };
        assert_eq!(with_flag("predict x.json --origin a100 --json"), "habitat-tui predict x.json --origin l4 --json");
        assert_eq!(with_flag("predict --origin=a100 x.json"), "habitat-tui predict --origin=l4 x.json");
        assert_eq!(with_flag("x --name=it's"), "habitat-tui x --name='it'\\''s' --origin l4");
        assert_eq!(with_flag("x \u{1b}y"), "habitat-tui x $'\\x1by' --origin l4");
        assert_eq!(with_flag("predict it's"), "habitat-tui predict 'it'\\''s' --origin l4");
        assert_eq!(with_flag("run -- python --origin a"), "habitat-tui run --origin l4 -- python --origin a");
    }

    #[test]
    fn what_is_missing_is_in_the_command() {
        let mut profile = store::bundled::sample();
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
