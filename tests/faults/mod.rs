//! Faults around the program while it reads and writes: kills, full disks, rights, links
//! and special files, folders that go away, others that write the same. `docs/faults.md` is the
//! table; every test it names is there.

pub(crate) mod tests;
