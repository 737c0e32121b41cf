//! Training jobs: started, recorded, followed.
//!
//! - `capture` (Unix): starts a job or attaches to one, records a window of its steps, traces
//!   shapes, measures GPUs.
//! - [`live`]: a running job as data, shared by the recorder and the screens.
//!
//! It must not know: predictions, prices, screens, the command line.

#[cfg(unix)]
pub mod capture;
pub mod live;
