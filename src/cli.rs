//! The commands: everything the screens show, without a terminal.
//!
//! [`run`] answers with an exit code, or with the order to open the screens, which is the
//! binary's business.

mod attach;
mod batches;
mod black_box;
mod calibrate;
mod check;
mod collect;
mod env;
mod error;
mod export;
mod fit;
mod goal;
mod gpu;
mod hints;
mod import;
mod input;
mod measured;
mod print;
mod progress;
mod recording;
mod run;
mod suggest;
mod sweep;
mod trace_shapes;
mod typed;
mod weights;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory;

use crate::catalog::Catalog;
use crate::live;
use crate::plan::{Goal, PlanStatus};
use crate::predict::{MethodChoice, Options, PredictError, Predictions};
use crate::pricing::PriceBook;
use crate::report::{comparison, plan_toml, plans, predictions, summary};
use crate::settings::args::{
    Cli, Command, ConfigArgs, InputArgs, ModelsCommand, PlanArgs, PredictArgs, SchemaArg, ScreensArgs, SweepCommand,
    TableForm,
};
use crate::settings::file::SettingsFile;
use crate::settings::keymap::Keymap;
use crate::settings::theme::Theme;
use crate::store::{self, Limit, Paths};
use crate::terminal;
use crate::text;
use crate::units::GpuSlug;

pub use error::CliError;
pub use input::{Loaded, load};
pub use typed::meant;
// For the workshop (models/lab), which reads, names and reports as the commands do.
pub use fit::black_box::write as fit_black_box;
pub use fit::kernelwise::add_tables;
pub use gpu::all as all_gpus;
pub use import::{resolve, workload_name};
pub use progress::{Progress, span};
pub use weights::folder as weights_folder;

/// What a command ends with.
#[derive(Debug)]
pub enum Outcome {
    /// Done; the process ends with this code: 0 fine, 1 nothing found or infeasible.
    Exit(u8),
    /// Open the screens.
    Screens(Box<Screens>),
}

/// Everything the screens start from.
#[derive(Debug)]
pub struct Screens {
    /// What was typed.
    pub args: ScreensArgs,
    /// The settings file.
    pub settings: SettingsFile,
    /// The recorded step.
    pub loaded: Loaded,
    /// The GPUs.
    pub catalog: Catalog,
    /// The offers.
    pub prices: PriceBook,
    /// How to predict.
    pub options: Options,
    /// What to plan for.
    pub goal: Goal,
    /// The themes, the user's own among them.
    pub themes: Vec<Theme>,
    /// The position of the one asked for.
    pub theme: usize,
    /// The GPU to select.
    pub gpu: Option<GpuSlug>,
    /// A job that was started, and whose step is to be recorded; `loaded` is empty until then.
    pub live: Option<live::Session>,
}

/// Runs what was typed.
///
/// # Errors
/// [`CliError`] with the file, the place, the value and the remedy.
pub fn run(cli: Cli) -> Result<Outcome, CliError> {
    let out = &mut terminal::stdout();
    if !matches!(cli.command, Some(Command::Completions(_) | Command::Man | Command::Schema(_))) {
        check_folders()?;
    }
    let code = match cli.command {
        None => return screens(cli.screens, out),
        Some(Command::Run(args)) => return run::run(args, cli.screens),
        Some(Command::Attach(args)) => attach::run(&args, out)?,
        Some(Command::Env(args)) => env::run(&args, out)?,
        Some(Command::TraceShapes(args)) => trace_shapes::run(&args, out)?,
        Some(Command::Import(args)) => import::run(&args, out)?,
        Some(Command::Predict(args)) => predict(&args, out)?,
        Some(Command::Export(args)) => export::run(&args, out)?,
        Some(Command::Plan(args)) => plan(&args, out)?,
        Some(Command::Batches(args)) => batches::run(&args, out)?,
        Some(Command::Gpus(args)) => print::gpus(&args, out)?,
        Some(Command::Offers(args)) => print::offers(&args, out)?,
        Some(Command::Schema(args)) => print_json(&schema(args.of), out)?,
        Some(Command::Check(args)) => check::run(&args, out)?,
        Some(Command::Models(args)) => match &args.command {
            ModelsCommand::Suggest(args) => suggest::run(args, out)?,
        },
        Some(Command::Calibrate(args)) => calibrate::run(&args, out)?,
        Some(Command::Collect(args)) => collect::run(&args)?,
        Some(Command::Fit(args)) => fit::run(&args, out)?,
        Some(Command::Sweep(args)) => match &args.command {
            SweepCommand::Bandwidth(args) => sweep::bandwidth(args, out)?,
        },
        Some(Command::Completions(args)) => {
            // Written at once: the generator panics where its writer fails.
            let mut text = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "habitat-tui", &mut text);
            out.write_all(&text)?;
            0
        }
        Some(Command::Man) => {
            clap_mangen::Man::new(Cli::command()).render(out)?;
            0
        }
        Some(Command::Config(args)) => config(&args, out)?,
        Some(Command::JobLog) => run::write_log()?,
    };
    out.flush()?;
    Ok(Outcome::Exit(code))
}

/// The user's folders may be closed to us, as root's are where a service runs under its name.
fn check_folders() -> Result<(), CliError> {
    let paths = Paths::find();
    let Some((folder, why)) = paths.closed() else { return Ok(()) };
    let problem = format!("{}: cannot be entered ({why})", folder.display());
    let variable = store::paths::CONFIG_DIR_VARIABLE;
    if Paths::is_given() {
        return Err(CliError(format!("{problem}; {variable} names it")));
    }
    if why.kind() != io::ErrorKind::NotADirectory {
        terminal::say(format_args!(
            "warning: {problem}; settings, GPUs and prices of yours are not read ({variable} names another folder)"
        ));
    }
    Ok(())
}

/// Names the file in an error of the predictor; where that does not know which GPU it was, with
/// what was typed once for each that it may have been.
fn unpredicted(label: &str) -> impl Fn(PredictError) -> CliError + '_ {
    move |error| {
        let gpus = match &error {
            PredictError::UnknownOrigin { candidates, .. } => candidates.gpus.as_slice(),
            _ => &[],
        };
        let commands = gpus.iter().map(|gpu| format!("\n  {}", hints::with_flag("--origin", gpu.as_str())));
        CliError(format!("{}{}", named(label)(&error), commands.collect::<String>()))
    }
}

/// What is wrong with the recorded step, with its name.
fn named<E: std::fmt::Display>(label: &str) -> impl Fn(E) -> CliError + '_ {
    move |error| CliError(format!("{label}: {error}"))
}

/// The settings file, where there is one.
///
/// # Errors
/// [`CliError`] naming the file and the key.
pub fn settings(paths: &Paths) -> Result<SettingsFile, CliError> {
    let path = paths.settings();
    let Some(text) = store::there(store::read_text(&path, Limit::SETTINGS))? else {
        return Ok(SettingsFile::default());
    };
    SettingsFile::parse(&text).map_err(|problem| CliError(format!("{}: {problem}", path.display())))
}

fn options(input: &InputArgs, to: &[String], catalog: &Catalog, paths: &Paths) -> Result<Options, CliError> {
    let weights = weights::folder(input.models.as_deref(), &settings(paths)?, paths);
    let habitat =
        if input.method == MethodChoice::HabitatMlp { Some(Arc::new(weights::habitat(&weights)?)) } else { None };
    let kernel_wise = Some(fit::kernelwise::load(input.kernel_wise.as_deref(), &weights)?);
    let black_box = Some(Arc::new(store::black_box(&weights)?));
    Ok(Options {
        habitat,
        kernel_wise,
        black_box,
        targets: gpu::all(catalog, "--to", to)?,
        ignore_origin: input.ignore_origin,
        origin: gpu::maybe(catalog, "--origin", input.origin.as_ref())?,
        method: input.method,
        wave_form: input.waves.into(),
        models: measured::models(&weights, input.measured.as_deref(), catalog, paths)?,
        precision: input.precision,
    })
}

fn screens(args: ScreensArgs, out: &mut dyn Write) -> Result<Outcome, CliError> {
    if let Some(meant) = args.input.file.as_deref().and_then(typed::no_file) {
        return Err(CliError(meant));
    }
    if let Some(path) = &args.screenshot {
        may_draw(path)?;
    }
    let paths = Paths::find();
    let settings = settings(&paths)?;
    let catalog = store::catalog(&paths)?;
    let prices = store::prices(&paths)?;
    let gpu = gpu::maybe(&catalog, "--gpu", args.gpu.as_ref())?;
    let (themes, theme) = themes(&args, &settings, &paths)?;
    let loaded = load(&args.input, &catalog)?;
    let options = options(&args.input, &[], &catalog, &paths)?;
    let goal = screens_goal(&args, &settings, &catalog, &prices)?;
    if args.screenshot.is_some() || io::stdout().is_terminal() {
        return Ok(Outcome::Screens(Box::new(Screens {
            args,
            settings,
            loaded,
            catalog,
            prices,
            options,
            goal,
            themes,
            theme,
            gpu,
            live: None,
        })));
    }
    loaded.warn();
    summary::write_profile(&loaded.profile, &loaded.label, out)?;
    writeln!(out)?;
    out.flush()?;
    let predictions =
        sorted(crate::predict::predict(&loaded.profile, &catalog, &options).map_err(unpredicted(&loaded.label))?);
    summary::write_predictions(&predictions, &prices, out)?;
    writeln!(out)?;
    match crate::plan::plan(&predictions, &prices, &goal) {
        Ok(plan) => summary::write_plan(&plan, false, out)?,
        Err(error) => writeln!(out, "no plan: {error}")?,
    }
    out.flush()?;
    Ok(Outcome::Exit(0))
}

/// Refuses a picture of another form than the one written.
fn may_draw(path: &Path) -> Result<(), CliError> {
    let form = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    if form.as_deref().is_none_or(|form| form == "svg") {
        return Ok(());
    }
    let svg = path.with_extension("svg");
    Err(CliError(format!(
        "--screenshot {}: pictures are written as SVG alone; name it {}",
        path.display(),
        svg.display()
    )))
}

/// The themes there are, and the position of the one asked for by name or as a file.
fn themes(args: &ScreensArgs, settings: &SettingsFile, paths: &Paths) -> Result<(Vec<Theme>, usize), CliError> {
    let asked = args.theme.as_deref().or(settings.theme.as_deref()).unwrap_or("dark");
    let mut own = store::themes(paths)?;
    let file = Path::new(asked);
    let is_file = file.components().count() > 1 || file.extension().is_some_and(|extension| extension == "toml");
    if is_file {
        own.push(store::theme(file)?);
    }
    let themes = Theme::all(&own).map_err(CliError::of)?;
    let place = if is_file { Ok(themes.len() - 1) } else { Theme::find(&themes, asked) };
    let place = place.map_err(|error| {
        let folder = paths.themes();
        // What was not typed stands in the settings.
        let place = if args.theme.is_some() { String::new() } else { format!("{}: ", paths.settings().display()) };
        CliError(format!("{place}{error}; your own go into {}, or give the path of one (mine.toml)", folder.display()))
    })?;
    Ok((themes, place))
}

/// What the screens plan for at first.
fn screens_goal(
    args: &ScreensArgs,
    settings: &SettingsFile,
    catalog: &Catalog,
    prices: &PriceBook,
) -> Result<Goal, CliError> {
    let mut goal = goal::goal(&args.goal, &settings.plan)?.unwrap_or_else(|| {
        let mut goal = Goal::new(goal::DEFAULT_WORK);
        goal::apply(&args.goal, &settings.plan, &mut goal);
        goal
    });
    goal::names(&mut goal, &args.goal, catalog, prices)?;
    Ok(goal)
}

/// Fastest first, for answers about all GPUs.
fn sorted(mut predictions: Predictions) -> Predictions {
    predictions
        .predictions
        .sort_by(|a, b| a.step.mid().total_cmp(&b.step.mid()).then_with(|| a.gpu.slug.cmp(&b.gpu.slug)));
    predictions
}

fn predict(args: &PredictArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let prices = store::prices(&paths)?;
    let mut answers = if let Some(file) = &args.black_box.black_box {
        let models = weights::folder(args.input.models.as_deref(), &settings(&paths)?, &paths);
        let (answers, line) = black_box::answers(&args.black_box, file, &args.input, &models, &args.to, &catalog)?;
        if args.form.is_text() {
            writeln!(out, "{line}\n")?;
        }
        answers
    } else {
        let loaded = load(&args.input, &catalog)?;
        loaded.warn();
        let options = options(&args.input, &args.to, &catalog, &paths)?;
        if args.form.is_text() {
            // What was measured needs no catalog: it is shown whatever becomes of the predictions.
            summary::write_profile(&loaded.profile, &loaded.label, out)?;
            writeln!(out)?;
            out.flush()?;
        }
        if args.all_methods {
            return compare(args, &loaded, &catalog, &options, out);
        }
        crate::predict::predict(&loaded.profile, &catalog, &options).map_err(unpredicted(&loaded.label))?
    };
    if args.to.is_empty() {
        answers = sorted(answers);
    }
    match args.form {
        TableForm { json: true, .. } => return print_json(&predictions::json(&answers, &prices, args.operations), out),
        TableForm { csv: true, .. } if args.operations => {
            for (index, prediction) in answers.predictions.iter().enumerate() {
                let mut text = Vec::new();
                predictions::operations_table(prediction).write_csv(&mut text)?;
                // One heading line for all GPUs.
                let from =
                    if index == 0 { 0 } else { text.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1) };
                out.write_all(&text[from..])?;
            }
        }
        TableForm { csv: true, .. } => predictions::table(&answers, &prices).write_csv(out)?,
        TableForm { markdown: true, .. } => {
            predictions::write_warnings(&answers.warnings(), out)?;
            predictions::table(&answers, &prices).write_markdown(out)?;
            for prediction in answers.predictions.iter().filter(|_| args.operations) {
                writeln!(out, "\n### {}\n", prediction.gpu.slug)?;
                predictions::operations_table(prediction).write_markdown(out)?;
            }
        }
        _ => {
            summary::write_predictions(&answers, &prices, out)?;
            for prediction in answers.predictions.iter().filter(|_| args.operations) {
                writeln!(out, "\n{}: {}", prediction.gpu.slug, prediction.memory.reason)?;
                predictions::operations_table(prediction).write_text(out)?;
            }
        }
    }
    Ok(0)
}

/// Every method, for `--all-methods`.
fn compare(
    args: &PredictArgs,
    loaded: &Loaded,
    catalog: &Catalog,
    options: &Options,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let comparison =
        crate::predict::compare::compare(&loaded.profile, catalog, options).map_err(unpredicted(&loaded.label))?;
    match args.form {
        TableForm { json: true, .. } => return print_json(&comparison::json(&comparison), out),
        TableForm { csv: true, .. } => comparison::table(&comparison).write_csv(out)?,
        TableForm { markdown: true, .. } => {
            predictions::write_warnings(&comparison.warnings, out)?;
            comparison::table(&comparison).write_markdown(out)?;
        }
        _ => comparison::write_text(&comparison, out)?,
    }
    Ok(0)
}

fn plan(args: &PlanArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let settings = settings(&paths)?;
    let catalog = store::catalog(&paths)?;
    let prices = store::prices(&paths)?;
    let mut goal = goal::goal(&args.goal, &settings.plan)?.ok_or_else(|| {
        CliError("how much work? give --samples, --steps, --epochs with --dataset, or --tokens".to_owned())
    })?;
    goal::names(&mut goal, &args.goal, &catalog, &prices)?;
    let (answers, label) = if let Some(file) = &args.black_box.black_box {
        let models = weights::folder(args.input.models.as_deref(), &settings, &paths);
        let (answers, _) = black_box::answers(&args.black_box, file, &args.input, &models, &[], &catalog)?;
        (answers, file.display().to_string())
    } else {
        let loaded = load(&args.input, &catalog)?;
        loaded.warn();
        let options = options(&args.input, &[], &catalog, &paths)?;
        let answers =
            crate::predict::predict(&loaded.profile, &catalog, &options).map_err(unpredicted(&loaded.label))?;
        (answers, loaded.label)
    };
    let plan = crate::plan::plan(&answers, &prices, &goal).map_err(named(&label))?;
    let mut text = Vec::new();
    if args.json {
        print_json(&plans::json(&plan, &answers.workload.name), &mut text)?;
    } else if args.toml || args.output.is_some() {
        let toml = plan_toml::toml(&plan, &answers, store::now()).map_err(CliError::of)?;
        text.extend_from_slice(toml.as_bytes());
    } else {
        summary::write_plan(&plan, args.all, &mut text)?;
    }
    match &args.output {
        Some(path) => store::save_atomically(path, &text, args.force)?,
        None => out.write_all(&text)?,
    }
    Ok(u8::from(plan.status == PlanStatus::Infeasible))
}

fn schema(of: SchemaArg) -> serde_json::Value {
    match of {
        SchemaArg::Profile => crate::profile::Profile::json_schema(),
        SchemaArg::Predictions => schemars::schema_for!(predictions::PredictionsJson<'_>).to_value(),
        SchemaArg::Comparison => schemars::schema_for!(comparison::ComparisonJson<'_>).to_value(),
        SchemaArg::BlackBox => crate::predict::blackbox::OperatorTotals::json_schema(),
        SchemaArg::Plan => schemars::schema_for!(plans::PlanJson<'_>).to_value(),
    }
}

fn config(args: &ConfigArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let settings = settings(&paths)?;
    if args.keys {
        let keymap = Keymap::patched(&settings.keys)
            .map_err(|error| CliError(format!("{}: {error}", paths.settings().display())))?;
        write!(out, "{}", keymap.to_toml())?;
        return Ok(0);
    }
    for (what, path) in [
        ("settings", paths.settings()),
        ("catalog overlay", paths.catalog()),
        ("price overlay", paths.pricing()),
        ("measured operators", paths.measured()),
        ("your themes", paths.themes()),
        ("trained models", weights::folder(None, &settings, &paths)),
    ] {
        let state = if path.exists() { "" } else { "  (not there)" };
        writeln!(out, "{what:<18} {}{state}", path.display())?;
    }
    Ok(0)
}

/// Prints a value as JSON in which nothing can steer a terminal; exit code 0.
///
/// # Errors
/// [`CliError`] where it cannot be written.
pub fn print_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<u8, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(CliError::of)?;
    writeln!(out, "{}", text::json_escaped(&text))?;
    Ok(0)
}
