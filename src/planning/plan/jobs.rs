//! Joint plan of several jobs: the offer that each of them rents within shared limits, or the existing machine that
//! runs each job, and when.
//!
//! Jobs that rent use one offer each, and the plan minimises the cost. They start at the same time, so quotas and
//! dollars per hour apply to all of them together. Alternatively, they may wait for one another, and such limits apply
//! to the jobs that run at the same time. Existing machines run one job at a time on all their GPUs, and the plan
//! minimises the makespan. [`Supply`] selects between these; [`super::assignment`] has the model. Where jobs share
//! machines, or rent what the existing ones cannot do, existing machines are offers among others ([`offers`]).

mod bound;
mod check;
mod model;
mod reasons;
mod rent;
mod schedule;
mod search;
mod time;
mod timeline;
mod turns;

use super::configuration::Usable;
use super::solve::{Proof, Settings};
use super::{
    Confidence, Goal, NoPlan, Objective, Part, Plan, PlanError, PlanNote, PlanStatus, Prepared, Quota, SolverReport,
    Total, Work,
};
use crate::pricing::{OWN_PLACE, Offer, OfferId, PriceBook, ShareOf, Tier, Trust};
use habitat_base::units::{GpuSlug, Hours, Range, Usd, UsdPerHour};
use habitat_prediction::finding::distinct;
use habitat_prediction::{Finding, Predictions};
use std::collections::HashMap;
use std::sync::Arc;

pub use check::check;
use model::Model;
use schedule::Place;
pub use time::{SoftDeadline, TimeCost};
pub use turns::Turn;

/// Different jobs whose configurations are kept for others like them, which bounds the memory (a choice).
const KNOWN: usize = 16;

/// One of the jobs.
#[derive(Debug, Clone)]
pub struct Job {
    /// Unique name.
    pub name: String,
    /// Predictions of its step on each GPU, shared by jobs with the same step.
    pub predictions: Arc<Predictions>,
    /// Goal of this job. Objective, confidence and number of parts are those of all jobs.
    pub goal: Goal,
    /// Earliest start in hours from the start of the plan; only if jobs may wait.
    pub earliest: Hours,
    /// Places of the jobs that have to end before it starts; only if jobs may wait, and without cycles.
    pub after: Vec<usize>,
    /// Weight of its end: among plans of equal cost or makespan, the one with the smallest sum of weighted ends
    /// (weighted completion time). 1 by default.
    pub priority: f64,
    /// Price of each hour after the deadline of its goal, which it may then miss; `None`: it has to meet it.
    pub late_price: Option<UsdPerHour>,
    /// Price of each hour from its earliest start until its end.
    pub hour_value: Option<UsdPerHour>,
}

/// Machines that run the jobs.
#[derive(Debug, Clone, Copy)]
pub enum Supply<'a> {
    /// Offers to rent for each job.
    Rent(&'a PriceBook),
    /// Existing machines.
    Machines(&'a [Machine]),
}

/// Existing machines of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Unique name.
    pub name: String,
    /// The GPU.
    pub gpu: GpuSlug,
    /// GPUs of one machine.
    pub gpu_count: u32,
    /// Number of machines.
    pub count: u32,
    /// Price per hour of one machine.
    pub price: UsdPerHour,
    /// Whether several jobs can run on one machine at a time, each on GPUs of its own.
    pub is_shared: bool,
}

/// Limits shared by all jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Deadline of each job, hours from the start; `None` = no limit.
    pub deadline: Option<Hours>,
    /// Total cost of all jobs; `None` = no limit.
    pub budget: Option<Usd>,
    /// Dollars per hour for all jobs together; `None` = no limit.
    pub max_price: Option<UsdPerHour>,
    /// Maximum GPUs at the same time for all jobs together; a quota without a region covers all regions.
    pub quotas: Vec<Quota>,
    /// Whether jobs that rent may wait for one another.
    pub wait: bool,
    /// End of the hours that has to meet the deadlines, and that is minimised on existing machines.
    pub confidence: Confidence,
    /// Price of each hour by which a job ends after `deadline`, which jobs may then miss; `None`: they have to meet it.
    pub late_price: Option<UsdPerHour>,
    /// Price of each hour until all jobs have ended.
    pub hour_value: Option<UsdPerHour>,
}

/// Plan for several jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsPlan {
    /// Whether a plan was found, and how good it is. `TimeLimit` without jobs: none found in time, so it is unknown
    /// whether one exists.
    pub status: PlanStatus,
    /// Objective.
    pub aim: Aim,
    /// Jobs in the given order; empty without a plan.
    pub jobs: Vec<PlannedJob>,
    /// Hours until the last job ends, and the cost of all jobs; `None` without a plan.
    pub total: Option<Total>,
    /// Dollars of the time until jobs end, which the objective has beside their cost; `None` without a price of time.
    pub time_cost: Option<TimeCost>,
    /// Lower bound of the objective, in its unit; `None` if unknown.
    pub bound: Option<f64>,
    /// Reasons why no plan exists and changes that would allow one; empty otherwise.
    pub reasons: Vec<NoPlan>,
    /// Shared limits.
    pub shared: Shared,
    /// The solver and its result.
    pub solver: SolverReport,
    /// Warnings on the times, without duplicates.
    pub warnings: Vec<Finding>,
    /// Fallbacks and assumptions for all jobs.
    pub notes: Vec<PlanNote>,
}

/// Objective of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Dollars of all jobs, with those of time.
    Cost,
    /// Hours until the last job ends, at the end of the range that the confidence selects.
    Makespan,
}

/// One job of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// Its name.
    pub name: String,
    /// Machine that runs it, numbered if there are several of its kind; `None` if it is rented.
    pub machine: Option<String>,
    /// Configuration with hours and cost.
    pub part: Part,
    /// Earliest start, hours from the start of the plan.
    pub earliest: Hours,
    /// Indices of the jobs that end before it starts.
    pub after: Vec<usize>,
    /// When it may start, with the jobs whose place it takes.
    pub turn: Turn,
    /// Weight of its end.
    pub priority: f64,
    /// Start, hours from the start of the plan.
    pub start: Range<Hours>,
    /// End, hours from the start of the plan.
    pub end: Range<Hours>,
    /// Deadline of the job or the shared one that it has to meet; `None` = no limit.
    pub deadline: Option<Hours>,
    /// Deadlines that it may miss.
    pub soft_deadlines: Vec<SoftDeadline>,
    /// Price of each hour from its earliest start until its end.
    pub hour_value: Option<UsdPerHour>,
    /// Its goal, with the shared limits.
    pub goal: Goal,
    /// Notes on the job.
    pub notes: Vec<PlanNote>,
}

/// Solution and its quality.
#[derive(Debug)]
struct Answer {
    /// Mode of each job and its start in hours; jobs on existing machines follow one another instead.
    jobs: Vec<Place>,
    /// Dollars, or hours of the makespan.
    objective: f64,
    proof: Proof,
    /// Lower bound, in the same unit.
    bound: f64,
    solver: &'static str,
    notes: Vec<PlanNote>,
}

/// Finds the best plan for all jobs.
///
/// # Errors
/// [`PlanError`] with the name of the job if its goal is incomplete or invalid. If the limits cannot be met, the result
/// is a plan of status [`PlanStatus::Infeasible`] with the reasons.
pub fn plan_jobs(jobs: &[Job], supply: Supply<'_>, shared: &Shared, settings: Settings) -> Result<JobsPlan, PlanError> {
    let own;
    let (aim, prices) = match supply {
        Supply::Rent(prices) => (Aim::Cost, prices),
        Supply::Machines(machines) => {
            own = book(machines);
            (Aim::Makespan, &own)
        }
    };
    let mut plan = JobsPlan {
        status: PlanStatus::Infeasible,
        aim,
        jobs: Vec::new(),
        total: None,
        time_cost: None,
        bound: None,
        reasons: Vec::new(),
        shared: shared.clone(),
        solver: SolverReport { name: "filter and sort".to_owned(), offers: 0, configurations: 0, gap: None },
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    let mut model = Model::new(supply, shared);
    let mut prepared = Vec::with_capacity(jobs.len());
    // Copies and rungs of a sweep have the same configurations.
    let mut known: Vec<(&Arc<Predictions>, Goal, Usable)> = Vec::new();
    for job in jobs {
        let goal = goal_of(job, shared, aim);
        let sources = (&*job.predictions, prices);
        let apart = Goal { work: Work::Steps(0), deadline: None, budget: None, ..goal.clone() };
        let is_same = |(of, goal, _): &&(&Arc<_>, Goal, _)| Arc::ptr_eq(of, &job.predictions) && *goal == apart;
        let usable = known.iter().find(is_same).map(|(.., usable)| usable.clone());
        let is_new = usable.is_none();
        let of_job = match usable {
            Some(usable) => Prepared::with(sources, &goal, |_| usable),
            None => Prepared::of(sources, &goal, None),
        };
        let mut of_job = of_job.map_err(|error| error.of_job(&job.name))?;
        if is_new {
            known.truncate(KNOWN - 1);
            known.insert(0, (&job.predictions, apart, of_job.usable()));
        }
        model.add(job, shared, &mut of_job);
        if model.tasks.jobs.last().is_some_and(|task| task.modes.is_empty()) {
            plan.reasons.extend(reasons::alone(job, &of_job, aim == Aim::Cost, prices));
        }
        prepared.push(of_job);
    }
    (plan.solver.offers, plan.solver.configurations) = (model.offers(), model.tasks.modes());
    model.tasks.link(jobs.iter().map(|job| job.after.clone()));
    if plan.reasons.is_empty() {
        plan.reasons = reasons::too_late(jobs, &model.tasks);
    }
    if !plan.reasons.is_empty() || jobs.is_empty() {
        return Ok(plan);
    }
    model.complete();
    let answer = if aim == Aim::Cost { model.rent(settings) } else { model.assign(settings) };
    match answer {
        Ok(answer) => fill(&mut plan, jobs, &prepared, &model, answer, prices)?,
        Err(missing) => {
            "local search".clone_into(&mut plan.solver.name);
            if !missing.proven {
                plan.status = PlanStatus::TimeLimit;
            }
            if !shared.wait && aim == Aim::Cost {
                let shared = Shared { wait: true, ..shared.clone() };
                plan.reasons.extend(reasons::by_waiting(&plan_jobs(jobs, supply, &shared, settings)?));
            }
            plan.reasons.extend(reasons::missing(&model, &missing, jobs, settings));
        }
    }
    Ok(plan)
}

/// Goal of a job with the shared limits.
fn goal_of(job: &Job, shared: &Shared, aim: Aim) -> Goal {
    let mut goal = job.goal.clone();
    goal.max_parts = 1;
    goal.objective = if aim == Aim::Cost { Objective::Cost } else { Objective::Time };
    goal.confidence = shared.confidence;
    let hard = |deadline: Option<Hours>, price: Option<UsdPerHour>| deadline.filter(|_| price.is_none());
    goal.deadline = earlier(hard(goal.deadline, job.late_price), hard(shared.deadline, shared.late_price));
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

/// Existing machines as offers, one per kind, each of one machine.
pub fn book(machines: &[Machine]) -> PriceBook {
    PriceBook::new(machines.iter().map(|machine| offer(machine, machine.name.clone(), machine.gpu_count)))
}

/// Existing machines as offers beside rented ones. A shared machine is an offer of all its GPUs, of half of them, and
/// so on down to one.
pub fn offers(machines: &[Machine]) -> impl Iterator<Item = Offer> + '_ {
    machines.iter().flat_map(|machine| if machine.is_shared { shares(machine) } else { vec![all(machine)] })
}

/// All machines of a kind, which one job can have.
fn all(machine: &Machine) -> Offer {
    Offer { machines: Some(machine.count), ..offer(machine, machine.name.clone(), machine.gpu_count) }
}

/// Shares of each machine of a kind.
fn shares(machine: &Machine) -> Vec<Offer> {
    let name =
        |number: u32| if machine.count > 1 { format!("{} {number}", machine.name) } else { machine.name.clone() };
    let of_one = |number: u32| {
        let whole = offer(machine, name(number), machine.gpu_count);
        let share_of = Some(ShareOf { machine: whole.id.clone(), gpus: machine.gpu_count });
        let fewer = std::iter::successors(Some(machine.gpu_count / 2), |gpus| Some(gpus / 2));
        let fewer = fewer.take_while(|gpus| *gpus > 0);
        let fewer = fewer.map(move |gpus| offer(machine, format!("{}:{gpus}", name(number)), gpus));
        std::iter::once(whole).chain(fewer).map(move |offer| Offer { share_of: share_of.clone(), ..offer })
    };
    (1..=machine.count).flat_map(of_one).collect()
}

/// Some GPUs of an existing machine as an offer.
fn offer(machine: &Machine, name: String, gpus: u32) -> Offer {
    let [provider, region] = OWN_PLACE;
    Offer {
        id: OfferId::new(provider, region, &name, Tier::Owned),
        provider: provider.to_owned(),
        region: region.to_owned(),
        instance_type: name,
        gpu_name: machine.gpu.to_string(),
        gpu: Some(machine.gpu.clone()),
        gpu_count: gpus,
        machines: None,
        share_of: None,
        gpu_memory: None,
        vcpus: None,
        host_memory: None,
        tier: Tier::Owned,
        price: machine.price * (f64::from(gpus) / f64::from(machine.gpu_count)),
        as_of: None,
        until: None,
        trust: Trust::default(),
        network_gbit_per_second: None,
        term_hours: None,
        held: None,
        source: "the file of jobs".to_owned(),
        unusable: None,
        note: None,
    }
}

/// Adds the solution to the plan and checks it.
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
    let open = (objective - answer.bound).max(0.0) / answer.bound.max(f64::MIN_POSITIVE);
    plan.solver.gap = (answer.proof != Proof::Optimal && answer.bound > 0.0).then_some(open);
    answer.solver.clone_into(&mut plan.solver.name);
    plan.bound = Some(answer.bound);
    let mut warnings = Vec::new();
    let turns = model.turns(&answer.jobs);
    for ((number, turn), (job, place)) in turns.into_iter().enumerate().zip(jobs.iter().zip(&answer.jobs)) {
        let configuration = model.configurations[number][place.mode];
        let machine = model.assignment.jobs.get(number).and_then(|modes| modes[place.mode].machine);
        let alone: Plan = prepared[number].alone(configuration).map_err(|error| error.of_job(&job.name))?;
        super::check::check_sources(&alone, &job.predictions, prices)
            .map_err(|error| PlanError::from(error).of_job(&job.name))?;
        let Some(part) = alone.parts.into_iter().next() else { continue };
        let begins = Hours::known(place.start);
        let start = Range { low: begins, mid: begins, high: begins };
        plan.jobs.push(PlannedJob {
            name: job.name.clone(),
            machine: machine.map(|machine| model.machines[machine].clone()),
            earliest: job.earliest,
            after: job.after.clone(),
            turn: Turn { not_before: turn.not_before.max(job.earliest), ..turn },
            priority: job.priority,
            soft_deadlines: job.soft_deadlines(&plan.shared).collect(),
            hour_value: job.hour_value,
            start,
            end: start + part.hours,
            part,
            deadline: alone.goal.deadline,
            goal: alone.goal,
            notes: alone.notes,
        });
        warnings.push(alone.warnings);
    }
    if !model.machines.is_empty() {
        in_turn(&mut plan.jobs);
    }
    plan.warnings = distinct(warnings.iter().map(Vec::as_slice)).into_iter().map(|(warning, _)| warning).collect();
    let ends =
        |end: fn(&Range<Hours>) -> Hours| plan.jobs.iter().map(|job| end(&job.end)).fold(Hours::ZERO, Hours::max);
    let hours = Range { low: ends(|end| end.low), mid: ends(|end| end.mid), high: ends(|end| end.high) };
    plan.total = Some(Total {
        hours,
        cost: plan.jobs.iter().map(|job| job.part.cost).sum(),
        cost_by: plan.jobs.iter().map(|job| job.part.cost_by).sum(),
        footprint: plan.jobs.iter().map(|job| job.part.footprint).sum(),
    });
    let high_usd = plan.jobs.iter().map(|job| job.part.cost).sum::<Range<Usd>>().high;
    if let Some(budget_usd) = plan.shared.budget.filter(|budget| high_usd.get() > budget.get()) {
        plan.notes.push(PlanNote::BudgetAtHighEnd { budget_usd, high_usd });
    }
    plan.time_cost = time::cost(plan);
    if plan.aim == Aim::Cost && plan.time_cost.is_none() {
        let cheapest = model.tasks.least_each();
        if objective > cheapest * (1.0 + 1e-6) && objective - cheapest >= 0.005 {
            plan.notes.push(PlanNote::SharedLimitsCost { more_usd: Usd::known(objective - cheapest) });
        }
    }
    check(plan)?;
    Ok(())
}

/// Lets jobs on machines follow one another by their planned starts; those without follow by deadline, then shortest
/// first.
fn in_turn(jobs: &mut [PlannedJob]) {
    let due = |job: &PlannedJob| job.deadline.map_or(f64::INFINITY, Hours::get);
    let key = |job: &PlannedJob| [job.start.mid.get(), due(job), job.part.hours.mid.get()];
    let mut order: Vec<([f64; 3], usize)> = jobs.iter().map(key).zip(0..).collect();
    order.sort_by(|(a, _), (b, _)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])).then(a[2].total_cmp(&b[2])));
    let mut last: HashMap<Option<String>, usize> = HashMap::new();
    for (_, number) in order {
        let before = last.insert(jobs[number].machine.clone(), number);
        // As in `turns`.
        let cancelled = before.filter(|before| !jobs[*before].after.is_empty());
        let more = cancelled.map(|before| jobs[before].turn.ends.clone()).unwrap_or_default();
        jobs[number].turn.ends.extend(more.into_iter().chain(before));
        let (job, there) = (&jobs[number], jobs[number].earliest);
        let ends = job.after.iter().chain(&job.turn.ends).filter_map(|other| jobs.get(*other)).map(|other| &other.end);
        let end = |of: fn(&Range<Hours>) -> Hours| ends.clone().map(of).fold(there, Hours::max);
        let start = Range { low: end(|end| end.low), mid: end(|end| end.mid), high: end(|end| end.high) };
        let job = &mut jobs[number];
        (job.start, job.end) = (start, start + job.part.hours);
    }
}
