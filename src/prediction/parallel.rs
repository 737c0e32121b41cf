//! Runs work on all processors available to this process; results do not depend on their number.

use rayon::prelude::*;

use super::mlp::threads;

/// Minimum number of items per thread at a time.
const FEW: usize = 1024;

/// Applies `work` to a few large parts; results keep their order.
pub(super) fn parts<P: Send, R: Send>(parts: Vec<P>, work: impl Fn(P) -> R + Send + Sync) -> Vec<R> {
    if parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    threads();
    parts.into_par_iter().map(work).collect()
}

/// Applies `work` to many small items; results keep their order.
pub(super) fn items<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> R + Send + Sync) -> Vec<R> {
    if items.len() < 2 * FEW {
        return items.iter().map(work).collect();
    }
    threads();
    items.par_iter().with_min_len(FEW).map(work).collect()
}
