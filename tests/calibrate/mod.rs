//! `habitat-tui calibrate` as a user meets it: without a GPU, with a driver that does not
//! work, and on a driver and a cuBLASLt with known answers (`fixtures/fake_cuda.c`).

pub(crate) mod tests;
