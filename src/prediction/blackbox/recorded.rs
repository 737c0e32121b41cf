//! Data to fit and evaluate: totals on one GPU and the step on others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OperatorTotals;
use habitat_base::units::{GpuSlug, Micros};

/// One repetition of one workload on an anchor.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Network name; all rows of a network are held out together.
    pub network: Arc<str>,
    /// Side of the square images.
    pub pixels: u32,
    /// Identifier of the repetition.
    pub repetition: Arc<str>,
    /// Totals visible to the black box.
    pub totals: OperatorTotals,
    /// Device time of one step by the framework's own operator types, without zeros.
    pub by_type: Vec<(Arc<str>, Micros)>,
    /// Step of the same repetition on other GPUs.
    pub elsewhere: BTreeMap<GpuSlug, Micros>,
}

impl Recorded {
    /// Human-readable description of the workload.
    pub fn label(&self) -> String {
        format!("{} {} px, batch {}", self.network, self.pixels, self.totals.batch_size)
    }
}

/// Step of one repetition of one workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// The network's name.
    pub network: Arc<str>,
    /// Side of the square images.
    pub pixels: u32,
    /// Samples of one step.
    pub batch_size: u64,
    /// GPU that it ran on.
    pub gpu: GpuSlug,
    /// Step time.
    pub step: Micros,
}

/// Family of a network by its name: one architecture at several depths. Networks of a few layers form one family,
/// `small`.
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
