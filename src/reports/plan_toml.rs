//! Plan as TOML, written by `e` on the plan screen and by `plan --toml`, read by `plan --from` and `compare`.
//!
//! The version is the oldest one that can express the plan: 5 if the goal forbids the search for a layout, or a part
//! has context parallel GPUs or interleaved stages; 4 if the goal does not accept every offer; 3 if it may join
//! machines or divide state, has data without a location, or limits emissions; otherwise 2.
//!
//! `[request]` holds the recorded step and how it was predicted, `[goal]` the request; both are enough to plan again.
//! `[totals]`, `[[part]]` and `[[alternative]]` are the result. Ranges are arrays of low end, expected value and high
//! end. Money is rounded to cents or four significant digits, times to six, whichever is finer than the unit; the goal
//! keeps nine.

mod read;
mod request;

use serde::{Deserialize, Serialize};

pub use read::{PlanFileError, parse};
pub use request::Request;

use super::launch::Launch;
use super::parts;
use super::plans::TotalJson;
use super::words::assumed::{Assumed, assumed};
use super::words::{self, Words};
use habitat_base::units::{Hours, Usd, UsdPerHour};
use habitat_planning::plan::{
    Accept, Assumptions, Contract, Goal, Objective, Part, Plan, PlanStatus, Rejection, RejectionKind,
};
use habitat_planning::pricing::OfferId;
use habitat_prediction::Predictions;
use habitat_prediction::scale::ModelParallel;

/// Value of `format`.
const FORMAT: &str = "habitat-plan";
/// Latest version of the format.
const VERSION: u32 = 5;
/// Oldest version that can be read; written if it can express the goal.
const OLDEST: u32 = 2;

/// Contents of a plan file when read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PlanFile {
    /// Format, origin and status.
    pub plan: Head,
    /// The recorded step and how it was predicted.
    pub request: Request,
    /// The requested work and limits.
    pub goal: Goal,
    /// How the parts start.
    #[serde(default)]
    pub launch: Launch,
    /// Time and cost; `None` without a plan.
    #[serde(default)]
    pub totals: Option<Totals>,
    /// Parts to run one after another.
    #[serde(default, rename = "part")]
    pub parts: Vec<FilePart>,
    /// The next best offers.
    #[serde(default, rename = "alternative")]
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
    pub status: PlanStatus,
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
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Totals {
    /// Elapsed hours.
    pub hours: Ends<Hours>,
    /// Cost.
    pub cost_usd: Ends<Usd>,
}

/// One part of a plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FilePart {
    /// Name of the offer.
    pub offer: OfferId,
    /// Slug of the GPU.
    pub gpu: String,
    /// GPUs of all machines.
    #[serde(rename = "gpu_count")]
    pub all_gpus: u32,
    /// Number of machines.
    #[serde(rename = "nodes")]
    pub machines: u32,
    /// GPUs that share one replica of the model.
    #[serde(default)]
    pub model_parallel: ModelParallel,
    /// Samples of one step on one GPU.
    #[serde(default)]
    pub batch_size: Option<u64>,
    /// Batches that each GPU runs for one optimizer step.
    #[serde(default = "one")]
    pub accumulation: u64,
    /// Samples of one optimizer step on all GPUs.
    #[serde(default)]
    pub global_batch_size: Option<u64>,
    /// Samples to process.
    #[serde(default)]
    pub samples: Option<f64>,
    /// Steps of one GPU, if the number of samples is unknown.
    #[serde(default)]
    pub steps: Option<f64>,
    /// Time of one optimizer step on all GPUs, in microseconds.
    pub step_time_us: Ends<f64>,
    /// Price of all machines per hour.
    pub price_usd_per_hour: UsdPerHour,
    /// Terms of a contract to buy.
    #[serde(default)]
    pub contract: Option<Contract>,
}

const fn one() -> u64 {
    1
}

/// Another offer that meets the goal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Alternative {
    /// Name of the offer.
    pub offer: OfferId,
}

/// Contents of a plan file when written; parts and totals are those of the JSON form.
#[derive(Serialize)]
struct Written<'a> {
    plan: Head,
    request: &'a Request,
    goal: toml::Table,
    #[serde(skip_serializing_if = "is_empty")]
    launch: &'a Launch,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<toml::Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<toml::Table>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    part: Vec<toml::Table>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternative: Vec<toml::Table>,
    /// Number of rejected offers by kind.
    rejected: toml::Table,
    /// Value and source of every assumption.
    assumptions: toml::Table,
    /// Rejected offers, if the user requested all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected_offer: Vec<RejectedOffer<'a>>,
}

fn is_empty(launch: &Launch) -> bool {
    *launch == Launch::default()
}

/// A rejected offer.
#[derive(Serialize)]
struct RejectedOffer<'a> {
    offer: &'a OfferId,
    kind: RejectionKind,
    reason: String,
}

impl<'a> RejectedOffer<'a> {
    fn new(rejection: &'a Rejection) -> Self {
        let Rejection { offer, reason } = rejection;
        Self { offer, kind: reason.kind(), reason: reason.words() }
    }
}

/// Text of the file. `created` is the time of writing; `all_rejected` lists every rejected offer.
///
/// # Errors
/// Serialisation errors; none for plans of this program.
pub(crate) fn toml(
    plan: &Plan,
    predictions: &Predictions,
    request: &Request,
    launch: &Launch,
    created: jiff::Timestamp,
    all_rejected: bool,
) -> Result<String, toml::ser::Error> {
    let file = Written {
        plan: head(plan, predictions, request, created),
        request,
        goal: goal(&plan.goal)?,
        launch,
        totals: plan.total.as_ref().map(|total| fields(TotalJson::new(total), TOTALS)).transpose()?,
        switch: plan.switch.as_ref().map(|switch| fields(switch, SWITCH)).transpose()?,
        part: plan.parts.iter().map(part).collect::<Result<_, _>>()?,
        alternative: plan
            .alternatives
            .iter()
            .map(|part| fields(parts::part(part), ALTERNATIVE))
            .collect::<Result<_, _>>()?,
        rejected: counts(&plan.rejected)?,
        assumptions: assumed(&plan.goal).iter().map(assumption).collect(),
        rejected_offer: plan.rejected.iter().filter(|_| all_rejected).map(RejectedOffer::new).collect(),
    };
    let made = concat!("# Made by habitat-tui ", env!("CARGO_PKG_VERSION"));
    let text = toml::to_string(&toml::Table::try_from(&file)?)?;
    Ok(format!("{made}. Hours, US dollars and microseconds; ranges are [low, expected, high].\n{text}"))
}

fn head(plan: &Plan, predictions: &Predictions, request: &Request, created: jiff::Timestamp) -> Head {
    Head {
        format: FORMAT.to_owned(),
        version: version(plan),
        status: plan.status,
        // Whole seconds, unless that is out of range.
        created: jiff::Timestamp::from_second(created.as_second()).unwrap_or(created),
        tool: concat!("habitat-tui ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: request.command.clone(),
        currency: "USD".to_owned(),
        workload: predictions.workload.name.clone(),
        solver: plan.solver.name.clone(),
        reasons: words::of_all(&plan.reasons).collect(),
        warnings: words::all(&plan.warnings),
        notes: words::of_all(&plan.notes).collect(),
    }
}

/// Oldest version that can express the plan: 5 if the goal forbids the search for a layout, or a part has context or
/// expert parallel GPUs or interleaved stages; 4 if it does not accept every offer; 3 if it may join machines or divide
/// state or the model, has data without a location, sets the rate of copying, or involves emissions.
fn version(plan: &Plan) -> u32 {
    let goal = &plan.goal;
    let is_new = |part: &Part| {
        part.parallel.context.max(part.parallel.chunks).max(part.parallel.expert) > 1 || part.parallel.recompute
    };
    let is_joined = goal.limits.max_machines > 1 || goal.assumptions.network_gbit_per_second.is_some();
    let sets_rate = goal.assumptions.data_gbit_per_second.is_some();
    let is_placeless = goal.data.as_ref().is_some_and(|data| data.provider.is_none());
    let is_of_emissions = goal.limits.max_co2.is_some() || goal.objective == Objective::Emissions;
    let is_divided = !goal.sharding.is_none() || !goal.model_parallel.is_none();
    match () {
        () if !goal.layout.is_auto() || plan.parts.iter().any(is_new) => VERSION,
        () if !Accept::are_all(&goal.limits.accept) => 4,
        () if is_joined || sets_rate || is_placeless || is_of_emissions || is_divided => 3,
        () => OLDEST,
    }
}

/// Fields of a part, in the order of the file.
const PART: &str = "offer gpu gpu_count nodes sharding model_parallel tier batch_size accumulation global_batch_size \
                    samples steps updates step_time_us hours cost_usd energy_kwh co2_kg price_usd_per_hour \
                    price_as_of contract market price_age_days price_doubts notes";
/// Fields of an alternative.
const ALTERNATIVE: &str = "offer hours cost_usd price_usd_per_hour";
/// Fields of the totals.
const TOTALS: &str = "hours cost_usd energy_kwh co2_kg";
/// Fields of a switch.
const SWITCH: &str = "to latest_hours is_expected";

/// A part, with its model parallelism as one table, and its notes and doubts in words.
fn part(part: &Part) -> Result<toml::Table, toml::ser::Error> {
    let mut form = toml::Table::try_from(parts::part(part))?;
    let texts = |all: &mut dyn Iterator<Item = String>| all.map(toml::Value::String).collect::<Vec<_>>();
    form.insert("notes".to_owned(), texts(&mut words::of_all(&part.notes)).into());
    form.insert("price_doubts".to_owned(), texts(&mut words::of_all(&part.offer.trust.doubts)).into());
    if !part.parallel.is_none() {
        form.insert("model_parallel".to_owned(), toml::Value::try_from(part.parallel)?);
    }
    fields(form, PART)
}

/// These fields of a JSON form as in the file; empty lists are left out.
fn fields(form: impl Serialize, keys: &str) -> Result<toml::Table, toml::ser::Error> {
    let mut form = toml::Table::try_from(form)?;
    let fields = keys.split(' ').filter_map(|key| Some((key.to_owned(), in_file(key, form.remove(key)?))));
    Ok(fields.filter(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty())).collect())
}

/// A value of the JSON form, rounded, with a range as an array.
fn in_file(key: &str, value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Float(dollars) if key.contains("usd") => rounded(dollars, 4, 2).into(),
        toml::Value::Float(number) => time(number).into(),
        toml::Value::Table(mut range) if range.contains_key("mid") => {
            let ends = ["low", "mid", "high"].into_iter().filter_map(|end| range.remove(end));
            ends.map(|end| in_file(key, end)).collect::<Vec<_>>().into()
        }
        toml::Value::Table(table) => {
            table.into_iter().map(|(key, value)| (key.clone(), in_file(&key, value))).collect::<toml::Table>().into()
        }
        other => other,
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

/// Number of rejected offers by kind.
fn counts(rejected: &[Rejection]) -> Result<toml::Table, toml::ser::Error> {
    let mut counts = toml::Table::new();
    for rejection in rejected {
        let kind = toml::Value::try_from(rejection.reason.kind())?;
        let count = counts.entry(kind.as_str().unwrap_or_default()).or_insert(toml::Value::Integer(0));
        *count = (count.as_integer().unwrap_or_default() + 1).into();
    }
    Ok(counts)
}

fn assumption(one: &Assumed) -> (String, toml::Value) {
    (one.name.replace([' ', '-'], "_"), format!("{} ({})", one.value, one.source).into())
}

/// Rounds microseconds and counts to whole numbers or six significant digits.
fn time(value: f64) -> f64 {
    rounded(value, 6, 0)
}

/// A price as rounded in files: to cents, or four significant digits.
pub(crate) fn price(price: UsdPerHour) -> UsdPerHour {
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
