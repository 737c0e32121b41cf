//! Device work of a convolution: its products or sums, and copies for kernels that need another memory layout.

use super::demand::{CHUNK, Demand, TILE, Terms, Units, traffic};
use super::limits::{below, is};
use super::table::{Arithmetic, ConvolutionKind, CopyReason, DepthwiseKernel, Gradient, Term};
use crate::decoded::Decoded;
use habitat_step::op::Sizes;
use habitat_step::profile::DType;

/// Channels below which a first-layer convolution is thin.
const THIN: f64 = 8.0;
/// Channels per group for which cuDNN has channels-last kernels. For other widths it copies input and output into a
/// supported layout, at 0.15 to 0.2 TB/s on an H100 as on an H200 (`models/lab/samples/recorded`: `ResNeXt` and DPN-107
/// have kernels, `RegNet`, `Visformer` and DPN-92 do not).
pub const GROUP_CHANNELS: [f64; 4] = [4.0, 8.0, 16.0, 32.0];
/// Taps of the largest filter with depthwise kernels.
pub const MOST_TAPS: f64 = 49.0;

/// Work of one pass of a depthwise convolution. Its kernels take a fixed number of cycles of a multiprocessor per
/// element of the result (of the input, for its gradient), which depends on filter, layout and type and is equal on an
/// H100 and an H200. At the boost clock, forward passes take 0.5, 1.1 and 2.4 cycles for 9, 25 and 49 taps in
/// channels-last layout (up to 3 times as many for small images). `PyTorch`'s own kernels take 2.5 and 4.5 for 9 and 25
/// taps; it uses them in channels-first layout except for FP16 at stride 1
/// (`python models/lab/steps/recorded.py --show models/lab/samples/recorded` prints these figures).
fn depthwise(
    decoded: &Decoded<'_>,
    [batch, _, in_channels, out_channels, taps, in_places, out_places]: [f64; 7],
    gradient: Option<Gradient>,
    channels_last: bool,
    plain: &dyn Fn(Terms, f64) -> Demand,
) -> Demand {
    let elements =
        batch * if gradient == Some(Gradient::Data) { in_channels * in_places } else { out_channels * out_places };
    let strided = out_places < 0.6 * in_places;
    let wide = matches!(decoded.dtype, None | Some(DType::Float32));
    let is_native = !channels_last && (strided || decoded.dtype != Some(DType::Float16));
    // Filters without a kernel in cuDNN.
    let is_foreign =
        channels_last && (taps > MOST_TAPS || taps == MOST_TAPS && wide && gradient == Some(Gradient::Weight));
    let mut terms = Terms::default();
    terms.memory(Term::DepthwiseTraffic, 1.0);
    terms.memory.extend(gradient.map(|gradient| (Term::DepthwiseGradient(gradient), 1.0)));
    terms.memory(Term::Convolution, 1.0);
    terms.memory.extend(gradient.map(|gradient| (Term::ConvolutionGradient(gradient), 1.0)));
    terms.memory(Term::DepthwiseStrided, is(strided));
    terms.compute(Term::DepthwiseElements, 1.0);
    terms.compute.extend(gradient.map(|gradient| (Term::DepthwiseElementsGradient(gradient), 1.0)));
    let size = (taps / 9.0).log2();
    for (kernel, amount) in [
        (DepthwiseKernel::Native, is(is_native)),
        (DepthwiseKernel::ChannelsFirst, is(!channels_last && !is_native)),
        (DepthwiseKernel::Wide, is(wide && !is_native)),
        (DepthwiseKernel::NoKernel, is(is_foreign)),
        (DepthwiseKernel::Taps, size),
        (DepthwiseKernel::NativeTaps, if is_native { size } else { 0.0 }),
    ] {
        terms.compute(Term::DepthwiseKernel(kernel), amount);
        if let Some(gradient) = gradient.filter(|gradient| differs(*gradient, kernel)) {
            terms.compute(Term::DepthwiseKernelGradient(gradient, kernel), amount);
        }
    }
    Demand { flops: elements, units: Units::Cycles, ..plain(terms, 0.0) }
}

/// Whether a gradient depends on a kernel in another way than the forward pass.
const fn differs(gradient: Gradient, kernel: DepthwiseKernel) -> bool {
    use DepthwiseKernel::{NativeTaps, NoKernel, Taps};
    matches!(kernel, NoKernel) || matches!(kernel, Taps | NativeTaps) == matches!(gradient, Gradient::Data)
}

/// Terms of a kind of convolution that count for arithmetic and memory.
fn of_kind(kind: ConvolutionKind, gradient: Option<Gradient>, is_channels_first: bool) -> Vec<Term> {
    let mut both = vec![Term::Kind(kind), Term::Convolution];
    if let Some(gradient) = gradient {
        both.extend([Term::ConvolutionGradient(gradient), Term::KindGradient(kind, gradient)]);
    }
    if is_channels_first && kind != ConvolutionKind::Dense {
        both.push(Term::KindChannelsFirst(kind));
        let gradient = gradient.filter(|_| kind != ConvolutionKind::Thin);
        both.extend(gradient.map(|gradient| Term::GradientChannelsFirst(kind, gradient)));
    }
    both
}

/// Parts of a convolution, or of one gradient.
pub(super) fn convolution(
    decoded: &Decoded<'_>,
    [batch, groups, in_channels, out_channels, taps, in_places, out_places]: [f64; 7],
    gradient: Option<Gradient>,
    arithmetic: Option<Arithmetic>,
    element_bytes: f64,
    plain: &dyn Fn(Terms, f64) -> Demand,
) -> Vec<Demand> {
    let (inside, outside) = (in_channels / groups, out_channels / groups);
    let channels_last = matches!(&decoded.op.sizes, Some(Sizes::Convolution(convolution)) if convolution.channels_last);
    // Without matrix units, libraries work in channels-first layout. For 16-bit types and TF32, GPUs without matrix
    // units are not distinguished here.
    let by_matrix_units = arithmetic != Some(Arithmetic::Fp32);
    let (is_first, is_last) = (by_matrix_units && !channels_last, by_matrix_units && channels_last);
    if groups > 1.0 && inside == 1.0 && outside <= 2.0 {
        let sizes = [batch, groups, in_channels, out_channels, taps, in_places, out_places];
        return vec![depthwise(decoded, sizes, gradient, channels_last, plain)];
    }
    let kind = match () {
        () if groups > 1.0 => ConvolutionKind::Grouped,
        () if inside.min(outside) < THIN => ConvolutionKind::Thin,
        () if taps == 1.0 => ConvolutionKind::Pointwise,
        () => ConvolutionKind::Dense,
    };
    let mut terms = Terms::of(of_kind(kind, gradient, is_first));
    let strided = out_places < 0.6 * in_places;
    if let Some(arithmetic) = arithmetic {
        terms.compute(Term::KindArithmetic(kind, arithmetic), 1.0);
    }
    let (sums, is_weight) = (inside * taps, gradient == Some(Gradient::Weight));
    terms.compute(Term::ConvolutionShortSums, if is_weight { 0.0 } else { below(2.0 * TILE, sums) });
    if kind == ConvolutionKind::Grouped {
        terms.compute(Term::GroupNarrow, below(TILE, outside));
        terms.compute(Term::GroupWidth, below(64.0, inside));
        if is_first {
            terms.compute(Term::GroupWidthChannelsFirst, below(64.0, inside));
        }
    }
    let is_odd = |channels: f64| channels % 8.0 != 0.0;
    // In channels-last layout, single-tap layers are products, which have kernels for any row length.
    let is_half = matches!(decoded.dtype, Some(DType::Float16 | DType::Bfloat16));
    let is_product = is_last && kind == ConvolutionKind::Pointwise;
    let is_unaligned = is_product && is_half && (inside % 2.0 != 0.0 || outside % 2.0 != 0.0);
    let odd = !is_unaligned && (is_odd(inside) || is_odd(outside));
    terms.compute(Term::ConvolutionOdd, is(odd));
    terms.compute(Term::ConvolutionStrided, is(strided));
    let across = (outside / TILE).ceil() * groups;
    let places = batch * out_places;
    let tiles = if is_weight {
        (sums / TILE).ceil() * across * (places / CHUNK).max(1.0)
    } else {
        (places / TILE).ceil() * across
    };
    let mut own = plain(terms, tiles);
    (own.limits.is_vector_convolution, own.limits.gradient) = (!by_matrix_units, gradient);
    if is_unaligned {
        own.limits.unaligned = own.flops;
    }
    // Kernels of matrix units need channels-last tensors whose width they can load at once. Input and output are copied
    // if the layout is wrong; if only the width is wrong, only tensors of that width are copied.
    let is_copied = match kind {
        ConvolutionKind::Grouped => is_first || is_last && !GROUP_CHANNELS.contains(&inside),
        ConvolutionKind::Dense => is_first || is_last && odd,
        ConvolutionKind::Thin => is_last && odd,
        ConvolutionKind::Pointwise => false,
    };
    let is_whole = is_first || kind == ConvolutionKind::Grouped;
    let moved = |channels: f64, places: f64| if is_whole || is_odd(channels) { batch * channels * places } else { 0.0 };
    let elements = moved(in_channels, in_places) + moved(out_channels, out_places);
    let copies = is_copied.then(|| {
        let reason = if is_first { CopyReason::Layout } else { CopyReason::Width };
        let mut copies = traffic(2.0 * elements * element_bytes, own.times, Term::KindChannelsFirst(kind));
        (copies.flops, copies.units) = (elements, Units::Cycles);
        copies.compute.push((Term::CopiedElements(kind, reason), 1.0));
        let of_gradient = gradient.map(|gradient| (Term::CopiedElementsGradient(kind, reason, gradient), 1.0));
        copies.compute.extend(of_gradient);
        copies
    });
    std::iter::once(own).chain(copies).collect()
}
