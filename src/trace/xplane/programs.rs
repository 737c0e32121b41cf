//! The compiled programs of a recording.

use std::collections::HashMap;

use super::hlo::{self, Program};
use super::space::{Plane, Stat};
use crate::trace::Fault;

/// The compiled programs, by number and by name.
#[derive(Default)]
pub(super) struct Programs {
    by_number: HashMap<u64, Program>,
    by_name: HashMap<String, u64>,
    /// Programs without instructions.
    pub(super) unread: u64,
}

impl Programs {
    pub(super) fn read(&mut self, plane: &Plane<'_>) -> Result<(), Fault> {
        let proto = plane.number_of("Hlo Proto").or_else(|| plane.number_of("hlo_proto"));
        for (number, kind) in &plane.kinds {
            let stat = kind.stats.iter().find(|(name, _)| Some(*name) == proto);
            if let Some((_, Stat::Text(proto))) = stat {
                let program = hlo::program(*proto)?;
                if program.operators.is_empty() {
                    self.unread += 1;
                }
                self.by_number.insert(*number, program);
                // "jit_step(17)"
                let name = kind.name.rsplit_once('(').map_or(kind.name.as_str(), |(name, _)| name);
                self.by_name.insert(name.to_owned(), *number);
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, number: Option<u64>, name: &str) -> Option<&Program> {
        let name = name.rsplit_once('(').map_or(name, |(name, _)| name);
        let by_name = || self.by_number.get(self.by_name.get(name)?);
        number.and_then(|number| self.by_number.get(&number)).or_else(by_name)
    }
}
