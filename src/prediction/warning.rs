//! What makes a step's time less than it looks. It belongs to the prediction, and whatever
//! shows the time (screens, tables, files, plans) shows the warning with it.

use std::fmt;

/// Kinds of warnings, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningKind {
    /// The model was split over GPUs: one rank did a share of the step.
    Sharded,
    /// One rank of a job over several GPUs: its communication is taken off.
    OneRank,
    /// Much of the GPU's time belongs to no operation of the profile.
    Unassigned,
    /// The GPU has no matrix cores for the element type of products.
    NoMatrixCores,
    /// Operators that multiply were not counted, or only roughly.
    Uncounted,
    /// Shapes are missing: nothing tells what bounds the kernels.
    NoShapes,
    /// The host, not the GPU, sets the pace.
    HostBound,
    /// The data loader holds the step up.
    WaitsForData,
    /// The host is taken to keep up, whatever was recorded.
    HostKeepsUp,
}

impl WarningKind {
    /// In a few words, for places with little room.
    pub const fn brief(self) -> &'static str {
        match self {
            Self::Sharded => "model split over GPUs: one may not run it",
            Self::OneRank => "one rank of several: no communication",
            Self::Unassigned => "part of the GPU's work is in no operation",
            Self::NoMatrixCores => "no matrix cores for its type: FP32 rate",
            Self::Uncounted => "arithmetic of some operators unknown",
            Self::NoShapes => "no shapes recorded: wide ranges",
            Self::HostBound => "bound by the host, not the GPU",
            Self::WaitsForData => "waits for its data loader",
            Self::HostKeepsUp => "as if the host kept up",
        }
    }
}

/// How warnings of [`WarningKind::WaitsForData`] begin.
pub(super) const WAITS_FOR_DATA: &str = "waits for data: ";

/// A warning. The text is the same on every GPU that it holds for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// In whole sentences.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Each of the warnings once, with the number of lists that have it.
pub fn distinct<'a>(lists: impl IntoIterator<Item = &'a [Warning]>) -> Vec<(&'a Warning, usize)> {
    let mut found: Vec<(&Warning, usize)> = Vec::new();
    for warning in lists.into_iter().flatten() {
        match found.iter_mut().find(|(other, _)| *other == warning) {
            Some((_, times)) => *times += 1,
            None => found.push((warning, 1)),
        }
    }
    found.sort_by_key(|(warning, _)| warning.kind);
    found
}
