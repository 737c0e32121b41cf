//! Existing machines of a jobs file.

use std::collections::HashSet;

use serde::Deserialize;
use toml::Spanned;

use super::{JobsFileError, line_of};
use habitat_base::text;
use habitat_base::units::{UsdPerHour, most};

/// Maximum number of machines.
const MOST_MACHINES: u32 = 200;

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineTable {
    /// Their line in the file.
    #[serde(skip)]
    pub line: usize,
    /// Their name; by default that of the GPU.
    #[serde(default)]
    pub name: Option<String>,
    /// The GPU, as typed.
    pub gpu: String,
    /// GPUs per machine.
    #[serde(default = "one")]
    pub gpus: u32,
    /// Number of machines.
    #[serde(default = "one")]
    pub count: u32,
    /// Price of one machine per hour.
    #[serde(default)]
    pub usd_per_hour: UsdPerHour,
    /// Whether several jobs run on one machine at a time, each on GPUs of its own.
    #[serde(default)]
    pub share: bool,
}

const fn one() -> u32 {
    1
}

/// Checks the tables.
pub(super) fn all(tables: Vec<Spanned<MachineTable>>, text: &str) -> Result<Vec<MachineTable>, JobsFileError> {
    let mut names = HashSet::new();
    let mut total = 0_u32;
    let mut machines = Vec::with_capacity(tables.len());
    for table in tables {
        let span = table.span();
        let mut machine = table.into_inner();
        machine.line = line_of(text, &span, None);
        let shown = text::clean(machine.name.as_ref().unwrap_or(&machine.gpu), 60);
        total = total.saturating_add(machine.count);
        let problem = if !(1..=most::GPUS).contains(&machine.gpus) {
            format!("gpus: {}; a machine has 1 to {} GPUs", machine.gpus, most::GPUS)
        } else if machine.count == 0 {
            "count: 0; omit the machine, or set the number of machines".to_owned()
        } else if total > MOST_MACHINES {
            format!(
                "count: {} makes {total} machines in total, but at most {MOST_MACHINES} can be planned",
                machine.count
            )
        } else if !names.insert(shown.clone()) {
            "another machine has this name; set different names, or increase count".to_owned()
        } else {
            machine.name = Some(shown);
            machines.push(machine);
            continue;
        };
        return Err(JobsFileError { line: machine.line, problem: format!("machine {shown:?}: {problem}") });
    }
    Ok(machines)
}
