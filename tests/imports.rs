//! Imports of recordings other than PyTorch traces: small ones with known answers, and broken ones.

mod nsys;
mod xplane;
