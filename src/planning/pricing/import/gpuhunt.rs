//! Rows of `gpuhunt` (`src/gpuhunt/_internal/models.py`), one for each machine, region and purchase option, as CSV or
//! JSON lines.

use std::collections::BTreeMap;

use serde_json::Value;

use super::table::Table;
use super::{Count, Counts, ImportError, Imported, Listed, Origin, count, price, required, snapshot};
use habitat_base::text;

/// Reads the offers of a table, by provider.
pub(super) fn table(table: &Table, origin: Origin<'_>) -> Result<Vec<Imported>, ImportError> {
    let mut all = Gathered::default();
    for record in table.rows() {
        let record = record?;
        let gpus = record.number("gpu_count", count)?.unwrap_or(Count::None);
        let is_spot = record.raw("spot").eq_ignore_ascii_case("true");
        let price = record.number("price", price)?.flatten();
        let listed = Listed {
            region: record.text("location"),
            instance_type: record.text("instance_name"),
            gpu_name: record.text("gpu_name"),
            memory_gib: record.size("gpu_memory"),
            vcpus: record.size("cpu"),
            host_memory_gib: record.size("memory"),
            on_demand: price.filter(|_| !is_spot),
            spot: price.filter(|_| is_spot),
            ..Listed::default()
        };
        all.add(record.raw("provider"), origin, gpus, listed)?;
    }
    Ok(all.imported(origin))
}

/// Reads the offers of JSON lines, by provider.
pub(super) fn json_lines(text: &str, origin: Origin<'_>) -> Result<Vec<Imported>, ImportError> {
    let mut all = Gathered::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |problem: String| ImportError(format!("line {}: {problem}", index + 1));
        let row: Value = serde_json::from_str(line)
            .map_err(|error| wrong(format!("not JSON ({error}); the file is truncated, or not from gpuhunt")))?;
        let text = |key: &str| text::clean(row[key].as_str().unwrap_or_default(), super::WIDTH);
        let size = |key: &str| row[key].as_f64().filter(|size| *size > 0.0 && *size <= 1e7);
        for key in ["instance_name", "location", "price"] {
            if row.get(key).is_none() {
                return Err(wrong(format!("{key}: missing, although rows of gpuhunt have it")));
            }
        }
        let number =
            |key: &str| row[key].as_f64().ok_or_else(|| wrong(format!("{key}: {} is not a number", shown(&row[key]))));
        let listed_price = price(number("price")?).map_err(|problem| wrong(format!("price: {problem}")))?;
        let gpus = if row.get("gpu_count").is_none_or(Value::is_null) { 0.0 } else { number("gpu_count")? };
        let gpus = count(gpus).map_err(|problem| wrong(format!("gpu_count: {problem}")))?;
        let is_spot = row["spot"].as_bool().unwrap_or(false);
        let listed = Listed {
            region: text("location"),
            instance_type: text("instance_name"),
            gpu_name: text("gpu_name"),
            memory_gib: size("gpu_memory"),
            vcpus: size("cpu"),
            host_memory_gib: size("memory"),
            on_demand: listed_price.filter(|_| !is_spot),
            spot: listed_price.filter(|_| is_spot),
            ..Listed::default()
        };
        all.add(row["provider"].as_str().unwrap_or_default(), origin, gpus, listed)?;
    }
    Ok(all.imported(origin))
}

fn shown(value: &Value) -> String {
    text::clean(&value.to_string(), 40)
}

/// Rows by provider.
#[derive(Default)]
struct Gathered(BTreeMap<String, (Vec<Listed>, Counts)>);

impl Gathered {
    /// Adds a row, unless `--provider` names another provider.
    fn add(&mut self, named: &str, origin: Origin<'_>, gpus: Count, listed: Listed) -> Result<(), ImportError> {
        if !named.is_empty() && origin.provider.is_some_and(|wanted| wanted != named) {
            return Ok(());
        }
        let provider = if named.is_empty() { required(origin)? } else { named };
        super::check_provider(provider)?;
        let (rows, counts) = self.0.entry(provider.to_owned()).or_default();
        match gpus {
            Count::Whole(gpu_count) if !listed.gpu_name.is_empty() => rows.push(Listed { gpu_count, ..listed }),
            Count::Part => counts.part_of_gpu += 1,
            _ => counts.without_gpu += 1,
        }
        Ok(())
    }

    fn imported(self, origin: Origin<'_>) -> Vec<Imported> {
        let one = |(provider, (rows, counts)): (String, _)| snapshot(&provider, rows, origin, counts);
        self.0.into_iter().map(one).collect()
    }
}
