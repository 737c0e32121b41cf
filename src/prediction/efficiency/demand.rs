//! Part of an operation as the model sees it: arithmetic, traffic, and the terms that slow each.

use super::limits::Limits;
use super::table::Term;

/// Side of the tiles in which libraries compute a result.
pub(super) const TILE: f64 = 128.0;
/// Terms of a sum that one block adds up; longer sums, such as weight gradients, are split among blocks.
pub(super) const CHUNK: f64 = 4096.0;
/// A term and its amount.
pub type Amount = (Term, f64);

/// Units that do the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Matrix units, if the GPU has them for the element type.
    Matrix,
    /// Vector units.
    Vector,
    /// Cycles of a multiprocessor: one per element for its address or value, before any term.
    Cycles,
}

/// Part of an operation: arithmetic, traffic, and the terms that slow each down.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Floating-point operations, or cycles with [`Units::Cycles`].
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Repetitions within the operation.
    pub times: f64,
    /// Units that do the arithmetic.
    pub units: Units,
    /// Amounts that slow the arithmetic more on some GPUs than on others.
    pub limits: Limits,
    /// Terms of the arithmetic; the first names the part.
    pub compute: Vec<Amount>,
    /// Terms of the traffic; the first names the part.
    pub memory: Vec<Amount>,
}

#[derive(Default)]
pub(super) struct Terms {
    pub(super) compute: Vec<Amount>,
    pub(super) memory: Vec<Amount>,
}

impl Terms {
    /// Uses the same terms for arithmetic and traffic.
    pub(super) fn of(terms: impl IntoIterator<Item = Term>) -> Self {
        let both: Vec<Amount> = terms.into_iter().map(|term| (term, 1.0)).collect();
        Self { compute: both.clone(), memory: both }
    }

    pub(super) fn compute(&mut self, term: Term, amount: f64) {
        if amount != 0.0 {
            self.compute.push((term, amount));
        }
    }

    pub(super) fn memory(&mut self, term: Term, amount: f64) {
        if amount != 0.0 {
            self.memory.push((term, amount));
        }
    }
}

/// Work with traffic but without arithmetic.
pub(super) fn traffic(bytes: f64, times: f64, term: Term) -> Demand {
    let memory = vec![(term, 1.0)];
    let (units, limits) = (Units::Vector, Limits::default());
    Demand { flops: 0.0, bytes, times, units, limits, compute: Vec::new(), memory }
}
