//! Table of the model's terms: each with its name in the weights, its priors and the reason for them.
//!
//! A row is a term or a family of terms, indexed by labels. `habitat-lab terms` prints the table.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::sync::LazyLock;

use super::prior::{Prior, Priors, Side, both, compute, memory};
use habitat_step::profile::tensors::Access;

/// Enums that index families of terms, with their part of the name.
macro_rules! labels {
    ($($(#[$doc:meta])+ $Label:ident { $($Value:ident = $name:literal),+ $(,)? })+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Label { $(#[doc = concat!("`", $name, "`.")] $Value),+ }

        impl $Label {
            const ALL: &'static [Self] = &[$(Self::$Value),+];

            const fn name(self) -> &'static str {
                match self { $(Self::$Value => $name),+ }
            }
        }
    )+};
}

labels! {
    /// Kind of a convolution that is not depthwise.
    ConvolutionKind { Dense = "dense", Grouped = "grouped", Pointwise = "pointwise", Thin = "thin" }
    /// Gradient of a convolution.
    Gradient { Data = "data", Weight = "weight" }
    /// Reason to copy the tensors of a convolution: their layout, or only their width.
    CopyReason { Layout = "channels first", Width = "copied" }
    /// Arithmetic of a product.
    Arithmetic { Fp32 = "fp32", Tf32 = "tf32", Fp8 = "fp8" }
    /// Property of a depthwise convolution that decides which kernel runs.
    DepthwiseKernel {
        Native = "native",
        ChannelsFirst = "channels first",
        Wide = "32 bits",
        NoKernel = "no kernel",
        Taps = "taps",
        NativeTaps = "native, taps",
    }
    /// Matrix product.
    ProductKind { Plain = "product", Batched = "batched product" }
    /// Operators that stream memory alike.
    StreamGroup {
        BatchNorm = "batch norm",
        Cast = "cast",
        Elementwise = "elementwise",
        Gates = "gates",
        GroupNorm = "group norm",
        LayerNorm = "layer norm",
        MatrixProduct = "matrix-product",
        Optimizer = "optimizer",
        Other = "other",
        Rearrangement = "rearrangement",
        Reduction = "reduction",
        Softmax = "softmax",
        Transfer = "transfer",
        Window = "window",
    }
    /// Normalisation over the samples.
    Norm { Batch = "batch norm", Group = "group norm" }
    /// Operators whose kernels take cycles for each element.
    ElementsGroup { BatchNorm = "batch norm", Pooling = "pooling", Powers = "powers of e", Reduction = "reduction" }
    /// Direction and layout of work by elements.
    PassLayout {
        Backward = "backward",
        ChannelsLast = "channels last",
        BackwardChannelsLast = "backward, channels last",
    }
    /// Reason to compute the address or value of each element.
    Index {
        Broadcast = "broadcast",
        Concatenated = "concatenated",
        LookUp = "look-up",
        Strided = "strided",
        Transposed = "transposed",
        Widened = "widened",
    }
}

impl From<Access> for Index {
    fn from(access: Access) -> Self {
        match access {
            Access::Strided => Self::Strided,
            Access::Transposed => Self::Transposed,
        }
    }
}

/// The table: reason, id with its labels, parts of the name, priors.
macro_rules! terms {
    ($($(#[doc = $reason:literal])+
       $Term:ident $(($($label:ident: $Label:ident),+))? = [$($part:expr),+], $priors:expr;)+) => {
        /// Term of arithmetic, traffic or latency; its id.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Term { $($(#[doc = $reason])+ $Term $(($($Label),+))?),+ }

        #[derive(Clone, Copy)]
        enum Row { $($Term),+ }

        const ROWS: &[Row] = &[$(Row::$Term),+];
        /// Terms of each row.
        const SIZES: [usize; ROWS.len()] = [$(1 $($(* $Label::ALL.len())+)?),+];

        impl Term {
            /// Place in the table.
            pub(super) const fn index(self) -> usize {
                match self {
                    $(Self::$Term $(($($label),+))? =>
                        place(Row::$Term, &[$($(($label as usize, $Label::ALL.len())),+)?])),+
                }
            }

            fn entry(self) -> Entry {
                match self {
                    $(Self::$Term $(($($label),+))? => Entry {
                        term: self,
                        name: [$($part),+].join(", "),
                        priors: $priors,
                        reason: concat!($($reason),+).trim_ascii(),
                    }),+
                }
            }
        }

        impl Row {
            fn term(self, digits: &mut Digits) -> Term {
                match self { $(Self::$Term => Term::$Term $(($(digits.next($Label::ALL)),+))?),+ }
            }
        }
    };
}

terms! {
    // Convolutions that are not depthwise; traffic also of depthwise ones.
    /// The shortest take 2 to 3 µs on an H100 and an H200.
    Convolution = ["convolution"], compute(0.2, 0.5).memory(0.0, 0.5).launches(1.5);
    /// Either gradient.
    ConvolutionGradient(gradient: Gradient) = ["convolution", gradient.name()], both(0.0, 0.35);
    /// Sums of fewer than 256 terms, by powers of two.
    ConvolutionShortSums = ["convolution", "short sums"], compute(0.0, 0.2).slows();
    /// A number of channels that is not a multiple of 8.
    ConvolutionOdd = ["convolution", "odd"], compute(0.0, 0.35).slows();
    /// A stride above 1.
    ConvolutionStrided = ["convolution", "strided"], compute(0.0, 0.35);
    /// From Hopper on, cuDNN has other kernels in FP32: up to 4 times as slow would be no surprise.
    FromHopper = ["convolution", "fp32", "from Hopper on"], compute(0.0, 0.7);
    /// The same for either gradient.
    GradientFromHopper(gradient: Gradient) =
        ["convolution", "fp32", gradient.name(), "from Hopper on"], compute(0.0, 0.7);
    /// Kind of convolution.
    Kind(kind: ConvolutionKind) = [kind.name()], both(0.0, 0.5);
    /// Either gradient of a kind.
    KindGradient(kind: ConvolutionKind, gradient: Gradient) = [kind.name(), gradient.name()], both(0.0, 0.35);
    /// A kind in an arithmetic.
    KindArithmetic(kind: ConvolutionKind, arithmetic: Arithmetic) = [kind.name(), arithmetic.name()], compute(0.0, 0.5);
    /// Channels-first layout with matrix units; traffic also of copies into another layout or width.
    KindChannelsFirst(kind: ConvolutionKind) = [kind.name(), "channels first"], both(0.0, 0.35);
    /// The same for either gradient.
    GradientChannelsFirst(kind: ConvolutionKind, gradient: Gradient) =
        [kind.name(), gradient.name(), "channels first"], both(0.0, 0.25);
    /// Fewer result channels per group than a tile has columns, by powers of two.
    GroupNarrow = ["grouped", "narrow"], compute(0.0, 0.2).slows();
    /// Fewer than 64 input channels per group, by powers of two.
    GroupWidth = ["grouped", "width"], compute(0.0, 0.2);
    /// The same in channels-first layout.
    GroupWidthChannelsFirst = ["grouped", "width", "channels first"], compute(0.0, 0.2);
    /// Cycles of copies for each element: none were known before.
    CopiedElements(kind: ConvolutionKind, reason: CopyReason) =
        [kind.name(), reason.name(), "elements"], compute(0.0, 1.0);
    /// The same for either gradient.
    CopiedElementsGradient(kind: ConvolutionKind, reason: CopyReason, gradient: Gradient) =
        [kind.name(), reason.name(), "elements", gradient.name()], compute(0.0, 0.5);

    // Depthwise convolutions.
    /// Traffic of depthwise convolutions.
    DepthwiseTraffic = ["depthwise"], memory(0.0, 0.5);
    /// Traffic of either gradient.
    DepthwiseGradient(gradient: Gradient) = ["depthwise", gradient.name()], memory(0.0, 0.35);
    /// Traffic with a stride above 1.
    DepthwiseStrided = ["depthwise", "strided"], memory(0.0, 0.35);
    /// Cycles for each element: none were known before.
    DepthwiseElements = ["depthwise", "elements"], compute(0.0, 1.0);
    /// Either gradient.
    DepthwiseElementsGradient(gradient: Gradient) = ["depthwise", "elements", gradient.name()], compute(0.0, 0.5);
    /// Kernel: layout, type and the logarithm of the taps over 9. Without a kernel in the library, the substitute may
    /// take many times as long.
    DepthwiseKernel(kernel: DepthwiseKernel) = ["depthwise", "elements", kernel.name()], of_kernel(kernel);
    /// Kernel of either gradient.
    DepthwiseKernelGradient(gradient: Gradient, kernel: DepthwiseKernel) =
        ["depthwise", "elements", gradient.name(), kernel.name()], of_kernel(kernel);

    // Products.
    /// The shortest take 2 to 3 µs on an H100 and an H200.
    Product(kind: ProductKind) = [kind.name()], compute(0.2, 0.5).memory(0.0, 0.5).launches(1.6);
    /// Gradients of batched products take longer, for unknown reasons.
    BatchedBackward = ["batched product", "backward"], both(0.0, 0.35);
    /// Steps of a recurrent layer, and their latency beside that of other products.
    ProductRecurrent = ["product", "recurrent"], both(0.0, 0.35).latency(0.0, 0.5);
    /// Fewer rows or columns than a tile, by powers of two.
    ProductNarrow(kind: ProductKind) = [kind.name(), "narrow"], compute(0.0, 0.2).slows();
    /// Sums of fewer than 256 terms, by powers of two.
    ProductShortSums(kind: ProductKind) = [kind.name(), "short sums"], compute(0.0, 0.2).slows();
    /// Arithmetic with another rate or other kernels.
    ProductArithmetic(arithmetic: Arithmetic) = ["product", arithmetic.name()], compute(0.0, 0.5);
    /// 16-bit products with odd row lengths, so that rows are not aligned: 1 is the slowdown as measured on one GPU.
    Unaligned = ["product", "unaligned"], compute(1.0, 0.3).slows();
    /// Fewer tiles than multiprocessors, by powers of two; also of convolutions.
    FewTiles = ["few tiles"], compute(0.0, 0.2).slows();

    // Attention.
    /// The shortest take 7 µs by cuDNN on an H100 and an H200.
    Attention = ["attention"], compute(0.2, 0.5).memory(0.0, 0.5).launches(3.2);
    /// The shortest take 18 µs by cuDNN on an H100 and an H200.
    AttentionBackward = ["attention", "backward"], both(0.0, 0.35).launches(2.7);
    /// FlashAttention-2 is 1.7 to 3 times as fast as earlier kernels on long sequences, less on short ones (Dao 2023,
    /// arXiv:2307.08691, section 4.1). The shortest take 10 µs on an H100 and an H200, 26 backward.
    AttentionEfficient = ["attention", "efficient"], compute(0.5, 0.3).memory(0.0, 0.35).launches(1.5);
    /// Heads padded to a multiple of 32, by powers of two.
    AttentionPadded = ["attention", "padded"], compute(0.0, 0.35).slows();
    /// Blocks that a causal mask leaves half empty.
    AttentionCausal = ["attention", "causal"], compute(0.0, 0.35);
    /// Softmax that is slow relative to the products: with heads of 128, the exponentials of an H100 take half the time
    /// of its products (Shah et al. 2024, arXiv:2407.08608, section 3.2); kernels hide a part of them.
    Exponentials = ["attention", "exponentials"], compute(1.0, 0.3).slows();
    /// Query tiles that are slow to start and finish; none of their time is hidden.
    AttentionTiles = ["attention", "tiles"], compute(1.0, 0.3).slows();
    /// Kernels written for the tensor cores of Ampere: FlashAttention-2 reaches 35 % of the peak of an H100,
    /// FlashAttention-3 75 % (Shah et al. 2024, section 1).
    ForAmpere = ["attention", "for Ampere"], compute(0.75, 0.3).slows();

    // Operators that stream memory.
    /// Traffic of a group. The shortest take 4 µs (batch norm), 3 (layer norm), 8 (group norm) and 2 to 3 (sums,
    /// softmax) on an H100 and an H200.
    Stream(group: StreamGroup) = [group.name()], memory(0.0, 0.5).launches(shortest(group));
    /// Its backward pass. The shortest take 4 to 7 µs (batch norm), 4 to 6 (layer norm) and 14 to 31 (group norm) on an
    /// H100 and an H200.
    StreamBackward(group: StreamGroup) =
        [group.name(), "backward"], memory(0.0, 0.35).launches(shortest_backward(group));
    /// Norms that compute no statistics.
    Evaluation(norm: Norm) = [norm.name(), "evaluation"], memory(0.0, 0.35);
    /// Neighbours of one tensor that are apart in another.
    Transposed = ["rearrangement", "transposed"], memory(0.0, 0.35).slows();
    /// If neighbours are apart, an element of 2 bytes moves as much as one of 4.
    TransposedWide = ["rearrangement", "transposed", "32 bits"], memory(-LN_2, 0.1);
    /// 32-bit tensors of any group.
    Wide = ["stream", "32 bits"], memory(0.0, 0.35);

    // Cycles for each element or byte, beside the traffic.
    /// Cycles for each element: none were known before.
    Elements(group: ElementsGroup) = [group.name(), "elements"], compute(0.0, 1.0);
    /// Direction and layout.
    ElementsIn(group: ElementsGroup, layout: PassLayout) = [group.name(), "elements", layout.name()], compute(0.0, 0.5);
    /// Batch norms by PyTorch's own kernels.
    NativeNorm = ["batch norm", "elements", "native"], compute(0.0, 0.5);
    /// Channels-first batch norms with fewer channels than multiprocessors, by powers of two: kernels of PyTorch and
    /// cuDNN use one block per channel, so some multiprocessors are idle
    /// (`aten/src/ATen/native/cuda/Normalization.cuh`).
    FewChannels = ["batch norm", "few channels"], compute(LN_2, 0.1).slows();
    /// Average pooling.
    AveragePooling = ["pooling", "elements", "average"], compute(0.0, 0.5);
    /// Its backward pass.
    AveragePoolingBackward = ["pooling", "elements", "average", "backward"], compute(0.0, 0.5);
    /// Windows that each element is in, backward, by powers of two.
    PoolingOverlap = ["pooling", "elements", "overlap"], compute(0.0, 0.5);
    /// Against one element per cycle and multiprocessor. PyTorch's kernels that turn rows by halves (rotary embeddings)
    /// or take parts of them (gated layers) reach 1.3 on an A100 and 1.9 on an H100, its look-ups 0.6 on an A100
    /// (`models/lab/steps/liger.py`); its copies into one tensor 1 on an H100, its casts from 16 to 32 bits 1.4 (a
    /// public trace of Qwen1.5).
    Index(index: Index) =
        ["index", index.name()], if index == Index::LookUp { compute(0.5, 0.3) } else { compute(-0.4, 0.15) };
    /// Against 7 bytes per cycle and multiprocessor.
    NormRows = ["layer norm", "rows"], compute(0.0, 0.3);
    /// The backward pass.
    NormRowsBackward = ["layer norm", "rows", "backward"], compute(0.0, 0.25);
    /// Rows below 512 elements leave threads idle, by powers of two (`aten/src/ATen/native/cuda/layer_norm_kernel.cu`).
    NormShortRows = ["layer norm", "short rows"], compute(LN_2, 0.2);
    /// The backward pass.
    NormShortRowsBackward = ["layer norm", "short rows", "backward"], compute(0.0, 0.5);
    /// One element per cycle on an RTX 3090, an H100 and a B200 in FP32 and BF16 (`models/lab/steps/liger.py`).
    SoftmaxLongRows = ["softmax", "long rows"], compute(0.0, 0.15);
}

fn of_kernel(kernel: DepthwiseKernel) -> Priors {
    compute(0.0, if kernel == DepthwiseKernel::NoKernel { 1.0 } else { 0.5 })
}

/// Launches that the shortest operators of a group take: several kernels, or waits within one
/// (`python models/lab/steps/recorded.py --show models/lab/samples/recorded` prints the shortest).
fn shortest(group: StreamGroup) -> Option<f64> {
    match group {
        StreamGroup::BatchNorm => Some(2.2),
        StreamGroup::GroupNorm => Some(4.0),
        StreamGroup::LayerNorm => Some(2.0),
        StreamGroup::Reduction => Some(1.5),
        StreamGroup::Softmax => Some(1.4),
        _ => None,
    }
}

/// The same backward, relative to forward.
fn shortest_backward(group: StreamGroup) -> Option<f64> {
    match group {
        StreamGroup::BatchNorm => Some(1.4),
        StreamGroup::GroupNorm => Some(2.6),
        StreamGroup::LayerNorm => Some(1.6),
        _ => None,
    }
}

/// Place of a term with these labels, each with the number of its values.
const fn place(row: Row, labels: &[(usize, usize)]) -> usize {
    let (mut place, mut stride, mut at) = (0, 1, 0);
    while at < row as usize {
        place += SIZES[at];
        at += 1;
    }
    at = 0;
    while at < labels.len() {
        place += labels[at].0 * stride;
        stride *= labels[at].1;
        at += 1;
    }
    place
}

/// Labels of the next term within a row.
struct Digits(usize);

impl Digits {
    fn next<T: Copy>(&mut self, all: &[T]) -> T {
        let label = all[self.0 % all.len()];
        self.0 /= all.len();
        label
    }
}

/// A term in the table.
struct Entry {
    term: Term,
    name: String,
    priors: Priors,
    reason: &'static str,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let terms = ROWS.iter().zip(SIZES).flat_map(|(row, size)| (0..size).map(|at| row.term(&mut Digits(at))));
    terms.map(Term::entry).collect()
});

static NAMED: LazyLock<HashMap<&str, Term>> =
    LazyLock::new(|| ENTRIES.iter().map(|entry| (entry.name.as_str(), entry.term)).collect());

impl Term {
    /// Terms in the table.
    pub(super) const COUNT: usize = {
        let (mut count, mut row) = (0, 0);
        while row < SIZES.len() {
            count += SIZES[row];
            row += 1;
        }
        count
    };

    /// All terms in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        ENTRIES.iter().map(|entry| entry.term)
    }

    /// The term with this name in the weights.
    pub fn named(name: &str) -> Option<Self> {
        NAMED.get(name).copied()
    }

    /// Name in the weights.
    pub fn name(self) -> &'static str {
        &ENTRIES[self.index()].name
    }

    /// Prior of this side's factor; `None` if the term has none on this side.
    pub fn prior(self, side: Side) -> Option<Prior> {
        ENTRIES[self.index()].priors.of(side)
    }

    /// Whether it can only make a part slower.
    pub fn only_slows(self) -> bool {
        ENTRIES[self.index()].priors.only_slows()
    }

    /// Meaning of the term, with the reason and the source of its prior if they are known.
    pub fn reason(self) -> &'static str {
        ENTRIES[self.index()].reason
    }
}
