//! `habitat-tui plan-jobs`: several jobs of one file.

use std::io::Write;
use std::path::Path;

use super::error::{At, CliError};
use super::goal;
use super::input::load;
use super::options::{options, settings};
use super::output::{print_json, print_table};
use crate::catalog::Catalog;
use crate::plan::PlanStatus;
use crate::plan::jobs::{Job, Machine, Shared, Supply, book, plan_jobs};
use crate::plan::solve::Settings;
use crate::predict::{PredictError, Predictions, predict};
use crate::pricing::PriceBook;
use crate::report::jobs as report;
use crate::settings::args::{InputArgs, PlanJobsArgs, RecordedArgs};
use crate::settings::jobs::{JobTable, JobsFile, MachineTable};
use crate::settings::wish::Wish;
use crate::store::{self, Limit, Paths};
use crate::text;

pub(super) fn run(args: &PlanJobsArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let path = args.file.display();
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let file = JobsFile::parse(&store::read_text(&args.file, Limit::PLAN)?).at(&path)?;
    let usual = settings(&paths)?.plan;
    let machines = file.machines.iter().map(|machine| machine_of(machine, &catalog).at(&path));
    let machines = machines.collect::<Result<Vec<_>, _>>()?;
    let (prices, usual) =
        if machines.is_empty() { (store::prices(&paths)?, usual) } else { (book(&machines), usual.for_machines()) };
    let jobs = file.jobs.iter().map(|job| job_of(job, args, &file, &usual, &catalog, &prices).at(&path));
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let supply = if machines.is_empty() { Supply::Rent(&prices) } else { Supply::Machines(&machines) };
    let confidence = file.confidence.or(usual.confidence).or(jobs.first().map(|job| job.goal.confidence));
    let shared = Shared {
        deadline: file.shared.deadline,
        budget: file.shared.budget,
        max_price: file.shared.max_price,
        quotas: [usual.quota, file.shared.quota].concat(),
        wait: file.wait,
        confidence: confidence.unwrap_or(crate::plan::Confidence::High),
    };
    let plan = plan_jobs(&jobs, supply, &shared, Settings::default()).at(&path)?;
    if args.form.json {
        print_json(&report::json(&plan), out)?;
    } else if args.form.is_text() {
        report::write(&plan, out)?;
    } else {
        print_table(&report::table(&plan), args.form, out)?;
    }
    Ok(u8::from(plan.total.is_none() || plan.status == PlanStatus::Infeasible))
}

/// A job with its step predicted.
fn job_of(
    job: &JobTable,
    args: &PlanJobsArgs,
    file: &JobsFile,
    usual: &Wish,
    catalog: &Catalog,
    prices: &PriceBook,
) -> Result<Job, CliError> {
    let place = format!("line {}: job {:?}", job.line, job.name);
    let work = job.wish.work().ok_or_else(|| CliError::Refused("no work".to_owned())).at(&place)?;
    let mut wish = job.wish.clone();
    wish.quota.extend(file.shared.quota.iter().cloned());
    // Before the step is read: a wrong name is found at once.
    let goal = goal::goal(work, &wish, usual, catalog, prices).at(&place)?;
    goal::check_sense(
        &crate::plan::Goal { deadline: file.shared.deadline, budget: file.shared.budget, ..goal.clone() },
        prices,
    )
    .at("all jobs")?;
    let predictions = predicted(job, args, catalog).at(&place)?;
    Ok(Job { name: job.name.clone(), predictions, goal, earliest: job.time.not_before_hours })
}

fn predicted(job: &JobTable, args: &PlanJobsArgs, catalog: &Catalog) -> Result<Predictions, CliError> {
    let step = &job.step;
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let input = InputArgs {
        file: Some(folder.join(&step.profile)),
        recorded: RecordedArgs {
            origin: step.origin.clone(),
            ignore_origin: step.ignore_origin,
            batch_size: step.batch_size,
            parameters: step.parameters,
            peak_memory: step.peak_memory_bytes,
        },
        sequence_length: step.sequence_length,
        method: args.method,
        host: args.host,
        models: args.models.clone(),
        ..InputArgs::default()
    };
    let loaded = load(&input, catalog)?;
    loaded.warn();
    let options = options(&input, &[], catalog, &Paths::find())?;
    predict(&loaded.profile, catalog, &options).map_err(|error| {
        let problem = match &error {
            PredictError::UnknownOrigin { .. } => format!("{error} (in the file of jobs: origin = \"GPU\")"),
            _ => error.to_string(),
        };
        CliError::Refused(problem).at(&loaded.label)
    })
}

fn machine_of(machine: &MachineTable, catalog: &Catalog) -> Result<Machine, CliError> {
    let name = machine.name.clone().unwrap_or_else(|| machine.gpu.clone());
    let place = format!("line {}: machine {name:?}: gpu", machine.line);
    let gpu = match catalog.named(&machine.gpu)[..] {
        [gpu] => gpu,
        [] => catalog.find(&machine.gpu).at(&place)?,
        ref several => {
            let all: Vec<&str> = several.iter().map(|gpu| gpu.slug.as_str()).collect();
            let problem = format!("{} may be {}; write one of them", text::clean(&machine.gpu, 40), all.join(", "));
            return Err(CliError::Refused(problem).at(&place));
        }
    };
    Ok(Machine { name, gpu: gpu.slug.clone(), gpus: machine.gpus, count: machine.count, price: machine.usd_per_hour })
}
