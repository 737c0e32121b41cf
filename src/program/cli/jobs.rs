//! `habitat-tui plan-jobs`: plans several jobs from one file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batches;
use super::error::{At, CliError};
use super::input::{Loaded, load};
use super::options::{options, settings};
use super::output::check_new;
use super::progress;
use super::{goal, gpu};
use crate::settings::args::{InputArgs, PlanJobsArgs, PredictionArgs, RecordedArgs, TableForm};
use crate::settings::goal_args::GoalArgs;
use crate::settings::jobs::{JobTable, JobsFile, MachineTable, StepTable};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_base::text;
use habitat_base::units::{Hours, UsdPerHour};
use habitat_planning::plan::jobs::{Job, JobsPlan, Machine, Shared, Supply, book, offers, plan_jobs};
use habitat_planning::plan::solve::Settings;
use habitat_planning::plan::{Accept, Goal, PlanStatus};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::{PredictError, Predictions, predict};
use habitat_reports::jobs::JobsForm;
use habitat_reports::launch::{JobStart, Launcher, Start, files};
use habitat_reports::plan_form::PlanFormError;
use habitat_step::catalog::Catalog;

/// Recorded steps of the jobs file with their predictions.
type Steps = Vec<(StepTable, Arc<Predictions>)>;

/// A jobs file, and how to predict its steps.
#[derive(Debug, Clone)]
pub struct Jobs {
    /// The file.
    pub file: PathBuf,
    pub(super) prediction: PredictionArgs,
    /// Risks accepted for each job, in addition to its own.
    pub(super) accept: Vec<Accept>,
}

pub(super) fn run(args: &PlanJobsArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let (file, prediction, accept) = (args.file.clone(), args.prediction.clone(), args.accept.clone());
    let jobs = Jobs { file, prediction, accept };
    if let Some(tool) = args.export {
        return jobs.export(args, tool, out);
    }
    let form = match args.table.form {
        TableForm { json: true, .. } => JobsForm::Json,
        TableForm { csv: true, .. } => JobsForm::Csv,
        TableForm { markdown: true, .. } => JobsForm::Markdown,
        _ => JobsForm::Text,
    };
    jobs.print(form, out)
}

impl Jobs {
    /// Reads the file and its recordings, and plans the jobs together.
    ///
    /// # Errors
    /// [`CliError`] with the file, the line, the job and the remedy.
    pub fn plan(&self) -> Result<JobsPlan, CliError> {
        // The screens own the terminal.
        progress::silence();
        Ok(self.planned(|_| {})?.0)
    }

    /// Prints the plan and returns the exit code.
    pub(super) fn print(&self, form: JobsForm, out: &mut dyn Write) -> Result<u8, CliError> {
        let (plan, _) = self.planned(Loaded::warn)?;
        match form {
            JobsForm::Text => habitat_reports::jobs::write(&plan, terminal::width(), out)?,
            _ => out.write_all(form.text(&plan)?.as_bytes())?,
        }
        Ok(u8::from(plan.total.is_none() || plan.status == PlanStatus::Infeasible))
    }

    /// Writes launch files of all jobs into a folder and returns the exit code.
    fn export(&self, args: &PlanJobsArgs, launcher: Launcher, out: &mut dyn Write) -> Result<u8, CliError> {
        let (folder, force) = (args.table.file_args.output.clone().unwrap_or_default(), args.table.file_args.force);
        if folder.is_file() {
            let problem =
                format!("{} is a file; with --export, -o is the folder of the launch files", folder.display());
            return Err(CliError::Refused(problem));
        }
        let path = self.file.display();
        let file = JobsFile::parse(&store::kind::read_toml(&self.file, store::kind::JOBS)?).at(&path)?;
        let usual = args.launch.launch().or(&file.top.launch).or(&settings(&Paths::find())?.launch);
        let (plan, predictions) = self.planned(Loaded::warn)?;
        let start = |(job, predictions): (&JobTable, &Arc<Predictions>)| {
            let (name, copy) = job.copy.clone();
            let launch = job.time.launch.clone().or(&usual);
            if launch.framework.is_some() && job.time.survive.is_some() {
                let problem = "launch.framework: does not apply to copies that stop early (survive), since a rung goes on from \
                               the checkpoint of another; omit it, and write the flags in command, with $RUNG and $COPY";
                return Err(CliError::Refused(problem.to_owned()))
                    .at(format!("line {}: job {:?}", job.line, job.name))
                    .at(&path);
            }
            Ok(JobStart { name, copy, start: Start::new(launch, predictions) })
        };
        let starts = file.jobs.iter().zip(&predictions).map(start).collect::<Result<Vec<JobStart>, CliError>>()?;
        let (files, left) = files(&plan, &starts, launcher).map_err(PlanFormError::from)?;
        // Write either all files or none.
        for file in &files {
            check_new(&folder.join(&file.name), force)?;
        }
        std::fs::create_dir_all(&folder).map_err(|error| CliError::Refused(error.to_string())).at(folder.display())?;
        for file in &files {
            store::save_atomically(&folder.join(&file.name), file.text.as_bytes(), force)?;
        }
        let last = files.last().map(|file| folder.join(&file.name)).unwrap_or_default();
        let (count, script) = (files.len(), text::shell_word(&last.to_string_lossy()));
        let (all, more) =
            if left.is_empty() { ("all", String::new()) } else { ("its", format!("\n{}", left.join("\n"))) };
        writeln!(out, "wrote {count} files to {}; start {all} jobs with: bash {script}{more}", folder.display())?;
        Ok(0)
    }

    /// Plans the jobs, with the predictions of each, and passes each recording to `read` once it is loaded.
    fn planned(&self, read: fn(&Loaded)) -> Result<(JobsPlan, Vec<Arc<Predictions>>), CliError> {
        let path = self.file.display();
        let paths = Paths::find();
        let catalog = store::catalog(&paths)?;
        let file = JobsFile::parse(&store::kind::read_toml(&self.file, store::kind::JOBS)?).at(&path)?;
        let usual = settings(&paths)?.plan;
        let machines = file.machines.iter().map(|machine| machine_of(machine, &catalog).at(&path));
        let machines = machines.collect::<Result<Vec<_>, _>>()?;
        let rents = machines.is_empty() || file.top.rent;
        if !(rents || self.accept.is_empty()) {
            let problem = "--accept: does not apply to [[machine]], as nothing is rented; omit it, or rent with rent = true in the file";
            return Err(CliError::Refused(problem.to_owned())).at(&path);
        }
        // A price of time needs the dollars of machines.
        let has_price = |prices: [Option<UsdPerHour>; 2]| prices.into_iter().flatten().any(|price| price.get() > 0.0);
        let of_job = |job: &JobTable| has_price([job.time.late_usd_per_hour, job.time.hour_value]);
        let values_time = has_price([file.top.late_usd_per_hour, file.top.hour_value]) || file.jobs.iter().any(of_job);
        let is_shared = values_time || machines.iter().any(|machine| machine.is_shared);
        let (prices, usual) = match (rents, is_shared) {
            (true, _) => (store::prices(&paths)?.with_offers(offers(&machines)).on(store::today()), usual),
            (false, true) => (PriceBook::new(offers(&machines)), usual.for_machines()),
            (false, false) => (book(&machines), usual.for_machines()),
        };
        let deadline = goal::hours(file.top.deadline.as_ref()).at(&path)?;
        let mut steps = Vec::new();
        let mut job_of = |job| self.job_of(job, &file, &usual, &catalog, &prices, (&mut steps, read)).at(&path);
        let jobs = file.jobs.iter().map(&mut job_of);
        let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        let supply = if rents || is_shared { Supply::Rent(&prices) } else { Supply::Machines(&machines) };
        let confidence = file.top.confidence.or(usual.confidence).or(jobs.first().map(|job| job.goal.confidence));
        let shared = Shared {
            deadline,
            budget: file.top.budget,
            max_price: file.top.max_usd_per_hour,
            quotas: [usual.quota, file.top.quota].concat(),
            wait: file.top.wait || !machines.is_empty(),
            confidence: confidence.unwrap_or(habitat_planning::plan::Confidence::High),
            late_price: file.top.late_usd_per_hour,
            hour_value: file.top.hour_value,
        };
        let plan = plan_jobs(&jobs, supply, &shared, Settings::default()).at(&path)?;
        Ok((plan, jobs.into_iter().map(|job| job.predictions).collect()))
    }

    /// A job with the prediction of its step. Jobs with the same step share the prediction.
    fn job_of(
        &self,
        job: &JobTable,
        file: &JobsFile,
        usual: &GoalArgs,
        catalog: &Catalog,
        prices: &PriceBook,
        (steps, read): (&mut Steps, fn(&Loaded)),
    ) -> Result<Job, CliError> {
        let place = format!("line {}: job {:?}", job.line, job.name);
        let work = job.wish.work().ok_or_else(|| CliError::Refused("no work given".to_owned())).at(&place)?;
        let mut wish = job.wish.clone();
        wish.quota.extend(file.top.quota.iter().cloned());
        // Checked before the step is read, so that a wrong name is reported at once.
        // Existing machines are the user's own choice: without risks to accept.
        let goal = if file.machines.is_empty() || file.top.rent { Goal::firm(work) } else { Goal::new(work) };
        let mut goal = goal::goal(goal, &wish, usual, catalog, prices).at(&place)?;
        goal.limits.accept.extend(&self.accept);
        goal.limits.accept.sort_unstable();
        goal.limits.accept.dedup();
        let deadline = goal::hours(file.top.deadline.as_ref()).at("all jobs")?;
        goal::check_sense(&Goal { deadline, budget: file.top.budget, ..goal.clone() }, prices).at("all jobs")?;
        let known = steps.iter().find(|(step, _)| *step == job.step).map(|(_, predictions)| Arc::clone(predictions));
        let predictions = if let Some(predictions) = known {
            predictions
        } else {
            let predictions = Arc::new(self.predicted(job, catalog, read).at(&place)?);
            steps.push((job.step.clone(), Arc::clone(&predictions)));
            predictions
        };
        let (late_price, hour_value) = (job.time.late_usd_per_hour, job.time.hour_value);
        let firm = goal.deadline.filter(|_| late_price.is_none());
        let earliest = arrival(job, firm, deadline.filter(|_| file.top.late_usd_per_hour.is_none())).at(&place)?;
        let (name, priority) = (job.name.clone(), job.time.priority.unwrap_or(1.0));
        let after = job.after.clone();
        Ok(Job { name, predictions, goal, earliest, after, priority, late_price, hour_value })
    }

    /// The input for a job's step.
    fn input(&self, job: &JobTable) -> InputArgs {
        let step = &job.step;
        let folder = self.file.parent().unwrap_or(Path::new(""));
        InputArgs {
            file: Some(folder.join(&step.profile)),
            recorded: RecordedArgs {
                origin: step.origin.clone(),
                ignore_origin: step.ignore_origin,
                batch_size: step.batch_size,
                parameters: step.parameters,
                peak_memory: step.peak_memory_bytes,
            },
            sequence_length: step.sequence_length,
            prediction: self.prediction.clone(),
            ..InputArgs::default()
        }
    }

    fn predicted(&self, job: &JobTable, catalog: &Catalog, read: fn(&Loaded)) -> Result<Predictions, CliError> {
        let input = self.input(job);
        let loaded = load(&input, catalog)?;
        read(&loaded);
        let options = options(&input, &[], catalog, &Paths::find())?;
        let mut predictions = predict(&loaded.profile, catalog, &options).map_err(|error| {
            let problem = match &error {
                PredictError::UnknownOrigin { .. } => format!("{error} (in the jobs file: origin = \"GPU\")"),
                _ => error.to_string(),
            };
            CliError::Refused(problem).at(&loaded.label)
        })?;
        batches::add(&[], &mut predictions, &loaded, catalog, &options)?;
        Ok(predictions)
    }

    /// The step of the first job with its work and limits, for screens of a single step.
    ///
    /// # Errors
    /// [`CliError`] if the file cannot be read.
    pub(super) fn first(&self) -> Result<(InputArgs, GoalArgs), CliError> {
        let path = self.file.display();
        let file = JobsFile::parse(&store::kind::read_toml(&self.file, store::kind::JOBS)?).at(&path)?;
        let job = file.jobs.first().ok_or_else(|| CliError::Refused("contains no jobs".to_owned())).at(&path)?;
        Ok((self.input(job), job.wish.clone()))
    }
}

/// Earliest start of a job, which has to be before its deadlines.
fn arrival(job: &JobTable, own: Option<Hours>, shared: Option<Hours>) -> Result<Hours, CliError> {
    let arrives = job.time.arrives.as_ref().map(|arrives| arrives.hours(&goal::now())).transpose();
    let arrives = arrives.map_err(|why| CliError::Refused(format!("arrives: {why}; omit it if the job is there")))?;
    let earliest = arrives.unwrap_or(job.time.not_before_hours);
    let due = [own, shared].into_iter().flatten().min_by(Hours::total_cmp);
    match due.filter(|due| earliest.get() > 0.0 && earliest.get() >= due.get()) {
        Some(due) => {
            let key = if arrives.is_some() { "arrives" } else { "not_before_hours" };
            let (earliest, due) = (habitat_reports::format::hours(earliest), habitat_reports::format::hours(due));
            let problem = format!(
                "{key}: {earliest} is not before its deadline, {due}; set an earlier start or a later deadline"
            );
            Err(CliError::Refused(problem))
        }
        None => Ok(earliest),
    }
}

fn machine_of(machine: &MachineTable, catalog: &Catalog) -> Result<Machine, CliError> {
    let name = machine.name.clone().unwrap_or_else(|| machine.gpu.clone());
    let place = format!("line {}: machine {name:?}: gpu", machine.line);
    let gpu = gpu::one_of(catalog, &place, &machine.gpu, |_| None)?;
    Ok(Machine {
        name,
        gpu: gpu.slug.clone(),
        gpu_count: machine.gpus,
        count: machine.count,
        price: machine.usd_per_hour,
        is_shared: machine.share,
    })
}
