//! On tables and recordings that lie beside a checkout (`../shared/data`), not in it: what is
//! shipped against the tables it was made from, and imports of public recordings.

pub(crate) mod recordings;
pub(crate) mod tables;
pub(crate) mod traces;
