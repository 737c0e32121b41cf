//! Words for the reasons why no plan exists, and the changes that would allow one. Amounts are rounded up, so that a
//! proposed change suffices.

use super::plan::{kind, time_limit};
use super::{Words, joined};
use crate::format::{self, number};
use habitat_base::text::{dollars, duration, grouped};
use habitat_base::units::{GIB, Hours};
use habitat_planning::Coded;
use habitat_planning::plan::problem::RELATIVE_TOLERANCE;
use habitat_planning::plan::{Lift, Machines, NoPlan, RejectionKind, SharedLimit};

/// Rounds up to a multiple of `step`, ignoring rounding errors.
fn up(value: f64, step: f64) -> f64 {
    ((value / step) * (1.0 - RELATIVE_TOLERANCE) - RELATIVE_TOLERANCE).ceil().max(0.0) * step
}

/// Hours, rounded up to minutes below an hour, otherwise to tenths of an hour.
fn more_hours(value: f64) -> String {
    let minutes = up(value * 60.0, 1.0).max(1.0);
    duration(if minutes < 60.0 { minutes / 60.0 } else { up(value, 0.1) })
}

/// Dollars, rounded up.
fn more_dollars(value: f64) -> String {
    dollars(up(value, if value < 1000.0 { 0.01 } else { 1.0 }).max(0.01))
}

/// Kilograms, rounded up to three significant digits.
fn more_kilograms(value: f64) -> String {
    number(if value > 0.0 { up(value, 10f64.powf(value.log10().floor() - 2.0)) } else { 0.0 })
}

/// The machines of a plan.
fn label(with: &[Machines]) -> String {
    joined(with, ", then ")
}

impl Words for NoPlan {
    fn words(&self) -> String {
        match self {
            Self::NoOffer => "no offer can be used".to_owned(),
            Self::NoFirmOffer => "no firm offer can be used".to_owned(),
            Self::MoreTime { hours, with, cost_usd } => {
                let cost = dollars(cost_usd.get());
                format!("allow {} more ({}, {cost})", more_hours(hours.get()), label(with))
            }
            Self::TimeDoesNotHelp { cost_usd: None, .. } => "more time alone does not help".to_owned(),
            Self::TimeDoesNotHelp { cost_usd: Some(cost), with } => {
                let cost = dollars(cost.get());
                format!("more time alone does not help: the cheapest plan costs {cost} ({})", label(with))
            }
            Self::MoreMoney { usd, with, hours } => {
                let hours = duration(hours.get());
                format!("spend {} more ({}, {hours})", more_dollars(usd.get()), label(with))
            }
            Self::MoneyDoesNotHelp { hours: None, .. } => "more money alone does not help".to_owned(),
            Self::MoneyDoesNotHelp { hours: Some(hours), confidence, with } => {
                let needs = time_limit(hours.get(), *confidence);
                format!("more money alone does not help: the fastest plan needs {needs} ({})", label(with))
            }
            Self::MoreTimeAndMoney { hours, usd, with } => {
                let (hours, usd) = (more_hours(hours.get()), more_dollars(usd.get()));
                format!("allow {hours} more and spend {usd} more ({})", label(with))
            }
            Self::SetupTooLong { has_deadline, has_budget } => {
                let exceeded = match (has_deadline, has_budget) {
                    (true, false) => "deadline",
                    (false, true) => "budget",
                    _ => "limits",
                };
                format!("set-up alone exceeds the {exceeded}")
            }
            Self::LessWork { fewer, share } => {
                let less = fewer.get();
                let number = if less < 10.0 {
                    format!("{:.1}", up(less, 0.1)).trim_end_matches(".0").to_owned()
                } else {
                    grouped(up(less, 1.0))
                };
                format!("train on {number} fewer {} ({:.1} % less)", fewer.unit(), share * 100.0)
            }
            Self::AtExpectedTime { with, hours, cost_usd } => format!(
                "at the expected time, instead of the upper end of its range, {} meets the limits: {}, {}",
                label(with),
                duration(hours.get()),
                dollars(cost_usd.get())
            ),
            Self::HostWaits { idle_us, step_us } => format!(
                "shorten the time that the GPU is idle, {} of the recorded step of {} (--host keeps-up plans without it)",
                format::time(*idle_us),
                format::time(*step_us)
            ),
            Self::OtherLimit { change, with, hours, cost_usd } => {
                let (hours, cost) = (duration(hours.get()), dollars(cost_usd.get()));
                format!("{} ({}, {hours}, {cost})", change.words(), label(with))
            }
            Self::LimitsDoNotHelp => "lifting a single limit on offers does not help".to_owned(),
            Self::Rejected { kind, offers, such_as, reason, miss } => {
                let which = if miss.is_some() { "nearest" } else { "such as" };
                let counted = if *offers == 1 { "offer" } else { "offers" };
                format!("{offers} {counted} {}, {which} {such_as}: {}", rejected(*kind), reason.words())
            }
            _ => of_jobs(self),
        }
    }
}

/// Changes that would allow a plan, then the reasons for its absence. With such changes, the numbers of rejected offers
/// are one line at the end.
pub fn no_plan(reasons: &[NoPlan]) -> Vec<String> {
    let (rejected, mut others): (Vec<&NoPlan>, Vec<&NoPlan>) =
        reasons.iter().partition(|reason| matches!(reason, NoPlan::Rejected { .. }));
    if !others.iter().any(|reason| is_change(reason)) {
        return super::all(reasons);
    }
    let rejected = rejected.into_iter().filter_map(|reason| match reason {
        NoPlan::Rejected { kind: of, offers, .. } => Some((*offers, kind(*of))),
        _ => None,
    });
    let count = |(at, (offers, why)): (usize, (usize, &str))| {
        let noun = if at > 0 {
            ""
        } else if offers == 1 {
            "offer "
        } else {
            "offers "
        };
        format!("{} {noun}{why}", grouped(offers as f64))
    };
    let counts: Vec<String> = rejected.enumerate().map(count).collect();
    let counts = (!counts.is_empty()).then(|| format!("not considered: {}", counts.join(", ")));
    others.sort_by_key(|reason| !is_change(reason));
    others.into_iter().map(Words::words).chain(counts).collect()
}

/// Whether a reason is a change that would allow a plan.
const fn is_change(reason: &NoPlan) -> bool {
    matches!(
        reason,
        NoPlan::MoreTime { .. }
            | NoPlan::MoreMoney { .. }
            | NoPlan::MoreTimeAndMoney { .. }
            | NoPlan::LessWork { .. }
            | NoPlan::AtExpectedTime { .. }
            | NoPlan::OtherLimit { .. }
    )
}

const fn rejected(of: RejectionKind) -> &'static str {
    match of {
        RejectionKind::MemoryUnknown => "without known memory needs (allow them with --allow-unknown-memory)",
        _ => kind(of),
    }
}

/// Why several jobs have no plan together.
fn of_jobs(reason: &NoPlan) -> String {
    match reason {
        NoPlan::JobAlone { job, reason } => format!("job {job:?} alone: {}", reason.words()),
        NoPlan::JobTooLate { job, earliest_hours } => {
            let Some(earliest) = earliest_hours.map(Hours::get) else {
                return format!("job {job:?} alone: the shared limits never leave room for it");
            };
            let earliest = (earliest * 10.0).round() / 10.0;
            format!("job {job:?} alone: its earliest start, {earliest} h, is too late for its deadline")
        }
        NoPlan::JobLater { job, more_hours: more } => {
            format!("the deadline of job {job:?}: allow {} more", more_hours(more.get()))
        }
        NoPlan::Overload { jobs, until_hours, limits, times } => {
            let due = until_hours.map(|until| format!(" due by {}", duration(until.get()))).unwrap_or_default();
            let is_one = limits.len() == 1 && !matches!(limits[0], SharedLimit::DeadlineHours(_));
            let provide = if is_one { "provides" } else { "provide" };
            let limits = match limits[..] {
                [SharedLimit::DeadlineHours(_)] => "all machines".to_owned(),
                _ => limits.iter().map(Words::words).collect::<Vec<_>>().join(" and "),
            };
            let then = if until_hours.is_some() { " until then" } else { "" };
            let (s, verb) = if *jobs == 1 { ("", "needs") } else { ("s", "need") };
            let times =
                if *times < 1.005 { "a little more than".to_owned() } else { format!("at least {times:.2} times") };
            format!("no plan exists: {jobs} job{s}{due} {verb} {times} what {limits} {provide}{then}")
        }
        NoPlan::JobsMayWait { cost_usd, hours } => format!(
            "not all jobs can run at the same time; if they may wait for one another (wait = true), they cost {}, and the last ends after {}",
            dollars(cost_usd.get()),
            duration(hours.get())
        ),
        NoPlan::AnyChange => {
            "each job has a plan alone, but not all of them together; any of these changes would allow one:".to_owned()
        }
        NoPlan::NoSingleChange => {
            "each job has a plan alone, but not all of them together, and no single change would allow one".to_owned()
        }
        NoPlan::AllChanges => "all of these changes together would allow one:".to_owned(),
        NoPlan::SharedLimit { limit, more, machines } => raised(limit, *more, *machines),
        NoPlan::SharedLimitUnknown { limit, why } => {
            format!("{}: unknown whether raising it helps: {why}", limit.words())
        }
        NoPlan::NotFound { why } => format!("no plan found, unknown whether one exists: {why}"),
        // `words` has all others.
        other => other.code().to_owned(),
    }
}

impl Words for Lift {
    fn words(&self) -> String {
        let what = match self {
            Self::Tiers => "other purchase options, without --tiers",
            Self::Gpus => "other GPUs, without --gpus",
            Self::ExcludeGpus => "the excluded GPUs, without --exclude-gpus",
            Self::Providers => "other providers, without --providers",
            Self::ExcludeProviders => "the excluded providers, without --exclude-providers",
            Self::Regions => "other regions, without --regions",
            Self::ExcludeRegions => "the excluded regions, without --exclude-regions",
            Self::Offers => "other offers, without --offer",
            Self::Marketplace => "hosts on peer-to-peer markets, without --no-marketplace",
            Self::UnknownMemory => "GPUs on which the step may not fit (--allow-unknown-memory)",
            Self::UnknownHost => "machines with an unknown host (--allow-unknown-host)",
            Self::UnknownCo2 => "offers with unknown emissions (without --max-co2-kg)",
            Self::Quota { quota, gpus } => return format!("raise the quota of {quota} to {gpus}"),
            Self::MaxMachines(machines) => return format!("allow {machines} machines (--max-machines)"),
            Self::BatchOnMachines(machines) => {
                return format!(
                    "allow a larger global batch on {machines} machines (--accept batch --max-machines {machines})"
                );
            }
            Self::MinGpus(gpus) => return format!("allow {gpus} or more GPUs (--min-gpus)"),
            Self::MaxGpus(gpus) => return format!("allow up to {gpus} GPUs (--max-gpus)"),
            Self::MaxUsdPerHour(price) => return format!("allow {}/h (--max-price)", more_dollars(price.get())),
            Self::MinVcpus(vcpus) => return format!("allow {vcpus} vCPUs (--min-vcpus)"),
            Self::MinHostMemoryBytes(memory) => {
                return format!("allow {} GB of host memory (--min-host-memory)", grouped(memory.get() / GIB));
            }
            Self::MaxCo2Kg(most) => return format!("allow {} kg CO2e (--max-co2-kg)", more_kilograms(most.get())),
        };
        format!("allow {what}")
    }
}

impl Words for SharedLimit {
    fn words(&self) -> String {
        match self {
            Self::BudgetUsd(budget) => format!("the budget of ${} for all jobs", budget.get()),
            Self::UsdPerHour(most) => format!("the limit of ${}/h for all jobs", most.get()),
            Self::Quota(quota) => format!("the quota of {quota}"),
            Self::OneMachine(offer) => format!("the single machine {offer}"),
            Self::DeadlineHours(deadline) => format!("the deadline after {} h", deadline.get()),
        }
    }
}

/// A shared limit raised by an amount in its unit; `machines` share a deadline.
fn raised(limit: &SharedLimit, excess: f64, machines: usize) -> String {
    let change = match limit {
        SharedLimit::BudgetUsd(_) => format!("spend {} more", more_dollars(excess)),
        SharedLimit::UsdPerHour(_) => format!("allow {} more per hour", more_dollars(excess)),
        SharedLimit::Quota(quota) => {
            let more = up(excess, 1.0);
            format!("{more} more GPUs ({})", f64::from(quota.gpus) + more)
        }
        SharedLimit::OneMachine(_) => format!("add {} more", up(excess, 1.0)),
        SharedLimit::DeadlineHours(_) => {
            let on = if machines == 1 { "on the single machine".to_owned() } else { format!("on {machines} machines") };
            format!("allow {} more {on}", more_hours(excess))
        }
    };
    format!("{}: {change}", limit.words())
}
