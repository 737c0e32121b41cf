//! Importing recordings that are no PyTorch traces: small ones made here with known
//! answers, and broken ones.

mod nsys;
mod xplane;
