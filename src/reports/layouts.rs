//! Layouts of a plan's machines, and why the others lost: a table for the screen and for text, and JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::parts::LayoutJson;
use super::table::{Cell, Column, Table};
use super::theme::Role;
use super::words::{Note, Words};
use habitat_base::units::{Bytes, Micros};
use habitat_planning::plan::{LayoutOption, LayoutVerdict, Plan};
use habitat_prediction::Sharding;

/// A layout of the plan's machines.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LayoutOptionJson {
    /// Division of the model.
    #[serde(flatten)]
    layout: LayoutJson,
    /// Replicas of the model.
    replicas: u32,
    /// Expected time of one optimizer step on all GPUs; absent if it was not predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_time_us: Option<f64>,
    /// Memory that each GPU needs; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<f64>,
    /// Why it is not the plan's.
    verdict: Note,
}

impl LayoutOptionJson {
    pub(super) fn new(option: &LayoutOption) -> Self {
        let LayoutOption { sharding, parallel, replicas, step, memory, verdict } = option;
        Self {
            layout: LayoutJson::new(*sharding, parallel),
            replicas: *replicas,
            step_time_us: step.map(Micros::get),
            memory_bytes: memory.map(Bytes::get),
            verdict: Note::new(verdict),
        }
    }
}

/// A row for each layout; empty if the plan has none.
pub fn table(plan: &Plan) -> Table {
    let columns = [
        Column::words("layout", 20, 0),
        Column::figures("step", 0),
        Column::figures("memory", 3),
        Column::words("against the plan's", 24, 0),
    ];
    let mut table = Table::new(&columns);
    for option in &plan.layouts {
        let role = match option.verdict {
            LayoutVerdict::Chosen => Role::Good,
            LayoutVerdict::Time { .. } => Role::Text,
            LayoutVerdict::Memory { .. } | LayoutVerdict::LeavesLinks { .. } => Role::Muted,
        };
        table.push(vec![
            Cell::styled(role, words(option)),
            Cell::styled(role, option.step.map_or_else(String::new, format::time)),
            Cell::styled(role, option.memory.map_or_else(String::new, format::memory)),
            Cell::styled(role, option.verdict.words()),
        ]);
    }
    table
}

/// `TP 8 · PP 4×2 · DP 2 · zero1 · recompute`.
fn words(option: &LayoutOption) -> String {
    let sharding = Some(option.sharding.name().to_owned()).filter(|_| option.sharding != Sharding::None);
    let replicas = Some(format!("DP {}", option.replicas)).filter(|_| option.replicas > 1);
    let parallel = Some(option.parallel.brief()).filter(|words| !words.is_empty());
    let recompute = option.parallel.recompute.then(|| "recompute".to_owned());
    [parallel, replicas, sharding, recompute].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
