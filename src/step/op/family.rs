//! Families: kinds of operators that run alike.

/// Kind of operation; operations of one kind run alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matrix products.
    Gemm,
    /// Convolutions and their gradients.
    Convolution,
    /// LSTM, GRU, RNN.
    Recurrent,
    /// Fused attention.
    Attention,
    /// Softmax and its logarithm.
    Softmax,
    /// Batch, layer, group, instance and RMS normalisation.
    Normalisation,
    /// Maximum and average pooling.
    Pooling,
    /// Table look-ups.
    Embedding,
    /// Sums, means, norms and losses.
    Reduction,
    /// Element-wise work: arithmetic, activations, copies, optimizer updates.
    Elementwise,
    /// Views and bookkeeping, without device work.
    View,
    /// Collectives between GPUs.
    Communication,
    /// An unknown operator.
    Unknown,
}

impl Family {
    /// Whether libraries select different kernels on different GPUs (Habitat section 3.4), so that a launch
    /// configuration does not carry over to another GPU.
    pub const fn varies_kernels(self) -> bool {
        matches!(self, Self::Gemm | Self::Convolution | Self::Recurrent | Self::Attention)
    }

    /// Name on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "matrix product",
            Self::Convolution => "convolution",
            Self::Recurrent => "recurrent",
            Self::Attention => "attention",
            Self::Softmax => "softmax",
            Self::Normalisation => "normalisation",
            Self::Pooling => "pooling",
            Self::Embedding => "embedding",
            Self::Reduction => "reduction",
            Self::Elementwise => "elementwise",
            Self::View => "view",
            Self::Communication => "communication",
            Self::Unknown => "unknown",
        }
    }
}
