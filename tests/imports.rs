//! Importing recordings that are no PyTorch traces: small ones made here with known
//! answers, and broken ones.

#[path = "imports/nsys.rs"]
mod nsys;
#[path = "common/program.rs"]
mod program;
#[path = "common/protobuf.rs"]
mod protobuf;
#[path = "imports/xplane.rs"]
mod xplane;
