//! Comparison of two recordings, as text, as a table and as JSON (`habitat-diff`, version 1).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::difference::{Samples, waterfall};
use super::table::{Cell, Column, Table};
use super::{format, summary};
use crate::theme::Role;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_step::op;
use habitat_step::profile::breakdown::GroupBy;
use habitat_step::profile::difference::{Changed, Difference, Match, NotMeasured, Spread, has_shapes, spread};
use habitat_step::profile::{Phase, Profile};

/// Parts listed in text, unless the user requests all.
pub const TOP: usize = 20;

/// Two recordings, compared by parts of one grouping.
#[derive(Debug, Clone)]
pub struct Recordings<'a> {
    /// Difference of the steps.
    pub difference: Difference<'a, Profile>,
    /// Sources of the recordings.
    pub labels: [&'a str; 2],
    /// Grouping of operations into parts.
    pub by: GroupBy,
}

impl<'a> Recordings<'a> {
    /// Compares the second recording with the first.
    ///
    /// # Errors
    /// Index of the recording without times, and what it lacks.
    pub fn new(profiles: [&'a Profile; 2], labels: [&'a str; 2], by: GroupBy) -> Result<Self, (usize, NotMeasured)> {
        let difference = Difference::of_recordings(profiles, by, |operation| op::family(operation).name())?;
        Ok(Self { difference, labels, by })
    }
}

/// Output of `diff --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui difference between two recordings")]
pub struct RecordingsJson<'a> {
    /// Always `habitat-diff`.
    pub format: &'static str,
    /// Version of the format, 1.
    pub version: u32,
    /// The two recordings.
    pub steps: [RecordedJson<'a>; 2],
    /// Whether the times are those of a GPU (`gpu`), or of CPUs (`cpu`): then `device_time_us` is time of the CPU.
    pub measured_on: &'static str,
    /// Second step time minus the first.
    pub change_us: f64,
    /// The change as a share of the first step; absent if that takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_share: Option<f64>,
    /// Whether the change exceeds the spread of the steps in one recording: `beyond`, `within`, or `unknown` if a
    /// recording has a single step.
    pub spread: &'static str,
    /// Other differences between the recordings.
    pub differs: Vec<UnlikeJson>,
    /// Grouping: `operation`, `name`, `family`, `kernel` or `module`.
    pub by: &'static str,
    /// All parts, those that contribute most to the difference first.
    pub parts: Vec<PartJson<'a>>,
    /// Step time outside all parts: waiting for the host, minus overlap.
    pub rest_us: [f64; 2],
}

/// A recorded step.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordedJson<'a> {
    /// Source of the recording.
    pub file: &'a str,
    /// Name of the workload.
    pub name: &'a str,
    /// Measured time of one step, median.
    pub step_time_us: f64,
    /// Samples of one step, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Time of one sample, if the batch size is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_time_us: Option<f64>,
    /// Shortest and longest measured step, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_range_us: Option<[f64; 2]>,
    /// Number of measured steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
}

/// A property in which the recordings differ.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UnlikeJson {
    /// Name of the property, such as `batch size`.
    pub what: &'static str,
    /// Value in the first and in the second recording.
    pub values: [String; 2],
    /// Whether the difference makes the times not comparable.
    pub unlike: bool,
}

/// Operations of one or both steps.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PartJson<'a> {
    /// Its name.
    pub name: &'a str,
    /// Phase of the step, if all of the part is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    /// `same`, `other-shapes`, `only-first` or `only-second`.
    pub matched: &'static str,
    /// Shapes of the inputs in the first step, for operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_inputs: Option<&'a [Vec<u64>]>,
    /// Shapes of the inputs in the second step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_inputs: Option<&'a [Vec<u64>]>,
    /// Occurrences in each step; launches for kernels.
    pub counts: [u64; 2],
    /// Device time of all occurrences in each step.
    pub device_time_us: [f64; 2],
}

/// Builds the JSON form.
pub fn json<'a>(compared: &'a Recordings<'a>) -> RecordingsJson<'a> {
    let Recordings { difference, labels, by } = compared;
    let step = |place: usize| {
        let profile = difference.steps[place];
        RecordedJson {
            file: labels[place],
            name: &profile.workload.name,
            step_time_us: difference.totals[place].get(),
            batch_size: batches(difference)[place],
            sample_time_us: batches(difference)[place].map(|batch| difference.totals[place].get() / batch as f64),
            step_time_range_us: spread(profile).map(|ends| ends.map(Micros::get)),
            samples: profile.step.as_ref().and_then(|step| step.samples),
        }
    };
    let part = |part: &'a Changed| {
        let [first_inputs, second_inputs] = inputs(compared, part);
        PartJson {
            name: &part.name,
            phase: part.phase.map(Phase::name),
            matched: part.matched.name(),
            first_inputs,
            second_inputs,
            counts: part.counts,
            device_time_us: part.times,
        }
    };
    let [first, second] = difference.totals.map(Micros::get);
    RecordingsJson {
        format: "habitat-diff",
        version: 1,
        steps: [step(0), step(1)],
        measured_on: if difference.steps.into_iter().all(Profile::is_of_cpu) { "cpu" } else { "gpu" },
        change_us: second - first,
        change_share: difference.share(),
        spread: difference.spread().name(),
        differs: unlike(difference.steps),
        by: by.name(),
        parts: difference.parts.iter().map(part).collect(),
        rest_us: difference.rest,
    }
}

/// Input shapes of a part in each step; `None` for a part that is not an operation, is missing, or has several shapes.
fn inputs<'a>(compared: &Recordings<'a>, part: &Changed) -> [Option<&'a [Vec<u64>]>; 2] {
    [0, 1].map(|step: usize| {
        let all = &compared.difference.steps[step].operations;
        let mut of_part = part.operations[step].iter().filter(|_| compared.by == GroupBy::Operation);
        let inputs = &all[*of_part.next()?].inputs[..];
        of_part.all(|&at| all[at].inputs == inputs).then_some(inputs)
    })
}

/// Reads a property from a recording, if present.
type Fact<'f> = &'f dyn Fn(&Profile) -> Option<String>;

/// Differences between two recordings.
pub(crate) fn unlike(steps: [&Profile; 2]) -> Vec<UnlikeJson> {
    let gpu = |profile: &Profile| {
        let origin = profile.origin.as_ref()?;
        origin.gpu.as_ref().map(ToString::to_string).or_else(|| origin.gpu_name.clone())
    };
    let software = |profile: &Profile, of: fn(&habitat_step::profile::Origin) -> Option<&String>| {
        profile.origin.as_ref().and_then(of).cloned()
    };
    let profiled = |profile: &Profile| {
        let is = profile.step.as_ref().is_some_and(|step| step.profiled);
        Some(if is { "under the profiler, which slows down the CPU" } else { "without the profiler" }.to_owned())
    };
    let launched = |profile: &Profile| {
        let execution = profile.step.as_ref().and_then(|step| step.execution);
        Some(execution.map_or("operation by operation", |execution| execution.words()).to_owned())
    };
    let facts: [(&'static str, bool, Fact<'_>); 12] = [
        ("mode", true, &|profile| Some(profile.workload.mode.to_string())),
        ("batch size", true, &|profile| profile.workload.batch_size.map(|batch| batch.to_string())),
        ("sequence length", true, &|profile| profile.workload.sequence_length.map(|length| length.to_string())),
        ("precision", true, &|profile| profile.workload.precision.map(|precision| precision.to_string())),
        ("GPU", true, &gpu),
        ("steps timed", true, &profiled),
        ("parameters", false, &|profile| profile.workload.parameter_count.map(|count| format::grouped(count as f64))),
        ("launched", false, &launched),
        ("shapes", false, &|profile| Some(if has_shapes(profile) { "recorded" } else { "not recorded" }.to_owned())),
        ("framework", false, &|profile| software(profile, |origin| origin.framework.as_ref())),
        ("CUDA", false, &|profile| software(profile, |origin| origin.cuda.as_ref())),
        ("driver", false, &|profile| software(profile, |origin| origin.driver.as_ref())),
    ];
    let differs = |(what, unlike, fact): (&'static str, bool, Fact<'_>)| {
        let [first, second] = steps.map(fact);
        let values = match [first, second] {
            [Some(first), Some(second)] => [first, second],
            // Report these: without both values, the times may not be comparable.
            [Some(known), None] if unlike => [known, "unknown".to_owned()],
            [None, Some(known)] if unlike => ["unknown".to_owned(), known],
            _ => return None,
        };
        let values = values.map(|value| clean(&value, 90));
        (values[0] != values[1]).then_some(UnlikeJson { what, values, unlike })
    };
    facts.into_iter().filter_map(differs).collect()
}

/// Warning if the steps are not comparable, and a list of other differences.
pub fn warnings(steps: [&Profile; 2]) -> [Option<String>; 2] {
    let all = unlike(steps);
    let words = |unlike: bool, before: &str| {
        let of = all.iter().filter(|one| one.unlike == unlike);
        let words: Vec<String> =
            of.map(|one| format!("{} {}, then {}", one.what, one.values[0], one.values[1])).collect();
        (!words.is_empty()).then(|| format!("{before}{}", words.join("; ")))
    };
    [words(true, "not comparable: "), words(false, "also changed: ")]
}

/// Sentences on how far the second step is from the first.
pub fn headline(difference: &Difference<'_, Profile>) -> String {
    let [first, second] = difference.totals;
    let [from, to] = [first, second].map(format::time);
    let Some(share) = difference.share().filter(|_| first != second) else {
        return format!("Both steps take {from}.");
    };
    let change = Micros::checked((second.get() - first.get()).abs()).unwrap_or_default();
    let word = if share > 0.0 { "longer" } else { "shorter" };
    let change = format!("{} ({}) {word}", format::time(change), format::percent(share.abs()));
    let ends = difference.steps.map(|profile| spread(profile).map(|[low, high]| format::time_range(low, high)));
    let spread = match (difference.spread(), ends) {
        (Spread::Beyond, [Some(one), Some(other)]) => {
            format!("more than the spread of the recorded steps ({one}, then {other})")
        }
        (_, [Some(one), Some(other)]) => {
            format!("possibly chance: the recorded steps overlap ({one}, then {other})")
        }
        _ => "possibly chance: a recording has only a single step".to_owned(),
    };
    let samples = per_sample(difference).map_or_else(String::new, |words| format!(" {words}"));
    let waiting = waiting(difference).unwrap_or_default();
    format!("The step takes {from}, then {to}: {change}; {spread}.{waiting}{samples}")
}

/// Sentence on the time between operations, if that makes up half of the change or more.
fn waiting(difference: &Difference<'_, Profile>) -> Option<String> {
    let [first, second] = difference.totals;
    let (change, waiting) = (second.get() - first.get(), difference.rest[1] - difference.rest[0]);
    let times = |change: f64| Some(format::time(Micros::checked(change.abs())?));
    let words = |change: f64| Some(format!("{} {}", times(change)?, if change > 0.0 { "longer" } else { "shorter" }));
    match waiting / change {
        share if share > 1.0 => Some(format!(
            " The time between operations (waiting, overlap) is {}, that of operations {}.",
            words(waiting)?,
            words(change - waiting)?
        )),
        share if share >= 0.5 => {
            Some(format!(" The time between operations (waiting, overlap) accounts for {} of it.", times(waiting)?))
        }
        _ => None,
    }
}

/// The batch sizes of both steps, if they are known and differ.
fn unlike_batches(difference: &Difference<'_, Profile>) -> Option<[u64; 2]> {
    let [Some(one), Some(other)] = batches(difference) else { return None };
    (one != other).then_some([one, other])
}

fn batches(difference: &Difference<'_, Profile>) -> [Option<u64>; 2] {
    difference.steps.map(|profile| profile.workload.batch_size.filter(|batch| *batch > 0))
}

/// Time per sample in both recordings, if the batch sizes differ.
fn per_sample(difference: &Difference<'_, Profile>) -> Option<String> {
    let [one, other] = unlike_batches(difference)?;
    let [first, second] = [(0, one), (1, other)].map(|(step, batch)| difference.totals[step] * (1.0 / batch as f64));
    let change = format::signed_percent(second / first - 1.0);
    Some(format!("A sample takes {}, then {} ({change}).", format::time(first), format::time(second)))
}

/// Waterfall from the first step to the second, with at most `most` parts, the sum of the others, and the time outside
/// all parts.
pub fn table(compared: &Recordings<'_>, most: usize) -> Table {
    let by = compared.by;
    let mut labels = vec![Column::words(by.name(), 14, 0), Column::words("phase", 9, 4)];
    if by == GroupBy::Operation {
        // Input shapes distinguish operations with the same name.
        labels.push(Column::words("input shapes", 12, 1));
    }
    labels.push(Column::figures(if by == GroupBy::Kernel { "launches" } else { "count" }, 3));
    labels.push(Column::words("matched", 14, 5));
    let part = |part: &Changed| {
        let mut cells = vec![
            Cell::text(op::name::short(&clean(&part.name, 200)).to_owned()),
            Cell::styled(Role::Muted, part.phase.map_or("several", Phase::name)),
        ];
        if by == GroupBy::Operation {
            let [first, second] = inputs(compared, part).map(|shapes| shapes.map(format::shapes));
            let shapes = match (first, second) {
                (Some(first), Some(second)) if first != second => format!("{first} → {second}"),
                (first, second) => first.or(second).unwrap_or_default(),
            };
            cells.push(Cell::styled(Role::Muted, shapes));
        }
        cells.push(Cell::styled(Role::Muted, counts(part.counts)));
        cells.push(Cell::styled(Role::Warning, matched_words(part.matched)));
        (cells, part.times)
    };
    let all = &compared.difference.parts;
    let (listed, others) = all.split_at(if all.len() > most.saturating_add(1) { most } else { all.len() });
    let mut parts: Vec<_> = listed.iter().map(part).collect();
    if !others.is_empty() {
        let mut cells = vec![Cell::styled(Role::Muted, format!("{} others", others.len()))];
        cells.resize_with(labels.len(), || Cell::text(""));
        let times = [0, 1].map(|step: usize| others.iter().map(|part| part.times[step]).sum());
        parts.push((cells, times));
    }
    let samples = unlike_batches(&compared.difference).map_or(Samples::None, Samples::Words);
    waterfall(&labels, compared.difference.totals, parts, compared.difference.rest, samples)
}

/// Table for CSV with a column for each figure.
pub fn csv_table(compared: &Recordings<'_>) -> Table {
    let keys = ["name", "phase", "matched", "first_inputs", "second_inputs", "first_count", "second_count"];
    let labels = keys.map(|key| Column::text(key, key));
    let part = |part: &Changed| {
        let mut cells = vec![
            Cell::text(clean(&part.name, 200)),
            Cell::text(part.phase.map_or("", Phase::name)),
            Cell::text(part.matched.name()),
        ];
        cells.extend(inputs(compared, part).map(|shapes| Cell::text(shapes.map(format::shapes).unwrap_or_default())));
        cells.extend(part.counts.map(Cell::text));
        (cells, part.times)
    };
    let Difference { totals, parts, rest, .. } = &compared.difference;
    let samples = Samples::Figures(batches(&compared.difference));
    waterfall(&labels, *totals, parts.iter().map(part).collect(), *rest, samples)
}

/// Count in both steps: `4`, or `4 → 6` if they differ.
pub fn counts([first, second]: [u64; 2]) -> String {
    let [one, other] = [first, second].map(|count| format::grouped(count as f64));
    if first == second { one } else { format!("{one} → {other}") }
}

/// Words for how a part matches between the steps; empty if it is the same in both.
const fn matched_words(matched: Match) -> &'static str {
    match matched {
        Match::Same => "",
        Match::OtherShapes => "other shapes",
        Match::OnlyFirst => "only in first",
        Match::OnlySecond => "only in second",
    }
}

/// Writes both steps, their differences and the table as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(compared: &Recordings<'_>, most: usize, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    for line in lines(compared) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    table(compared, most).write_lines(width, out)
}

/// Writes the same in Markdown.
///
/// # Errors
/// Write errors of `out`.
pub fn write_markdown(compared: &Recordings<'_>, most: usize, out: &mut dyn Write) -> io::Result<()> {
    for line in lines(compared) {
        writeln!(out, "- {}", super::table::markdown(&line))?;
    }
    writeln!(out)?;
    table(compared, most).write_markdown(out)
}

/// Explains the times of two recordings without a GPU.
const ON_CPUS: &str = "both were recorded on CPUs: times of operations are CPU times under the profiler, which lengthens \
                       short ones; a GPU would spend them differently";

pub(crate) fn lines(compared: &Recordings<'_>) -> Vec<String> {
    let Recordings { difference, labels, .. } = compared;
    let step = |place: usize| {
        let profile = difference.steps[place];
        let samples = profile.step.as_ref().and_then(|step| step.samples);
        let samples = samples.map_or_else(String::new, |samples| format!(", {}", summary::steps_measured(samples)));
        let gpu = profile.origin.as_ref().and_then(|origin| {
            origin
                .gpu_name
                .as_deref()
                .map(|name| clean(name, 90))
                .or_else(|| origin.gpu.as_ref().map(ToString::to_string))
        });
        format!(
            "{} {} ({}): {} measured{samples}; {} on {}",
            ["first: ", "second:"][place],
            clean(&profile.workload.name, 80),
            clean(labels[place], 400),
            format::time(difference.totals[place]),
            summary::workload_facts(&profile.workload),
            gpu.as_deref().unwrap_or(if profile.is_of_cpu() { "a CPU" } else { "an unnamed GPU" }),
        )
    };
    let [warning, also] = warnings(difference.steps);
    let mut lines = vec![step(0), step(1), headline(difference)];
    lines.extend(difference.steps.into_iter().all(Profile::is_of_cpu).then(|| ON_CPUS.to_owned()));
    lines.extend(warning.map(|warning| format!("warning: {warning}")));
    lines.extend(also);
    lines
}
