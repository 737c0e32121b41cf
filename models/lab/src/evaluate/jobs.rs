//! Plans of many jobs beside list schedules: whether a plan ever costs more than the best list schedule of its file, and
//! how far it is above its own bound.
//!
//! Each file has jobs of three steps on six GPUs at three providers, with arrivals, deadlines, jobs that wait for others,
//! a quota at each provider and a limit on dollars per hour. A list schedule takes the jobs in an order; each starts its
//! cheapest offer that still meets its deadline as early as the limits allow. It shares no code with the planner: hours
//! and dollars of a job on an offer are those of a plan of that job alone.

use std::time::Instant;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::plan::jobs::{Job, JobsPlan, Shared, Supply, check, plan_jobs};
use habitat_tui::plan::solve::Settings;
use habitat_tui::plan::{Confidence, Goal, PlanStatus, Quota, Work, plan};
use habitat_tui::predict::{Options, Predictions, predict};
use habitat_tui::pricing::{Offer, PriceBook, Snapshot};
use habitat_tui::profile::Sample;
use habitat_tui::random::Random;
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store::bundled;
use habitat_tui::units::{Hours, UsdPerHour};
use serde::Serialize;

use super::tally::Evaluation;

/// The GPUs, each with its provider and dollars per hour.
const OFFERS: [(&str, &str, f64); 6] = [
    ("t4", "near", 0.3),
    ("rtx-3090", "near", 0.35),
    ("l4", "middle", 0.6),
    ("a10g", "middle", 0.8),
    ("a100-pcie-40gb", "far", 1.4),
    ("h100-pcie-80gb", "far", 2.4),
];
const PROVIDERS: [&str; 3] = ["near", "middle", "far"];
/// Jobs of a file.
const SIZES: [usize; 5] = [50, 100, 200, 350, 500];
/// Relative difference within which costs are equal.
const EQUAL: f64 = 1e-6;

/// One offer for a job.
struct Way {
    provider: usize,
    price: f64,
    hours: f64,
    cost: f64,
}

/// A job as list schedules see it.
struct Task {
    /// Cheapest first.
    ways: Vec<Way>,
    earliest: f64,
    due: f64,
    after: Option<usize>,
}

/// Amount of a limit in use from each time on.
struct Used {
    most: f64,
    steps: Vec<(f64, f64)>,
}

impl Used {
    fn new(most: f64) -> Self {
        Self { most, steps: vec![(0.0, 0.0)] }
    }

    /// First time from `from` on at which an amount has room for these hours.
    fn earliest(&self, from: f64, hours: f64, amount: f64) -> f64 {
        let mut start = from;
        let first = self.steps.partition_point(|(time, _)| *time <= from).saturating_sub(1);
        for (at, (_, used)) in self.steps.iter().enumerate().skip(first) {
            let end = self.steps.get(at + 1).map_or(f64::INFINITY, |(time, _)| *time);
            if used + amount > self.most * (1.0 + 1e-9) {
                start = end;
            } else if end >= start + hours {
                return start;
            }
        }
        start
    }

    fn add(&mut self, start: f64, end: f64, amount: f64) {
        let mut at = |time: f64| {
            let at = self.steps.partition_point(|(other, _)| *other < time);
            if self.steps.get(at).is_none_or(|(other, _)| *other != time) {
                self.steps.insert(at, (time, self.steps[at - 1].1));
            }
            at
        };
        let (first, last) = (at(start), at(end));
        self.steps[first..last].iter_mut().for_each(|(_, used)| *used += amount);
    }
}

/// A file of jobs.
struct File {
    jobs: Vec<Job>,
    tasks: Vec<Task>,
    shared: Shared,
}

impl File {
    /// A random file of `count` jobs.
    fn new(count: usize, kinds: &[Predictions], books: &Books, random: &mut Random) -> Result<Self, CliError> {
        let (mut jobs, mut tasks): (Vec<Job>, Vec<Task>) = (Vec::new(), Vec::new());
        let gpus = PROVIDERS.map(|_| (count as f64 * (0.02 + 0.06 * random.unit())).ceil());
        let room: f64 = gpus.iter().sum();
        let max_price = room * (0.6 + random.unit());
        // Hours for all jobs if they share all GPUs, each at the speed of the first offer.
        let span = 10.5 * count as f64 / room;
        // First possible ends.
        let mut ends: Vec<f64> = Vec::new();
        for number in 0..count {
            let kind = &kinds[random.below(kinds.len())];
            let hours = 1.0 + 19.0 * random.unit();
            let goal = Goal::new(Work::Steps((hours * 3.6e9 / step(kind)) as u64));
            let after = (number > 0 && random.unit() < 0.15).then(|| random.below(number));
            let earliest = if random.unit() < 0.5 { 0.0 } else { span * 0.4 * random.unit() };
            let ways = books.ways(kind, &goal)?;
            let fastest = ways.iter().map(|way| way.hours).fold(f64::INFINITY, f64::min);
            let ready = after.map_or(earliest, |other: usize| ends[other].max(earliest));
            let due = if random.unit() < 0.2 { None } else { Some(ready + 1.5 * fastest + span * random.unit()) };
            ends.push(ready + fastest);
            let goal = Goal { deadline: due.map(Hours::new).transpose().map_err(CliError::other)?, ..goal };
            let task = Task { ways, earliest, due: due.unwrap_or(f64::INFINITY), after };
            jobs.push(Job {
                name: format!("job {number}"),
                predictions: kind.clone().into(),
                goal,
                earliest: Hours::new(earliest).map_err(CliError::other)?,
                after: after.into_iter().collect(),
                priority: 1.0,
                late_price: None,
                hour_value: None,
            });
            tasks.push(task);
        }
        let quota = |(provider, gpus): (&str, f64)| Quota {
            provider: provider.to_owned(),
            region: None,
            gpu: None,
            tier: None,
            gpus: gpus as u32,
            from: None,
            until: None,
        };
        let shared = Shared {
            deadline: None,
            budget: None,
            max_price: Some(UsdPerHour::new(max_price).map_err(CliError::other)?),
            quotas: PROVIDERS.into_iter().zip(gpus).map(quota).collect(),
            wait: true,
            confidence: Confidence::High,
            late_price: None,
            hour_value: None,
        };
        Ok(Self { jobs, tasks, shared })
    }

    /// Cost of the cheapest list schedule: in the order of the file, by deadline, longest first and by cost; `None` if
    /// each leaves a job late.
    fn listed(&self) -> Option<f64> {
        let by = |key: &dyn Fn(&Task) -> f64| {
            let mut order: Vec<usize> = (0..self.tasks.len()).collect();
            order.sort_by(|a, b| key(&self.tasks[*a]).total_cmp(&key(&self.tasks[*b])));
            self.list(order)
        };
        let costs =
            [by(&|_| 0.0), by(&|task| task.due), by(&|task| -task.ways[0].hours), by(&|task| -task.ways[0].cost)];
        costs.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Cost of the list schedule in an order, each job after the one that it waits for.
    fn list(&self, mut left: Vec<usize>) -> Option<f64> {
        let mut gpus: Vec<Used> = self.shared.quotas.iter().map(|quota| Used::new(f64::from(quota.gpus))).collect();
        let mut price = Used::new(self.shared.max_price.map_or(f64::INFINITY, UsdPerHour::get));
        let mut ends: Vec<Option<f64>> = vec![None; self.tasks.len()];
        let mut cost = 0.0;
        while !left.is_empty() {
            let mut waiting = Vec::new();
            for job in left {
                let task = &self.tasks[job];
                let ready = task.after.map_or(Some(0.0), |other| ends[other]);
                let Some(ready) = ready else {
                    waiting.push(job);
                    continue;
                };
                let place = |way: &&Way| {
                    let mut start = ready.max(task.earliest);
                    loop {
                        let on = gpus[way.provider].earliest(start, way.hours, 1.0);
                        let next = price.earliest(on, way.hours, way.price);
                        if next <= start {
                            return (start + way.hours <= task.due).then_some(start);
                        }
                        start = next;
                        if start.is_infinite() {
                            return None;
                        }
                    }
                };
                let (way, start) = task.ways.iter().find_map(|way| Some((way, place(&way)?)))?;
                gpus[way.provider].add(start, start + way.hours, 1.0);
                price.add(start, start + way.hours, way.price);
                ends[job] = Some(start + way.hours);
                cost += way.cost;
            }
            left = waiting;
        }
        Some(cost)
    }
}

/// The price book of all offers, and those of one offer each.
struct Books {
    all: PriceBook,
    single: Vec<PriceBook>,
}

impl Books {
    fn new() -> Result<Self, CliError> {
        let offer = |(gpu, provider, usd): (&str, &str, f64)| -> Result<Offer, CliError> {
            let text = format!(
                "schema = 1\nprovider = \"{provider}\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"{gpu}\"\ngpu = \"{gpu}\"\n\
                 gpu_count = 1\non_demand_usd_per_hour = {usd}\nscope = \"instance_total\"\nsource = \"an assumption\"\n"
            );
            let snapshot = Snapshot::parse(&text).map_err(CliError::other)?;
            snapshot.offers().next().ok_or_else(|| CliError::Refused(format!("no offer of {gpu}")))
        };
        let offers = OFFERS.into_iter().map(offer).collect::<Result<Vec<_>, _>>()?;
        let single = offers.iter().map(|offer| PriceBook::new([offer.clone()])).collect();
        Ok(Self { all: PriceBook::new(offers), single })
    }

    /// Each offer with the hours and dollars of a plan of this job alone.
    fn ways(&self, predictions: &Predictions, goal: &Goal) -> Result<Vec<Way>, CliError> {
        let free = Goal { deadline: None, ..goal.clone() };
        let mut ways = Vec::new();
        for ((_, provider, price), book) in OFFERS.into_iter().zip(&self.single) {
            let provider = PROVIDERS.iter().position(|name| *name == provider).unwrap_or_default();
            let alone = plan(predictions, book, &free).map_err(CliError::other)?;
            let way = |total: habitat_tui::plan::Total| Way {
                provider,
                price,
                hours: total.hours.high.get(),
                cost: total.cost.mid.get(),
            };
            ways.extend(alone.total.map(way));
        }
        ways.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        Ok(ways)
    }
}

/// Microseconds of a step on the GPU of the first offer.
fn step(predictions: &Predictions) -> f64 {
    predictions.predictions.first().map_or(1e6, |one| one.planning_step().range.mid.get())
}

/// The steps that are embedded in the program.
fn kinds(catalog: &Catalog) -> Result<Vec<Predictions>, CliError> {
    let targets = OFFERS.iter().map(|(gpu, ..)| catalog.find(gpu).map(|gpu| gpu.slug.clone()));
    let targets = targets.collect::<Result<Vec<_>, _>>().map_err(CliError::other)?;
    let options = Options { targets, ..Options::default() };
    let kind = |sample| predict(&bundled::sample(sample), catalog, &options).map_err(CliError::other);
    Sample::ALL.into_iter().map(kind).collect()
}

/// Files of one number of jobs.
#[derive(Debug, Default, Serialize)]
struct Row {
    jobs: usize,
    files: usize,
    /// Files with a plan, and those with a list schedule.
    planned: usize,
    listed: usize,
    /// Files whose plan costs more than a list schedule, or that have a list schedule and no plan.
    worse: usize,
    /// Files whose bound is above a list schedule or the plan.
    wrong_bounds: usize,
    /// Files without a plan that are proved to have none.
    infeasible: usize,
    /// Mean and least cost of the plan, in times of the list schedule.
    cost_of_listed: f64,
    least_cost_of_listed: f64,
    /// Mean and largest distance from the bound, as a share of it.
    gap: f64,
    largest_gap: f64,
    seconds: f64,
    most_seconds: f64,
}

impl Row {
    fn add(&mut self, file: &File, found: &JobsPlan, seconds: f64) -> Result<(), CliError> {
        check(found).map_err(CliError::other)?;
        let listed = file.listed();
        let cost = found.total.map(|total| total.cost.mid.get());
        self.files += 1;
        self.planned += usize::from(cost.is_some());
        self.listed += usize::from(listed.is_some());
        self.infeasible += usize::from(found.status == PlanStatus::Infeasible);
        let best = cost.into_iter().chain(listed).fold(f64::INFINITY, f64::min);
        let bound = found.bound.unwrap_or(0.0);
        self.wrong_bounds += usize::from(cost.is_some() && bound > best * (1.0 + EQUAL));
        if let Some(listed) = listed {
            self.worse += usize::from(cost.is_none_or(|cost| cost > listed * (1.0 + EQUAL)));
            let of_listed = cost.map_or(f64::NAN, |cost| cost / listed);
            self.cost_of_listed += of_listed;
            self.least_cost_of_listed = self.least_cost_of_listed.min(of_listed);
        }
        if let Some(cost) = cost {
            let gap = (cost / bound - 1.0).max(0.0);
            self.gap += gap;
            self.largest_gap = self.largest_gap.max(gap);
        }
        self.seconds += seconds;
        self.most_seconds = self.most_seconds.max(seconds);
        Ok(())
    }

    fn mean(mut self) -> Self {
        self.cost_of_listed /= self.listed as f64;
        self.gap /= self.planned as f64;
        self.seconds /= self.files as f64;
        self
    }
}

/// Plans of `files` random files, beside their list schedules.
pub(super) fn evaluate(files: usize, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let (kinds, books) = (kinds(catalog)?, Books::new()?);
    let mut rows = Vec::new();
    for (at, jobs) in SIZES.into_iter().enumerate() {
        let mut row = Row { jobs, least_cost_of_listed: f64::INFINITY, ..Row::default() };
        for number in (0..files).filter(|number| number % SIZES.len() == at) {
            let file = File::new(jobs, &kinds, &books, &mut Random::of(47, number as u64))?;
            let begin = Instant::now();
            let found = plan_jobs(&file.jobs, Supply::Rent(&books.all), &file.shared, Settings::default());
            row.add(&file, &found.map_err(CliError::other)?, begin.elapsed().as_secs_f64())?;
        }
        rows.extend((row.files > 0).then(|| row.mean()));
    }
    let mut table = Table::new(&[
        Column::number("jobs", "jobs"),
        Column::number("files", "files"),
        Column::number("list schedule", "listed"),
        Column::number("plan", "planned"),
        Column::number("proved to have none", "infeasible"),
        Column::number("worse than list", "worse"),
        Column::number("bound too high", "wrong_bounds"),
        Column::number("cost / list", "cost_of_listed"),
        Column::number("least", "least_cost_of_listed"),
        Column::number("above bound", "gap"),
        Column::number("most", "largest_gap"),
        Column::number("seconds", "seconds"),
        Column::number("most", "most_seconds"),
    ]);
    for row in &rows {
        let counts = [row.jobs, row.files, row.listed, row.planned, row.infeasible, row.worse, row.wrong_bounds];
        let ratio = |value: f64| Cell::text(if value.is_finite() { format!("{value:.3}") } else { "–".to_owned() });
        let share = |value: f64| Cell::text(if value.is_finite() { format::percent(value) } else { "–".to_owned() });
        let mut cells: Vec<Cell> = counts.into_iter().map(Cell::text).collect();
        cells.extend([ratio(row.cost_of_listed), ratio(row.least_cost_of_listed), share(row.gap)]);
        cells.push(share(row.largest_gap));
        cells.extend([row.seconds, row.most_seconds].map(|seconds| Cell::text(format!("{seconds:.1}"))));
        table.push(cells);
    }
    let protocol = "plans of random files of jobs beside the best of four list schedules (order of the file, by deadline, longest first, most expensive first), at high confidence";
    Ok(Evaluation::new(protocol.to_owned(), Vec::new(), table, &rows))
}
