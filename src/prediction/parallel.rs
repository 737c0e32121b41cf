//! Work on all processors that this process may use; the results are those of one.

use rayon::prelude::*;

use super::mlp::threads;

/// Items that one thread takes at a time at least.
const FEW: usize = 1024;

/// Does `work` on every one of a few large parts; the results come in their order.
pub(super) fn parts<P: Send, R: Send>(parts: Vec<P>, work: impl Fn(P) -> R + Send + Sync) -> Vec<R> {
    if parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    threads();
    parts.into_par_iter().map(work).collect()
}

/// Does `work` on every one of many small items; the results come in their order.
pub(super) fn items<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> R + Send + Sync) -> Vec<R> {
    if items.len() < 2 * FEW {
        return items.iter().map(work).collect();
    }
    threads();
    items.par_iter().with_min_len(FEW).map(work).collect()
}
