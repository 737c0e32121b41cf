//! What slows arithmetic on some GPUs more than on others.

use habitat_step::catalog::GpuSpec;

/// What slows arithmetic on some GPUs more than on others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Tiles of the result, which the multiprocessors share; 0 where that does not matter.
    pub tiles: f64,
    /// Powers of e, which the special function units form.
    pub exponentials: f64,
    /// Whether its kernel was written for the tensor cores of the Ampere generation.
    pub is_for_ampere: bool,
    /// Floating-point operations that kernels for any alignment do; 0 where others can.
    pub unaligned: f64,
    /// Channels that blocks take one by one, of kernels that do; else 0.
    pub channels: f64,
    /// What a convolution on the vector units does in FP32.
    pub vector_convolution: Option<ConvolutionPass>,
}

/// What a convolution computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvolutionPass {
    /// Its result.
    Forward,
    /// The gradient of what comes in.
    Data,
    /// The gradient of its weight.
    Weight,
}

/// Terms of arithmetic that hang on the GPU too, in the order of [`Limits::on`].
pub const ON_GPU: [&str; 9] = [
    "few tiles",
    EXPONENTIALS,
    TILES,
    FOR_AMPERE,
    UNALIGNED,
    FEW_CHANNELS,
    "convolution, fp32, from Hopper on",
    "convolution, fp32, data, from Hopper on",
    "convolution, fp32, weight, from Hopper on",
];
/// The term of attention whose softmax takes long beside its products.
pub const EXPONENTIALS: &str = "attention, exponentials";
/// The term of attention whose tiles of queries take long to begin and to end.
pub const TILES: &str = "attention, tiles";
/// The term of attention by kernels that were written for the tensor cores of Ampere.
pub const FOR_AMPERE: &str = "attention, for Ampere";
/// The term of products in 16 bits whose rows have odd lengths, and so do not begin at even addresses.
pub const UNALIGNED: &str = "product, unaligned";
/// The term of batch norms with fewer channels than multiprocessors, in channels-first order: PyTorch's kernels and those
/// of cuDNN give a block to each channel, so that the others idle (`aten/src/ATen/native/cuda/Normalization.cuh`).
pub const FEW_CHANNELS: &str = "batch norm, few channels";
/// Floating-point operations a cycle and multiprocessor of kernels for any alignment, which load number by number: 220
/// and 290 on an H100, of 4,096 (products of 5,185 × 5,185 × 64 in a public trace of `OWLv2`); 256 without tensor
/// cores.
const UNALIGNED_A_CYCLE: f64 = 256.0;
/// Results of the special function units a cycle and multiprocessor (CUDA C++ Programming Guide, "Throughput of
/// Native Arithmetic Instructions"), and of those of Blackwell Ultra, which has twice as many.
const SPECIAL_A_CYCLE: [f64; 2] = [16.0, 32.0];
/// What a tile of attention takes on a multiprocessor beside its products and exponentials, in microseconds.
/// Chosen so that [`TILES`] is near 1 for the attention of `models/lab/steps/serving.py`, sequences of 1,024 to
/// 16,384 on nine GPUs; 2 to 8 serve as well, with another factor.
const TILE_US: f64 = 3.0;

impl Limits {
    /// How much there is of each of [`ON_GPU`] beside arithmetic that takes so long at the full rate: how many
    /// fewer tiles than multiprocessors there are, in powers of two; the logarithm of what the time grows by with
    /// exponentials, which hide behind the products as traffic does behind arithmetic, and with 3 µs more
    /// for each tile; 1 where a kernel for the tensor cores of Ampere reaches only a part of the rate, which it
    /// does on data-centre GPUs from Hopper on, whose full rate needs other instructions; the logarithm of how
    /// many times as long kernels for any alignment take; how many fewer channels than multiprocessors there are, in
    /// powers of two; and 1 for a convolution in FP32, and again for either gradient, on GPUs from Hopper on. By the kernels of
    /// `models/lab/samples/recorded`, cuDNN 9 takes implicit products for Ampere and Fourier transforms there, and Winograd's
    /// method only for some gradients of weights: on an H100 they reach 15 to 40 TFLOP/s of the 51 that products do, the
    /// weights' gradients least. On an A100 cuDNN 8 took Winograd's kernels forward too, and convolutions reached nearly as
    /// much of the peak as on a V100 (`NeuSight`'s `conv2d` table).
    pub fn on(self, gpu: &GpuSpec, compute_us: f64) -> [f64; 9] {
        let few = if self.tiles > 0.0 { below(f64::from(gpu.sm_count), self.tiles) } else { 0.0 };
        let a_cycle = SPECIAL_A_CYCLE[usize::from(gpu.compute_capability == Some((10, 3)))];
        let cycles_a_us = f64::from(gpu.sm_count) * gpu.boost_clock.get();
        let rate = a_cycle * cycles_a_us;
        let share = |us: f64| if self.exponentials > 0.0 { us / compute_us } else { 0.0 };
        let is_later = matches!(gpu.compute_capability, Some((9..=11, _)));
        let is_from_hopper = matches!(gpu.compute_capability, Some((9.., _)));
        let pass = self.vector_convolution.filter(|_| is_from_hopper);
        let is = |holds: bool| f64::from(u8::from(holds));
        let tiles = TILE_US * self.tiles / f64::from(gpu.sm_count);
        let unaligned = self.unaligned / (UNALIGNED_A_CYCLE * cycles_a_us);
        [
            few,
            share(self.exponentials / rate).hypot(1.0).ln(),
            share(tiles).ln_1p(),
            is(self.is_for_ampere && is_later),
            if unaligned > compute_us { (unaligned / compute_us).ln() } else { 0.0 },
            if self.channels > 0.0 { below(f64::from(gpu.sm_count), self.channels) } else { 0.0 },
            is(pass.is_some()),
            is(pass == Some(ConvolutionPass::Data)),
            is(pass == Some(ConvolutionPass::Weight)),
        ]
    }
}

/// How far `value` is below `limit`, in powers of two.
pub(super) fn below(limit: f64, value: f64) -> f64 {
    (limit / value.max(1.0)).log2().max(0.0)
}
