//! Step times on GPUs of the catalog, from one recorded step or from shapes alone.

pub mod estimate;
// memory

pub mod scale;

pub use estimate::{
    Estimate, Fits, GpuFacts, MemoryFit, Method, MethodShare, OperationPrediction, Prediction, Predictions, StepTime,
};
