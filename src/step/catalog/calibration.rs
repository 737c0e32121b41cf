//! Measurements of a board by `habitat-tui calibrate`, which supplement its catalog entry.
//!
//! Format `habitat-calibration`, version 1, TOML; `catalog/README.md` lists the keys. A calibration names its GPU and
//! leaves the figures of the catalog entry unchanged.

use serde::{Deserialize, Serialize};

use super::error::SpecError;
use habitat_base::text;
use habitat_base::units::{BytesPerSecond, FlopsPerSecond, GpuSlug};

/// Name of the format.
pub const FORMAT: &str = "habitat-calibration";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Element types of the measured matrix products.
pub(crate) const PRODUCT_TYPES: [&str; 5] = ["fp32", "tf32", "bf16", "fp16", "fp8"];

/// Measurements of one board in one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// `habitat-calibration`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// Slug of the catalog entry.
    pub gpu: GpuSlug,
    /// Time of the measurement in UTC: `2026-11-21T10:00:00Z`.
    pub date: String,
    /// Program that measured, with its version.
    pub program: String,
    /// Measurements that failed, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Remarks on the measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The board as its driver describes it.
    pub device: CalibratedDevice,
    /// Achieved memory bandwidth, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<MeasuredBandwidth>,
    /// Launch costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<MeasuredLaunch>,
    /// Rates of matrix products.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub product: Vec<MeasuredProduct>,
}

/// A board as its driver reports it, without uuid and serial number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedDevice {
    /// Name from the driver.
    pub name: String,
    /// CUDA compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Number of multiprocessors.
    pub sm_count: u32,
    /// Memory in bytes, as the driver reports it.
    pub memory_bytes: u64,
    /// Driver version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Highest CUDA version that the driver supports, such as `12.8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Maximum SM clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_mhz: Option<f64>,
    /// Maximum memory clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_max_mhz: Option<f64>,
    /// Current power limit in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Default power limit in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_default_w: Option<f64>,
    /// PCI Express generation that both board and machine support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_generation: Option<u8>,
    /// Number of PCI Express lanes in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_lanes: Option<u8>,
    /// Whether ECC is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Whether MIG (Multi-Instance GPU) is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
}

/// A measurement and its variation over the timed regions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// 10th percentile.
    pub low: f64,
    /// 90th percentile.
    pub high: f64,
    /// Number of timed regions.
    pub regions: u32,
}

/// Achieved memory bandwidth in GB/s (10⁹ bytes).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredBandwidth {
    /// Buffer size in bytes.
    pub buffer_bytes: u64,
    /// Copy bandwidth, counting bytes read and written; predictions use this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_gbps: Option<Spread>,
    /// Read-only bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_gbps: Option<Spread>,
    /// Write-only bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbps: Option<Spread>,
}

/// Launch costs in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLaunch {
    /// Time per empty kernel in a chain of launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_us: Option<Spread>,
    /// Time to launch one empty kernel and wait for it, on the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_us: Option<Spread>,
}

/// Rate that matrix products of one element type sustain under load for seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredProduct {
    /// `fp32`, `tf32`, `bf16`, `fp16` or `fp8`.
    pub dtype: String,
    /// Shape as M x N x K.
    pub shape: String,
    /// Library that computed the products.
    pub software: String,
    /// Rate in TFLOP/s.
    pub tflops: Spread,
    /// State of the board during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_load: Option<UnderLoad>,
}

/// State of a board under load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnderLoad {
    /// SM clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<f64>,
    /// Memory clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<f64>,
    /// Power draw in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Temperature, in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Reasons for reduced clocks, as the driver names them; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_by: Vec<String>,
}

impl Calibration {
    /// Whether a table claims to be a calibration.
    pub fn is_one(table: &toml::Table) -> bool {
        table.get("format").is_some_and(|format| format.as_str() == Some(FORMAT))
    }

    /// Parses a calibration file.
    ///
    /// # Errors
    /// [`SpecError`] naming the key, or the line if the text is not TOML.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| SpecError(error.to_string().trim_end().to_owned()))?;
        let version = table.get("version").and_then(toml::Value::as_integer);
        if !Self::is_one(&table) || version != Some(i64::from(VERSION)) {
            let shown = |key: &str| table.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string);
            return Err(SpecError(format!(
                "format {} version {}: this program reads \"{FORMAT}\" version {VERSION}",
                text::clean(&shown("format"), 40),
                text::clean(&shown("version"), 20),
            )));
        }
        let read: Self = toml::from_str(text).map_err(|error| SpecError(error.to_string().trim_end().to_owned()))?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), SpecError> {
        let texts = [&self.date, &self.program, &self.device.name, &self.device.compute_capability];
        let products = self.product.iter().flat_map(|one| [&one.dtype, &one.shape, &one.software]);
        let limits = self.product.iter().filter_map(|one| one.under_load.as_ref()).flat_map(|load| &load.limited_by);
        let mut texts = texts.into_iter().chain(products).chain(limits).chain(&self.left_out).chain(&self.notes);
        if texts.any(|text| text::is_unsafe(text)) {
            return Err(SpecError("a text has control or invisible characters; write plain text".to_owned()));
        }
        // Every figure is shown with this day, `2026-11-21…`.
        let day = self.date.get(..10).unwrap_or_default();
        let is_day = day.len() == 10
            && day.bytes().enumerate().all(|(at, c)| if at == 4 || at == 7 { c == b'-' } else { c.is_ascii_digit() });
        if !is_day {
            return Err(SpecError(format!("date: {:?}; write it as 2026-11-21T10:00:00Z", self.date)));
        }
        let mut spreads: Vec<(String, Spread)> = Vec::new();
        let mut add = |key: &str, spread: Option<Spread>| spreads.extend(spread.map(|spread| (key.to_owned(), spread)));
        if let Some(bandwidth) = &self.bandwidth {
            add("bandwidth.copy_gbps", bandwidth.copy_gbps);
            add("bandwidth.read_gbps", bandwidth.read_gbps);
            add("bandwidth.write_gbps", bandwidth.write_gbps);
        }
        if let Some(launch) = &self.launch {
            add("launch.chain_us", launch.chain_us);
            add("launch.wait_us", launch.wait_us);
        }
        for product in &self.product {
            if !PRODUCT_TYPES.contains(&product.dtype.as_str()) {
                let known = PRODUCT_TYPES.join(", ");
                return Err(SpecError(format!("product.dtype: unknown type {:?}; known: {known}", product.dtype)));
            }
            add("product.tflops", Some(product.tflops));
        }
        for (key, Spread { median, low, high, .. }) in spreads {
            let sound = [median, low, high].iter().all(|value| (1e-6..=1e9).contains(value));
            if !sound || low > median || median > high {
                return Err(SpecError(format!(
                    "{key}: median {median}, low {low}, high {high}; they must be above 0 and in this order: low, median, high"
                )));
            }
        }
        Ok(())
    }

    /// Formats the calibration as TOML.
    ///
    /// # Errors
    /// [`SpecError`] if it cannot be written as TOML or could not be parsed again.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        self.check()?;
        let text = toml::to_string(self).map_err(|error| SpecError(error.to_string()))?;
        Ok(format!(
            "# Measured by `habitat-tui calibrate`. In catalog/ of the configuration folder these figures\n\
             # replace published ones in every prediction for this GPU; delete the file to undo this.\n{text}"
        ))
    }

    /// Day of the measurement, such as `2026-11-21`.
    pub fn day(&self) -> &str {
        self.date.get(..10).unwrap_or(&self.date)
    }

    /// Copy bandwidth, counting bytes read and written.
    pub fn bandwidth(&self) -> Option<BytesPerSecond> {
        let copy = self.bandwidth.as_ref()?.copy_gbps?;
        Some(BytesPerSecond::known(copy.median * 1e9))
    }

    /// Rate of matrix products of one element type (`fp32`, `tf32`, `bf16`, `fp16`, `fp8`).
    pub fn rate(&self, dtype: &str) -> Option<FlopsPerSecond> {
        let product = self.product.iter().find(|product| product.dtype == dtype)?;
        Some(FlopsPerSecond::known(product.tflops.median * 1e12))
    }

    /// The same calibration with all bandwidths multiplied by `factor`.
    #[must_use]
    pub(crate) fn with_bandwidth_times(mut self, factor: f64) -> Self {
        if let Some(bandwidth) = &mut self.bandwidth {
            let spreads = [&mut bandwidth.copy_gbps, &mut bandwidth.read_gbps, &mut bandwidth.write_gbps];
            for spread in spreads.into_iter().flatten() {
                spread.median *= factor;
                spread.low *= factor;
                spread.high *= factor;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, GpuSpec, Layer};

    fn spread(median: f64) -> Spread {
        Spread { median, low: median * 0.99, high: median * 1.01, regions: 15 }
    }

    fn calibration(gpu: &str) -> Calibration {
        Calibration {
            format: FORMAT.to_owned(),
            version: VERSION,
            gpu: GpuSlug::new(gpu).unwrap(),
            date: "2026-11-21T10:00:00Z".to_owned(),
            program: "habitat-tui 0.1.0".to_owned(),
            left_out: vec!["bf16: why".to_owned()],
            notes: Vec::new(),
            device: CalibratedDevice {
                name: "NVIDIA H100 80GB HBM3".to_owned(),
                compute_capability: "9.0".to_owned(),
                sm_count: 132,
                memory_bytes: 84_929_347_584,
                mig: Some(false),
                ..CalibratedDevice::default()
            },
            bandwidth: Some(MeasuredBandwidth {
                buffer_bytes: 1 << 30,
                copy_gbps: Some(spread(2900.0)),
                ..MeasuredBandwidth::default()
            }),
            launch: Some(MeasuredLaunch { chain_us: Some(spread(2.1)), wait_us: None }),
            product: vec![MeasuredProduct {
                dtype: "bf16".to_owned(),
                shape: "8192x8192x8192".to_owned(),
                software: "cuBLASLt 12.8.4".to_owned(),
                tflops: spread(700.0),
                under_load: Some(UnderLoad {
                    sm_clock_mhz: Some(1755.0),
                    limited_by: vec!["power cap".to_owned()],
                    ..UnderLoad::default()
                }),
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let one = calibration("h100-sxm5-80gb");
        let text = one.to_toml().unwrap();
        assert!(text.contains("[bandwidth]") && text.contains("[[product]]"), "{text}");
        assert_eq!(Calibration::parse(&text).unwrap(), one);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = calibration("h100-sxm5-80gb").to_toml().unwrap();
        let message = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Calibration::parse(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert!(message("version = 1", "version = 2").contains("version 2: this program reads"));
        assert!(message("median = 2900.0", "median = -1.0").starts_with("bandwidth.copy_gbps: median -1"));
        assert!(message("high = 2929.0", "high = 1e300").starts_with("bandwidth.copy_gbps"));
        assert!(message("median = 2900.0", "median = nan").starts_with("bandwidth.copy_gbps"));
        assert!(message("median = 700.0", "median = 1700.0").contains("in this order"));
        assert!(message("\"bf16\"", "\"int8\"").contains("product.dtype: unknown type \"int8\"; known: fp32, tf32"));
        assert!(message("2026-11-21T10", "yesterday").contains("date: \"yesterday"));
        assert!(message("sm_count = 132", "sm_count = 132\nuuid = \"x\"").contains("uuid"));
        assert!(message("NVIDIA H100 80GB HBM3", "\\u001b[31m").contains("control"));
    }

    #[test]
    fn the_newer_of_two_counts() {
        let path = format!("{}/../../catalog/h100-sxm5-80gb.toml", env!("CARGO_MANIFEST_DIR"));
        let shipped = GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
        let mut catalog = Catalog::new([shipped.clone()]);
        catalog.calibrate(calibration("h100-sxm5-80gb")).unwrap();
        let gpu = catalog.find("h100-sxm5-80gb").unwrap();
        assert_eq!(gpu.memory_bandwidth, shipped.memory_bandwidth);
        // The newer one wins, in either order.
        let older = Calibration { date: "2025-01-01T00:00:00Z".to_owned(), ..calibration("h100-sxm5-80gb") };
        catalog.calibrate(older).unwrap();
        assert_eq!(catalog.find("h100-sxm5-80gb").unwrap().calibration.as_ref().unwrap().day(), "2026-11-21");
        assert!(catalog.calibrate(calibration("h900")).unwrap_err().to_string().contains("no GPU \"h900\""));
    }
}
