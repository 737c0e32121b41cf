//! What the hours and the money of a plan go to: training, and what comes with it.

use std::ops::Add;

use habitat_base::units::Range;

/// Something that hours or money of a part go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Before the first step: machines start, software and data are loaded.
    Setup,
    /// Steps that count.
    Training,
    /// Writing checkpoints.
    Checkpoints,
    /// After losses of spot machines: steps done again, and restarts.
    Repeated,
    /// Waiting for another spot machine after a loss; it costs no machine.
    Waiting,
    /// What is paid of hours begun, or of a contract's term, and is not used; it takes no time.
    Unused,
    /// Keeping the data at the provider; it takes no time of its own.
    Storage,
    /// Copying the data, once, before the first step; the machine is paid meanwhile.
    Data,
}

impl Use {
    /// All of them, in the order in which they are listed.
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

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Training => "training",
            Self::Checkpoints => "checkpoints",
            Self::Repeated => "repeated",
            Self::Waiting => "waiting",
            Self::Unused => "unused",
            Self::Storage => "storage",
            Self::Data => "data",
        }
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Setup => "starting up",
            Self::Training => "training",
            Self::Checkpoints => "writing checkpoints",
            Self::Repeated => "repeated after losses",
            Self::Waiting => "waiting for a machine",
            Self::Unused => "paid and not used",
            Self::Storage => "storage of the data",
            Self::Data => "bringing the data",
        }
    }
}

/// Hours or dollars by what they go to; together they are those of the part, or of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ByUse<T>([Range<T>; Use::ALL.len()]);

impl<T: Copy + Default + PartialEq + Add<Output = T>> ByUse<T> {
    /// `f` of each use.
    pub fn new(f: impl FnMut(Use) -> Range<T>) -> Self {
        Self(Use::ALL.map(f))
    }

    /// What one use takes.
    pub const fn of(&self, what: Use) -> Range<T> {
        self.0[what as usize]
    }

    /// The uses that take something at an end of the range, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Use, Range<T>)> + '_ {
        Use::ALL.into_iter().map(|what| (what, self.of(what))).filter(|(_, taken)| *taken != Range::default())
    }

    /// All together.
    pub fn sum(&self) -> Range<T> {
        self.0.iter().copied().sum()
    }
}

/// Of parts that follow one another, end by end.
impl<T: Copy + Default + PartialEq + Add<Output = T>> std::iter::Sum for ByUse<T> {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self::new(|what| sum.of(what) + part.of(what)))
    }
}
