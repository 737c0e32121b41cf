//! Sides of an operation's time, and priors of the terms on each.

/// Side of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Arithmetic.
    Compute,
    /// Traffic.
    Memory,
    /// Latency.
    Latency,
}

impl Side {
    /// All sides, in the order of the weights.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Memory, Self::Latency];

    /// Name in the weights.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Latency => "latency",
        }
    }
}

/// Normal distribution of a factor's logarithm before any measured step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub width: f64,
}

/// Priors of a term by side.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Priors {
    sides: [Option<Prior>; 3],
    slows: bool,
}

/// A term of arithmetic.
pub(super) fn compute(mean: f64, width: f64) -> Priors {
    Priors::default().with(Side::Compute, mean, width)
}

/// A term of traffic.
pub(super) fn memory(mean: f64, width: f64) -> Priors {
    Priors::default().memory(mean, width)
}

/// A term of arithmetic and of traffic.
pub(super) fn both(mean: f64, width: f64) -> Priors {
    compute(mean, width).memory(mean, width)
}

impl Priors {
    fn with(mut self, side: Side, mean: f64, width: f64) -> Self {
        self.sides[side as usize] = Some(Prior { mean, width });
        self
    }

    /// Adds traffic.
    pub(super) fn memory(self, mean: f64, width: f64) -> Self {
        self.with(Side::Memory, mean, width)
    }

    /// Adds latency.
    pub(super) fn latency(self, mean: f64, width: f64) -> Self {
        self.with(Side::Latency, mean, width)
    }

    /// Adds the latency of the shortest operators, in launches of [`super::STEP_LAUNCH_US`].
    pub(super) fn launches(self, launches: impl Into<Option<f64>>) -> Self {
        launches.into().map_or(self, |launches| self.latency(launches.ln(), 0.3))
    }

    /// The term can only make a part slower.
    pub(super) const fn slows(mut self) -> Self {
        self.slows = true;
        self
    }

    pub(super) const fn only_slows(self) -> bool {
        self.slows
    }

    pub(super) const fn of(self, side: Side) -> Option<Prior> {
        self.sides[side as usize]
    }
}
