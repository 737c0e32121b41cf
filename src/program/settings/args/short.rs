//! Short help (`-h`) of commands with many flags: the most common ones, on one screen.

use clap::{Command, CommandFactory};

use super::Cli;

/// Flags in the short help of a command, by id; positional arguments are always shown. Commands not listed here show
/// all flags. The empty name is the program itself.
const SHORT: [(&str, &[&str]); 5] = [
    ("", &[]),
    (
        "plan",
        &[
            "from",
            "epochs",
            "dataset",
            "steps",
            "global_batch",
            "deadline",
            "budget",
            "objective",
            "gpus",
            "providers",
            "own",
            "accept",
            "precision",
            "frontier",
            "html",
            "json",
            "output",
        ],
    ),
    (
        "predict",
        &[
            "origin",
            "batch_size",
            "precision",
            "host",
            "to",
            "operations",
            "all_methods",
            "what_if",
            "difference",
            "html",
            "json",
            "csv",
            "output",
        ],
    ),
    (
        "run",
        &[
            "output",
            "after",
            "window",
            "every",
            "stacks",
            "all_ranks",
            "batches",
            "cupti",
            "stop_after_recording",
            "timeout",
            "total_steps",
            "price",
            "no_tui",
            "json",
        ],
    ),
    ("attach", &["pid", "all", "list", "output", "window", "stacks", "wait", "json"]),
];

/// The command line with a short help of one screen for each command.
pub fn command() -> Command {
    SHORT.iter().fold(Cli::command(), |cli, (name, shown)| match *name {
        "" => shortened(cli, "", shown),
        name => cli.mut_subcommand(name, |command| shortened(command, name, shown)),
    })
}

fn shortened(command: Command, name: &str, shown: &[&str]) -> Command {
    let space = if name.is_empty() { "" } else { " " };
    let hidden = command.get_arguments().filter(|arg| !arg.is_positional()).count().saturating_sub(shown.len());
    let long = command.get_after_long_help().cloned().unwrap_or_default();
    command
        .mut_args(|arg| {
            let is_shown = arg.is_positional() || shown.contains(&arg.get_id().as_str());
            arg.hide_short_help(!is_shown)
        })
        .after_help(format!("{hidden} more flags and all details: habitat-tui{space}{name} --help"))
        .after_long_help(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_help_of_every_command_is_one_screen() {
        for name in command().get_subcommands().map(|one| one.get_name().to_owned()).collect::<Vec<_>>() {
            let mut cli = command().term_width(80);
            cli.build();
            let one = cli.find_subcommand_mut(&name).unwrap();
            let (short, long) = (one.render_help().to_string(), one.render_long_help().to_string());
            let lines = short.lines().count();
            let most = if SHORT.iter().any(|(shortened, _)| *shortened == name) { 45 } else { 60 };
            assert!(lines <= most, "{name} -h: {lines} lines\n{short}");
            assert!(long.lines().count() >= lines, "{name}");
        }
        let short = command().term_width(100).render_help().to_string();
        assert!(short.lines().count() <= 50, "{short}");
    }

    #[test]
    fn the_short_help_names_real_flags_and_says_how_to_see_the_rest() {
        let cli = command();
        for (name, shown) in SHORT {
            let one = if name.is_empty() { &cli } else { cli.find_subcommand(name).unwrap() };
            for id in shown {
                assert!(one.get_arguments().any(|arg| arg.get_id() == id), "{name}: {id}");
            }
        }
        let mut plan = cli.find_subcommand("plan").unwrap().clone();
        let (short, long) = (plan.render_help().to_string(), plan.render_long_help().to_string());
        assert!(short.trim_end().ends_with("habitat-tui plan --help") && short.contains("--deadline"), "{short}");
        assert!(!short.contains("--spot-losses-per-hour") && long.contains("--spot-losses-per-hour"));
        assert!(!long.contains("more flags"), "{long}");
    }
}
