//! `habitat-tui calibrate` as a user meets it: where there is no GPU, where its driver does
//! not work, and on a driver and a cuBLASLt with known answers (`fixtures/fake_cuda.c`).

pub(crate) mod tests;
