//! Importing recordings that are no PyTorch traces: small ones made here with known
//! answers, broken ones, and the public samples where the folder with them is at hand.

#[path = "imports/nsys.rs"]
mod nsys;
#[path = "common/program.rs"]
mod program;
#[path = "imports/samples.rs"]
mod samples;
#[path = "imports/xplane.rs"]
mod xplane;
