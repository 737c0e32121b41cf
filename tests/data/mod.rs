//! Tests on tables and recordings beside a checkout (`../shared/data`): shipped data against its source tables, and
//! imports of public recordings.

pub(crate) mod recordings;
pub(crate) mod tables;
pub(crate) mod traces;
