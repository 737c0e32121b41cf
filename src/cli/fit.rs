//! `habitat-tui fit`: models that are fitted to what the user has.

pub(super) mod kernelwise;
