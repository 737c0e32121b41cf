//! `habitat-tui plan`: from a recorded step, from a black box, or again from a plan's file.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::answer::{from_black_box, write_lines};
use super::error::{At, CliError};
use super::input::load;
use super::options::{options, settings};
use super::output::{check_form, check_new, print_json, save_html};
use super::{batches, goal, gpu, hints, own};
use crate::settings::args::{InputArgs, OwnArgs, PlanArgs, RecordedArgs, TableForm};
use crate::settings::goal_args::GoalArgs;
use crate::store::{self, Kind, Paths, bundled, kind};
use crate::terminal;
use habitat_base::text;
use habitat_planning::plan::{Goal, Plan, PlanStatus, Prepared};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::{Predictions, predict};
use habitat_reports::html::Report;
use habitat_reports::launch::{Launch, Launcher, Start};
use habitat_reports::plan_form::{self, PlanForm, Written};
use habitat_reports::plan_toml::{self, PlanFile, Request};
use habitat_reports::{frontier, plan_changes, summary};
use habitat_step::catalog::Catalog;
use habitat_step::profile::{Profile, Sample};

/// Everything that a plan is made from.
struct PlanInput {
    /// The recorded step; `None` for a black box.
    profile: Option<Profile>,
    predictions: Predictions,
    goal: Goal,
    request: Request,
    /// Source of the step, in words.
    label: String,
    /// The earlier plan if this one replaces it.
    before: Option<PlanFile>,
    /// Own machines without a price file.
    own: OwnArgs,
    /// How the request was interpreted, for people.
    lines: Vec<String>,
    /// How the parts start.
    launch: Launch,
}

pub(super) fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    args.output.as_deref().map_or(Ok(()), check_form)?;
    for path in args.output.iter().chain(&args.html) {
        check_new(path, args.force)?;
    }
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let mut prices = own::add(&args.own, store::prices(&paths)?, &catalog)?;
    let input = match &args.from {
        Some(file) => {
            let input = input_of_plan(args, file, &catalog)?;
            prices = own::add(&input.own, prices, &catalog)?;
            goal::check_sense(&input.goal, &prices).at(file.display())?;
            input
        }
        None => input(args, &catalog, &prices)?,
    };
    let names_step = !args.frontier && plan_form(args).is_none_or(|form| form == PlanForm::Markdown);
    if input.request.file.is_none() && !names_step {
        terminal::say(format_args!("note: {}", input.label));
    }
    let prepared = Prepared::new(&input.predictions, &prices, &input.goal).at(&input.label)?;
    if args.frontier {
        return frontier(args, &input, &prepared, out);
    }
    let (deadline, budget) = (input.goal.deadline, input.goal.budget);
    let plan = prepared.explained(&input.predictions, &prices, deadline, budget).at(&input.label)?;
    if let Some(before) = &input.before {
        let mut changes = Vec::new();
        plan_changes::write(before, &plan, &prices, &mut changes)?;
        let changes = String::from_utf8_lossy(&changes);
        // On standard output, a machine-readable form must stand alone.
        if plan_form(args).is_none() || args.output.is_some() {
            writeln!(out, "{changes}")?;
        } else {
            terminal::say(changes.trim_end());
        }
    }
    write(args, &plan, &input, &prices, out)?;
    if let Some(path) = &args.html {
        let frontier = prepared.frontier();
        let report = Report {
            profile: input.profile.as_ref(),
            label: &input.label,
            predictions: &input.predictions,
            prices: &prices,
            plan: Some(&plan),
            frontier: &frontier,
            difference: None,
            lines: &input.lines,
            command: &input.request.command,
            created: store::now(),
        };
        save_html(&report.html(), path, args.force)?;
    }
    Ok(u8::from(plan.status == PlanStatus::Infeasible))
}

/// Writes the frontier in the requested form. Returns 1 if there is no plan at all.
fn frontier(args: &PlanArgs, input: &PlanInput, prepared: &Prepared, out: &mut dyn Write) -> Result<u8, CliError> {
    let points = prepared.frontier();
    let table = frontier::table(&points);
    let mut text = Vec::new();
    match table_form(args) {
        TableForm { json: true, .. } => {
            print_json(&frontier::json(&points, &input.predictions.workload.name), &mut text)?;
        }
        TableForm { csv: true, .. } => table.write_csv(&mut text)?,
        TableForm { markdown: true, .. } => table.write_markdown(&mut text)?,
        _ if points.is_empty() => writeln!(text, "No usable offer.")?,
        _ => {
            table.write_lines(terminal::width(), &mut text)?;
            if input.goal.deadline.is_some() || input.goal.budget.is_some() {
                writeln!(text, "note: these are all trade-offs, also those beyond the deadline and the budget")?;
            }
        }
    }
    match &args.output {
        Some(path) => store::save_atomically(path, &text, args.force)?,
        None => out.write_all(&text)?,
    }
    Ok(u8::from(points.is_empty()))
}

/// The request from the flags and the settings.
fn input(args: &PlanArgs, catalog: &Catalog, prices: &PriceBook) -> Result<PlanInput, CliError> {
    let paths = Paths::find();
    if let Some(file) = &args.input.file
        && let other @ (Kind::BlackBox | Kind::Other(_)) = store::kind(file)?
    {
        return Err(other.refused(file, kind::STEPS).into());
    }
    let work = args.wish.work().ok_or_else(|| {
        CliError::Refused(
            "no amount of work given: pass --samples, --steps, --epochs with --dataset, or --tokens; such as --epochs 3 --dataset 10M".to_owned(),
        )
    })?;
    let settings = settings(&paths)?;
    let goal = goal::goal(Goal::firm(work), &args.wish, &settings.plan, catalog, prices)?;
    let goal = goal.with_sizes(args.batch_sizes.is_some());
    let lines = goal::lines(&args.wish, &args.own, catalog)?;
    let command = hints::typed().to_string();
    let launch = args.launch.launch().or(&settings.launch);
    if let Some(file) = &args.black_box.black_box {
        let (predictions, _) = from_black_box(&args.black_box, file, &args.input, &[], catalog)?;
        let label = file.display().to_string();
        let (own, usd_per_kwh) = (args.own.names(), args.own.usd_per_kwh);
        let request = Request { command, file: Some(label.clone()), own, usd_per_kwh, ..Request::default() };
        return Ok(PlanInput {
            profile: None,
            predictions,
            goal,
            request,
            label,
            before: None,
            lines,
            own: args.own.clone(),
            launch,
        });
    }
    let loaded = load(&args.input, catalog)?;
    loaded.warn();
    let options = options(&args.input, &[], catalog, &paths)?;
    let mut predictions = gpu::predicted(predict(&loaded.profile, catalog, &options), &loaded.label)?;
    let sizes = batches::sizes(args.batch_sizes.as_ref(), &loaded.profile);
    batches::add(&sizes, &mut predictions, &loaded, catalog, &options)?;
    let file = args.input.file.as_ref().map(|file| file.display().to_string());
    let request = Request {
        batch_sizes: sizes,
        own: args.own.names(),
        usd_per_kwh: args.own.usd_per_kwh,
        ..Request::new(command, file, &loaded.profile, &options)?
    };
    let profile = Some(loaded.profile);
    Ok(PlanInput {
        profile,
        predictions,
        goal,
        request,
        label: loaded.label,
        before: None,
        lines,
        own: args.own.clone(),
        launch,
    })
}

/// The request from a plan's file, for the recorded step that it names or for another recording.
fn input_of_plan(args: &PlanArgs, path: &Path, catalog: &Catalog) -> Result<PlanInput, CliError> {
    if args.wish != GoalArgs::default() {
        return Err(CliError::Refused(
            "--from uses the work, the limits and the assumptions of the file; omit their flags".to_owned(),
        ));
    }
    let before = plan_toml::parse(&kind::read_toml(path, kind::PLAN)?).at(path.display())?;
    let request = &before.request;
    let Some(sha256) = &request.profile_sha256 else {
        let problem = format!(
            "was made from a black box, which --from cannot read; plan again with: {}",
            text::clean(&request.command, 500)
        );
        return Err(CliError::Refused(problem).at(path.display()));
    };
    let input = input_again(args, request, sha256);
    let mut loaded = load(&input, catalog).map_err(|error| match args.input.file {
        Some(_) => error,
        None => CliError::Refused(format!("{error}\nif the file has moved, pass its new path: `plan FILE --from …`")),
    })?;
    loaded.warn();
    if !args.other_profile {
        if loaded.profile.sha256()? != *sha256 {
            return Err(CliError::Refused(format!(
                "request.profile_sha256: the plan was made from a different recording than {}; pass the right file (`plan FILE --from …`), or use this one with --other-profile",
                loaded.label
            ))
            .at(path.display()));
        }
        request.complete(&mut loaded.profile);
    }
    let options = options(&input, &[], catalog, &Paths::find())?;
    let mut predictions = gpu::predicted(predict(&loaded.profile, catalog, &options), &loaded.label)?;
    let sizes = request.batch_sizes.clone();
    batches::add(&sizes, &mut predictions, &loaded, catalog, &options)?;
    let file = input.file.as_ref().map(|file| file.display().to_string());
    let own = if args.own.own.is_empty() {
        OwnArgs::new(&request.own, request.usd_per_kwh).map_err(CliError::Refused).at(path.display())?
    } else {
        args.own.clone()
    };
    let lines = goal::lines(&args.wish, &own, catalog)?;
    let request = Request {
        batch_sizes: sizes,
        own: own.names(),
        usd_per_kwh: own.usd_per_kwh,
        ..Request::new(hints::typed().to_string(), file, &loaded.profile, &options)?
    };
    let profile = Some(loaded.profile);
    let launch = args.launch.launch().or(&before.launch).or(&settings(&Paths::find())?.launch);
    Ok(PlanInput {
        profile,
        predictions,
        launch,
        goal: before.goal.clone(),
        request,
        label: loaded.label,
        before: Some(before),
        lines,
        own,
    })
}

/// The recorded step of a plan's file, by its checksum if it is an embedded sample, unless another one is given.
fn input_again(args: &PlanArgs, request: &Request, sha256: &str) -> InputArgs {
    let named = request.file.as_ref().map(PathBuf::from);
    let typed = args.input.file.is_some() || args.input.sample.is_some();
    let file = args.input.file.clone().or_else(|| named.filter(|_| !args.other_profile && !typed));
    // A plan without a file used an embedded sample; the checksum identifies it.
    let same = |sample: &Sample| bundled::sample(*sample).sha256().is_ok_and(|sum| sum == sha256);
    let planned = || Sample::ALL.into_iter().find(same).filter(|_| !args.other_profile);
    let sample = args.input.sample.or_else(|| if file.is_none() { planned() } else { None });
    InputArgs {
        file,
        sample,
        recorded: RecordedArgs {
            origin: request.origin.as_ref().filter(|_| !args.other_profile).map(ToString::to_string),
            ignore_origin: request.ignore_origin && !args.other_profile,
            ..RecordedArgs::default()
        },
        method: request.method,
        waves: request.waves,
        precision: request.precision,
        host: request.host,
        models: args.input.models.clone(),
        kernel_wise: args.input.kernel_wise.clone(),
        ..InputArgs::default()
    }
}

/// Writes the plan in the requested form, to the requested file or to `out`.
fn write(
    args: &PlanArgs,
    plan: &Plan,
    input: &PlanInput,
    prices: &PriceBook,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let Some(form) = plan_form(args) else {
        let sample = input.request.file.is_none().then_some(&input.label);
        let lines: Vec<String> = sample.into_iter().chain(&input.lines).cloned().collect();
        write_lines(&lines, out)?;
        summary::write_plan(plan, (&input.predictions, prices), args.rejected, terminal::width(), out)?;
        return Ok(());
    };
    let texts = form.texts(&Written {
        plan,
        predictions: &input.predictions,
        request: &input.request,
        created: store::now(),
        start: &Start::new(input.launch.clone(), &input.predictions),
        all_rejected: args.rejected,
        report: None,
    })?;
    let Some(path) = &args.output else {
        let between = if form == PlanForm::Launch(Launcher::Slurm) { "" } else { "---\n" };
        if form == PlanForm::Launch(Launcher::Slurm) && texts.len() > 1 {
            let parts = texts.len();
            return Err(CliError::Refused(format!(
                "the plan has {parts} parts, one script each: pass -o FILE to write them"
            )));
        }
        return Ok(out.write_all(texts.join(between).as_bytes())?);
    };
    let [_, _, ..] = &texts[..] else {
        return Ok(store::save_atomically(path, texts.concat().as_bytes(), args.force)?);
    };
    let paths: Vec<PathBuf> =
        plan_form::paths(&path.to_string_lossy(), texts.len()).into_iter().map(Into::into).collect();
    // Write either all files or none.
    for path in &paths {
        check_new(path, args.force)?;
    }
    for (path, text) in paths.iter().zip(&texts) {
        store::save_atomically(path, text.as_bytes(), args.force)?;
    }
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok(writeln!(out, "wrote {}", names.join(", "))?)
}

/// The table form from a flag, or from the extension of the file.
fn table_form(args: &PlanArgs) -> TableForm {
    let form = TableForm { json: args.json, csv: args.csv, markdown: args.markdown };
    match &args.output {
        Some(path) if !args.toml && args.export.is_none() => form.for_file(path),
        _ => form,
    }
}

/// The form of the plan; `None` for text.
fn plan_form(args: &PlanArgs) -> Option<PlanForm> {
    match table_form(args) {
        TableForm { json: true, .. } => return Some(PlanForm::Json),
        TableForm { csv: true, .. } => return Some(PlanForm::Csv),
        TableForm { markdown: true, .. } => return Some(PlanForm::Markdown),
        _ => {}
    }
    match args {
        PlanArgs { export: Some(tool), .. } => Some(PlanForm::Launch(*tool)),
        _ => (args.toml || args.output.is_some()).then_some(PlanForm::Toml),
    }
}
