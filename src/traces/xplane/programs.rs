//! The compiled programs of a recording.

use std::collections::HashMap;

use super::hlo::{self, Program};
use super::space::{Plane, Stat};
use super::wire::Room;
use crate::Fault;

/// The compiled programs, by number and by name.
pub(super) struct Programs {
    by_number: HashMap<u64, Program>,
    by_name: HashMap<String, u64>,
    /// Number of programs without instructions.
    pub(super) unread: u64,
    room: Room,
}

/// Maximum number of parts of programs, including the input shapes repeated for each instruction.
const PARTS: usize = 1 << 25;

impl Default for Programs {
    fn default() -> Self {
        let room = Room::new("instructions, shapes and extents of programs", PARTS);
        Self { by_number: HashMap::new(), by_name: HashMap::new(), unread: 0, room }
    }
}

impl Programs {
    pub(super) fn read(&mut self, plane: &Plane<'_>) -> Result<(), Fault> {
        let proto = plane.number_of("Hlo Proto").or_else(|| plane.number_of("hlo_proto"));
        for (number, kind) in &plane.kinds {
            let stat = kind.stats.iter().find(|(name, _)| Some(*name) == proto);
            if let Some((_, Stat::Text(proto))) = stat {
                let program = hlo::program(*proto, &mut self.room)?;
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

    /// Finds a program; returns it with its number.
    pub(super) fn find(&self, number: Option<u64>, name: &str) -> Option<(u64, &Program)> {
        let name = name.rsplit_once('(').map_or(name, |(name, _)| name);
        let of = |number: u64| Some((number, self.by_number.get(&number)?));
        number.and_then(of).or_else(|| of(*self.by_name.get(name)?))
    }
}
