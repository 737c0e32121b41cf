//! Weights of the shipped models, and their measured errors. The README of this folder describes
//! each; `habitat-lab` (folder `lab`) trains and evaluates them.

/// Networks that predict an operator's time: safetensors.
pub const WEIGHTS: &[u8] = include_bytes!("operators.safetensors");

/// The efficiency model: JSON.
pub const EFFICIENCY: &[u8] = include_bytes!("efficiency.json");

/// Models of whole steps (Gianniti et al., PROFET): JSON.
pub const BLACK_BOX: &[u8] = include_bytes!("blackbox.json");

/// Lines fitted to each kernel (Li et al., MICRO '23): JSON, packed by zstd.
pub const KERNEL_WISE: &[u8] = include_bytes!("kernelwise.json.zst");

/// Errors of each method on groups of measured steps, as `habitat-lab evaluate` prints them: JSON.
pub const METHODS: &str = include_str!("methods.json");

/// Published speeds of training language models: CSV.
pub const SPEEDS: &str = include_str!("speeds.csv");

/// Dimensions of public language models: TOML.
pub const DECODERS: &str = include_str!("decoders.toml");
