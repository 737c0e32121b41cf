//! What to predict and how.

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

/// What to predict and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// GPUs to predict for; empty = all of the catalog.
    pub targets: Vec<GpuSlug>,
    /// Drop what was measured and predict from shapes alone.
    pub ignore_origin: bool,
    /// The GPU the profile was recorded on, in place of what it says.
    pub origin: Option<GpuSlug>,
    /// Which methods may be used.
    pub method: MethodChoice,
    /// Whether the device waits for the host.
    pub host: Host,
    /// Which equation wave scaling uses.
    pub wave_form: WaveForm,
    /// The learned models; without them rooflines take their place.
    pub models: Option<Arc<Models>>,
    /// Habitat's networks, for [`MethodChoice::HabitatMlp`].
    pub habitat: Option<Arc<HabitatMlp>>,
    /// Fitted lines, for [`MethodChoice::KernelWise`], [`MethodChoice::LayerWise`] and
    /// [`MethodChoice::EndToEnd`].
    pub kernel_wise: Option<Arc<KernelWise>>,
    /// The black-box model, for [`MethodChoice::BlackBox`].
    pub black_box: Option<Arc<BlackBoxModel>>,
    /// The precision to predict for, where it is not the recorded one.
    pub precision: Option<Precision>,
    /// Leave out what is predicted of each operation ([`Prediction::operations`](super::Prediction::operations)):
    /// of many operations on many GPUs these would take most of the memory.
    pub steps_only: bool,
}
