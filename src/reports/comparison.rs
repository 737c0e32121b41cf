//! Tables and JSON of several methods side by side (`habitat-comparison`, version 2).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::predictions::write_warnings;
use super::table::{Cell, Column, Table};
use super::words::{Note, joined};
use habitat_base::text;
use habitat_base::units::{Micros, Range};
use habitat_prediction::compare::{Comparison, OnGpu, Validated};
use habitat_prediction::{Estimate, Method};
use habitat_step::profile::{Origin, Workload};

/// Output of `predict --all-methods --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui comparison of methods")]
pub struct ComparisonJson<'a> {
    /// Always `habitat-comparison`.
    pub format: &'static str,
    /// Version of the format, 1.
    pub version: u32,
    /// The workload.
    pub workload: &'a Workload,
    /// Origin of the measurement; absent if the step was not measured or the measurement is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<&'a Origin>,
    /// Whether the steps include waiting for the host: `as-recorded` or `keeps-up`.
    pub host: &'static str,
    /// The methods.
    pub methods: Vec<MethodJson<'a>>,
    /// One entry per GPU.
    pub gpus: Vec<GpuJson<'a>>,
    /// Warnings that concern all times; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Note>,
}

/// A method.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MethodJson<'a> {
    /// Value of `--method`.
    pub method: &'static str,
    /// Data that the method needs.
    pub needs: &'static str,
    /// Reason why it has no answer; absent if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<&'a str>,
}

/// One GPU.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GpuJson<'a> {
    /// Slug of the GPU.
    pub gpu: &'a str,
    /// Recorded step time on this GPU; absent if the step was not recorded on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_us: Option<f64>,
    /// Recorded step time on this GPU without communication with other ranks or waiting for the host; absent if the
    /// step was not recorded on it, or nothing was subtracted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived_us: Option<Range<f64>>,
    /// Recommended method; absent if the step was measured or no method has an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<&'static str>,
    /// Reason for the recommendation.
    pub why: &'a str,
    /// Answer of each method.
    pub answers: Vec<AnswerJson<'a>>,
    /// Set if the ranges do not overlap: the methods that agree with each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<&'a str>,
}

/// Answer of a method.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AnswerJson<'a> {
    /// The method.
    pub method: &'static str,
    /// Time of one step.
    pub step_time_us: Range<f64>,
    /// Mean absolute relative error on steps that it was not fitted to; absent if not evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_error: Option<f64>,
    /// Number of steps in that evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_steps: Option<u32>,
    /// Steps used in that evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_on: Option<&'a str>,
}

/// Builds the JSON form.
pub fn json<'a>(comparison: &'a Comparison) -> ComparisonJson<'a> {
    let name = |index: usize| comparison.methods[index].method.name();
    let answers = |on: &'a OnGpu| -> Vec<AnswerJson<'a>> {
        on.answers
            .iter()
            .enumerate()
            .filter_map(|(index, answer)| {
                let answer = answer.as_ref()?;
                let validated = answer.validated.as_ref();
                Some(AnswerJson {
                    method: name(index),
                    step_time_us: answer.step.range.map(Micros::get),
                    validated_error: validated.map(|it| it.error),
                    validated_steps: validated.map(|it| it.steps),
                    validated_on: validated.map(|it| it.on.as_str()),
                })
            })
            .collect()
    };
    ComparisonJson {
        format: "habitat-comparison",
        version: 2,
        workload: &comparison.workload,
        origin: comparison.origin.as_ref(),
        host: comparison.host.name(),
        methods: comparison
            .methods
            .iter()
            .map(|it| MethodJson { method: it.method.name(), needs: it.method.needs(), missing: it.missing.as_deref() })
            .collect(),
        gpus: comparison
            .gpus
            .iter()
            .map(|on| GpuJson {
                gpu: on.gpu.slug.as_str(),
                measured_us: recorded(on, Method::Measured).map(|step| step.range.mid.into()),
                derived_us: recorded(on, Method::Derived).map(|step| step.range.map(Micros::get)),
                taken: on.taken.map(name),
                why: &on.why,
                answers: answers(on),
                disagreement: on.disagreement.as_deref(),
            })
            .collect(),
        warnings: Note::all(&comparison.warnings),
    }
}

fn recorded(on: &OnGpu, method: Method) -> Option<&Estimate> {
    on.recorded.as_ref().filter(|step| step.method == method)
}

/// Words for an evaluated error: `7.2 % on 47 steps`.
pub fn error_words(validated: Option<&Validated>) -> String {
    validated
        .map_or_else(|| "not evaluated".to_owned(), |it| format!("{} on {} steps", format::percent(it.error), it.steps))
}

/// A row for each GPU and method.
pub fn table(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::text("method", "method"),
        Column::number("step", "step_time_us_mid"),
        Column::number("low–high", ""),
        Column::number("", "step_time_us_low"),
        Column::number("", "step_time_us_high"),
        Column::text("mean error", ""),
        Column::number("", "validated_error"),
        Column::number("", "validated_steps"),
        Column::text("", "validated_on"),
        Column::text("used", "taken"),
        Column::text("", "warnings"),
    ]);
    let warnings = joined(&comparison.warnings, "; ");
    for on in &comparison.gpus {
        if let Some(step) = &on.recorded {
            // A measured step has a median only, no range.
            let range = |end: Micros| if step.method == Method::Measured { None } else { Some(end) };
            let row = vec![
                Cell::text(&on.gpu.slug),
                Cell::text(step.method),
                Cell::new(format::time(step.range.mid), step.range.mid.get()),
                Cell::maybe(range(step.range.low), |low| Cell::text(format::time_range(low, step.range.high))),
                Cell::maybe(range(step.range.low), |low| Cell::text(low.get())),
                Cell::maybe(range(step.range.high), |high| Cell::text(high.get())),
                Cell::unknown(),
                Cell::unknown(),
                Cell::unknown(),
                Cell::unknown(),
                Cell::text("yes"),
                Cell::text(&warnings),
            ];
            table.push(row);
        }
        for (index, (answer, compared)) in on.answers.iter().zip(&comparison.methods).enumerate() {
            let Some(answer) = answer else { continue };
            let validated = answer.validated.as_ref();
            table.push(vec![
                Cell::text(&on.gpu.slug),
                Cell::text(compared.method.name()),
                Cell::new(format::time(answer.step.range.mid), answer.step.range.mid.get()),
                Cell::text(format::time_range(answer.step.range.low, answer.step.range.high)),
                Cell::text(answer.step.range.low.get()),
                Cell::text(answer.step.range.high.get()),
                Cell::text(error_words(validated)),
                Cell::maybe(validated, |it| Cell::text(it.error)),
                Cell::maybe(validated, |it| Cell::text(it.steps)),
                Cell::maybe(validated, |it| Cell::text(&it.on)),
                Cell::new(if on.taken == Some(index) { "yes" } else { "" }, on.taken == Some(index)),
                Cell::text(&warnings),
            ]);
        }
    }
    table
}

/// The data that each method needs, and why some have no answer.
fn methods_table(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[
        Column::text("method", "method"),
        Column::text("needs", "needs").cut_to(30),
        Column::text("here", "missing").cut_to(20),
    ]);
    for it in &comparison.methods {
        table.push(vec![
            Cell::text(it.method.name()),
            Cell::text(it.method.needs()),
            Cell::new(it.missing.as_deref().unwrap_or("available"), it.missing.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

/// Writes answers for each GPU, the reasons, contradictions, and the methods as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(comparison: &Comparison, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    write_warnings(&comparison.warnings, out)?;
    table(comparison).write_lines(width, out)?;
    writeln!(out)?;
    methods_table(comparison).write_lines(width, out)?;
    writeln!(out)?;
    // Group GPUs with the same reason.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for on in &comparison.gpus {
        match reasons.iter_mut().find(|(why, _)| *why == on.why) {
            Some((_, gpus)) => gpus.push(on.gpu.slug.as_str()),
            None => reasons.push((&on.why, vec![on.gpu.slug.as_str()])),
        }
    }
    for (why, gpus) in reasons {
        let names = if gpus.len() > 4 { format!("{} GPUs", gpus.len()) } else { gpus.join(", ") };
        writeln!(out, "used on {names}: {}", text::clean(why, 300))?;
    }
    for on in &comparison.gpus {
        if let Some(disagreement) = &on.disagreement {
            writeln!(out, "warning: {}: {disagreement}", on.gpu.slug)?;
        }
    }
    Ok(())
}
