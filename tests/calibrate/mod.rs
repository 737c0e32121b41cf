//! `habitat-tui calibrate` from the user's side: without a GPU, with a broken driver, and on a driver and a cuBLASLt
//! with known answers (`fixtures/fake_cuda.c`).

pub(crate) mod tests;
