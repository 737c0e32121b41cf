//! SkyPilot catalogs: one CSV file per provider, each in its own dialect.

use super::table::{Record, Table};
use super::{Count, Counts, ImportError, Imported, Listed, Origin, count, gcp, price, required, snapshot};

/// Reads the offers of a table.
pub(super) fn rows(table: &Table, origin: Origin<'_>) -> Result<Imported, ImportError> {
    let provider = required(origin)?;
    let mut counts = Counts::default();
    let mut listed = Vec::new();
    let mut hosts = Vec::new();
    for record in table.rows() {
        let row = Dialect { provider, record: record? };
        match row.gpus()? {
            Count::Whole(gpus) => listed.push(row.listed(gpus)?),
            Count::Part => counts.part_of_gpu += 1,
            Count::None if provider == "gcp" => hosts.push(row.listed(0)?),
            Count::None => counts.without_gpu += 1,
        }
    }
    if provider == "gcp" {
        let (composed, unused) = gcp::composed(listed, &hosts);
        listed = composed;
        counts.without_gpu += unused;
    }
    Ok(snapshot(provider, listed, origin, counts))
}

struct Dialect<'a> {
    provider: &'a str,
    record: Record<'a>,
}

impl Dialect<'_> {
    /// Whether it is one of Azure's machines with eight MI300X, whose accelerator columns are empty in the catalog.
    fn is_unnamed_mi300x(&self) -> bool {
        self.provider == "azure" && self.gpu_name().is_empty() && self.record.raw("InstanceType").contains("_MI300X_")
    }

    fn gpu_name(&self) -> &str {
        self.record.raw("AcceleratorName")
    }

    fn gpus(&self) -> Result<Count, ImportError> {
        let gpus = self.record.number("AcceleratorCount", count)?;
        if self.is_unnamed_mi300x() {
            return Ok(Count::Whole(8));
        }
        Ok(gpus.filter(|_| !self.gpu_name().is_empty()).unwrap_or(Count::None))
    }

    fn listed(&self, gpu_count: u32) -> Result<Listed, ImportError> {
        let record = self.record;
        let info = record.raw("GpuInfo");
        let memory_gib = info_number(info, "sizeinmib").map(|size| self.memory_gib(size, gpu_count));
        let host_memory_gib = record.size("MemoryGiB");
        // Some catalogs of RunPod repeat the GPU memory as host memory.
        let named = super::board::memory_in(self.gpu_name()).or(memory_gib);
        let is_repeated = self.provider == "runpod"
            && (info.is_empty()
                || memory_gib.is_none()
                || host_memory_gib == named.map(|gib| gib * f64::from(gpu_count)));
        Ok(Listed {
            region: record.text("Region"),
            zone: record.text("AvailabilityZone"),
            instance_type: record.text("InstanceType"),
            gpu_name: if self.is_unnamed_mi300x() { "MI300X".to_owned() } else { record.text("AcceleratorName") },
            gpu_count,
            described: info_text(info, "name").unwrap_or_default(),
            memory_gib,
            vcpus: record.size("vCPUs"),
            host_memory_gib: host_memory_gib.filter(|_| !is_repeated),
            on_demand: record.number("Price", price)?.flatten(),
            spot: record.number("SpotPrice", price)?.flatten(),
            note: self.note(is_repeated),
            ..Listed::default()
        })
    }

    /// Memory of one GPU from `SizeInMiB`, which has all GPUs for Vast, and gigabytes for `RunPod`.
    fn memory_gib(&self, size: f64, gpu_count: u32) -> f64 {
        let gib = if size < 1024.0 { size } else { size / 1024.0 };
        let gib = if self.provider == "vast" { gib / f64::from(gpu_count.max(1)) } else { gib };
        gib.round().max(1.0)
    }

    fn note(&self, is_repeated: bool) -> Option<String> {
        match self.provider {
            "vast" => Some("cheapest listed host; vcpus and memory are the size class of the catalog, not of the host"),
            "runpod" if is_repeated => Some("host memory omitted: the catalog repeats the GPU memory"),
            "lambda" | "runpod" => Some("the catalog lists all regions, whether available or not"),
            _ => None,
        }
        .map(str::to_owned)
    }
}

/// Text after the first `'key':` in JSON or a Python literal, ignoring case.
fn info_value<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let lower = info.to_ascii_lowercase();
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    let at = quoted.iter().find_map(|key| Some(lower.find(key.as_str())? + key.len()))?;
    Some(info[at..].trim_start().strip_prefix(':')?.trim_start())
}

fn info_number(info: &str, key: &str) -> Option<f64> {
    let value = info_value(info, key)?;
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    value[..end].parse().ok().filter(|size: &f64| *size > 0.0)
}

fn info_text(info: &str, key: &str) -> Option<String> {
    let value = info_value(info, key)?;
    let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let text = value[1..].split(quote).next()?;
    Some(habitat_base::text::clean(text, super::WIDTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_gpus_are_read_in_every_dialect() {
        let python = "{'Gpus': [{'Name': 'L4', 'Manufacturer': null, 'MemoryInfo': {'SizeInMiB': 24576}}], 'TotalGpuMemoryInMiB': 49152}";
        let json = r#"{"Gpus": [{"Name": "L4", "MemoryInfo": {"SizeInMiB": 24576}}], "TotalGpuMemoryInMiB": 49152}"#;
        for info in [python, json, &python.to_lowercase()] {
            assert_eq!(info_number(info, "sizeinmib"), Some(24576.0), "{info}");
            assert!(info_text(info, "name").is_some_and(|name| name.eq_ignore_ascii_case("l4")), "{info}");
        }
        assert_eq!((info_number("L4", "sizeinmib"), info_text("L4", "name")), (None, None));
        assert_eq!(info_number("{'SizeInMiB': }", "sizeinmib"), None);
    }
}
