//! Features of the learned models: ratios that mean the same on every GPU, and the time at full use of the hardware.
//!
//! As in `NeuSight` (Lee et al., ASPLOS 2025), no feature names or describes a GPU. Features are tiles in waves over
//! the multiprocessors, utilisation of the last wave and the edge tiles, intensity over the ridge, bytes over the
//! level-2 cache. Rates come from [`super::rate`].

use super::rate::{ProductRate, Rates};
use habitat_step::op::{Primitive, RowsKind};

/// Operator models, one network ensemble each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorModel {
    /// One matrix product (linear layers).
    Product,
    /// Batched products of one size (attention as products).
    BatchedProduct,
    /// Convolutions.
    Convolution,
    /// Softmax.
    Softmax,
    /// Layer normalisation.
    Normalisation,
    /// Operators that stream memory.
    Stream,
}

impl OperatorModel {
    /// All models.
    pub const ALL: [Self; 6] =
        [Self::Product, Self::BatchedProduct, Self::Convolution, Self::Softmax, Self::Normalisation, Self::Stream];

    /// Name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::BatchedProduct => "batched-product",
            Self::Convolution => "convolution",
            Self::Softmax => "softmax",
            Self::Normalisation => "normalisation",
            Self::Stream => "stream",
        }
    }

    /// Model for a primitive; `None` if a rule predicts it.
    pub fn of(primitive: &Primitive) -> Option<Self> {
        Some(match primitive {
            Primitive::Product { batch, .. } if *batch > 1.0 => Self::BatchedProduct,
            Primitive::Product { .. } => Self::Product,
            Primitive::Convolution { .. } => Self::Convolution,
            Primitive::Rows { kind: RowsKind::Softmax, .. } => Self::Softmax,
            Primitive::Rows { kind: RowsKind::Normalisation, .. } => Self::Normalisation,
            Primitive::Stream { .. } => Self::Stream,
            Primitive::Fused { .. } => return None,
        })
    }

    /// Number of features in a row.
    pub const fn width(self) -> usize {
        match self {
            Self::Product | Self::BatchedProduct => PRODUCT_TILES.len() * 3 + 9,
            Self::Convolution => CONVOLUTION_TILES.len() * 3 + 17,
            Self::Softmax | Self::Normalisation => 8,
            Self::Stream => 3,
        }
    }

    /// Largest utilisation that a network may predict. Values above 1: cached data is faster than memory, and
    /// Winograd's convolutions need as little as a quarter of the arithmetic.
    pub const fn upper(self) -> f32 {
        match self {
            Self::Product | Self::BatchedProduct => 1.15,
            Self::Convolution => 4.0,
            Self::Softmax | Self::Normalisation | Self::Stream => 2.0,
        }
    }
}

impl OperatorModel {
    /// Smallest plausible utilisation. The tables lack streams and row passes that are too short, because the host's
    /// launch hid them. These use at least the bandwidth of the shortest ones measured; their other cost is the launch.
    pub(crate) const fn lower(self) -> f64 {
        match self {
            Self::Product | Self::BatchedProduct | Self::Convolution => 0.0,
            Self::Softmax | Self::Normalisation => 0.2,
            Self::Stream => 0.5,
        }
    }
}

/// Tiles of a result (rows × columns) that libraries compute per block.
const PRODUCT_TILES: [(f64, f64); 5] = [(128.0, 128.0), (128.0, 64.0), (64.0, 128.0), (64.0, 64.0), (32.0, 32.0)];
/// Tiles of convolutions, (output places, output channels).
const CONVOLUTION_TILES: [(f64, f64); 4] = [(128.0, 128.0), (128.0, 64.0), (64.0, 64.0), (128.0, 32.0)];
/// Level-2 cache size if the catalog has none (AMD MI200).
const TYPICAL_L2_BYTES: f64 = 8e6;
/// Time constant, in milliseconds, after which a power-limited GPU keeps half its burst surplus: heat and regulation
/// respond within about a millisecond.
const BURST_MS: f64 = 1.0;

/// Load conditions of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Measured separately with pauses, so that short runs are bursts.
    Alone,
    /// Part of a step that keeps the GPU at its limits.
    Step,
}

/// Features of a primitive on a GPU, and its time at full use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Features {
    values: Values,
    /// Larger of arithmetic and traffic time at full rates, in microseconds.
    pub bound_us: f32,
}

impl Features {
    /// Feature values; their count is [`OperatorModel::width`].
    pub fn values(&self) -> &[f32] {
        &self.values.numbers[..self.values.count]
    }
}

/// Largest number of features.
const WIDEST: usize = OperatorModel::Convolution.width();

/// Feature row stored inline, to avoid allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Values {
    numbers: [f32; WIDEST],
    count: usize,
}

impl Values {
    fn extend<const N: usize>(&mut self, more: [f32; N]) {
        self.numbers[self.count..][..N].copy_from_slice(&more);
        self.count += N;
    }
}

/// Hardware figures that the features use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    multiprocessors: f64,
    l2_bytes: f64,
    bandwidth: f64,
    before_volta: bool,
}

impl Hardware {
    /// Reads the figures of a GPU. `as_trained` ignores a calibrated bandwidth, for training and for GPUs whose own
    /// offset was learned without it.
    pub fn new(rates: &Rates<'_>, as_trained: bool) -> Self {
        let bandwidth = if as_trained { rates.trained_streaming } else { rates.streaming };
        let gpu = rates.gpu;
        Self {
            multiprocessors: f64::from(gpu.sm_count).max(1.0),
            l2_bytes: gpu.l2_cache.map_or(TYPICAL_L2_BYTES, |size| size.get().max(1.0)),
            bandwidth: bandwidth.value.get().max(1.0),
            before_volta: gpu.compute_capability.is_some_and(|capability| capability < (7, 0)),
        }
    }
}

/// log₂, clamped to the range seen in training.
fn log2(value: f64, low: f64, high: f64) -> f32 {
    value.max(f64::MIN_POSITIVE).log2().clamp(low, high) as f32
}

fn flag(yes: bool) -> f32 {
    f32::from(u8::from(yes))
}

fn divides(size: f64, by: f64) -> f32 {
    flag(size % by == 0.0)
}

/// Computes the features of `primitive`; `None` if a rule predicts it ([`OperatorModel::of`]).
pub fn features(
    primitive: &Primitive,
    element_bytes: f64,
    hardware: &Hardware,
    rate: ProductRate,
    load: Load,
) -> Option<Features> {
    let bytes = primitive.moved() * element_bytes;
    let memory_us = bytes / hardware.bandwidth * 1e6;
    let compute_us = primitive.flops() / rate_now(primitive.flops(), rate, load) * 1e6;
    let bound = memory_us.max(compute_us);
    let mut values = Values { numbers: [0.0; WIDEST], count: 0 };
    match *primitive {
        Primitive::Product { batch, rows, columns, reduction } => {
            tiles(&mut values, &PRODUCT_TILES, batch, rows, columns, hardware);
            values.extend([
                log2(compute_us / memory_us, -6.0, 6.0),
                log2(bound, -2.0, 18.0),
                log2(bytes / hardware.l2_bytes, -6.0, 8.0),
                log2(reduction, 3.0, 13.0),
                flag(hardware.before_volta),
                divides(reduction, 4.0),
                divides(columns, 4.0),
                divides(rows, 4.0),
                log2(element_bytes * columns * reduction / hardware.l2_bytes, -8.0, 8.0),
            ]);
        }
        Primitive::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
            let (inside, outside) = (in_channels / groups, out_channels / groups);
            tiles(&mut values, &CONVOLUTION_TILES, groups, batch * out_places, outside, hardware);
            let strided = out_places < 0.6 * in_places;
            values.extend([
                log2(compute_us / memory_us, -6.0, 6.0),
                log2(bound, -2.0, 18.0),
                log2(bytes / hardware.l2_bytes, -6.0, 8.0),
                log2(inside * taps, 0.0, 15.0),
                log2(inside, 0.0, 11.0),
                log2(outside, 0.0, 11.0),
                log2(in_places, 2.0, 18.0),
                log2(batch, 0.0, 8.0),
                flag(taps == 1.0),
                flag(taps == 9.0 && !strided),
                log2(taps, 0.0, 6.0),
                flag(strided),
                flag(hardware.before_volta),
                divides(inside, 4.0),
                divides(outside, 4.0),
                divides(inside, 32.0),
                divides(outside, 32.0),
            ]);
        }
        Primitive::Rows { rows, width, .. } => values.extend([
            log2(bytes / hardware.l2_bytes, -6.0, 8.0),
            log2(bound, -2.0, 16.0),
            log2(rows * width / hardware.multiprocessors, 0.0, 20.0),
            log2(width, 3.0, 14.0),
            log2(rows / hardware.multiprocessors, -5.0, 8.0),
            divides(width, 4.0),
            // A warp keeps a row of up to 1,024 elements in registers, rounded up.
            flag(width <= 1024.0),
            (width / width.log2().ceil().exp2()) as f32,
        ]),
        Primitive::Stream { moved } => values.extend([
            log2(bytes / hardware.l2_bytes, -6.0, 8.0),
            log2(bound, -2.0, 16.0),
            log2(moved / 3.0 / hardware.multiprocessors, 0.0, 20.0),
        ]),
        Primitive::Fused { .. } => return None,
    }
    Some(Features { values, bound_us: bound as f32 })
}

/// Rate of arithmetic in FLOP/s: between burst and sustained, depending on its duration.
fn rate_now(flops: f64, rate: ProductRate, load: Load) -> f64 {
    let (sustained, burst) = (rate.sustained.get(), rate.burst.get());
    match load {
        Load::Step => sustained,
        Load::Alone => {
            let milliseconds = flops / sustained * 1e3;
            sustained + (burst - sustained) / (1.0 + (milliseconds / BURST_MS).sqrt())
        }
    }
}

/// For each tile size: utilisation of waves, utilisation of tiles, and number of waves.
fn tiles(values: &mut Values, sizes: &[(f64, f64)], batch: f64, rows: f64, columns: f64, hardware: &Hardware) {
    for (tile_rows, tile_columns) in sizes {
        let each = (rows / tile_rows).ceil() * (columns / tile_columns).ceil();
        let waves = batch * each / hardware.multiprocessors;
        values.extend([
            (waves / waves.ceil()) as f32,
            (rows * columns / (each * tile_rows * tile_columns)) as f32,
            log2(waves, -7.0, 8.0),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::catalog::{GpuSpec, Layer};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn of(primitive: Primitive, slug: &str, load: Load) -> Features {
        let gpu = spec(slug);
        let rates = Rates::new(&gpu);
        features(&primitive, 4.0, &Hardware::new(&rates, false), rates.trained_fp32, load).unwrap()
    }

    #[test]
    fn every_model_gets_as_many_numbers_as_it_expects() {
        let product = |batch| Primitive::Product { batch, rows: 100.0, columns: 70.0, reduction: 33.0 };
        let convolution = Primitive::Convolution {
            batch: 8.0,
            groups: 1.0,
            in_channels: 64.0,
            out_channels: 64.0,
            taps: 9.0,
            in_places: 3136.0,
            out_places: 3136.0,
        };
        let rows = |kind| Primitive::Rows { kind, rows: 512.0, width: 1000.0, moved: 1e6 };
        for primitive in [
            product(1.0),
            product(4.0),
            convolution,
            rows(RowsKind::Softmax),
            rows(RowsKind::Normalisation),
            Primitive::Stream { moved: 1e6 },
        ] {
            let model = OperatorModel::of(&primitive).unwrap();
            let features = of(primitive, "v100-pcie-32gb", Load::Alone);
            assert_eq!(features.values().len(), model.width(), "{model:?}");
            assert!(features.values().iter().all(|value| value.is_finite()) && features.bound_us > 0.0);
        }
    }

    /// 256 × 256 in tiles of 128: 4 tiles, 4/80 of a wave, all full.
    #[test]
    fn waves_and_fill() {
        let product = Primitive::Product { batch: 1.0, rows: 256.0, columns: 200.0, reduction: 64.0 };
        let features = of(product, "v100-pcie-32gb", Load::Alone);
        let values = features.values();
        assert!((values[0] - 0.05).abs() < 1e-6);
        assert!((values[1] - 200.0 / 256.0).abs() < 1e-6);
        assert!((values[2] - 0.05_f32.log2()).abs() < 1e-5);
    }

    #[test]
    fn a_power_limited_gpu_is_slower_in_a_step_than_alone() {
        let small = Primitive::Product { batch: 1.0, rows: 1024.0, columns: 1024.0, reduction: 1024.0 };
        for (slug, limited) in [("t4", true), ("v100-pcie-32gb", false)] {
            let (alone, step) = (of(small, slug, Load::Alone).bound_us, of(small, slug, Load::Step).bound_us);
            assert_eq!(step > 1.1 * alone, limited, "{slug}: {alone} {step}");
        }
    }
}
