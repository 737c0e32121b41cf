//! Results in forms to read and to process: JSON, CSV, Markdown, TOML and plain tables.
//!
//! Everything a screen shows can be had here without a terminal. Numbers are rounded in
//! the forms for people and left whole in JSON, CSV and TOML.

pub mod answer;
pub mod batches;
pub mod beside;
pub mod calibration;
pub mod comparison;
pub mod difference;
pub mod format;
pub mod frontier;
pub mod goal;
pub mod gpus;
pub mod html;
pub mod jobs;
pub mod launch;
pub mod memory;
pub mod offers;
pub mod outcome;
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

pub use table::{Column, Table};
