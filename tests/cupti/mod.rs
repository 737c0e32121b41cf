//! `habitat-tui run --cupti` from the user's side, on a machine without a GPU: a C program over fakes of `libcuda.so.1`
//! and `libcupti.so.12`, which load the recorder as the driver does and pass it records of the real layout. Everything
//! else is real.
//!
//! Needs a `cc`. With `HABITAT_TUI_TEST_LIBCUPTI`, the path of a real libcupti, also tests that library without a
//! driver.

pub(crate) mod tests;
