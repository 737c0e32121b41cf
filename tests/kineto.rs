//! Importing PyTorch profiler traces: small ones with known answers, broken ones, and
//! every public trace where the folder with them is at hand.

#[path = "kineto/broken.rs"]
mod broken;
#[path = "kineto/large.rs"]
mod large;
#[path = "kineto/public.rs"]
mod public;
#[path = "kineto/small.rs"]
mod small;
#[path = "kineto/trace.rs"]
mod trace;
