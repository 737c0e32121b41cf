//! Plan as TOML, written by `e` on the plan screen and by `plan --toml`, read by `plan --from` and `compare`.
//!
//! The version is the oldest one that can express the goal: 4 if the goal does not accept every offer; 3 if it may join
//! machines or divide state, has data without a location, or limits emissions; otherwise 2.
//!
//! `[request]` holds the recorded step and how it was predicted, `[goal]` the request; both are enough to plan again.
//! `[totals]`, `[[part]]` and `[[alternative]]` are the result. Ranges are arrays of low end, expected value and high
//! end. Money is rounded to cents or four significant digits, times to six, whichever is finer than the unit; the goal
//! keeps nine.
//! below nine.

mod read;
mod request;

use serde::{Deserialize, Serialize};

pub use read::{PlanFileError, parse};
pub use request::Request;

use super::offers::TrustJson;
use super::plans::{self, ContractJson, SwitchJson};
use habitat_base::units::{Hours, Range, Usd, UsdPerHour};
use habitat_planning::plan::{Accept, Assumptions, Goal, Objective, Part, Plan};
use habitat_prediction::scale::ModelParallel;
use habitat_prediction::{Predictions, Sharding};

/// Value of `format`.
const FORMAT: &str = "habitat-plan";
/// Latest version of the format.
const VERSION: u32 = 4;
/// Oldest version that can be read; written if it can express the goal.
const OLDEST: u32 = 2;

/// Contents of a plan file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Format, origin and status.
    pub plan: Head,
    /// The recorded step and how it was predicted.
    pub request: Request,
    /// The requested work and limits.
    pub goal: Goal,
    /// Time and cost; `None` without a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// Offer that takes over from spot machines in time for the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchJson>,
    /// Parts to run one after another.
    #[serde(default, rename = "part", skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<FilePart>,
    /// The next best offers.
    #[serde(default, rename = "alternative", skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

/// Format of the file, origin of the plan and its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Always `habitat-plan`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// `optimal`, `gap_limit`, `time_limit` or `infeasible`.
    pub status: String,
    /// Time of creation.
    pub created: jiff::Timestamp,
    /// Program and version.
    pub tool: String,
    /// Command line that made the plan.
    pub command: String,
    /// Always `USD`.
    pub currency: String,
    /// Name of the workload.
    pub workload: String,
    /// Name of the solver.
    pub solver: String,
    /// Reasons why no plan exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Warnings on times and costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Fallbacks that affect the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Low end, expected value and high end.
type Ends<T> = [T; 3];

/// A plan's time and cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Elapsed hours.
    pub hours: Ends<Hours>,
    /// Cost.
    pub cost_usd: Ends<Usd>,
    /// Energy, in kWh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_kwh: Option<Ends<f64>>,
    /// Emissions, in kg of CO2 equivalent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co2_kg: Option<Ends<f64>>,
}

/// One part of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilePart {
    /// Name of the offer.
    pub offer: String,
    /// Slug of the GPU.
    pub gpu: String,
    /// Total number of GPUs.
    pub gpu_count: u32,
    /// Machines.
    pub nodes: u32,
    /// Training state divided among the GPUs.
    #[serde(default)]
    pub sharding: Sharding,
    /// GPUs that share one replica of the model.
    #[serde(default, skip_serializing_if = "ModelParallel::is_none")]
    pub model_parallel: ModelParallel,
    /// `on-demand`, `spot`, `reserved` or `owned`.
    pub tier: String,
    /// Samples of one step on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Batches that each GPU runs for one optimizer step.
    #[serde(default = "one")]
    pub accumulation: u64,
    /// Samples of one optimizer step on all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch_size: Option<u64>,
    /// Samples to process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<f64>,
    /// Steps of one GPU, if the number of samples is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<f64>,
    /// Steps of all GPUs together; in training each updates the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<f64>,
    /// Time of one optimizer step on all GPUs, in microseconds.
    pub step_time_us: Ends<f64>,
    /// Elapsed hours, including set-up and losses.
    pub hours: Ends<Hours>,
    /// Cost of those hours.
    pub cost_usd: Ends<Usd>,
    /// Energy, in kWh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_kwh: Option<Ends<f64>>,
    /// Emissions, in kg of CO2 equivalent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co2_kg: Option<Ends<f64>>,
    /// Price of all machines per hour.
    pub price_usd_per_hour: UsdPerHour,
    /// Date of the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_as_of: Option<String>,
    /// Terms of a contract to buy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<ContractJson>,
    /// Seller of the machine time.
    pub market: String,
    /// Days from the date of the price to the day of planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_age_days: Option<i32>,
    /// Reasons to doubt the price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub price_doubts: Vec<String>,
    /// Notes on the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

const fn one() -> u64 {
    1
}

/// Another offer that meets the goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Name of the offer.
    pub offer: String,
    /// Elapsed hours.
    pub hours: Ends<Hours>,
    /// Cost.
    pub cost_usd: Ends<Usd>,
    /// Price of all machines per hour.
    pub price_usd_per_hour: UsdPerHour,
}

/// A rejected offer, if the user requested all of them.
#[derive(Serialize)]
struct Rejected<'a> {
    offer: &'a str,
    kind: &'static str,
    reason: &'a str,
}

/// Output that is not read back.
#[derive(Serialize)]
struct Told<'a> {
    /// Rejected offers by kind.
    rejected: toml::Table,
    /// Value and source of every assumption.
    assumptions: toml::Table,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected_offer: Vec<Rejected<'a>>,
}

/// Text of the file. `created` is the time of writing; `all_rejected` lists every rejected offer.
///
/// # Errors
/// Serialisation errors; none for plans of this program.
pub fn toml(
    plan: &Plan,
    predictions: &Predictions,
    request: &Request,
    created: jiff::Timestamp,
    all_rejected: bool,
) -> Result<String, toml::ser::Error> {
    let file = PlanFile {
        plan: head(plan, predictions, request, created),
        request: request.clone(),
        goal: plan.goal.clone(),
        totals: plan.total.map(|total| Totals {
            hours: ends(total.hours, hours),
            cost_usd: ends(total.cost, usd),
            energy_kwh: total.footprint.energy.map(|energy| ends(energy, |end| time(end.get()))),
            co2_kg: total.footprint.emissions.map(|emitted| ends(emitted, |end| time(end.get()))),
        }),
        switch: plan.switch.as_ref().map(|switch| {
            let all = SwitchJson::new(switch);
            SwitchJson { latest_hours: hours(switch.latest).get(), ..all }
        }),
        parts: plan.parts.iter().map(part).collect(),
        alternatives: plan.alternatives.iter().map(alternative).collect(),
    };
    let mut table = toml::Table::try_from(&file)?;
    table.insert("goal".to_owned(), goal(&plan.goal)?.into());
    table.extend(toml::Table::try_from(told(plan, all_rejected))?);
    let made = concat!("# Made by habitat-tui ", env!("CARGO_PKG_VERSION"));
    let text = toml::to_string(&table)?;
    Ok(format!("{made}. Hours, US dollars and microseconds; ranges are [low, expected, high].\n{text}"))
}

fn head(plan: &Plan, predictions: &Predictions, request: &Request, created: jiff::Timestamp) -> Head {
    Head {
        format: FORMAT.to_owned(),
        version: version(&plan.goal),
        status: plans::status(plan.status).to_owned(),
        // Whole seconds, unless that is out of range.
        created: jiff::Timestamp::from_second(created.as_second()).unwrap_or(created),
        tool: concat!("habitat-tui ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: request.command.clone(),
        currency: "USD".to_owned(),
        workload: predictions.workload.name.clone(),
        solver: plan.solver.name.clone(),
        reasons: plan.reasons.clone(),
        warnings: plan.warnings.iter().map(|warning| warning.text.clone()).collect(),
        notes: plan.notes.clone(),
    }
}

/// Oldest version that can express the goal: 4 if it does not accept every offer; 3 if it may join machines or divide
/// state or the model, has data without a location, sets the rate of copying, or involves emissions.
fn version(goal: &Goal) -> u32 {
    let is_joined = goal.limits.max_machines > 1 || goal.assumptions.network_gbit_per_second.is_some();
    let sets_rate = goal.assumptions.data_gbit_per_second.is_some();
    let is_placeless = goal.data.as_ref().is_some_and(|data| data.provider.is_none());
    let is_of_emissions = goal.limits.max_co2.is_some() || goal.objective == Objective::Emissions;
    let is_divided = !goal.sharding.is_none() || !goal.model_parallel.is_none();
    match () {
        () if !Accept::are_all(&goal.limits.accept) => VERSION,
        () if is_joined || sets_rate || is_placeless || is_of_emissions || is_divided => 3,
        () => OLDEST,
    }
}

fn part(part: &Part) -> FilePart {
    let trust = TrustJson::from(&part.offer.trust);
    FilePart {
        offer: part.offer.id.to_string(),
        gpu: part.gpu.to_string(),
        gpu_count: part.all_gpus(),
        nodes: part.machines,
        sharding: part.sharding,
        model_parallel: part.parallel,
        tier: part.offer.tier.to_string(),
        batch_size: part.batch_size,
        accumulation: part.accumulation,
        global_batch_size: part.global_batch_size,
        samples: part.work.samples().map(time),
        steps: part.work.steps().map(time),
        updates: Some(time(part.updates())),
        step_time_us: ends(part.step_time_us, time),
        hours: ends(part.hours, hours),
        cost_usd: ends(part.cost, usd),
        energy_kwh: part.footprint.energy.map(|energy| ends(energy, |end| time(end.get()))),
        co2_kg: part.footprint.emissions.map(|emitted| ends(emitted, |end| time(end.get()))),
        price_usd_per_hour: price(part.price()),
        price_as_of: part.offer.as_of.map(|date| date.to_string()),
        contract: ContractJson::of(part).map(|of| ContractJson { idle_hours: time(of.idle_hours), ..of }),
        market: trust.market.to_owned(),
        price_age_days: trust.price_age_days,
        price_doubts: trust.price_doubts,
        notes: part.notes.clone(),
    }
}

fn alternative(part: &Part) -> Alternative {
    Alternative {
        offer: part.offer.id.to_string(),
        hours: ends(part.hours, hours),
        cost_usd: ends(part.cost, usd),
        price_usd_per_hour: price(part.price()),
    }
}

/// The goal without empty and default values. Default assumptions are listed in `[assumptions]` only.
fn goal(goal: &Goal) -> Result<toml::Table, toml::ser::Error> {
    let mut table = toml::Table::try_from(goal)?;
    let usual = toml::Table::try_from(Assumptions::default())?;
    if let Some(toml::Value::Table(assumptions)) = table.get_mut("assumptions") {
        assumptions.retain(|name, value| usual.get(name) != Some(value));
    }
    for value in table.iter_mut().map(|(_, value)| value) {
        if let toml::Value::Table(table) = value {
            // Keep an empty list: it accepts nothing, while a missing key accepts everything.
            table.retain(|name, value| name == "accept" || value.as_array().is_none_or(|array| !array.is_empty()));
        }
    }
    table.retain(|_, value| value.as_table().is_none_or(|table| !table.is_empty()));
    round_all(&mut table);
    Ok(table)
}

fn round_all(table: &mut toml::Table) {
    for (_, value) in table.iter_mut() {
        match value {
            toml::Value::Float(number) => *number = rounded(*number, 9, 0),
            toml::Value::Table(table) => round_all(table),
            _ => {}
        }
    }
}

fn told(plan: &Plan, all_rejected: bool) -> Told<'_> {
    let mut rejected = toml::Table::new();
    for rejection in &plan.rejected {
        let count = rejected.entry(plans::rejection(rejection.kind)).or_insert(toml::Value::Integer(0));
        if let toml::Value::Integer(count) = count {
            *count += 1;
        }
    }
    let assumptions = plan.goal.assumed();
    let all = plan.rejected.iter().filter(|_| all_rejected);
    Told {
        rejected,
        assumptions: assumptions
            .into_iter()
            .map(|assumed| {
                (assumed.name.replace([' ', '-'], "_"), format!("{} ({})", assumed.value, assumed.source).into())
            })
            .collect(),
        rejected_offer: all
            .map(|rejection| Rejected {
                offer: rejection.offer.as_str(),
                kind: plans::rejection(rejection.kind),
                reason: &rejection.reason,
            })
            .collect(),
    }
}

fn ends<T: Copy, U>(range: Range<T>, rounded: impl Fn(T) -> U) -> Ends<U> {
    [range.low, range.mid, range.high].map(rounded)
}

/// Rounds microseconds and counts to whole numbers or six significant digits.
fn time(value: f64) -> f64 {
    rounded(value, 6, 0)
}

fn hours(hours: Hours) -> Hours {
    Hours::known(time(hours.get()))
}

fn usd(amount: Usd) -> Usd {
    Usd::known(rounded(amount.get(), 4, 2))
}

/// A price as rounded in files: to cents, or four significant digits.
pub fn price(price: UsdPerHour) -> UsdPerHour {
    UsdPerHour::known(rounded(price.get(), 4, 2))
}

/// Rounds to `digits` significant digits, but to at least `decimals` decimals.
fn rounded(value: f64, digits: i32, decimals: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = (digits - 1 - value.abs().log10().floor() as i32).clamp(decimals, 30);
    // Parse the text: multiplying by a power of ten would leave a rounding error.
    format!("{value:.*}", places as usize).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn numbers_have_no_tails() {
        let money = |amount| rounded(amount, 4, 2);
        assert_eq!(
            (money(12.3456), money(1.0061), money(1_234.567), money(0.012_345_6)),
            (12.35, 1.006, 1234.57, 0.01235)
        );
        assert_eq!((rounded(123_456_789.4, 6, 0), rounded(1.0 / 3.0, 6, 0)), (123_456_789.0, 0.333_333));
        assert_eq!((rounded(0.0, 4, 2), rounded(9.9999, 4, 2)), (0.0, 10.0));
    }
}
