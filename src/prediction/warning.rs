//! Warnings that qualify a step's time. They belong to the prediction, and every output that shows the time (screens,
//! tables, files, plans) shows them.

use std::fmt;

/// Kinds of warnings, in display order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningKind {
    /// The model was split over GPUs: one rank did a share of the step.
    Sharded,
    /// One rank of a multi-GPU job: its communication is subtracted.
    OneRank,
    /// Much of the GPU's time is outside the recorded operations.
    Unassigned,
    /// The GPU has no matrix cores for the element type of products.
    NoMatrixCores,
    /// FLOPs of some products are unknown or estimated.
    Uncounted,
    /// Shapes are missing: kernels may be compute- or memory-bound.
    NoShapes,
    /// The step is CPU-bound.
    HostBound,
    /// The step waits for the data loader.
    WaitsForData,
    /// The host is assumed to keep up, whatever was recorded.
    HostKeepsUp,
}

impl WarningKind {
    /// Short form, for places with little room.
    pub const fn brief(self) -> &'static str {
        match self {
            Self::Sharded => "model split over GPUs: one may not run it",
            Self::OneRank => "one rank of several: no communication",
            Self::Unassigned => "GPU time outside the recorded operations",
            Self::NoMatrixCores => "precision without tensor cores: FP32 speed",
            Self::Uncounted => "unknown FLOPs of some operators",
            Self::NoShapes => "no shapes recorded: wide ranges",
            Self::HostBound => "CPU-bound: a faster GPU will not help much",
            Self::WaitsForData => "waits for its data loader",
            Self::HostKeepsUp => "assuming the CPU keeps up",
        }
    }
}

/// Prefix of warnings of [`WarningKind::WaitsForData`].
pub(super) const WAITS_FOR_DATA: &str = "waits for data: ";

/// Warning whose text is the same on every affected GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Kind of the warning.
    pub kind: WarningKind,
    /// Text in whole sentences.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Distinct warnings, with the number of lists that contain each.
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
