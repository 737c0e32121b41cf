//! Limits that slow arithmetic more on some GPUs than on others.

use super::table::{Gradient, Term};
use habitat_step::catalog::GpuSpec;

/// Amounts of a part that slow its arithmetic more on some GPUs than on others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Tiles of the result, which the multiprocessors share; 0 if irrelevant.
    pub tiles: f64,
    /// Exponentials, which the special function units compute.
    pub exponentials: f64,
    /// Whether its kernel was written for the tensor cores of Ampere.
    pub is_for_ampere: bool,
    /// Floating-point operations by kernels for any alignment; 0 if faster kernels apply.
    pub unaligned: f64,
    /// Channels, for kernels that give each channel to one block; otherwise 0.
    pub channels: f64,
    /// Whether it is an FP32 convolution on the vector units.
    pub is_vector_convolution: bool,
    /// Gradient that such a convolution computes.
    pub gradient: Option<Gradient>,
}

/// GPU-dependent terms of arithmetic, in the order of [`Limits::on`].
pub const ON_GPU: [Term; 9] = [
    Term::FewTiles,
    Term::Exponentials,
    Term::AttentionTiles,
    Term::ForAmpere,
    Term::Unaligned,
    Term::FewChannels,
    Term::FromHopper,
    Term::GradientFromHopper(Gradient::Data),
    Term::GradientFromHopper(Gradient::Weight),
];
/// Floating-point operations per cycle and multiprocessor of kernels for any alignment, which load single elements: 220
/// and 290 on an H100, of 4,096 (products of 5,185 × 5,185 × 64 in a public trace of `OWLv2`); 256 without tensor
/// cores.
const UNALIGNED_A_CYCLE: f64 = 256.0;
/// Results of the special function units per cycle and multiprocessor (CUDA C++ Programming Guide, "Throughput of
/// Native Arithmetic Instructions"), and twice as many for Blackwell Ultra.
const SPECIAL_A_CYCLE: [f64; 2] = [16.0, 32.0];
/// Overhead of an attention tile on a multiprocessor beside products and exponentials, in microseconds. Chosen so that
/// [`Term::AttentionTiles`] is near 1 for the attention of `models/lab/steps/serving.py` (sequences of 1,024 to 16,384 on nine GPUs);
/// 2 to 8 work as well, with another factor.
const TILE_US: f64 = 3.0;

impl Limits {
    /// Amount of each term of [`ON_GPU`], for arithmetic that takes `compute_us` at the full rate:
    /// - few tiles: shortfall of tiles against multiprocessors, in powers of two;
    /// - exponentials: logarithm of the growth in time, where exponentials overlap products as traffic overlaps
    ///   arithmetic;
    /// - tiles: logarithm of the growth in time with 3 µs more per tile;
    /// - Ampere kernels: 1 on data-centre GPUs from Hopper on, whose full rate needs other instructions;
    /// - alignment: logarithm of the slowdown of kernels for any alignment;
    /// - few channels: shortfall of channels against multiprocessors, in powers of two;
    /// - FP32 convolutions from Hopper on: 1, and again for either gradient.
    ///
    /// On those GPUs, the kernels of `models/lab/samples/recorded` show that cuDNN 9 uses implicit products for Ampere
    /// and Fourier transforms, and Winograd's method only for some weight gradients. On an H100 they reach 15 to 40
    /// TFLOP/s of the 51 that products reach; weight gradients are slowest. On an A100, cuDNN 8 also used Winograd
    /// kernels forward, and convolutions reached nearly the same share of the peak as on a V100 (`NeuSight`'s `conv2d`
    /// table).
    pub fn on(self, gpu: &GpuSpec, compute_us: f64) -> [f64; 9] {
        let few = if self.tiles > 0.0 { below(f64::from(gpu.sm_count), self.tiles) } else { 0.0 };
        let a_cycle = SPECIAL_A_CYCLE[usize::from(gpu.compute_capability == Some((10, 3)))];
        let cycles_a_us = f64::from(gpu.sm_count) * gpu.boost_clock.get();
        let rate = a_cycle * cycles_a_us;
        let share = |us: f64| if self.exponentials > 0.0 { us / compute_us } else { 0.0 };
        let is_later = matches!(gpu.compute_capability, Some((9..=11, _)));
        let is_from_hopper = matches!(gpu.compute_capability, Some((9.., _)));
        let is_slow = self.is_vector_convolution && is_from_hopper;
        let tiles = TILE_US * self.tiles / f64::from(gpu.sm_count);
        let unaligned = self.unaligned / (UNALIGNED_A_CYCLE * cycles_a_us);
        [
            few,
            share(self.exponentials / rate).hypot(1.0).ln(),
            share(tiles).ln_1p(),
            is(self.is_for_ampere && is_later),
            if unaligned > compute_us { (unaligned / compute_us).ln() } else { 0.0 },
            if self.channels > 0.0 { below(f64::from(gpu.sm_count), self.channels) } else { 0.0 },
            is(is_slow),
            is(is_slow && self.gradient == Some(Gradient::Data)),
            is(is_slow && self.gradient == Some(Gradient::Weight)),
        ]
    }
}

/// Shortfall of `value` below `limit`, in powers of two.
pub(super) fn below(limit: f64, value: f64) -> f64 {
    (limit / value.max(1.0)).log2().max(0.0)
}

/// Amount of a term that applies or does not.
pub(super) fn is(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}
