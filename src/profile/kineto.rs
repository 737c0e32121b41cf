//! PyTorch/Kineto traces.
