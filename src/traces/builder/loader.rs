//! Compares the batches of a `DataLoader` with the model's input.
//!
//! The loader's count is the user's: a preference pair (DPO), two views of an image or the patches of one slide are
//! several rows of the model's input but one sample. A differing row count is reported. If the rows do not determine
//! the batch size, the loader's count is used.

use super::options::LoaderBatch;
use super::parts::{Parts, Samples};

/// Samples of a step, checked against the batches that a loader supplied.
pub(super) fn compared(
    found: Result<Samples, String>,
    batches: &[LoaderBatch],
    parts: &Parts,
) -> Result<Samples, String> {
    let Some(first) = batches.first() else { return found };
    let given = given(batches, parts);
    match found {
        Ok(mut samples) => {
            let rows = batches.iter().map(|batch| batch.rows).sum::<Option<u64>>();
            let is_alike = given == Some(samples.count) || rows == Some(samples.count);
            samples.doubt = match given.or(rows) {
                Some(given) if !is_alike => Some(differs(given, batches)),
                _ if batches.iter().all(|batch| batch.size.is_none()) => {
                    Some("the DataLoader has no fixed batch size, so other steps may have more or fewer".to_owned())
                }
                _ => None,
            };
            Ok(samples)
        }
        Err(reason) => {
            let one_loader = batches.iter().all(|batch| batch.loader == first.loader);
            let (Some(count), Some(size), true) = (given, first.size, one_loader) else { return Err(reason) };
            let fetches = count / size.max(1);
            let times = if fetches > 1 { format!(" × {fetches} batches per step") } else { String::new() };
            let seen = format!("the DataLoader's batch_size {size}{times} ({reason})");
            // Batches with a backward pass each are micro-batches of one update.
            let micro_batches = if parts.passes == fetches { fetches.max(1) } else { 1 };
            Ok(Samples { count, length: None, seen, parts: micro_batches, doubt: None })
        }
    }
}

/// Number of samples that the loaders supplied in the recorded step, by their `batch_size`; `None` without one.
fn given(batches: &[LoaderBatch], parts: &Parts) -> Option<u64> {
    let sizes: Vec<u64> = batches.iter().map(|batch| batch.size).collect::<Option<_>>()?;
    let first = *sizes.first().filter(|size| **size > 0)?;
    if sizes.iter().all(|size| *size == first) && parts.fetches > 0 {
        // They were observed in the step before the recorded one, which may have had another number of batches.
        return first.checked_mul(parts.fetches);
    }
    sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size))
}

/// Message with the loaders' count and how to select it.
fn differs(given: u64, batches: &[LoaderBatch]) -> String {
    let mut each: Vec<(u32, u64)> = Vec::new();
    for batch in batches {
        let rows = batch.size.or(batch.rows).unwrap_or(0);
        match each.iter_mut().find(|(loader, _)| *loader == batch.loader) {
            Some((_, sum)) => *sum += rows,
            None => each.push((batch.loader, rows)),
        }
    }
    if let [_] = each[..] {
        return format!("the DataLoader supplies {given} per step: --batch-size {given} counts those");
    }
    let each: Vec<String> = each.iter().map(|(_, rows)| rows.to_string()).collect();
    format!("the DataLoaders supply {} per step: --batch-size sets your count", each.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(loader: u32, size: Option<u64>, rows: Option<u64>) -> LoaderBatch {
        LoaderBatch { loader, size, rows }
    }

    fn rows(count: u64) -> Samples {
        Samples { count, length: None, seen: "the first input".to_owned(), parts: 1, doubt: None }
    }

    fn doubt(count: u64, batches: &[LoaderBatch], fetches: u64) -> Option<String> {
        compared(Ok(rows(count)), batches, &Parts { fetches, ..Parts::default() }).unwrap().doubt
    }

    #[test]
    fn rows_of_the_network_that_are_not_the_loaders_are_in_doubt() {
        let four = [batch(0, Some(4), Some(4))];
        let pairs = doubt(8, &four, 1).unwrap();
        assert_eq!(pairs, "the DataLoader supplies 4 per step: --batch-size 4 counts those");
        assert_eq!(doubt(4, &four, 1), None);
        assert_eq!(doubt(16, &four, 4), None, "four micro-batches");
        assert_eq!(doubt(32, &four, 4).unwrap(), "the DataLoader supplies 16 per step: --batch-size 16 counts those");
        // The last batch of an epoch; a batch without a row count.
        assert_eq!(doubt(3, &[batch(0, Some(4), Some(3))], 1), None);
        assert_eq!(doubt(4, &[batch(0, Some(4), None)], 1), None);
        let both = [batch(0, Some(16), Some(16)), batch(1, Some(112), Some(112))];
        assert_eq!(doubt(128, &both, 2), None);
        assert!(doubt(240, &both, 2).unwrap().starts_with("the DataLoaders supply 16 and 112 per step"));
        assert_eq!(doubt(8, &[], 1), None);
        // Prebuilt batches and batches of tokens: whole ones, and two views of each.
        let ready = [batch(0, None, Some(16))];
        assert!(doubt(16, &ready, 1).unwrap().contains("no fixed batch size"));
        assert!(doubt(32, &ready, 1).unwrap().contains("--batch-size 16"));
    }

    #[test]
    fn a_loader_answers_where_rows_do_not() {
        let answer = |batches: &[LoaderBatch], parts: Parts| {
            compared(Err("Net takes a list of tensors".to_owned()), batches, &parts)
        };
        let one = answer(&[batch(0, Some(12), None)], Parts { fetches: 1, passes: 1, ..Parts::default() }).unwrap();
        assert_eq!((one.count, one.parts), (12, 1));
        assert_eq!(one.seen, "the DataLoader's batch_size 12 (Net takes a list of tensors)");
        let parts = Parts { fetches: 4, passes: 4, ..Parts::default() };
        let four = answer(&[batch(0, Some(12), None)], parts).unwrap();
        assert_eq!((four.count, four.parts), (48, 4));
        // An optimizer closure that evaluates one batch five times.
        let closure = answer(&[batch(0, Some(12), None)], Parts { fetches: 1, passes: 5, ..Parts::default() }).unwrap();
        assert_eq!((closure.count, closure.parts), (12, 1));
        assert!(answer(&[batch(0, None, Some(3))], parts).is_err());
        assert!(answer(&[batch(0, Some(12), None), batch(1, Some(12), None)], parts).is_err());
        assert!(answer(&[], parts).is_err());
    }
}
