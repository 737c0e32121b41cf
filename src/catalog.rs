//! The GPUs the program knows.

// occupancy
mod spec;
// file

pub use spec::{AchievedMatmul, BandwidthKind, GpuSpec, Layer, PeakRates, SmLimits, Vendor};
