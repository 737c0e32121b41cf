//! Kinds of operators that share a way of running.

/// Kinds of operations that share a way of running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matrix products.
    Gemm,
    /// Convolutions.
    Convolution,
    /// LSTM, GRU, RNN.
    Recurrent,
    /// Fused attention.
    Attention,
    /// Softmax and its logarithm.
    Softmax,
    /// Batch, layer, group and RMS normalisation.
    Normalisation,
    /// Pooling.
    Pooling,
    /// Table look-ups.
    Embedding,
    /// Sums, means, norms.
    Reduction,
    /// One result an element: arithmetic, activations, copies, optimizer updates.
    Elementwise,
    /// Nothing runs on the device: views and bookkeeping.
    View,
    /// Collectives between GPUs.
    Communication,
    /// An operator not known here.
    Unknown,
}

impl Family {
    /// Whether libraries choose another kernel on another GPU (Habitat section 3.4), so
    /// that a launch configuration says little about the destination.
    pub const fn varies_kernels(self) -> bool {
        matches!(self, Self::Gemm | Self::Convolution | Self::Recurrent | Self::Attention)
    }

    /// The name on screen.
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
