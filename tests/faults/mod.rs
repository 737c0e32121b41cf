//! Faults while the program reads and writes: kills, full disks, permissions, links and special files, deleted folders,
//! concurrent writers. `docs/faults.md` has the table; it lists every test here.

pub(crate) mod tests;
