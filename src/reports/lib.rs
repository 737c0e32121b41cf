//! Reports as JSON, CSV, Markdown, TOML and plain tables.
//!
//! Every figure of the screens is available here without a terminal. Forms for people round numbers; JSON, CSV and TOML
//! keep them whole. [`theme`] has the roles of cells and their colours.
//!
//! It must not know: the command line, files, a terminal.

mod aside;

pub mod answer;
pub mod batches;
pub mod beside;
pub mod calibration;
pub mod comparison;
pub mod difference;
pub mod format;
pub mod frontier;
pub mod gate;
pub mod goal;
pub mod gpus;
pub mod history;
pub mod html;
pub mod jobs;
pub mod kept;
pub mod launch;
pub mod layouts;
pub mod lines;
pub mod memory;
pub mod offers;
pub mod outcome;
pub mod parts;
pub mod plan_changes;
pub mod plan_form;
pub mod plan_toml;
pub mod plans;
pub mod predictions;
pub mod prices;
pub mod ranks;
pub mod recordings;
pub mod run;
pub mod shapes;
pub mod summary;
pub mod table;
pub mod theme;
pub mod timeline;
pub mod uses;
pub mod verdict;
pub mod waits;
pub mod words;
pub mod wrap;

pub use table::{Column, Table};

/// The JSON Schema of a form as it is written: a field that is left out when empty is not required.
pub fn json_schema<T: schemars::JsonSchema>() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::default().for_serialize();
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

#[cfg(test)]
#[path = "../../tests/common/shipped.rs"]
mod shipped;
