//! `habitat-tui run --cupti` as a user meets it, on a machine without a GPU: a C program
//! over stand-ins for `libcuda.so.1` and `libcupti.so.12` that load the recorder as the
//! driver does and hand it records of the real layout. Everything else is real.
//!
//! Needs a `cc`. With `HABITAT_TUI_TEST_LIBCUPTI` the
//! path of a real libcupti, what that does without a driver is tried too.

pub(crate) mod tests;
