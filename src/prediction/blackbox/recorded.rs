//! Rows to fit and judge on: totals on one GPU and the step on others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OperatorTotals;
use habitat_base::units::{GpuSlug, Micros};

/// One repetition of one workload on an anchor.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The network's name: what is held out together.
    pub network: Arc<str>,
    /// Side of the square pictures.
    pub pixels: u32,
    /// Which repetition.
    pub repetition: Arc<str>,
    /// What a black box shows of it.
    pub totals: OperatorTotals,
    /// Device time of one step by the framework's own operator types, zeros left out.
    pub by_type: Vec<(Arc<str>, Micros)>,
    /// The same repetition's step on other GPUs.
    pub elsewhere: BTreeMap<GpuSlug, Micros>,
}

impl Recorded {
    /// The workload in words.
    pub fn label(&self) -> String {
        format!("{} {} px, batch {}", self.network, self.pixels, self.totals.batch_size)
    }
}

/// The step of one repetition of one workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// The network's name.
    pub network: Arc<str>,
    /// Side of the square pictures.
    pub pixels: u32,
    /// Samples of one step.
    pub batch_size: u64,
    /// On which GPU.
    pub gpu: GpuSlug,
    /// How long it took.
    pub step: Micros,
}

/// The family of a network by its name: the same architecture at other depths. Networks of a
/// few layers are one family, `small`.
pub fn network_family(network: &str) -> &str {
    const SMALL: [&str; 3] = ["LeNet", "MNIST", "CIFAR"];
    if SMALL.iter().any(|small| network.starts_with(small)) {
        return "small";
    }
    // Inception-ResNets are Inceptions with shortcuts.
    for family in ["Inception", "ResNet"] {
        if network.starts_with(family) {
            return family;
        }
    }
    let end = network.find(|c: char| !c.is_alphabetic()).unwrap_or(network.len());
    network.get(..end).filter(|family| !family.is_empty()).unwrap_or(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        for (network, family) in [
            ("VGG19", "VGG"),
            ("ResNetSmall", "ResNet"),
            ("InceptionResNetV2", "Inception"),
            ("MobileNetV2", "MobileNetV"),
            ("CIFAR10_CNN", "small"),
            ("AlexNet", "AlexNet"),
            ("7", "7"),
        ] {
            assert_eq!(network_family(network), family, "{network}");
        }
    }
}
