//! Measured figures of a GPU next to those of the catalog.

use std::io::{self, Write};

use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Table};
use habitat_step::catalog::GpuSpec;
use habitat_step::catalog::calibration::{Calibration, Spread, UnderLoad};

/// Output of `calibrate --json`: the content of the file and the catalog's figures.
#[derive(Debug, Serialize)]
pub struct CalibrationJson<'a> {
    #[serde(flatten)]
    calibration: &'a Calibration,
    /// The catalog's figures without this calibration.
    catalog: Vec<CatalogFigure>,
}

/// A measured figure and the catalog's.
#[derive(Debug, Serialize)]
struct CatalogFigure {
    figure: &'static str,
    unit: &'static str,
    measured: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nominal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<f64>,
}

/// Builds the JSON form. `gpu` is the catalog's entry without calibration.
pub fn json<'a>(calibration: &'a Calibration, gpu: &GpuSpec) -> CalibrationJson<'a> {
    let catalog = rows(calibration, gpu)
        .into_iter()
        .map(|row| CatalogFigure {
            figure: row.key,
            unit: row.unit,
            measured: row.spread.median,
            nominal: row.nominal,
            published: row.published,
        })
        .collect();
    CalibrationJson { calibration, catalog }
}

struct Row<'a> {
    key: &'static str,
    name: String,
    unit: &'static str,
    spread: Spread,
    nominal: Option<f64>,
    published: Option<f64>,
    load: Option<&'a UnderLoad>,
}

fn rows<'a>(calibration: &'a Calibration, gpu: &GpuSpec) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let mut add = |row: Row<'a>| rows.push(row);
    if let Some(bandwidth) = &calibration.bandwidth {
        let nominal = Some(gpu.memory_bandwidth.get() / 1e9);
        let published = gpu.published_bandwidth().map(|published| published.get() / 1e9);
        for (key, name, spread, published) in [
            ("copy_gbps", "copy (read and written)", bandwidth.copy_gbps, published),
            ("read_gbps", "read", bandwidth.read_gbps, None),
            ("write_gbps", "write", bandwidth.write_gbps, None),
        ] {
            let Some(spread) = spread else { continue };
            add(Row { key, name: name.to_owned(), unit: "GB/s", spread, nominal, published, load: None });
        }
    }
    for product in &calibration.product {
        let (key, nominal) = match product.dtype.as_str() {
            "fp32" => ("fp32_tflops", Some(gpu.peak.fp32)),
            "tf32" => ("tf32_tflops", gpu.peak.tf32_tensor),
            "bf16" => ("bf16_tflops", gpu.peak.bf16_tensor),
            "fp16" => ("fp16_tflops", gpu.peak.fp16_tensor),
            _ => ("fp8_tflops", gpu.peak.fp8_tensor),
        };
        add(Row {
            key,
            name: format!("{} products, {}", product.dtype, product.shape),
            unit: "TFLOP/s",
            spread: product.tflops,
            nominal: nominal.map(|rate| rate.get() / 1e12),
            published: gpu.fastest_published(&product.dtype).map(|rate| rate.get() / 1e12),
            load: product.under_load.as_ref(),
        });
    }
    if let Some(launch) = &calibration.launch {
        for (key, name, spread) in [
            ("launch_chain_us", "launch, in a chain", launch.chain_us),
            ("launch_wait_us", "launch and wait", launch.wait_us),
        ] {
            let Some(spread) = spread else { continue };
            add(Row { key, name: name.to_owned(), unit: "µs", spread, nominal: None, published: None, load: None });
        }
    }
    rows
}

/// A row for each figure, with the catalog's figures.
pub(crate) fn table(calibration: &Calibration, gpu: &GpuSpec) -> Table {
    let mut table = Table::new(&[
        Column::text("figure", "figure"),
        Column::number("measured", "median"),
        Column::text("", "unit"),
        Column::number("10 % to 90 %", "low"),
        Column::number("", "high"),
        Column::number("nominal", "nominal"),
        Column::number("% of nominal", "ratio"),
        Column::number("published", "published"),
        Column::text("under load", "under_load"),
    ]);
    for row in rows(calibration, gpu) {
        let number = |value: f64| Cell::new(format!("{value:.*}", digits(value)), value);
        let Spread { median, low, high, .. } = row.spread;
        let places = digits(median).max(1);
        table.push(vec![
            Cell::new(row.name, row.key),
            Cell::new(format!("{median:.places$} {}", row.unit), median),
            Cell::text(row.unit),
            Cell::new(format::low_high(format!("{low:.places$}"), format!("{high:.places$}")), low),
            Cell::text(high),
            Cell::maybe(row.nominal, number),
            Cell::maybe(row.nominal, |nominal| {
                Cell::new(format!("{:.0} %", median / nominal * 100.0), median / nominal)
            }),
            Cell::maybe(row.published, number),
            Cell::maybe(row.load, |load| Cell::text(state(load))),
        ]);
    }
    table
}

/// Number of decimals to show.
fn digits(value: f64) -> usize {
    match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    }
}

fn state(load: &UnderLoad) -> String {
    let number = |value: Option<f64>, unit: &str| value.map(|value| format!("{value:.0} {unit}"));
    let mut parts: Vec<String> =
        [number(load.sm_clock_mhz, "MHz"), number(load.power_w, "W"), number(load.temperature_c, "°C")]
            .into_iter()
            .flatten()
            .collect();
    if !load.limited_by.is_empty() {
        parts.push(format!("limited by {}", load.limited_by.join(", ")));
    }
    parts.join(", ")
}

/// Writes the device, the table, the omitted measurements and the notes as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(calibration: &Calibration, gpu: &GpuSpec, out: &mut dyn Write) -> io::Result<()> {
    let device = &calibration.device;
    let mut facts = vec![
        format!("compute capability {}", device.compute_capability),
        format!("{} SMs", device.sm_count),
        format!("{:.1} GiB", device.memory_bytes as f64 / f64::from(1 << 30)),
    ];
    let mut add = |name: &str, value: Option<String>| facts.extend(value.map(|value| format!("{name} {value}")));
    add("driver", device.driver.clone());
    add("CUDA", device.cuda.clone());
    add("up to", device.sm_clock_max_mhz.map(|clock| format!("{clock:.0} MHz")));
    add("memory", device.memory_clock_max_mhz.map(|clock| format!("{clock:.0} MHz")));
    let default = device.power_limit_default_w.filter(|&watts| Some(watts) != device.power_limit_w);
    let default = default.map_or_else(String::new, |watts| format!(" (default {watts:.0} W)"));
    add("power limit", device.power_limit_w.map(|watts| format!("{watts:.0} W{default}")));
    add("PCIe", device.pcie_generation.map(|generation| generation.to_string()));
    add("lanes", device.pcie_lanes.map(|lanes| lanes.to_string()));
    add("ECC", device.ecc.map(|on| if on { "on" } else { "off" }.to_owned()));
    writeln!(out, "{}, in the catalog {}: {}\n", device.name, gpu.slug, facts.join(", "))?;
    table(calibration, gpu).write_text(out)?;
    if !calibration.left_out.is_empty() || !calibration.notes.is_empty() {
        writeln!(out)?;
    }
    for line in &calibration.left_out {
        writeln!(out, "omitted: {line}")?;
    }
    for line in &calibration.notes {
        writeln!(out, "note: {line}")?;
    }
    Ok(())
}
