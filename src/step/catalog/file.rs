//! File format of a GPU: `catalog/<slug>.toml`.
//!
//! Flat keys with the unit in the name; unknown figures are left out. `catalog/README.md` explains every key and the
//! abbreviations in `sources`.

use serde::Deserialize;

use super::error::SpecError;
use super::spec::{AchievedMatmul, GpuSpec, Layer, PeakRates, SmLimits, StreamingShare, Vendor};
use habitat_base::units::{Bytes, BytesPerSecond, FlopsPerSecond, GIB, GpuSlug, Megahertz, QuantityError, Watts, most};

/// Schema number of catalog files.
const SCHEMA: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    slug: GpuSlug,
    name: String,
    vendor: Vendor,
    architecture: String,
    compute_capability: Option<String>,
    launch_year: Option<u16>,
    sm_count: u32,
    fp32_cores_per_sm: u32,
    boost_clock_mhz: f64,
    memory_gb: f64,
    memory_type: Option<String>,
    memory_bandwidth_gbps: f64,
    measured_bandwidth_gbps: Option<f64>,
    l2_cache_mb: Option<f64>,
    fp32_tflops: f64,
    tf32_tensor_tflops_dense: Option<f64>,
    fp16_tensor_tflops_dense: Option<f64>,
    bf16_tensor_tflops_dense: Option<f64>,
    fp8_tensor_tflops_dense: Option<f64>,
    fp16_tensor_tflops_dense_fp16_accumulate: Option<f64>,
    max_threads_per_sm: Option<u32>,
    max_blocks_per_sm: Option<u32>,
    max_warps_per_sm: Option<u32>,
    registers_per_sm: Option<u32>,
    shared_memory_per_sm_kb: Option<f64>,
    nvlink_gbps_bidirectional: Option<f64>,
    pcie_generation: Option<u8>,
    power_w: Option<f64>,
    sources: Vec<String>,
    #[serde(default)]
    unconfirmed: Vec<String>,
    notes: Option<String>,
    streaming: Option<StreamingShare>,
    #[serde(default)]
    achieved_matmul: Vec<AchievedMatmul>,
}

impl GpuSpec {
    /// Parses one catalog file; `layer` is its origin.
    ///
    /// # Errors
    /// [`SpecError`] naming the key, or the line if the text is not TOML.
    pub fn parse(text: &str, layer: Layer) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Err(SpecError(
                "the file is empty; `habitat-tui gpus --toml SLUG` prints one to start from".to_owned(),
            ));
        }
        let file: File = toml::from_str(text).map_err(|error| SpecError(error.to_string().trim_end().to_owned()))?;
        if file.schema != SCHEMA {
            return Err(SpecError(format!("schema: found {}, this program reads {SCHEMA}", file.schema)));
        }
        file.into_spec(layer)
    }
}

impl File {
    fn into_spec(self, layer: Layer) -> Result<GpuSpec, SpecError> {
        let compute_capability = self.compute_capability.as_deref().map(parse_capability).transpose()?;
        let limits = self.limits()?;
        let named = [
            ("name", Some(&self.name)),
            ("architecture", Some(&self.architecture)),
            ("memory_type", self.memory_type.as_ref()),
            ("notes", self.notes.as_ref()),
            ("streaming.source", self.streaming.as_ref().map(|streaming| &streaming.source)),
        ];
        let listed = [("sources", &self.sources), ("unconfirmed", &self.unconfirmed)];
        let texts = named.into_iter().filter_map(|(key, text)| Some((key, text?)));
        let texts = texts.chain(listed.into_iter().flat_map(|(key, list)| list.iter().map(move |text| (key, text))));
        if let Some((key, _)) = texts.into_iter().find(|(_, text)| habitat_base::text::is_unsafe(text)) {
            return Err(SpecError(format!("{key}: has control or invisible characters; write plain text")));
        }
        if self.sources.is_empty() {
            return Err(SpecError("sources: empty; name the source of the figures".to_owned()));
        }
        self.check_figures()?;
        Ok(GpuSpec {
            boost_clock: positive("boost_clock_mhz", self.boost_clock_mhz, Megahertz::new)?,
            memory: positive("memory_gb", self.memory_gb, |gb| Bytes::new(gb * GIB))?,
            memory_bandwidth: positive("memory_bandwidth_gbps", self.memory_bandwidth_gbps, giga)?,
            measured_bandwidth: known("measured_bandwidth_gbps", self.measured_bandwidth_gbps, giga)?,
            l2_cache: known("l2_cache_mb", self.l2_cache_mb, |mb| Bytes::new(mb * 1024.0 * 1024.0))?,
            peak: PeakRates {
                fp32: positive("fp32_tflops", self.fp32_tflops, tera)?,
                tf32_tensor: known("tf32_tensor_tflops_dense", self.tf32_tensor_tflops_dense, tera)?,
                fp16_tensor: known("fp16_tensor_tflops_dense", self.fp16_tensor_tflops_dense, tera)?,
                bf16_tensor: known("bf16_tensor_tflops_dense", self.bf16_tensor_tflops_dense, tera)?,
                fp8_tensor: known("fp8_tensor_tflops_dense", self.fp8_tensor_tflops_dense, tera)?,
                fp16_tensor_fp16_accumulate: known(
                    "fp16_tensor_tflops_dense_fp16_accumulate",
                    self.fp16_tensor_tflops_dense_fp16_accumulate,
                    tera,
                )?,
            },
            // Zero is valid here: the board has no NVLink.
            nvlink: self
                .nvlink_gbps_bidirectional
                .map(|gbps| {
                    let zero = (gbps == 0.0).then_some(BytesPerSecond::ZERO);
                    zero.map_or_else(|| positive("nvlink_gbps_bidirectional", gbps, giga), Ok)
                })
                .transpose()?,
            power: known("power_w", self.power_w, Watts::new)?,
            slug: self.slug,
            name: self.name,
            vendor: self.vendor,
            architecture: self.architecture,
            compute_capability,
            sm_count: self.sm_count,
            fp32_cores_per_sm: self.fp32_cores_per_sm,
            memory_type: self.memory_type,
            streaming: self.streaming,
            achieved_matmul: self.achieved_matmul,
            limits,
            pcie_generation: self.pcie_generation,
            launch_year: self.launch_year,
            sources: self.sources,
            unconfirmed: self.unconfirmed,
            notes: self.notes,
            calibration: None,
            layer,
        })
    }

    /// Checks the figures that are kept as they are.
    fn check_figures(&self) -> Result<(), SpecError> {
        for (key, count) in [("sm_count", self.sm_count), ("fp32_cores_per_sm", self.fp32_cores_per_sm)] {
            if count == 0 {
                return Err(SpecError(format!("{key}: 0; it must be a whole number above 0")));
            }
            if count > most::OF_A_GPU {
                return Err(SpecError(format!("{key}: {count}; no GPU has more than {}", most::OF_A_GPU)));
            }
        }
        for matmul in &self.achieved_matmul {
            positive("achieved_matmul.tflops", matmul.tflops, tera)?;
        }
        if let Some(streaming) = &self.streaming {
            let share = streaming.share;
            if !(share > 0.0 && share <= 1.0) {
                return Err(SpecError(format!("streaming.share: {share:?}; it must be above 0 and at most 1")));
            }
            if streaming.source.trim().is_empty() {
                return Err(SpecError("streaming.source: empty; name the source of the share".to_owned()));
            }
        }
        Ok(())
    }

    /// Either all five limits or none: occupancy needs all of them.
    fn limits(&self) -> Result<Option<SmLimits>, SpecError> {
        let shared = known("shared_memory_per_sm_kb", self.shared_memory_per_sm_kb, |kb| Bytes::new(kb * 1024.0))?;
        match (self.max_threads_per_sm, self.max_blocks_per_sm, self.max_warps_per_sm, self.registers_per_sm, shared) {
            (None, None, None, None, None) => Ok(None),
            (Some(threads), Some(blocks), Some(warps), Some(registers), Some(shared)) => {
                if [threads, blocks, warps, registers].contains(&0) {
                    return Err(SpecError("max_threads_per_sm, max_blocks_per_sm, max_warps_per_sm and registers_per_sm must be above 0".to_owned()));
                }
                if [threads, blocks, warps, registers].iter().any(|count| *count > most::OF_A_GPU) {
                    return Err(SpecError(format!("max_threads_per_sm, max_blocks_per_sm, max_warps_per_sm and registers_per_sm are at most {}", most::OF_A_GPU)));
                }
                Ok(Some(SmLimits { threads, blocks, warps, registers, shared_memory_bytes: shared.get() as u64 }))
            }
            _ => Err(SpecError(
                "max_threads_per_sm, max_blocks_per_sm, max_warps_per_sm, registers_per_sm and shared_memory_per_sm_kb: give all five or none".to_owned(),
            )),
        }
    }
}

fn parse_capability(text: &str) -> Result<(u8, u8), SpecError> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| SpecError(format!("compute_capability: {text:?}; expected \"major.minor\", as in \"8.0\"")))
}

fn giga(value: f64) -> Result<BytesPerSecond, QuantityError> {
    BytesPerSecond::new(value * 1e9)
}

fn tera(value: f64) -> Result<FlopsPerSecond, QuantityError> {
    FlopsPerSecond::new(value * 1e12)
}

fn positive<T>(key: &str, value: f64, make: impl Fn(f64) -> Result<T, QuantityError>) -> Result<T, SpecError> {
    match make(value) {
        // Smaller values are mistakes and would lead to infinite times.
        Ok(quantity) if value >= 1e-6 => Ok(quantity),
        _ => Err(SpecError(format!(
            "{key}: {value:?}; it must be a finite number above 0 that a GPU can have (leave the key out if unknown)"
        ))),
    }
}

fn known<T>(
    key: &str,
    value: Option<f64>,
    make: impl Fn(f64) -> Result<T, QuantityError>,
) -> Result<Option<T>, SpecError> {
    value.map(|value| positive(key, value, make)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T4: &str = r#"
schema = 1
slug = "t4"
name = "Tesla T4"
vendor = "nvidia"
architecture = "Turing"
compute_capability = "7.5"
sm_count = 40
fp32_cores_per_sm = 64
boost_clock_mhz = 1590
memory_gb = 16
memory_bandwidth_gbps = 320
fp32_tflops = 8.14
max_threads_per_sm = 1024
max_blocks_per_sm = 16
max_warps_per_sm = 32
registers_per_sm = 65536
shared_memory_per_sm_kb = 64
sources = ["test"]
"#;

    #[test]
    fn a_file_reads() {
        let spec = GpuSpec::parse(T4, Layer::Shipped).unwrap();
        assert_eq!(spec.compute_capability, Some((7, 5)));
        assert_eq!(spec.memory_gib(), 16.0);
        assert_eq!(spec.limits.unwrap().shared_memory_bytes, 65536);
        assert_eq!((spec.nvlink, spec.streaming), (None, None));
        let with_share = format!("{T4}[streaming]\nshare = 0.86\nsource = \"test\"\n");
        assert_eq!(GpuSpec::parse(&with_share, Layer::Shipped).unwrap().streaming.unwrap().share, 0.86);
    }

    #[test]
    fn errors_name_the_key_and_the_value() {
        let error =
            |from: &str, to: &str| GpuSpec::parse(&T4.replace(from, to), Layer::Shipped).unwrap_err().to_string();
        assert!(error("sm_count = 40\n", "").contains("sm_count"));
        assert!(
            error("sm_count = 40", "sm_count = -40").contains("sm_count"),
            "{}",
            error("sm_count = 40", "sm_count = -40")
        );
        assert!(error("sm_count = 40", "sm_count = 0").contains("sm_count: 0"));
        assert!(error("= 320", "= -320").contains("memory_bandwidth_gbps: -320"));
        // A bandwidth that makes every time infinite is rejected.
        assert!(error("= 320", "= 1e-300").contains("memory_bandwidth_gbps: 1e-300"));
        assert!(error("= 320", "= nan").contains("memory_bandwidth_gbps: NaN"));
        assert!(error("= 320", "= \"fast\"").contains("memory_bandwidth_gbps"));
        assert!(error("max_warps_per_sm = 32\n", "").contains("all five or none"));
        assert!(error("\"7.5\"", "\"new\"").contains("compute_capability: \"new\""));
        assert!(error("\"Tesla T4\"", "\"T4\\u001b[2J\"").contains("name: has control"));
        assert!(error("schema = 1", "schema = 2").contains("schema: found 2"));
        assert!(error("sources = ", "colour = ").contains("colour"));
        let streaming =
            |table: &str| error("sources = [\"test\"]", &format!("sources = [\"test\"]\n[streaming]\n{table}"));
        assert!(streaming("share = 1.2\nsource = \"x\"").contains("streaming.share: 1.2"));
        assert!(streaming("share = 0.0\nsource = \"x\"").contains("streaming.share: 0.0"));
        assert!(streaming("share = 0.8\nsource = \" \"").contains("streaming.source: empty"));
        assert!(streaming("share = 0.8").contains("source"));
        assert!(GpuSpec::parse(" \n", Layer::Shipped).unwrap_err().to_string().contains("empty"));
    }
}
