//! The catalog as a table and as JSON.

use serde::Serialize;

use super::table::{Cell, Column, Table};
use habitat_step::catalog::{GpuSpec, Layer};

/// A GPU in `gpus --json`, with units in the names; unknown figures are absent.
#[derive(Debug, Serialize)]
pub struct GpuJson<'a> {
    slug: &'a str,
    name: &'a str,
    vendor: String,
    architecture: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    compute_capability: Option<String>,
    sm_count: u32,
    boost_clock_mhz: f64,
    memory_bytes: f64,
    memory_bandwidth_bytes_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_bandwidth_bytes_per_s: Option<f64>,
    fp32_flops_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tf32_tensor_flops_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fp16_tensor_flops_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bf16_tensor_flops_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fp8_tensor_flops_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    power_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_year: Option<u16>,
    sources: &'a [String],
    unconfirmed: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<&'a str>,
    layer: &'a str,
}

/// Builds the JSON form of one GPU.
pub fn json(gpu: &GpuSpec) -> GpuJson<'_> {
    GpuJson {
        slug: gpu.slug.as_str(),
        name: &gpu.name,
        vendor: gpu.vendor.to_string(),
        architecture: &gpu.architecture,
        compute_capability: gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        sm_count: gpu.sm_count,
        boost_clock_mhz: gpu.boost_clock.get(),
        memory_bytes: gpu.memory.get(),
        memory_bandwidth_bytes_per_s: gpu.memory_bandwidth.get(),
        measured_bandwidth_bytes_per_s: gpu.measured_bandwidth.map(Into::into),
        fp32_flops_per_s: gpu.peak.fp32.get(),
        tf32_tensor_flops_per_s: gpu.peak.tf32_tensor.map(Into::into),
        fp16_tensor_flops_per_s: gpu.peak.fp16_tensor.map(Into::into),
        bf16_tensor_flops_per_s: gpu.peak.bf16_tensor.map(Into::into),
        fp8_tensor_flops_per_s: gpu.peak.fp8_tensor.map(Into::into),
        power_w: gpu.power.map(Into::into),
        launch_year: gpu.launch_year,
        sources: &gpu.sources,
        unconfirmed: &gpu.unconfirmed,
        notes: gpu.notes.as_deref(),
        layer: layer(gpu),
    }
}

fn layer(gpu: &GpuSpec) -> &str {
    match &gpu.layer {
        Layer::Shipped => "shipped",
        Layer::User(path) => path,
    }
}

/// A row for each GPU.
pub fn table<'a>(gpus: impl IntoIterator<Item = &'a GpuSpec>) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "slug"),
        Column::text("name", "name").dropped(6).cut_to(16),
        Column::text("architecture", "architecture").dropped(4),
        Column::number("year", "launch_year").dropped(5),
        Column::number("SMs", "sm_count").dropped(7),
        Column::number("MHz", "boost_clock_mhz").dropped(8),
        Column::number("GB", "memory_gib"),
        Column::number("GB/s", "memory_bandwidth_gbps"),
        Column::number("measured", "measured_bandwidth_gbps").dropped(3),
        Column::number("FP32", "fp32_tflops"),
        Column::number("BF16", "bf16_tensor_tflops_dense"),
        Column::number("W", "power_w"),
        Column::text("unverified", "unconfirmed").dropped(9).cut_to(10),
    ]);
    for gpu in gpus {
        let tera = |rate: habitat_base::units::FlopsPerSecond| {
            Cell::new(format!("{:.1}", rate.get() / 1e12), rate.get() / 1e12)
        };
        let giga =
            |rate: habitat_base::units::BytesPerSecond| Cell::new(format!("{:.0}", rate.get() / 1e9), rate.get() / 1e9);
        table.push(vec![
            Cell::text(&gpu.slug),
            Cell::text(&gpu.name),
            Cell::text(&gpu.architecture),
            Cell::maybe(gpu.launch_year, Cell::text),
            Cell::text(gpu.sm_count),
            Cell::new(format!("{:.0}", gpu.boost_clock.get()), gpu.boost_clock.get()),
            Cell::new(format!("{:.0}", gpu.memory_gib()), gpu.memory_gib()),
            giga(gpu.memory_bandwidth),
            Cell::maybe(gpu.measured_bandwidth, giga),
            tera(gpu.peak.fp32),
            Cell::maybe(gpu.peak.bf16_tensor, tera),
            Cell::maybe(gpu.power, |watts| Cell::new(format!("{:.0}", watts.get()), watts.get())),
            Cell::new(if gpu.is_doubtful() { "some figures" } else { "" }, gpu.unconfirmed.join("; ")),
        ]);
    }
    table
}
