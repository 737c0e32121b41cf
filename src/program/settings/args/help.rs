//! Help: the most common flags of a command on one screen, and the others by topic.
//!
//! `--help` of a command shows [`first`] whether it is short or long. A word after it shows a topic (a heading of
//! flags), one flag, or every flag whose description has the word, in full.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use habitat_base::text::clean;
use habitat_reports::wrap::{wrap, wrap_sentences};

use super::Cli;

/// Flags on the first screen of a command, by id; positional arguments are always there. Commands not listed here show
/// all flags.
const FIRST: [(&str, &str); 10] = [
    ("habitat-tui", ""),
    (
        "plan",
        "epochs dataset steps deadline budget objective own \
         accept gpus precision frontier export json output",
    ),
    (
        "predict",
        "to operations verbose all_methods what_if difference \
         precision host batch_size html json csv output",
    ),
    (
        "run",
        "output after window every all_ranks batches plan \
         total_steps price timeout detach no_tui cupti json",
    ),
    ("plan-jobs", "accept method export command checkpoint_dir partition json csv output"),
    ("attach", "pid all list output window stacks wait json"),
    ("trace-shapes", "config batch_sizes arguments output force python sequence_length precision"),
    ("import", "output force shapes_only max_steps origin batch_size precision"),
    ("compare-speed", "to gpus machines network_gbit sharding global_batch tokens_per_second step_ms json"),
    ("batches", "at to families sample precision json output"),
];

/// The commands on the first screen of the program, by use; the others follow from `--help all`.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("record", &["run", "jobs", "attach", "trace-shapes", "import"]),
    ("predict", &["predict", "batches", "diff"]),
    ("rent", &["plan", "plan-jobs", "compare", "prices", "gpus"]),
];

/// Words that ask for help.
const WORDS: [&str; 3] = ["help", "--help", "-h"];

/// The help that a command line requests (`plan --help prices`, `help plan prices`), in `columns` cells.
///
/// # Errors
/// The topics of the command, if the word fits none of its flags.
pub fn help(typed: &[String], columns: usize) -> Result<String, String> {
    let asks = |word: &String| WORDS.contains(&word.as_str());
    let (before, after) = typed.split_at(typed.iter().position(asks).unwrap_or(typed.len()));
    let after: Vec<String> = after.iter().filter(|word| !asks(word)).cloned().collect();
    let (mut path, mut command) = (vec!["habitat-tui".to_owned()], Cli::command());
    let mut descend = |words: &[String]| {
        let mut taken = 0;
        while let Some(below) = words.get(taken).and_then(|word| command.find_subcommand(word)) {
            path.push(below.get_name().to_owned());
            command = below.clone();
            taken += 1;
        }
        taken
    };
    let is_whole = descend(before) == before.len();
    let taken = if is_whole { descend(&after) } else { 0 };
    let line = path.join(" ");
    command = command.bin_name(&line).term_width(columns);
    match after.get(taken).map(|word| word.trim_start_matches('-').to_lowercase()) {
        None => Ok(first(command, &path[path.len() - 1], &line, columns)),
        Some(word) if word == "all" => Ok(command.render_long_help().to_string()),
        Some(word) => {
            let (more, is_program) = (more(&command, &line, true), path.len() == 1);
            let own = details(command, &word);
            let others = if is_program || own.is_none() { of_commands(&word, columns) } else { None };
            let none = format!("no flag of `{line}` mentions {:?}", clean(&word, 40));
            match (own, others) {
                (Some(own), Some(others)) => Ok(format!("{}\n\n{others}", own.trim_end())),
                (Some(text), None) => Ok(text),
                (None, Some(others)) if is_program => Ok(others),
                (None, Some(others)) => Ok(format!("{none}.\n{others}")),
                (None, None) => Err(format!("{none}. {more}")),
            }
        }
    }
}

/// The heading of a flag as a word to type.
fn topic(arg: &Arg) -> String {
    arg.get_help_heading().unwrap_or("options").to_lowercase().replace(' ', "-")
}

/// The ways in which a word can mean a flag, in their order: its topic, its name, or a word of its description.
const MEANINGS: [fn(&Arg, &str) -> bool; 3] = [
    |arg, word| topic(arg) == word,
    |arg, word| arg.get_long() == Some(word) || arg.get_short().map(String::from).as_deref() == Some(word),
    |arg, word| place(arg, word).is_some(),
];

/// Flags shown for a word of their descriptions (a choice).
const MOST: usize = 10;

/// First of the name, the short and the long description of a flag that has the word.
fn place(arg: &Arg, word: &str) -> Option<usize> {
    let help = |text: Option<&StyledStr>| text.map(|text| text.to_string().to_lowercase());
    let texts = [arg.get_long().map(str::to_owned), help(arg.get_help()), help(arg.get_long_help())];
    texts.into_iter().position(|text| text.is_some_and(|text| text.contains(word)))
}

/// Line about the other flags that have the word.
fn others(count: usize, word: &str) -> String {
    format!("{count} more with {:?}: use a longer word", clean(word, 40))
}

/// Every flag of a topic, the flag of a name, or the best [`MOST`] of those whose description has the word; `None` if
/// there are none.
fn details(command: Command, word: &str) -> Option<String> {
    let of = |fits: fn(&Arg, &str) -> bool| -> Vec<&Arg> {
        command.get_arguments().filter(|arg| is_flag(arg) && fits(arg, word)).collect()
    };
    let found = MEANINGS.map(of).into_iter().zip([usize::MAX, usize::MAX, MOST]);
    let (mut best, most) = found.into_iter().find(|(found, _)| !found.is_empty())?;
    best.sort_by_key(|arg| place(arg, word));
    let more = best.len().saturating_sub(most);
    let best: Vec<clap::Id> = best.into_iter().take(most).map(|arg| arg.get_id().clone()).collect();
    let mut command =
        command.disable_help_flag(true).disable_version_flag(true).help_template("{options}").mut_args(|arg| {
            let hidden = !best.contains(arg.get_id());
            arg.hide(hidden).help_heading(None::<&str>)
        });
    let text = command.render_long_help().to_string();
    Some(if more == 0 { text } else { format!("{}\n\n{}\n", text.trim_end(), others(more, word)) })
}

fn is_flag(arg: &Arg) -> bool {
    !arg.is_positional() && !arg.is_hide_set()
}

/// The commands and their commands, with the words to type.
fn with_paths<'a>(command: &'a Command, path: &str, all: &mut Vec<(String, &'a Command)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path = format!("{path}{}", below.get_name());
        all.push((path.clone(), below));
        with_paths(below, &format!("{path} "), all);
    }
}

/// Flags that the word means in all commands: each in one line, with the commands that have it. A flag of that name
/// comes before a topic, whose flags would be many. `None` if there are none.
fn of_commands(word: &str, columns: usize) -> Option<String> {
    let (mut cli, mut all) = (Cli::command(), Vec::new());
    cli.build();
    with_paths(&cli, "", &mut all);
    let [by_topic, by_name, by_text] = MEANINGS;
    let has = |fits: &fn(&Arg, &str) -> bool| {
        all.iter().any(|(_, command)| command.get_arguments().any(|arg| is_flag(arg) && fits(arg, word)))
    };
    let fits = [by_name, by_topic, by_text].into_iter().find(has)?;
    let mut found: Vec<([String; 2], Option<usize>, Vec<&str>)> = Vec::new();
    for (path, command) in &all {
        for arg in command.get_arguments().filter(|arg| is_flag(arg) && fits(arg, word)) {
            let row = [spec(arg), about(arg)];
            match found.iter_mut().find(|(other, ..)| *other == row) {
                Some((.., paths)) => paths.push(path),
                None => found.push((row, place(arg, word), vec![path.as_str()])),
            }
        }
    }
    found.sort_by_key(|(_, place, _)| place.unwrap_or(usize::MAX));
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    let mut text = format!("Flags of commands for {:?}:\n", clean(word, 40));
    for ([spec, about], _, paths) in &found {
        let about = brief(about, columns.saturating_sub(spec.chars().count() + 4));
        text.extend(["  ", spec, "  ", &about, "\n"]);
        for line in wrap(&paths.join(", "), columns.saturating_sub(6)) {
            text.extend(["      ", &line, "\n"]);
        }
    }
    if more > 0 {
        text.extend(["  ", &others(more, word), "\n"]);
    }
    let first = found.first().and_then(|(.., paths)| paths.first().copied()).unwrap_or_default();
    Some(format!("{text}\nIn full: habitat-tui {first} --help {}\n", clean(word, 40)))
}

/// Description of a command, its usage, and one line for each of its commands and most common flags.
fn first(mut command: Command, name: &str, line: &str, columns: usize) -> String {
    let usage = command.render_usage().to_string();
    let chosen = FIRST.iter().find(|(one, _)| *one == name).map(|(_, flags)| flags.split(' ').collect::<Vec<_>>());
    let is_shown = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        let is_chosen = chosen.as_ref().map_or_else(|| !["help", "version"].contains(&id), |flags| flags.contains(&id));
        !arg.is_hide_set() && (arg.is_positional() || is_chosen)
    };
    let mut flags: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    let order: Vec<String> = flags.iter().map(|arg| topic(arg)).collect();
    flags.sort_by_key(|arg| match &chosen {
        Some(chosen) => chosen.iter().position(|id| arg.get_id() == id),
        None => order.iter().position(|one| !arg.is_positional() && *one == topic(arg)),
    });
    let place = |arg: &Arg| if arg.is_positional() { String::new() } else { topic(arg) };
    let rows: Vec<[String; 3]> = flags.iter().map(|arg| [place(arg), spec(arg), about(arg)]).collect();
    let (arguments, flags) = rows.split_at(rows.iter().take_while(|[place, ..]| place.is_empty()).count());
    let rows = [arguments, &commands(&command, name == line), flags].concat();
    let widths = [0, 1].map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let about = wrap(&styled(command.get_about()), columns).join("\n");
    let mut text = format!("{about}\n\n{}\n\n", usage.trim_end());
    let mut last = String::new();
    for [topic, spec, about] in rows {
        let shown = if topic == last { "" } else { &topic };
        let about = brief(&about, columns.saturating_sub(widths[0] + widths[1] + 3));
        text += format!("{shown:<0$} {spec:<1$}  {about}", widths[0], widths[1]).trim_end();
        text.push('\n');
        last = topic;
    }
    text + "\n" + &wrap_sentences(&more(&command, line, chosen.is_some()), columns)
}

/// The commands of a command; those of the program by use, and the names of the others.
fn commands(command: &Command, is_program: bool) -> Vec<[String; 3]> {
    let row = |topic: &str, below: &Command| [topic.to_owned(), below.get_name().to_owned(), styled(below.get_about())];
    if !is_program {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        return below.map(|below| row("commands", below)).collect();
    }
    let of = |(topic, names): &(&str, &[&str])| {
        let found = names.iter().filter_map(|name| command.find_subcommand(name));
        found.map(|below| row(topic, below)).collect::<Vec<_>>()
    };
    COMMANDS.iter().flat_map(of).collect()
}

/// Lines that name the commands for the rest of the help.
fn more(command: &Command, line: &str, is_cut: bool) -> String {
    let mut topics: Vec<String> = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set()) {
        let topic = topic(arg);
        topics.extend((!topics.contains(&topic)).then_some(topic));
    }
    let more = format!("More: {line} --help TOPIC, or a flag, or any word, or all\n");
    if is_cut { format!("{more}Topics: {}\n", topics.join(", ")) } else { more }
}

/// A flag with its value, or the name of an argument.
fn spec(arg: &Arg) -> String {
    let short = arg.get_short().map_or_else(String::new, |short| format!("-{short}, "));
    format!("{short}{arg}")
}

/// The short description of a flag, with its values if they are words.
fn about(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_possible_values().iter().filter(|it| !it.is_hide_set()).map(|it| it.get_name().to_owned()).collect();
    let has_values = arg.get_action().takes_values() && !arg.is_hide_possible_values_set() && !values.is_empty();
    let values = if has_values { format!(" ({})", values.join(", ")) } else { String::new() };
    format!("{}{values}", styled(arg.get_help()))
}

fn styled(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The text in one line of `width` cells: up to a bracket, a colon or another part of the sentence if it is too long.
fn brief(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let before = |marks: &[&str]| {
        let ends = marks.iter().flat_map(|mark| text.match_indices(mark).map(|(at, _)| at));
        ends.filter(|at| *at > 0 && text[..*at].chars().count() <= width).max().map(|at| text[..at].to_owned())
    };
    let cut = before(&[" (", ": ", "; "]).or_else(|| before(&[", "])).unwrap_or_else(|| clean(text, width));
    let open = cut.rfind(" (").filter(|open| !cut[*open..].contains(')'));
    open.map_or(cut.clone(), |open| cut[..open].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        help(&words, 80).unwrap_or_else(|why| why)
    }

    /// Lines of commands, with those of their commands.
    fn lines(command: &Command, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        for below in command.get_subcommands() {
            lines(below, &format!("{path} {}", below.get_name()), all);
        }
    }

    /// A line less than a small terminal has, since the prompt follows.
    #[test]
    fn the_help_of_every_command_is_one_screen() {
        let mut all = Vec::new();
        lines(&Cli::command(), "", &mut all);
        assert!(all.len() > 30, "{all:?}");
        for line in all {
            let text = shown(&format!("{line} --help"));
            let (rows, widest) = (text.lines().count(), text.lines().map(|line| line.chars().count()).max());
            assert!(rows < 24 && widest <= Some(80), "{line}: {rows} lines\n{text}");
            assert_eq!(text, shown(&format!("{line} -h")));
        }
    }

    #[test]
    fn the_first_screen_names_real_flags_and_where_the_rest_is() {
        let cli = Cli::command();
        for (name, shown) in FIRST {
            let one = cli.find_subcommand(name).unwrap_or(&cli);
            for id in shown.split_whitespace() {
                assert!(one.get_arguments().any(|arg| arg.get_id() == id), "{name}: {id}");
            }
        }
        let plan = shown("plan --help");
        assert!(plan.contains("--deadline") && !plan.contains("--spot-losses-per-hour"), "{plan}");
        assert!(plan.contains("habitat-tui plan --help") && plan.contains(", assumptions, "), "{plan}");
        assert!(shown("plan --help all").contains("--spot-losses-per-hour"));
    }

    #[test]
    fn a_topic_a_flag_or_a_word_is_shown_in_full() {
        let layout = shown("plan --help layout");
        assert!(layout.contains("--tensor-parallel") && !layout.contains("--deadline"), "{layout}");
        assert_eq!(shown("help plan layout"), layout);
        let deadline = shown("plan f.json --help deadline");
        assert!(deadline.contains("Includes set-up") && !deadline.contains("--budget"), "{deadline}");
        assert!(shown("plan --help electricity").contains("--usd-per-kwh"));
        assert!(shown("prices help update").contains("habitat-tui prices update"));
        // The program has no such flag, its commands have.
        let html = shown("--help html");
        assert!(html.contains("--html <FILE>") && html.contains("      predict, plan, diff\n"), "{html}");
        assert!(html.contains("In full: habitat-tui"), "{html}");
        let machines = shown("--help max-machines");
        assert!(machines.contains("  plan") && machines.contains("--max-machines <N>"), "{machines}");
        let other = shown("batches --help html");
        assert!(
            other.contains("no flag of `habitat-tui batches`") && other.contains("      predict, plan, diff\n"),
            "{other}"
        );
        assert!(!shown("--help job-log").contains("job-log <"));
        // Of many, the best: those with the word in their names first.
        let file = shown("plan --help file");
        let is_flag = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
        let flags = |text: &str| text.lines().filter(is_flag).count();
        assert!(flags(&file) == MOST && file.contains(" more with \"file\""), "{file}");
        // Flags of the program itself, then those of its commands.
        let file = shown("--help file");
        assert!(flags(&file) == 2 * MOST && file.contains(" more with \"file\""), "{file}");
        let none = shown("plan --help nonesuch");
        assert!(none.contains("no flag") && none.contains(", offers, "), "{none}");
    }
}
