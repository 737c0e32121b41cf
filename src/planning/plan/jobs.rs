//! Several jobs planned together: what each of them rents, within limits that they share, or which
//! of the machines that are there runs which job, and when.
//!
//! Jobs that rent run each on one offer, and the cost is minimised. They start at once, and the quotas
//! and the dollars an hour are those of all of them together; or they may wait for one another, and
//! such limits are of what runs at the same time.
//! Machines that are there run one job at a time, all its GPUs; the makespan is minimised. Which
//! it is to be follows from [`Supply`]; the model is that of [`super::assignment`].

mod check;
mod model;
mod reasons;
mod schedule;
mod slots;

use super::solve::{Proof, Settings, SolveError};
use super::{
    Assumed, Confidence, Goal, Objective, Part, Plan, PlanError, PlanStatus, Prepared, Quota, SolverReport, Total,
};
use crate::pricing::{Offer, OfferId, PriceBook, Tier, Trust};
use habitat_base::text::dollars;
use habitat_base::units::{GpuSlug, Hours, Range, Usd, UsdPerHour};
use habitat_prediction::warning::distinct;
use habitat_prediction::{Predictions, Warning};

pub use check::check;
use model::Model;
use schedule::Scheduler;

/// One of the jobs.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name, unique among them.
    pub name: String,
    /// Its step on each GPU.
    pub predictions: Predictions,
    /// What is wanted of it alone; the objective, the confidence and the number of parts are those of
    /// all jobs.
    pub goal: Goal,
    /// Hours from the start before which it cannot begin; only where jobs may wait.
    pub earliest: Hours,
}

/// Where jobs run.
#[derive(Debug, Clone, Copy)]
pub enum Supply<'a> {
    /// On what is rented for each.
    Rent(&'a PriceBook),
    /// On machines that are there.
    Machines(&'a [Machine]),
}

/// Machines of a kind that are there.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name, unique among them.
    pub name: String,
    /// The GPU.
    pub gpu: GpuSlug,
    /// GPUs of one machine.
    pub gpus: u32,
    /// How many of them there are.
    pub count: u32,
    /// What an hour of one costs.
    pub price: UsdPerHour,
}

/// What all jobs share.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Latest finish of each job, hours from the start; `None` = no limit.
    pub deadline: Option<Hours>,
    /// Total cost of all jobs; `None` = no limit.
    pub budget: Option<Usd>,
    /// Dollars an hour of all jobs together; `None` = no limit.
    pub max_price: Option<UsdPerHour>,
    /// GPUs at once of all jobs together; without a region, of all regions together.
    pub quotas: Vec<Quota>,
    /// Whether jobs that rent may wait for one another.
    pub wait: bool,
    /// Which end of the hours has to meet the deadlines, and is minimised on machines.
    pub confidence: Confidence,
}

/// The answer for several jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsPlan {
    /// Whether it was found, and how good it is known to be; `TimeLimit` without jobs: nothing was
    /// found, and it is not known whether there is a plan.
    pub status: PlanStatus,
    /// What is minimised.
    pub aim: Aim,
    /// The jobs, in the order in which they were given; empty where there is no plan.
    pub jobs: Vec<PlannedJob>,
    /// Hours until the last job is done, and the cost of all; `None` where there is no plan.
    pub total: Option<Total>,
    /// What no plan within the limits is below, in the unit of the aim; `None` where not known.
    pub bound: Option<f64>,
    /// Why there is no plan and what would make one; empty otherwise.
    pub reasons: Vec<String>,
    /// What the jobs share.
    pub shared: Shared,
    /// How it was solved.
    pub solver: SolverReport,
    /// What is to be shown with the times, once each.
    pub warnings: Vec<Warning>,
    /// Fall-backs and assumptions that hold for all.
    pub notes: Vec<String>,
}

/// What is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Dollars of all jobs.
    Cost,
    /// Hours until the last job is done, at the end of the range that the confidence asks for.
    Makespan,
}

/// One job of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// Its name.
    pub name: String,
    /// The machine that runs it, numbered where there are several of its kind; `None` where it is
    /// rented.
    pub machine: Option<String>,
    /// The configuration, with hours and cost.
    pub part: Part,
    /// Hours from the start before which it could not begin.
    pub earliest: Hours,
    /// Hours from the start at which it begins.
    pub start: Range<Hours>,
    /// Hours from the start at which it is done.
    pub end: Range<Hours>,
    /// Its deadline, its own or the shared one; `None` = no limit.
    pub deadline: Option<Hours>,
    /// What is assumed for it.
    pub assumptions: Vec<Assumed>,
    /// What is to be known of it.
    pub notes: Vec<String>,
}

/// What was found, and how good it is known to be.
#[derive(Debug)]
struct Answer {
    jobs: Vec<Chosen>,
    /// Dollars, or hours of the makespan.
    objective: f64,
    proof: Proof,
    /// What no plan is below, in the same unit.
    bound: f64,
    solver: &'static str,
    notes: Vec<String>,
}

/// What was found for a job.
#[derive(Debug)]
struct Chosen {
    configuration: usize,
    /// Hours from the start; on machines jobs follow one another, whatever stands here.
    start: f64,
    machine: Option<usize>,
}

/// The best plan for all jobs.
///
/// # Errors
/// [`PlanError`] where a job's goal lacks something, naming the job. Limits that cannot be met are
/// no error but a plan of status [`PlanStatus::Infeasible`] with the reasons.
pub fn plan_jobs(jobs: &[Job], supply: Supply<'_>, shared: &Shared, settings: Settings) -> Result<JobsPlan, PlanError> {
    let own;
    let (aim, prices) = match supply {
        Supply::Rent(prices) => (Aim::Cost, prices),
        Supply::Machines(machines) => {
            own = book(machines);
            (Aim::Makespan, &own)
        }
    };
    let mut prepared = Vec::with_capacity(jobs.len());
    for job in jobs {
        let goal = goal_of(job, shared, aim);
        prepared.push(Prepared::new(&job.predictions, prices, &goal).map_err(|error| error.of_job(&job.name))?);
    }
    let earliest: Vec<Hours> = jobs.iter().map(|job| job.earliest).collect();
    let mut model = Model::new(&prepared, supply, shared);
    let mut plan = JobsPlan {
        status: PlanStatus::Infeasible,
        aim,
        jobs: Vec::new(),
        total: None,
        bound: None,
        reasons: Vec::new(),
        shared: shared.clone(),
        solver: SolverReport {
            name: "filter and sort".to_owned(),
            configurations: model.assignment.jobs.iter().map(Vec::len).sum(),
            gap: None,
        },
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    plan.reasons = reasons::of_each(jobs, &prepared, &model, prices);
    if shared.wait && aim == Aim::Cost && plan.reasons.is_empty() {
        model.wait(&prepared, &earliest);
        plan.reasons = reasons::too_late(jobs, &prepared, &model);
    }
    if !plan.reasons.is_empty() || jobs.is_empty() {
        return Ok(plan);
    }
    let best = || model.assignment.best(settings);
    let answer = if model.bases.is_empty() {
        best().map(|found| model.at_once(found))
    } else {
        let found = (!model.starts.is_empty()).then(best);
        Scheduler::new(&model, &prepared, &earliest).answer(found, &prepared, settings)
    };
    match answer {
        Ok(answer) => fill(&mut plan, jobs, &prepared, &model, answer, prices)?,
        Err(SolveError::Infeasible) => {
            "microlp".clone_into(&mut plan.solver.name);
            if !shared.wait && aim == Aim::Cost {
                let shared = Shared { wait: true, ..shared.clone() };
                plan.reasons.extend(reasons::by_waiting(&plan_jobs(jobs, supply, &shared, settings)?));
            }
            plan.reasons.extend(reasons::of_all(&model, settings));
        }
        Err(error) => {
            plan.status = PlanStatus::TimeLimit;
            "microlp".clone_into(&mut plan.solver.name);
            plan.reasons = vec![format!("no plan was found, and it is not known whether there is one: {error}")];
        }
    }
    Ok(plan)
}

/// The goal of a job with what all share.
fn goal_of(job: &Job, shared: &Shared, aim: Aim) -> Goal {
    let mut goal = job.goal.clone();
    goal.max_parts = 1;
    goal.objective = if aim == Aim::Cost { Objective::Cost } else { Objective::Time };
    goal.confidence = shared.confidence;
    goal.deadline = earlier(goal.deadline, shared.deadline);
    if aim == Aim::Makespan {
        goal.limits.tiers = vec![Tier::Owned];
        return goal;
    }
    if let Some(most) = shared.max_price {
        goal.limits.max_price =
            Some(goal.limits.max_price.map_or(most, |own| if own.get() < most.get() { own } else { most }));
    }
    let new = shared.quotas.iter().filter(|quota| !job.goal.limits.quotas.contains(quota)).cloned();
    goal.limits.quotas.extend(new);
    goal
}

fn earlier(own: Option<Hours>, shared: Option<Hours>) -> Option<Hours> {
    [own, shared].into_iter().flatten().min_by(Hours::total_cmp)
}

/// Machines that are there as offers, one a kind.
pub fn book(machines: &[Machine]) -> PriceBook {
    PriceBook::new(machines.iter().map(|machine| Offer {
        id: OfferId::new("own", "here", &machine.name, Tier::Owned),
        provider: "own".to_owned(),
        region: "here".to_owned(),
        instance_type: machine.name.clone(),
        gpu_name: machine.gpu.to_string(),
        gpu: Some(machine.gpu.clone()),
        gpu_count: machine.gpus,
        gpu_memory: None,
        vcpus: None,
        host_memory: None,
        tier: Tier::Owned,
        price: machine.price,
        as_of: None,
        trust: Trust::default(),
        network_gbit_per_second: None,
        term_hours: None,
        held: None,
        source: "the file of jobs".to_owned(),
        unusable: None,
        note: None,
    }))
}

/// Puts the assignment into the plan, and checks it.
fn fill(
    plan: &mut JobsPlan,
    jobs: &[Job],
    prepared: &[Prepared],
    model: &Model,
    answer: Answer,
    prices: &PriceBook,
) -> Result<(), PlanError> {
    let objective = answer.objective;
    plan.notes = answer.notes;
    plan.status = match answer.proof {
        Proof::Optimal => PlanStatus::Optimal,
        Proof::Gap => PlanStatus::GapLimit,
        Proof::Time => PlanStatus::TimeLimit,
    };
    let open = (objective - answer.bound).max(0.0) / objective.max(f64::MIN_POSITIVE);
    plan.solver.gap = (answer.proof != Proof::Optimal).then_some(open);
    answer.solver.clone_into(&mut plan.solver.name);
    plan.bound = Some(answer.bound);
    let mut warnings = Vec::new();
    for ((job, prepared), chosen) in jobs.iter().zip(prepared).zip(&answer.jobs) {
        let alone: Plan = prepared.alone(chosen.configuration).map_err(|error| error.of_job(&job.name))?;
        super::check::check_sources(&alone, &job.predictions, prices)
            .map_err(|error| PlanError::from(error).of_job(&job.name))?;
        let Some(part) = alone.parts.into_iter().next() else { continue };
        let begins = Hours::known(chosen.start);
        let start = Range { low: begins, mid: begins, high: begins };
        plan.jobs.push(PlannedJob {
            name: job.name.clone(),
            machine: chosen.machine.map(|machine| model.machines[machine].clone()),
            earliest: job.earliest,
            start,
            end: start + part.hours,
            part,
            deadline: alone.goal.deadline,
            assumptions: alone.goal.assumed(),
            notes: alone.notes,
        });
        warnings.push(alone.warnings);
    }
    for machine in &model.machines {
        in_turn(&mut plan.jobs, machine);
    }
    plan.warnings =
        distinct(warnings.iter().map(Vec::as_slice)).into_iter().map(|(warning, _)| warning.clone()).collect();
    let ends =
        |end: fn(&Range<Hours>) -> Hours| plan.jobs.iter().map(|job| end(&job.end)).fold(Hours::ZERO, Hours::max);
    let hours = Range { low: ends(|end| end.low), mid: ends(|end| end.mid), high: ends(|end| end.high) };
    plan.total = Some(Total {
        hours,
        cost: plan.jobs.iter().map(|job| job.part.cost).sum(),
        cost_by: plan.jobs.iter().map(|job| job.part.cost_by).sum(),
        footprint: plan.jobs.iter().map(|job| job.part.footprint).sum(),
    });
    if plan.aim == Aim::Cost {
        let cheapest = model.cheapest_each();
        if objective > cheapest * (1.0 + 1e-6) && objective - cheapest >= 0.005 {
            let more = dollars(objective - cheapest);
            plan.notes.push(format!(
                "the shared limits cost {more}: that much more than the cheapest offer for each job alone"
            ));
        }
    }
    check(plan)?;
    Ok(())
}

/// Jobs on one machine follow one another: the earliest deadline first, then the shortest.
fn in_turn(jobs: &mut [PlannedJob], machine: &str) {
    let mut of_machine: Vec<&mut PlannedJob> =
        jobs.iter_mut().filter(|job| job.machine.as_deref() == Some(machine)).collect();
    let due = |job: &PlannedJob| job.deadline.map_or(f64::INFINITY, Hours::get);
    of_machine.sort_by(|a, b| due(a).total_cmp(&due(b)).then(a.part.hours.mid.total_cmp(&b.part.hours.mid)));
    let mut start = Range::default();
    for job in of_machine {
        job.start = start;
        job.end = start + job.part.hours;
        start = job.end;
    }
}
