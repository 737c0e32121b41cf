//! Steps at batch sizes that were not recorded.
//!
//! [`curve`]: from steps at two or more batch sizes, a line with ranges calibrated on measured steps ([`spread`]).
//! [`rebatch`]: from one step, by scaling its shapes. [`sweep()`]: both on every GPU, with memory and the largest batch
//! that fits. [`add_sizes`]: adds batch sizes for plans to choose from.

pub mod curve;
mod error;
pub mod rebatch;
pub mod scaled;
mod sizes;
pub mod spread;
pub mod sweep;

pub use curve::{BatchCurve, BatchPoint, BatchTime, Bend, CurveError, Place};
pub use error::SweepError;
pub use scaled::{ScaledShapes, with_scaling_range};
pub use sizes::{add_shares, add_sizes, sweep_to_largest, usual_sizes};
pub use spread::Regime;
pub use sweep::{Basis, FamilyLine, GpuSweep, Sweep, SweepRow, sweep};
