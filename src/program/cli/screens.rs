//! Opens the screens, or without a terminal prints the same report.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use super::answer::fastest_first;
use super::error::CliError;
use super::input::{Loaded, load, load_file};
use super::jobs::Jobs;
use super::{batches, diff, goal, gpu, hints, options, own, typed};
use crate::settings::args::{InputArgs, ScreensArgs};
use crate::settings::file::SettingsFile;
use crate::settings::goal_args::GoalArgs;
use crate::store::{self, Paths};
use crate::terminal;
use habitat_base::text::CommandLine;
use habitat_base::units::GpuSlug;
use habitat_planning::plan::{Goal, Work, plan};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::{Options, predict};
use habitat_recorder::live;
use habitat_reports::jobs::JobsForm;
use habitat_reports::theme::{Theme, ThemeError};
use habitat_reports::{answer, recordings, summary};
use habitat_screens::action::Screen;
use habitat_step::catalog::Catalog;
use habitat_step::profile::breakdown::GroupBy;

/// Default work to plan for.
const DEFAULT_WORK: Work = Work::Steps(100_000);

/// Result of a command.
#[derive(Debug)]
pub enum Outcome {
    /// Exit with this code: 0 for success, 1 if nothing was found or the plan is infeasible.
    Exit(u8),
    /// Open the screens.
    Screens(Box<Screens>),
}

/// Everything that the screens start with.
#[derive(Debug)]
pub struct Screens {
    /// The command line.
    pub command: CommandLine,
    /// Parsed arguments.
    pub args: ScreensArgs,
    /// The settings file.
    pub settings: SettingsFile,
    /// The recorded step.
    pub loaded: Loaded,
    /// A recording to compare the step with.
    pub against: Option<Loaded>,
    /// The GPUs.
    pub catalog: Catalog,
    /// The offers, with own machines.
    pub prices: PriceBook,
    /// The offers without those of `--own`.
    pub listed: PriceBook,
    /// Prediction options.
    pub options: Options,
    /// The goal of the plan.
    pub goal: Goal,
    /// Themes, including the user's own.
    pub themes: Vec<Theme>,
    /// Index of the selected theme.
    pub theme: usize,
    /// GPU to select.
    pub gpu: Option<GpuSlug>,
    /// A file of jobs to plan together.
    pub jobs: Option<Jobs>,
    /// Batch sizes that plans may use in addition to the recorded one.
    pub sizes: Vec<u64>,
    /// A job that was started to record its step; `loaded` is empty until then.
    pub live: Option<live::Session>,
}

impl Screens {
    /// The screens for a recorded step, from settings and arguments.
    pub(super) fn new(args: ScreensArgs, catalog: Catalog, loaded: Loaded) -> Result<Self, CliError> {
        let paths = Paths::find();
        let settings = options::settings(&paths)?;
        let listed = store::prices(&paths)?;
        let prices = own::add(&args.own, listed.clone(), &catalog)?;
        let gpu = gpu::maybe(&catalog, "--gpu", args.gpu.as_ref())?;
        let (themes, theme) = themes(&args, &settings, &paths)?;
        let options = options::options(&args.input, &[], &catalog, &paths)?;
        let sizes = batches::sizes(args.batch_sizes.as_ref(), &loaded.profile);
        let work = args.wish.work().unwrap_or(DEFAULT_WORK);
        let goal =
            goal::goal(Goal::firm(work), &args.wish, &settings.plan, &catalog, &prices)?.with_sizes(!sizes.is_empty());
        Ok(Self {
            command: hints::typed(),
            args,
            settings,
            loaded,
            against: None,
            catalog,
            prices,
            listed,
            options,
            goal,
            themes,
            theme,
            gpu,
            jobs: None,
            sizes,
            live: None,
        })
    }
}

pub(super) fn run(mut args: ScreensArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    if let Some(meant) = args.input.file.as_deref().and_then(typed::no_file) {
        return Err(CliError::Refused(meant));
    }
    if let Some(path) = &args.screenshot {
        check_picture(path)?;
    }
    let jobs = args.jobs.as_ref().map(|file| Jobs {
        file: file.clone(),
        method: args.input.method,
        host: args.input.host,
        models: args.input.models.clone(),
        accept: args.wish.accept.clone().unwrap_or_default(),
    });
    if jobs.is_none() && args.screen == Screen::Jobs {
        return Err(CliError::Refused("--screen jobs needs a jobs file: pass --jobs FILE".to_owned()));
    }
    if let Some(jobs) = &jobs {
        let (input, wish) = jobs.first()?;
        // Arguments take precedence over the first job.
        if args.input.file.is_none() && args.input.sample.is_none() {
            args.input = InputArgs { waves: args.input.waves, precision: args.input.precision, ..input };
            if args.wish == GoalArgs::default() {
                args.wish = wish;
            }
        }
        if args.screen == Screen::Overview {
            args.screen = Screen::Jobs;
        }
    }
    let catalog = store::catalog(&Paths::find())?;
    let loaded = load(&args.input, &catalog)?;
    let against = args.against.as_ref().map(|path| load_file(path, &catalog)).transpose()?;
    if let Some(against) = &against {
        against.warn();
        diff::compared([against, &loaded], GroupBy::default())?;
    }
    let screens = Screens { against, jobs, ..Screens::new(args, catalog, loaded)? };
    if screens.args.screenshot.is_some() || io::stdout().is_terminal() {
        return Ok(Outcome::Screens(Box::new(screens)));
    }
    if let Some(jobs) = &screens.jobs {
        return Ok(Outcome::Exit(jobs.print(JobsForm::Text, out)?));
    }
    report(&screens, out)?;
    Ok(Outcome::Exit(0))
}

/// Prints the report instead of opening the screens.
fn report(screens: &Screens, out: &mut dyn Write) -> Result<(), CliError> {
    let Screens { loaded, catalog, prices, options, sizes, .. } = screens;
    loaded.warn();
    let found = predict(&loaded.profile, catalog, options);
    answer::write(&loaded.profile, catalog, found.as_ref().ok(), prices, out)?;
    writeln!(out)?;
    summary::write_profile(&loaded.profile, &loaded.label, out)?;
    writeln!(out)?;
    if let Some(against) = &screens.against {
        recordings::write_text(&diff::compared([against, loaded], GroupBy::default())?, recordings::TOP, None, out)?;
        writeln!(out)?;
    }
    out.flush()?;
    let mut predictions = gpu::predicted(found, &loaded.label)?;
    batches::add(sizes, &mut predictions, loaded, catalog, options)?;
    let predictions = fastest_first(predictions);
    summary::write_predictions(&predictions, prices, None, out)?;
    writeln!(out)?;
    for line in goal::lines(&screens.args.wish, &screens.args.own, catalog)? {
        writeln!(out, "{line}\n")?;
    }
    match plan(&predictions, prices, &screens.goal) {
        Ok(plan) => summary::write_plan(&plan, (&predictions, prices), false, None, out)?,
        Err(error) => writeln!(out, "No plan: {error}")?,
    }
    out.flush()?;
    Ok(())
}

/// Refuses image formats other than SVG and PNG.
fn check_picture(path: &Path) -> Result<(), CliError> {
    let form = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    if form.as_deref().is_none_or(|form| ["svg", "png"].contains(&form)) {
        return Ok(());
    }
    let svg = path.with_extension("svg");
    Err(CliError::Refused(format!("--screenshot {}: images are SVG or PNG; use {}", path.display(), svg.display())))
}

/// All themes, and the index of the one requested by name or as a file.
fn themes(args: &ScreensArgs, settings: &SettingsFile, paths: &Paths) -> Result<(Vec<Theme>, usize), CliError> {
    let asked = args.theme.as_deref().or(settings.theme.as_deref()).unwrap_or("dark");
    let (own, unread): (Vec<_>, Vec<_>) = store::themes(paths)?.into_iter().partition(Result::is_ok);
    let mut own: Vec<_> = own.into_iter().flatten().collect();
    let file = Path::new(asked);
    let is_file = file.components().count() > 1 || file.extension().is_some_and(|extension| extension == "toml");
    if is_file {
        own.push(store::theme(file)?);
    }
    let (themes, broken) = Theme::usable(&own);
    // The requested theme must be valid; other invalid ones are left out.
    if let Some((named, _)) = own.last().filter(|_| is_file) {
        let is_named = |error: &ThemeError| matches!(error, ThemeError::Form { file, .. } if file == named);
        if let Some(error) = broken.into_iter().find(is_named) {
            return Err(error.into());
        }
        let position = themes.len() - 1;
        return Ok((themes, position));
    }
    let unread = unread.into_iter().filter_map(Result::err).map(|error| error.to_string());
    let broken: Vec<String> = unread.chain(broken.iter().map(ToString::to_string)).collect();
    for problem in &broken {
        terminal::say(format_args!("note: skipping a theme: {problem}"));
    }
    let position = Theme::find(&themes, asked).map_err(|error| {
        let folder = paths.themes();
        let remedy = format!("{error}; add your own to {}, or pass the path of one (mine.toml)", folder.display());
        let error = CliError::Refused(remedy);
        // A theme that was not typed is from the environment or the settings.
        match (&args.theme, typed::is_typed("--theme")) {
            (Some(_), true) => error,
            (Some(_), false) => error.at("HABITAT_TUI_THEME"),
            (None, _) => error.at(paths.settings().display()),
        }
    })?;
    Ok((themes, position))
}
