//! Uses of the hours and the money of a plan: training, and overheads.

use std::ops::Add;

use habitat_base::units::{Hours, Range};

/// A use of hours or money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Start-up before the first step: machines boot, software and data are loaded.
    Setup,
    /// Training steps, each counted once.
    Training,
    /// Writing checkpoints.
    Checkpoints,
    /// Repeated steps and restarts after losses of spot machines.
    Repeated,
    /// Waiting for another spot machine after a loss, unbilled.
    Waiting,
    /// Paid but unused time of started hours or of a contract's term. Has a cost but no time.
    Unused,
    /// Storing the data at the provider. Has a cost but no time.
    Storage,
    /// Copying the data once before the first step, while the machine is paid.
    Data,
}

impl Use {
    /// All uses, in the order of display.
    pub const ALL: [Self; 8] = [
        Self::Setup,
        Self::Training,
        Self::Checkpoints,
        Self::Repeated,
        Self::Waiting,
        Self::Unused,
        Self::Storage,
        Self::Data,
    ];

    /// Words for the use.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Setup => "starting up",
            Self::Training => "training",
            Self::Checkpoints => "writing checkpoints",
            Self::Repeated => "repeated after losses",
            Self::Waiting => "waiting for a machine",
            Self::Unused => "paid but unused",
            Self::Storage => "storage of the data",
            Self::Data => "copying the data",
        }
    }
}

/// Hours or dollars by use, which add up to those of the part or plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ByUse<T>([Range<T>; Use::ALL.len()]);

impl<T: Copy + Default + PartialEq + Add<Output = T>> ByUse<T> {
    /// Builds it from `f` of each use.
    pub fn new(f: impl FnMut(Use) -> Range<T>) -> Self {
        Self(Use::ALL.map(f))
    }

    /// Hours or dollars of one use.
    pub const fn of(&self, what: Use) -> Range<T> {
        self.0[what as usize]
    }

    /// Uses with any hours or dollars, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Use, Range<T>)> + '_ {
        Use::ALL.into_iter().map(|what| (what, self.of(what))).filter(|(_, taken)| *taken != Range::default())
    }

    /// Sum over all uses.
    pub fn sum(&self) -> Range<T> {
        self.0.iter().copied().sum()
    }
}

impl ByUse<Hours> {
    /// The same with high ends nearer to the expected values, so that they sum to `most` hours if possible.
    #[must_use]
    pub(crate) fn until(self, most: f64) -> Self {
        let [mid, high] = [self.sum().mid, self.sum().high].map(Hours::get);
        if high <= most {
            return self;
        }
        let share = ((most - mid) / (high - mid)).max(0.0);
        let nearer = |mid: f64, high: f64| Hours::known(mid + (high - mid) * share);
        Self::new(|what| Range { high: nearer(self.of(what).mid.get(), self.of(what).high.get()), ..self.of(what) })
    }
}

/// Sum over parts that follow one another, for each end of the range.
impl<T: Copy + Default + PartialEq + Add<Output = T>> std::iter::Sum for ByUse<T> {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self::new(|what| sum.of(what) + part.of(what)))
    }
}
