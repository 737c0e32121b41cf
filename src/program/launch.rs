//! Makes a [`Launch`] from the arguments, with functions that predict, plan and write files.

use std::env;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cli::{self, Screens};
use crate::store::{Paths, StoreError, now, save_atomically};
use habitat_base::units::GpuSlug;
use habitat_planning::plan::{FrontierPoint, Goal, Prepared};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::batches::{add_shares, add_sizes, sweep, sweep_to_largest};
use habitat_prediction::compare::compare;
use habitat_prediction::hypothetical::what_if;
use habitat_prediction::{MethodChoice, Options, Predictions, predict};
use habitat_recorder::live::Session;
use habitat_reports::html::Report;
use habitat_reports::launch::Start;
use habitat_reports::plan_form::Written;
use habitat_reports::plan_toml::Request;
use habitat_reports::theme::{ColourInputs, ColourLevel, GlyphSet};
use habitat_screens::action::Screen;
use habitat_screens::app::engine::{Export, Solved, Version};
use habitat_screens::app::screen::profile::Against;
use habitat_screens::app::{Chosen, Engine, Own, SaveOutcome, Setup, Source};
use habitat_screens::keymap::{Key, Keymap};
use habitat_screens::tui::{self, Launch, Line, TuiError, run, screenshot};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Sample;

/// Opens the screens, or writes the requested image.
///
/// # Errors
/// [`TuiError`] for an invalid setting, an image that cannot be written, or an unusable terminal.
pub fn open(mut screens: Screens) -> Result<u8, TuiError> {
    if let Some(session) = screens.live.take() {
        return on_job(screens, session);
    }
    let picture = screens.args.screenshot.clone();
    let (size, keys, force) = (screens.args.size, screens.args.keys.clone(), screens.args.force);
    let mut launch = launch(screens)?;
    let Some(path) = picture else { return run(launch, None) };
    let keys: Vec<Key> = keys
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|error| TuiError::Setting(format!("--keys: {error}")))?;
    // An image is not a terminal: only the flag and the settings limit colours.
    if launch.setup.colours < ColourLevel::True && !launch.colours_asked {
        launch.setup.colours = ColourLevel::True;
    }
    let text = screenshot(&launch, &keys, size);
    let is_png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let bytes = if is_png { png(&text, &path)? } else { text.into_bytes() };
    save_atomically(&path, &bytes, force).map_err(|error| TuiError::Picture(error.to_string()))?;
    Ok(0)
}

/// Converts the image to PNG with librsvg's program; text needs fonts that are installed on the machine.
fn png(svg: &str, path: &Path) -> Result<Vec<u8>, TuiError> {
    converted(svg).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "PNG needs rsvg-convert (package librsvg2-bin) on the PATH".to_owned(),
            _ => format!("rsvg-convert: {error}"),
        };
        let svg = path.with_extension("svg");
        TuiError::Picture(format!(
            "--screenshot {}: {why}; or write SVG, which needs no program: {}",
            path.display(),
            svg.display()
        ))
    })
}

fn converted(svg: &str) -> io::Result<Vec<u8>> {
    let mut child = Command::new("rsvg-convert")
        .args(["--format", "png", "--zoom", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
    let text = svg.to_owned();
    // The program may exit before it has read everything. Its own message is more useful than a broken pipe.
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    let _ = writing.join();
    if output.status.success() && output.stdout.starts_with(b"\x89PNG") {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{} ({})", said.lines().next().unwrap_or("no image"), output.status)))
}

/// Opens the screens for a running job. Returns the job's exit code, unless a signal closed the screens.
fn on_job(screens: Screens, session: Session) -> Result<u8, TuiError> {
    let Session { job, updates, control, finish } = session;
    let opened = launch(screens).and_then(|mut launch| {
        launch.setup.source = Source::Awaited;
        launch.setup.screen = Screen::Job;
        launch.setup.job = Some(job);
        run(launch, Some(Line { updates, control }))
    });
    // Even if the screens failed, the job keeps running and the user learns of it.
    let code = finish();
    Ok(match opened? {
        0 => code,
        signal => signal,
    })
}

/// Makes a launch from arguments, settings and loaded data.
///
/// # Errors
/// [`TuiError::Setting`] for invalid keys or an invalid colour level.
pub fn launch(screens: Screens) -> Result<Launch, TuiError> {
    let Screens { command, args, settings, loaded, jobs, .. } = screens;
    let variable = |name: &str| env::var(name).ok();
    let (no_color, colorterm, term) = (variable("NO_COLOR"), variable("COLORTERM"), variable("TERM"));
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    let file = Paths::find().settings();
    let in_file = |problem: &dyn std::fmt::Display| TuiError::Setting(format!("{}: {problem}", file.display()));
    let level = |text: &str| ColourLevel::parse(text).map_err(|why| in_file(&format!("color = {text:?}: {why}")));
    let config = settings.color.as_deref().map(level).transpose()?.flatten();
    let flag = args.color.flatten();
    let colours = ColourLevel::resolve(&ColourInputs {
        flag,
        no_color: no_color.as_deref(),
        config,
        colorterm: colorterm.as_deref(),
        term: term.as_deref(),
    });
    let asked = (args.ascii || settings.ascii == Some(true)).then_some(GlyphSet::Ascii);
    let keymap = Keymap::patched(&settings.keys).map_err(|error| in_file(&error))?;
    let source = if loaded.embedded { Source::Sample(loaded.label) } else { Source::Given(loaded.label) };
    let (catalog, prices) = (Arc::new(screens.catalog), Arc::new(screens.prices));
    let request = Request {
        command: command.to_string(),
        file: args.input.file.as_ref().map(|file| file.display().to_string()),
        usd_per_kwh: args.own.usd_per_kwh,
        ..Request::default()
    };
    let precision = screens.options.precision;
    let own = {
        let (listed, catalog) = (screens.listed, catalog.clone());
        let facts = (args.own.usd_per_kwh, args.wish.network.is_some());
        Own {
            names: args.own.names(),
            is_changed: false,
            add: Arc::new(move |text| cli::own_machines(text, facts, &listed, &catalog)),
        }
    };
    let mut engine = engine(&catalog, (screens.options, screens.sizes), request);
    if let Some(jobs) = jobs.clone() {
        engine.jobs = Arc::new(move || jobs.plan().map_err(|error| error.to_string()));
    }
    let setup = Setup {
        profile: Arc::new(loaded.profile),
        source,
        against: screens.against.map(|loaded| Against { profile: Arc::new(loaded.profile), label: loaded.label }),
        typed: command,
        job: None,
        jobs: jobs.as_ref().map(|jobs| jobs.file.display().to_string()),
        catalog,
        prices,
        own,
        precision,
        now: || now().to_zoned(jiff::tz::TimeZone::system()),
        goal: screens.goal,
        keymap,
        themes: screens.themes,
        theme: screens.theme,
        colours,
        glyphs: GlyphSet::resolve(asked, locale.as_deref(), term.as_deref()),
        mouse: !args.no_mouse && settings.mouse != Some(false),
        screen: args.screen,
        gpu: screens.gpu,
        filter: args.filter,
        launch: settings.launch,
    };
    Ok(Launch { setup, engine, colours_asked: flag.is_some() || config.is_some() })
}

/// Batch sizes to show, as fractions of the recorded one.
const AROUND: [(u64, u64); 10] = [(1, 4), (3, 8), (1, 2), (3, 4), (3, 2), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1)];

/// The part of a plan that does not depend on deadline and budget, cached while these change.
struct Kept {
    predictions: Arc<Predictions>,
    prices: Arc<PriceBook>,
    goal: Goal,
    prepared: Prepared,
    frontier: Arc<Vec<FrontierPoint>>,
}

/// Functions that predict, plan and write, with this catalog. `sizes` are batch sizes that plans may use in addition to
/// the recorded one; `request` has the current command, the file of the recorded step and the price of electricity.
pub fn engine(catalog: &Arc<Catalog>, (options, sizes): (Options, Vec<u64>), request: Request) -> Engine {
    let catalog = catalog.clone();
    let kept: Mutex<Option<Kept>> = Mutex::new(None);
    let by = move |chosen: Chosen, targets: Vec<GpuSlug>| {
        let targets = if targets.is_empty() { options.targets.clone() } else { targets };
        Options { targets, steps_only: true, ..chosen.applied(&options) }
    };
    let operations = |steps: Options| Options { steps_only: false, ..steps };
    let [catalog_too, catalog_sweep, catalog_change, catalog_detail] = [(); 4].map(|()| catalog.clone());
    let (by_too, by_sweep, by_change, by_export, by_detail) =
        (by.clone(), by.clone(), by.clone(), by.clone(), by.clone());
    let sizes_of = move |chosen: Chosen| chosen.batch.map_or_else(|| sizes.clone(), |one| one.into_iter().collect());
    let sizes_export = sizes_of.clone();
    Engine {
        detail: Arc::new(move |profile, gpus, chosen| {
            let options = operations(by_detail(chosen, gpus.to_vec()));
            predict(profile, &catalog_detail, &options).map_err(|error| error.to_string())
        }),
        predict: Arc::new(move |profile, chosen| {
            let options = by(chosen, Vec::new());
            let mut all = predict(profile, &catalog, &options).map_err(|error| error.to_string())?;
            let sizes = sizes_of(chosen);
            let named = (profile.workload.name.clone(), profile.clone());
            if sizes.is_empty() {
                add_shares(&mut all, named, &catalog, &options);
            } else {
                add_sizes(&mut all, &sweep(&[named], &catalog, &options, &sizes).map_err(|error| error.to_string())?);
            }
            Ok(all)
        }),
        compare: Arc::new(move |profile, gpu, chosen| {
            compare(profile, &catalog_too, &by_too(chosen, vec![gpu.clone()])).map_err(|error| error.to_string())
        }),
        batches: Arc::new(move |profile, gpu, chosen| {
            let mut options = by_sweep(chosen, vec![gpu.clone()]);
            if options.method.is_of_steps() {
                // Whole steps have no shapes to scale.
                options.method = MethodChoice::Auto;
            }
            let batch = profile.workload.batch_size.unwrap_or(1);
            let around = AROUND.map(|(times, parts)| batch.saturating_mul(times) / parts).to_vec();
            let named = [(profile.workload.name.clone(), profile.clone())];
            sweep_to_largest(&named, &catalog_sweep, &options, &around).map_err(|error| error.to_string())
        }),
        change: Arc::new(move |profile, version, chosen| {
            let Version { gpu, changes, along } = version;
            what_if(profile, &catalog_change, &operations(by_change(chosen, Vec::new())), gpu, changes, *along)
                .map_err(|error| error.to_string())
        }),
        plan: Arc::new(move |predictions, prices, goal| {
            tui::panic_if_asked("worker");
            solve(&kept, predictions, prices, goal)
        }),
        jobs: Arc::new(|| Err("no jobs file given (--jobs)".to_owned())),
        export: Arc::new(move |export| {
            exported(export, request.clone(), &by_export(export.chosen, Vec::new()), sizes_export(export.chosen))
        }),
        save: Arc::new(saved),
    }
}

/// The texts of an exported plan.
fn exported(
    export: &Export,
    request: Request,
    options: &Options,
    batch_sizes: Vec<u64>,
) -> Result<Vec<String>, String> {
    let Request { command, file, usd_per_kwh, .. } = request;
    let request = Request {
        batch_sizes,
        own: export.own.clone(),
        usd_per_kwh,
        ..Request::new(command, file, &export.profile, options).map_err(|error| error.to_string())?
    };
    let created = now();
    let report = Report {
        profile: Some(&export.profile),
        label: request.file.as_deref().unwrap_or(Sample::WORDS),
        predictions: &export.predictions,
        prices: &export.prices,
        plan: Some(&export.plan),
        frontier: &export.frontier,
        difference: None,
        lines: &[],
        command: &request.command,
        created,
    };
    let written = Written {
        plan: &export.plan,
        predictions: &export.predictions,
        request: &request,
        created,
        start: &start(export),
        all_rejected: false,
        report: Some(&report),
    };
    export.form.texts(&written).map_err(|error| error.to_string())
}

fn saved(path: &str, text: &str, replace: bool) -> SaveOutcome {
    let path = Path::new(path);
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    match save_atomically(path, text.as_bytes(), replace) {
        Ok(()) => SaveOutcome::Saved(absolute()),
        Err(StoreError::Exists { .. }) => SaveOutcome::Exists,
        Err(error) => SaveOutcome::Failed(error.to_string()),
    }
}

/// How an exported plan starts.
fn start(export: &Export) -> Start {
    Start::new(export.launch.clone(), &export.predictions)
}

fn solve(
    kept: &Mutex<Option<Kept>>,
    predictions: &Arc<Predictions>,
    prices: &Arc<PriceBook>,
    goal: &Goal,
) -> Result<Solved, String> {
    let without_limits = Goal { deadline: None, budget: None, ..goal.clone() };
    // Only one plan is solved at a time, so this does not block; after a panic the value is still valid.
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let usable = |kept: &Kept| {
        Arc::ptr_eq(&kept.predictions, predictions) && Arc::ptr_eq(&kept.prices, prices) && kept.goal == without_limits
    };
    if !kept.as_ref().is_some_and(usable) {
        *kept = None;
    }
    let kept = match &mut *kept {
        Some(kept) => kept,
        empty => {
            let prepared = Prepared::new(predictions, prices, &without_limits).map_err(|error| error.to_string())?;
            let frontier = Arc::new(prepared.frontier());
            empty.insert(Kept {
                predictions: predictions.clone(),
                prices: prices.clone(),
                goal: without_limits,
                prepared,
                frontier,
            })
        }
    };
    let plan = kept.prepared.explained(predictions, prices, goal.deadline, goal.budget);
    let plan = plan.map_err(|error| error.to_string())?;
    Ok(Solved { plan: Arc::new(plan), frontier: kept.frontier.clone() })
}
