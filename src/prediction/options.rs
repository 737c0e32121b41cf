//! Options of a prediction.

use std::sync::Arc;

use super::blackbox::BlackBoxModel;
use super::habitat::HabitatMlp;
use super::host::Host;
use super::kernelwise::KernelWise;
use super::learned::Models;
use super::method::MethodChoice;
use super::wave::WaveForm;
use habitat_base::units::GpuSlug;
use habitat_step::profile::Precision;

/// Options of a prediction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// GPUs to predict; empty = all of the catalog.
    pub targets: Vec<GpuSlug>,
    /// Ignores measurements and predicts from shapes alone.
    pub ignore_origin: bool,
    /// GPU that the profile was recorded on, overriding the profile.
    pub origin: Option<GpuSlug>,
    /// Methods that may be used.
    pub method: MethodChoice,
    /// Treatment of the wait for the host.
    pub host: Host,
    /// Equation for wave scaling.
    pub wave_form: WaveForm,
    /// Learned models; without them rooflines are used.
    pub models: Option<Arc<Models>>,
    /// Habitat's networks, for [`MethodChoice::HabitatMlp`].
    pub habitat: Option<Arc<HabitatMlp>>,
    /// Fitted lines, for [`MethodChoice::KernelWise`], [`MethodChoice::LayerWise`] and
    /// [`MethodChoice::EndToEnd`].
    pub kernel_wise: Option<Arc<KernelWise>>,
    /// The black-box model, for [`MethodChoice::BlackBox`].
    pub black_box: Option<Arc<BlackBoxModel>>,
    /// Precision to predict, if not the recorded one.
    pub precision: Option<Precision>,
    /// Omits predictions of operations ([`Prediction::operations`](super::Prediction::operations)), which take most of
    /// the memory with many operations on many GPUs.
    pub steps_only: bool,
}
