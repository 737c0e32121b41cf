//! One training step as data, its operators, and the GPUs of the catalog.
//!
//! - [`profile::Profile`]: the operations of one step and their measured times. All recordings
//!   end in one, and all predictions start from one.
//! - [`op`]: operators, decoded from their names here and nowhere else: FLOPs, bytes, shapes.
//! - [`op_list`]: steps that were traced but not run; [`decoder`]: those of language models from their dimensions.
//! - [`catalog::Catalog`]: each GPU's specifications, with a source for every figure.
//!
//! It must not know: formats of traces, predictions, prices, files, terminals.

#[cfg(test)]
extern crate self as habitat_step;

pub mod catalog;
pub mod decoder;
pub mod op;
pub mod op_list;
pub mod profile;

#[cfg(test)]
#[path = "../../tests/common/shipped.rs"]
mod shipped;
