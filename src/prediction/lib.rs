//! Step times on GPUs of the catalog, from one recorded step or from shapes alone.
//!
//! Step time = device time of the operations on the destination, less the overlap seen on the origin, plus the time
//! that the device waits for the host. That wait is kept unchanged unless [`Host`] changes it. Communication operations
//! of a multi-GPU recording are left out, also on the recording GPU: predictions are for one GPU, and [`scale`] adds
//! the others. [`learn`] fits models to the user's own data.
//!
//! It must not know: formats of traces, prices, files, terminals. The program hands it the weights.

pub mod batches;
pub mod blackbox;
pub mod bundle;
mod choice;
mod communication;
pub mod compare;
pub mod decoded;
pub mod difference;
pub mod efficiency;
mod engine;
mod error;
pub mod estimate;
mod fabric;
mod facts;
pub mod features;
pub mod finding;
mod gpu;
pub mod habitat;
pub mod head;
pub mod host;
pub mod hypothetical;
pub mod kernelwise;
mod launches;
pub mod layer;
pub mod learn;
pub mod learned;
mod learned_time;
pub mod measured;
pub mod memory;
mod method;
mod methods;
pub mod mlp;
mod notes;
mod options;
pub mod origin;
mod pace;
mod parallel;
mod precision;
mod predictions;
pub mod rate;
mod recorded_step;
pub mod roofline;
pub mod runlog;
pub mod scale;
pub mod sharding;
mod shares;
mod step;
pub mod suggest;
mod supply;
pub mod transformer;
mod uncounted;
mod unshaped;
pub mod wave;

pub use choice::predict;
pub use communication::communicates;
pub use error::PredictError;
pub use estimate::{Estimate, MethodShare, OperationPrediction, StepTime};
pub use fabric::Fabric;
pub use finding::{Finding, Shared};
pub use gpu::GpuFacts;
pub use habitat_step::catalog::Vendor;
pub use host::Host;
pub use memory::{Fits, MemoryFit};
pub use method::{Method, MethodChoice};
pub use methods::Facts;
pub use options::Options;
pub use origin::origin;
pub use predictions::{AtBatch, Prediction, Predictions};
pub use sharding::Sharding;
pub use supply::Supply;
pub use wave::WaveForm;

/// Re-exported for modules that may use predictions but not profiles.
pub use habitat_step::profile::{Mode, Precision, Workload};

#[cfg(test)]
#[path = "../../tests/common/shipped.rs"]
mod shipped;
