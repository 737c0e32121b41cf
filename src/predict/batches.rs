//! Steps at batch sizes that were not recorded.
//!
//! [`curve`]: from steps at two or more batch sizes, a line with ranges found on measured
//! steps ([`spread`]).

pub mod curve;
pub mod rebatch;
pub mod spread;

pub use curve::{BatchCurve, BatchPoint, BatchTime, Bend, CurveError, Place};
pub use spread::Regime;
