//! Importing PyTorch profiler traces: small ones with known answers, and broken ones.

#[path = "kineto/broken.rs"]
mod broken;
#[path = "kineto/communication.rs"]
mod communication;
#[path = "kineto/execution.rs"]
mod execution;
#[path = "kineto/large.rs"]
mod large;
#[path = "kineto/precision.rs"]
mod precision;
#[path = "kineto/small.rs"]
mod small;
#[path = "kineto/steps.rs"]
mod steps;
#[path = "kineto/timeline.rs"]
mod timeline;
#[path = "kineto/trace.rs"]
mod trace;
