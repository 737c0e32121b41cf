//! Names of the recorded steps embedded in the program (their bytes: `store::bundled`).

/// A recorded step embedded in the program. The first of [`Sample::ALL`] opens without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sample {
    /// BERT-large in BF16 on an H100, with modules.
    #[default]
    BertLargeH100,
    /// ResNet-50 in BF16 on an H200, with a timeline and memory by kind.
    ResNet50H200,
    /// ResNet-50 in FP32 on a V100, which waits for its data; with a timeline.
    ResNet50V100,
}

impl Sample {
    /// All samples, the default first.
    pub const ALL: [Self; 3] = [Self::BertLargeH100, Self::ResNet50H200, Self::ResNet50V100];

    /// Words for each of them, in outputs that name no file.
    pub const WORDS: &str = "embedded sample, not your program";

    /// Name on the command line and in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BertLargeH100 => "bert-large-h100",
            Self::ResNet50H200 => "resnet50-h200",
            Self::ResNet50V100 => "resnet50-v100",
        }
    }

    /// Description: model, precision, batch size, GPU and year.
    pub const fn about(self) -> &'static str {
        match self {
            Self::BertLargeH100 => "BERT-large in BF16, batch 32, recorded on an H100 in 2026",
            Self::ResNet50H200 => "ResNet-50 in BF16, batch 256, recorded on an H200 in 2026",
            Self::ResNet50V100 => "ResNet-50 in FP32, batch 32, recorded on a V100 in 2021, waiting for its data",
        }
    }

    /// Label in screens, reports and errors, which never present it as the user's own recording, even if cut.
    pub fn label(self) -> String {
        format!("{}: {}", Self::WORDS, self.about())
    }

    /// The sample with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sample| sample.name() == name)
    }
}
