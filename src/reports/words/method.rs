//! Methods in words.

use habitat_prediction::MethodChoice;

/// One-line description.
pub const fn summary(method: MethodChoice) -> &'static str {
    match method {
        MethodChoice::Auto => "The best available for each operation",
        MethodChoice::Learned => "The learned models for every operator they know",
        MethodChoice::WaveScaling => "Wave scaling wherever launches are known",
        MethodChoice::Roofline => "The roofline from shapes, ignoring measurements",
        MethodChoice::HabitatMlp => {
            "Habitat's networks for products and convolutions in FP32 (`habitat-lab train --habitat` makes them), the rest as auto"
        }
        MethodChoice::KernelWise => "Linear models of kernels, made by `fit kernelwise` from measured steps",
        MethodChoice::LayerWise => "Linear models of layer kinds, from the same file",
        MethodChoice::EndToEnd => "Linear model of whole steps by their FLOPs, from the same file",
        MethodChoice::BlackBox => "The black-box model (PROFET), from the totals of operator kinds: on its GPUs only",
    }
}

/// Requirements.
pub const fn needs(method: MethodChoice) -> &'static str {
    match method {
        MethodChoice::Auto => "a recorded step, or shapes",
        MethodChoice::Learned => "shapes; better with a step measured on any GPU",
        MethodChoice::WaveScaling => "a trace with the launches of its kernels",
        MethodChoice::Roofline => "shapes",
        MethodChoice::HabitatMlp => "shapes, and networks trained with `habitat-lab train --habitat`",
        MethodChoice::KernelWise | MethodChoice::LayerWise | MethodChoice::EndToEnd => {
            "shapes; better with lines fitted to your own steps by `fit kernelwise`"
        }
        MethodChoice::BlackBox => "a training step in FP32, measured on a GPU of the black-box model",
    }
}
