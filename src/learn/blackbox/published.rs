//! PROFET's predictor as published, rebuilt to be compared with.
