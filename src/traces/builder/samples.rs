//! Number of samples per step.
//!
//! The first extent of the model's input is the batch size unless there is evidence against it; then the number is
//! unknown, and a reason is given. The structure of the step (backward passes, updates, batches from a `DataLoader`)
//! determines how many calls of the model make a step.

use super::loader;
use super::nest::Nesting;
use super::options::ModelInput;
use super::parts::{Parts, Samples};
use crate::{RangeKind, Span, Trace};
use habitat_step::op::{Form, Name, name};
use habitat_step::profile::Shape;

/// Samples of a step, or the reason why they are unknown; `None` without any input to derive them from.
pub(super) fn samples(
    trace: &Trace,
    nesting: &Nesting,
    spans: &[Span],
    model: Option<&ModelInput>,
) -> Option<Result<Samples, String>> {
    let parts = Parts::new(trace, nesting, spans);
    if let Some(model) = model {
        let found = of_model(&as_recorded(model, trace, nesting, spans.first()), &parts);
        return Some(loader::compared(found, &model.batches, &parts));
    }
    let (lead, length) = first_layer(trace, nesting, spans.first()?)?;
    // A trace alone does not show the calls of the model: assume one per backward pass.
    let calls = parts.passes.max(1);
    Some(in_a_step(lead, calls, false, &parts).map(|(samples, times)| Samples {
        count: samples,
        length,
        seen: format!("the first layer's input{times}"),
        parts: samples / lead.max(1),
        doubt: None,
    }))
}

/// First extent of the first layer's input, and tokens per sample if the input is two-dimensional.
pub(super) fn first_layer(trace: &Trace, nesting: &Nesting, span: &Span) -> Option<(u64, Option<u64>)> {
    let first = trace
        .ranges
        .iter()
        .zip(&nesting.contexts)
        .filter(|(host, context)| {
            host.kind == RangeKind::Operator
                && host.start >= span.start
                && host.start < span.end
                && !context.backward
                && !context.optimizer
                && !context.input
                && name::is_first_layer(trace.name(host.name))
        })
        .min_by(|(a, _), (b, _)| a.start.total_cmp(&b.start))?
        .0;
    let shapes = &trace.tensors(first).shapes;
    let lead = |shape: &Shape, at: usize| shape.get(at).copied().filter(|extent| *extent > 0);
    match Name::of(trace.name(first.name)).form {
        Form::Lookup(_) => {
            let indices = shapes.get(1).filter(|shape| shape.len() == 2)?;
            Some((lead(indices, 0)?, lead(indices, 1)))
        }
        Form::Product(_) => {
            let input = shapes.first()?;
            match input.len() {
                2 => Some((lead(input, 0)?, None)),
                3 => Some((lead(input, 0)?, lead(input, 1))),
                _ => None,
            }
        }
        // Recurrent layers may have the batch first or second.
        Form::Recurrent { .. } => None,
        _ => {
            let (input, weight) = (shapes.first()?, shapes.get(1)?);
            (input.len() == weight.len()).then(|| lead(input, 0))?.map(|batch| (batch, None))
        }
    }
}

/// Replaces the observed batch by that of the recorded step: the model was inspected one step earlier, which may be the
/// last, shorter one of an epoch.
fn as_recorded(model: &ModelInput, trace: &Trace, nesting: &Nesting, span: Option<&Span>) -> ModelInput {
    let mut model = model.clone();
    let (Some(span), [lead], Some((shape, _))) = (span, &model.leads[..], model.inputs.first()) else { return model };
    let Some((_, rest)) = shape.split_first() else { return model };
    let mut operators: Vec<_> = trace
        .ranges
        .iter()
        .zip(&nesting.contexts)
        .filter(|(host, context)| {
            host.kind == RangeKind::Operator && !context.input && (span.start..span.end).contains(&host.start)
        })
        .collect();
    operators.sort_by(|(a, _), (b, _)| a.start.total_cmp(&b.start));
    let mut leads = operators.iter().flat_map(|(host, _)| {
        let shapes = trace.tensors(host).shapes.iter();
        shapes.filter(|one| one.len() == rest.len() + 1 && one[1..] == *rest).map(|one| one[0])
    });
    let was = *lead;
    let Some(first) = leads.next() else { return model };
    if first == was || leads.any(|lead| lead == was) {
        return model;
    }
    model.leads = vec![first];
    for (shape, _) in &mut model.inputs {
        if let Some(lead) = shape.first_mut().filter(|lead| **lead == was) {
            *lead = first;
        }
    }
    model
}

/// Ratio of work from which the recorded steps differ from the one in which the model was looked at, and ratio up to
/// which they are the same: sequences of other lengths make other numbers of nodes.
const OTHER_WORK: f64 = 1.5;
const SAME_WORK: f64 = 1.02;

fn of_model(model: &ModelInput, parts: &Parts) -> Result<Samples, String> {
    let name = habitat_base::text::clean(&model.module, 60);
    if let Some(class) = &model.opaque {
        return Err(format!("{name} takes a {}", habitat_base::text::clean(class, 60)));
    }
    if model.lists {
        return Err(format!("{name} takes a list of tensors"));
    }
    let Some(((shape, is_whole), others)) = model.inputs.split_first() else {
        return Err(format!("{name} takes no tensor"));
    };
    let (lead, shown) = (shape.first().copied().unwrap_or(0), text(shape));
    if let Some((other, _)) = others.iter().find(|(other, _)| other.first() != shape.first()) {
        return Err(format!("the inputs of {name} begin with different extents, {shown} and {}", text(other)));
    }
    // Adjacency in a graph, or a mask of a sequence.
    if let Some((square, _)) = others
        .iter()
        .chain([&(shape.clone(), *is_whole)])
        .find(|(other, _)| !others.is_empty() && matches!(other[..], [rows, columns] if rows == columns))
    {
        return Err(format!("an input of {name}, {}, may relate rows to one another", text(square)));
    }
    match (shape.len(), is_whole) {
        (0 | 1, true) => return Err(format!("the input of {name}, {shown}, may be one sequence or many")),
        (0 | 1, false) => return Err(format!("the input of {name}, {shown}, may be one sample or many")),
        (2 | 3, _) if model.sequence_first => {
            return Err(format!("in the input of {name}, {shown}, the sequence may come first"));
        }
        _ => {}
    }
    if lead == 0 {
        return Err(format!("the input of {name} is empty"));
    }
    if let [first, second, ..] = model.leads[..] {
        return Err(format!("{name} is called with batches of {first} and of {second} in one step"));
    }
    let calls = model.calls.max(1);
    let unlike = |factor: f64| {
        let work = model.recorded_work.filter(|work| *work > factor || *work < 1.0 / factor)?;
        let calls = count(calls, "call", "calls");
        Some(format!(
            "the recorded steps did {work:.1} times the work of the one before them, which had {calls} of {name}"
        ))
    };
    if let Some(reason) = unlike(OTHER_WORK).filter(|_| parts.passes != calls) {
        return Err(reason);
    }
    let (samples, times) = in_a_step(lead, calls, model.again, parts)
        .map_err(|reason| unlike(SAME_WORK).unwrap_or_else(|| format!("{reason} ({name} takes {shown})")))?;
    let length = (*is_whole && shape.len() == 2).then(|| shape[1]);
    Ok(Samples {
        count: samples,
        length,
        seen: format!("the first input of {name}, {shown}{times}"),
        parts: samples / lead,
        doubt: None,
    })
}

/// Samples of a step with `calls` calls of the model on `lead` samples each, and a description of the multiplication.
fn in_a_step(lead: u64, calls: u64, again: bool, parts: &Parts) -> Result<(u64, String), String> {
    let Parts { passes, in_closures, updates, fetches, loss_rows } = *parts;
    if let Some(rows) = loss_rows.filter(|rows| *rows < lead) {
        return Err(format!("the loss has {rows} rows, fewer than the model's input"));
    }
    if in_closures > 1 {
        return Err(format!("the optimizer evaluates its closure {in_closures} times per step"));
    }
    let (parts, what) = match (fetches, calls) {
        (_, 1) if fetches <= 1 => (1, ""),
        // For example, a GAN's discriminator on real and generated samples, or a network called on both of a pair.
        (1.., _) if calls.is_multiple_of(fetches) && (updates > 1 || passes <= fetches) => {
            (fetches, "batches of the DataLoader")
        }
        (0, _) if calls == passes && updates <= 1 && !again => (calls, "forward passes"),
        (0, _) if calls == passes && updates <= 1 => {
            return Err(format!(
                "a step has {calls} calls of the model, each with a backward pass: on different batches, or on one again"
            ));
        }
        _ => {
            let mut parts = vec![
                count(calls, "call of the model", "calls of the model"),
                count(passes, "backward pass", "backward passes"),
                count(updates, "optimizer step", "optimizer steps"),
            ];
            parts.extend((fetches > 0).then(|| count(fetches, "batch of the DataLoader", "batches of the DataLoader")));
            return Err(format!("a step has {}", parts.join(", ")));
        }
    };
    let samples = lead.checked_mul(parts).ok_or("the batch size is too large")?;
    Ok((samples, if parts == 1 { String::new() } else { format!(" × {parts} {what} per step") }))
}

fn count(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn text(shape: &Shape) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", extents.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Parts = Parts { passes: 1, in_closures: 0, updates: 1, fetches: 0, loss_rows: None };

    fn model(inputs: &[(&[u64], bool)], calls: u64) -> ModelInput {
        ModelInput {
            module: "Net".to_owned(),
            calls,
            inputs: inputs.iter().map(|(shape, is_whole)| (shape.to_vec(), *is_whole)).collect(),
            leads: inputs.first().and_then(|(shape, _)| shape.first().copied()).into_iter().collect(),
            ..ModelInput::default()
        }
    }

    fn found(model: &ModelInput, parts: Parts) -> Option<u64> {
        of_model(model, &parts).ok().map(|found| found.count)
    }

    #[test]
    fn the_first_input_tells_batch_and_sequence() {
        let found = |inputs: &[(&[u64], bool)]| of_model(&model(inputs, 1), &PLAIN);
        assert_eq!(found(&[(&[8, 3, 64, 64], false)]).unwrap().count, 8);
        let tokens = found(&[(&[4, 512], true), (&[4, 512], true)]).unwrap();
        assert_eq!((tokens.count, tokens.length), (4, Some(512)));
        assert_eq!((&*tokens.seen, tokens.parts), ("the first input of Net, [4, 512]", 1));
    }

    #[test]
    fn what_may_be_something_else_than_a_batch_is_not_known() {
        let reason = |inputs: &[(&[u64], bool)]| of_model(&model(inputs, 1), &PLAIN).unwrap_err();
        // Nodes and edges of a graph; its adjacency matrix.
        assert!(reason(&[(&[2708, 16], false), (&[2, 10556], true)]).contains("begin with different extents"));
        assert!(reason(&[(&[2708, 16], false), (&[2708, 2708], false)]).contains("relate rows"));
        assert!(reason(&[(&[512], true)]).contains("one sequence or many"));
        assert!(reason(&[(&[7], false)]).contains("one sample or many"));
        assert!(reason(&[(&[0, 3], false)]).contains("empty"));
        assert!(reason(&[]).contains("no tensor"));
        let plain = model(&[(&[35, 20], true)], 1);
        for odd in [
            ModelInput { sequence_first: true, ..plain.clone() },
            ModelInput { lists: true, ..plain.clone() },
            ModelInput { opaque: Some("Data".to_owned()), ..plain.clone() },
            // Acts (batch 1) before it learns (batch 64).
            ModelInput { leads: vec![1, 64], ..plain.clone() },
        ] {
            assert_eq!(found(&odd, PLAIN), None, "{odd:?}");
        }
        let images = ModelInput { sequence_first: true, ..model(&[(&[8, 3, 32, 32], false)], 1) };
        assert_eq!(found(&images, PLAIN), Some(8));
        // 140 labelled nodes of 2708.
        let few = Parts { loss_rows: Some(140), ..PLAIN };
        assert_eq!(found(&model(&[(&[2708, 16], false)], 1), few), None);
        assert_eq!(found(&model(&[(&[8, 64], true)], 1), Parts { loss_rows: Some(8 * 64), ..PLAIN }), Some(8));
    }

    #[test]
    fn the_step_tells_how_calls_come_together() {
        let calls = |calls, parts| found(&model(&[(&[8, 10], false)], calls), parts);
        // Four micro-batches, with and without a loader; one batch and its adversarial version.
        assert_eq!(calls(4, Parts { passes: 4, ..PLAIN }), Some(32));
        assert_eq!(calls(4, Parts { passes: 4, fetches: 4, ..PLAIN }), Some(32));
        // Accumulation ramped up after the model was looked at.
        let ramp = ModelInput { recorded_work: Some(2.0), ..model(&[(&[8, 10], false)], 1) };
        for parts in [Parts { passes: 2, ..PLAIN }, Parts { passes: 2, fetches: 2, ..PLAIN }] {
            let reason = of_model(&ramp, &parts).unwrap_err();
            assert_eq!(
                reason,
                "the recorded steps did 2.0 times the work of the one before them, which had 1 call of Net"
            );
        }
        let adversary = ModelInput { again: true, ..model(&[(&[8, 10], false)], 2) };
        assert_eq!(found(&adversary, Parts { passes: 2, ..PLAIN }), None);
        // A discriminator on real and generated samples.
        assert_eq!(calls(3, Parts { passes: 3, fetches: 1, updates: 2, ..PLAIN }), Some(8));
        assert_eq!(calls(3, Parts { passes: 3, updates: 2, ..PLAIN }), None);
        // Pairs.
        assert_eq!(calls(2, Parts { fetches: 1, ..PLAIN }), Some(8));
        assert_eq!(calls(2, PLAIN), None);
        // Fifty actions and one update.
        assert_eq!(calls(50, PLAIN), None);
        // One batch in four parts, or four times.
        assert_eq!(calls(4, Parts { passes: 4, fetches: 1, ..PLAIN }), None);
        assert_eq!(calls(5, Parts { passes: 5, in_closures: 5, ..PLAIN }), None);
        let reason = of_model(&model(&[(&[8, 10], false)], 2), &PLAIN).unwrap_err();
        assert_eq!(reason, "a step has 2 calls of the model, 1 backward pass, 1 optimizer step (Net takes [8, 10])");
    }
}
