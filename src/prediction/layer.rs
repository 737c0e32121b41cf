//! Layer as input of the regressions: its kind, and the sizes that times are linear in.

use std::fmt;

use serde::{Deserialize, Serialize};

use habitat_step::op::{
    Family, Name, Part, Primitive, Work, arithmetic, element_type, family, name, parts, volume, work,
};
use habitat_step::profile::{DType, Operation, Phase, Precision};

/// Single matrix products.
pub(crate) const PRODUCT: &str = "mm";
/// Batched matrix products.
const BATCHED_PRODUCT: &str = "bmm";
/// Convolutions.
pub(crate) const CONVOLUTION: &str = "convolution";
/// Convolutions with groups.
const GROUPED_CONVOLUTION: &str = "grouped convolution";
/// Suffix of kinds in the backward phase.
const BACKWARD: &str = " backward";
/// Suffix of gradient accumulation.
const ACCUMULATION: &str = " accumulation";
/// Common kind of all layers that stream memory.
pub const STREAMING: &str = "streaming";

/// Quantity that the time of a kernel is linear in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Elements of the layer's inputs.
    Input,
    /// The layer's floating-point operations.
    Operations,
    /// Elements of the layer's result.
    Output,
    /// Minimum bytes that the layer moves. Not in the paper.
    Bytes,
    /// Operations including those on partial tiles; the tile size is from the kernel's name. Not in the paper.
    Tiles([u32; 2]),
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.pad("input"),
            Self::Operations => f.pad("operations"),
            Self::Output => f.pad("output"),
            Self::Bytes => f.pad("bytes"),
            Self::Tiles([down, across]) => f.pad(&format!("operations on tiles of {down} × {across}")),
        }
    }
}

/// Operator call with its kind and the sizes of a single occurrence.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Operator without its name space, with one name each for products and convolutions. The phase is added if it
    /// changes the kernel, the element type if it is not FP32.
    pub kind: String,
    /// Elements of all inputs.
    pub input: f64,
    /// Floating-point operations; for operators that only move data, the elements written.
    pub operations: f64,
    /// Elements of the result.
    pub output: f64,
    /// Minimum bytes read and written.
    pub bytes: f64,
    /// Sizes by which libraries choose a kernel. Product: batch, rows, reduction and columns. Convolution: images,
    /// channels, taps and places. Others: rows, width and the number of full-size tensors.
    pub shape: Vec<f64>,
    /// Extents of the product, from which the operations on whole tiles follow.
    covered: Option<Covered>,
    /// Whether it streams memory.
    pub is_streaming: bool,
}

/// Extents of a product, which kernels compute tile by tile.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Covered {
    batch: f64,
    rows: f64,
    columns: f64,
    reduction: f64,
}

/// Operator call as input of the linear models.
#[derive(Debug, Clone, PartialEq)]
pub struct Layers {
    /// Layer of one occurrence; `None` for views, communication and without usable shapes.
    pub whole: Option<Layer>,
    /// Products and convolutions that a composite operator consists of (backward of a convolution, a recurrent layer),
    /// with their repetitions; streams among them as [`STREAMING`]. Empty if it has only one piece.
    pub pieces: Vec<(Layer, f64)>,
}

impl Layers {
    /// Builds the layer of a decoded operation from its family, work and parts.
    pub(crate) fn new(
        operation: &Operation,
        precision: Option<Precision>,
        family: Family,
        work: Option<Work>,
        parts: &[Part],
    ) -> Self {
        let suffix = suffix(operation, family, precision);
        Self { whole: Layer::new(operation, &suffix, family, work, parts), pieces: Layer::pieces(&suffix, parts) }
    }

    /// Decodes an operation and builds its layer.
    pub fn of(operation: &Operation, precision: Option<Precision>) -> Self {
        let (work, parts) = (work(operation, precision), parts(operation, precision));
        Self::new(operation, precision, family(operation), work, &parts)
    }
}

impl Layer {
    /// Layer of one occurrence; `None` for views, communication and without usable shapes.
    pub fn of(operation: &Operation, precision: Option<Precision>) -> Option<Self> {
        Layers::of(operation, precision).whole
    }

    fn new(operation: &Operation, suffix: &str, family: Family, work: Option<Work>, parts: &[Part]) -> Option<Self> {
        if matches!(family, Family::View | Family::Communication) {
            return None;
        }
        let counted = work?;
        let tensors = |shapes: &[Vec<u64>]| shapes.iter().map(volume).sum::<f64>();
        let largest = operation.inputs.iter().map(volume).fold(0.0, f64::max);
        if let [part] = parts
            && part.times == 1.0
            && let Some(layer) = Self::of_primitive(&part.primitive, part.element_bytes, suffix)
        {
            return Some(layer);
        }
        let output = if operation.outputs.is_empty() { largest } else { tensors(&operation.outputs) };
        let input = tensors(&operation.inputs);
        let width = operation
            .inputs
            .iter()
            .max_by(|a, b| volume(a).total_cmp(&volume(b)))
            .and_then(|shape| shape.last())
            .map_or(1.0, |&width| width as f64);
        // Adding a number, or a row to each row, runs other kernels than adding two tensors.
        let full = operation.inputs.iter().filter(|shape| volume(shape) == largest).count().max(1) as f64;
        let layer = Self {
            kind: kind(operation, suffix),
            input,
            operations: counted.flops.get().max(output),
            output,
            bytes: counted.bytes.get(),
            shape: vec![largest.max(output) / width, width, full],
            covered: None,
            is_streaming: !family.varies_kernels(),
        };
        layer.is_sound().then_some(layer)
    }

    /// Product or convolution, independent of the operator's name; `None` for others.
    fn of_primitive(primitive: &Primitive, element_bytes: f64, suffix: &str) -> Option<Self> {
        let (kind, input, output, shape, covered) = match *primitive {
            Primitive::Product { batch, rows, columns, reduction } => {
                let kind = if batch > 1.0 { BATCHED_PRODUCT } else { PRODUCT };
                let input = batch * (rows * reduction + reduction * columns);
                let shape = vec![batch, rows, reduction, columns];
                (kind, input, batch * rows * columns, shape, Some(Covered { batch, rows, columns, reduction }))
            }
            Primitive::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
                let kind = if groups > 1.0 { GROUPED_CONVOLUTION } else { CONVOLUTION };
                let input = batch * in_channels * in_places + out_channels * taps * in_channels / groups;
                let shape = vec![batch, in_channels, out_channels, taps, in_places, out_places];
                (kind, input, batch * out_channels * out_places, shape, None)
            }
            Primitive::Rows { .. } | Primitive::Stream { .. } | Primitive::Fused { .. } => return None,
        };
        let layer = Self {
            kind: format!("{kind}{suffix}"),
            input,
            operations: primitive.flops(),
            output,
            bytes: primitive.moved() * element_bytes,
            shape,
            covered,
            is_streaming: false,
        };
        layer.is_sound().then_some(layer)
    }

    fn pieces(suffix: &str, parts: &[Part]) -> Vec<(Self, f64)> {
        if let [only] = parts
            && only.times == 1.0
        {
            return Vec::new();
        }
        let piece = |primitive: &Primitive, element_bytes: f64| {
            Self::of_primitive(primitive, element_bytes, suffix).or_else(|| {
                let moved = primitive.moved();
                (primitive.flops() == 0.0).then(|| Self {
                    kind: STREAMING.to_owned(),
                    input: moved,
                    operations: moved,
                    output: moved,
                    bytes: moved * element_bytes,
                    shape: vec![moved, 1.0, 1.0],
                    covered: None,
                    is_streaming: true,
                })
            })
        };
        let found: Option<Vec<(Self, f64)>> =
            parts.iter().map(|part| Some((piece(&part.primitive, part.element_bytes)?, part.times))).collect();
        found.unwrap_or_default()
    }

    /// The same layer with the common kind of streaming layers.
    #[must_use]
    pub(crate) fn as_stream(&self) -> Self {
        Self { kind: STREAMING.to_owned(), ..self.clone() }
    }

    /// The same layer in the forward pass, if its kind names another phase.
    pub(crate) fn as_forward(&self) -> Option<Self> {
        let kind = [BACKWARD, ACCUMULATION]
            .iter()
            .find_map(|phase| self.kind.contains(phase).then(|| self.kind.replacen(phase, "", 1)))?;
        Some(Self { kind, ..self.clone() })
    }

    /// Value of a driver; `None` if the layer has no such size.
    pub fn size(&self, driver: Driver) -> Option<f64> {
        match driver {
            Driver::Input => Some(self.input),
            Driver::Operations => Some(self.operations),
            Driver::Output => Some(self.output),
            Driver::Bytes => Some(self.bytes),
            Driver::Tiles([down, across]) => {
                let Covered { batch, rows, columns, reduction } = self.covered?;
                let (down, across) = (f64::from(down), f64::from(across));
                // Libraries store matrices by columns, so the first extent of a tile is along the columns of a
                // row-major result.
                let covered = (columns / down).ceil() * down * (rows / across).ceil() * across;
                Some(2.0 * batch * reduction * covered)
            }
        }
    }

    fn is_sound(&self) -> bool {
        [self.input, self.operations, self.output, self.bytes].iter().all(|size| size.is_finite() && *size >= 0.0)
            && self.shape.iter().all(|size| size.is_finite() && *size > 0.0)
    }
}

/// Tile extents of a product kernel, from its name: `volta_sgemm_128x64_tn`, `…_tilesize128x32x8_…`,
/// `Cijk_…_MT128x64x32_…`.
pub fn tile(kernel: &str) -> Option<[u32; 2]> {
    let known = ["gemm", "Cijk_", "cutlass"];
    if !known.iter().any(|word| kernel.contains(word)) {
        return None;
    }
    kernel.match_indices('x').find_map(|(at, _)| {
        let before = &kernel[..at];
        let first = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let after = &kernel[at + 1..];
        let second = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let extents = [before[first..].parse().ok()?, after[..second].parse().ok()?];
        extents.iter().all(|extent| (8..=1024).contains(extent)).then_some(extents)
    })
}

fn kind(operation: &Operation, suffix: &str) -> String {
    let mut label = name::label(&operation.name);
    match operation.phase {
        Phase::Backward if !Name::of(&operation.name).pass.is_backward() => label.push_str(BACKWARD),
        Phase::GradientAccumulation => label.push_str(ACCUMULATION),
        _ => {}
    }
    format!("{label}{suffix}")
}

/// Element type if not FP32, and the arithmetic if it differs from PyTorch's FP32 defaults.
fn suffix(operation: &Operation, family: Family, precision: Option<Precision>) -> String {
    let of_32_bits = |precision: Option<Precision>| match arithmetic(operation, family, precision) {
        by_default if by_default == arithmetic(operation, family, Some(Precision::Fp32)) => "",
        Some(Precision::Tf32) => " tf32",
        _ => " fp32-strict",
    };
    match element_type(operation, precision) {
        // All layers of such a step have this suffix.
        None | Some(DType::Float32) if precision == Some(Precision::Tf32) => " tf32".to_owned(),
        None | Some(DType::Float32) => of_32_bits(precision).to_owned(),
        Some(dtype) => format!(" {dtype}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(json: &str) -> Operation {
        serde_json::from_str(json).unwrap()
    }

    fn layer(json: &str) -> Layer {
        Layer::of(&operation(json), None).unwrap()
    }

    #[test]
    fn a_product_is_one_kind_whatever_its_name() {
        let mm = layer(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[64, 32], [32, 128]]}"#);
        let linear = layer(r#"{"name": "aten::linear", "phase": "backward", "inputs": [[64, 32], [128, 32]]}"#);
        assert_eq!(mm, linear);
        assert_eq!((mm.kind.as_str(), mm.operations), ("mm", 2.0 * 64.0 * 32.0 * 128.0));
        assert_eq!((mm.input, mm.output), (64.0 * 32.0 + 32.0 * 128.0, 64.0 * 128.0));
        assert_eq!(mm.shape, [1.0, 64.0, 32.0, 128.0]);
        let bmm = layer(r#"{"name": "aten::bmm", "phase": "forward", "inputs": [[8, 64, 32], [8, 32, 128]]}"#);
        assert_eq!((bmm.kind.as_str(), bmm.operations), ("bmm", 8.0 * mm.operations));
    }

    #[test]
    fn other_element_types_and_phases_are_other_kinds() {
        let of =
            |rest: &str| layer(&format!(r#"{{"name": "aten::mm", "inputs": [[64, 32], [32, 128]], {rest}}}"#)).kind;
        assert_eq!(of(r#""phase": "forward", "dtype": "bfloat16""#), "mm bfloat16");
        let softmax = |phase: &str| {
            layer(&format!(r#"{{"name": "aten::_softmax", "inputs": [[64, 32]], "phase": "{phase}"}}"#)).kind
        };
        assert_eq!((softmax("forward").as_str(), softmax("backward").as_str()), ("softmax", "softmax backward"));
        let norm = layer(r#"{"name": "aten::native_layer_norm_backward", "inputs": [[64, 32]], "phase": "backward"}"#);
        assert_eq!(norm.kind, "layer_norm_backward");
    }

    #[test]
    fn backward_of_a_convolution_has_two_pieces() {
        let backward = operation(
            r#"{"name": "aten::convolution_backward", "phase": "backward",
                "inputs": [[8, 16, 14, 14], [8, 32, 14, 14], [16, 32, 3, 3]], "attributes": {"padding": [1, 1]}}"#,
        );
        let pieces = Layers::of(&backward, None).pieces;
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|(piece, times)| piece.kind == "convolution" && *times == 1.0));
        assert_eq!(Layer::of(&backward, None).unwrap().kind, "convolution_backward");
    }

    #[test]
    fn views_are_no_layers() {
        assert_eq!(Layer::of(&operation(r#"{"name": "aten::view", "phase": "forward", "inputs": [[4]]}"#), None), None);
        assert_eq!(Layer::of(&operation(r#"{"name": "aten::mm", "phase": "forward"}"#), None), None);
    }

    #[test]
    fn tiles_are_read_off_names_and_cover_whole_results() {
        assert_eq!(tile("volta_sgemm_128x64_tn"), Some([128, 64]));
        assert_eq!(tile("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x32x8_stage3"), Some([128, 32]));
        assert_eq!(tile("Cijk_Ailk_Bljk_BBS_BH_MT64x96x32_SE"), Some([64, 96]));
        assert_eq!(tile("void cutlass::Kernel<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>"), Some([128, 256]));
        assert_eq!(tile("vectorized_elementwise_kernel<4, 128x64>"), None);
        assert_eq!(tile("sgemm_4x99999999999"), None);
        let mm = layer(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[65, 10], [10, 129]]}"#);
        // 129 columns take two tiles of 128, 65 rows two of 64.
        assert_eq!(mm.size(Driver::Tiles([128, 64])), Some(2.0 * 10.0 * 256.0 * 128.0));
        let add = layer(r#"{"name": "aten::add", "phase": "forward", "inputs": [[65, 10]]}"#);
        assert_eq!(add.size(Driver::Tiles([128, 64])), None);
    }
}
