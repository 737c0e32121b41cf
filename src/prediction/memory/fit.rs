//! Fit of a step in the memory of a GPU, alone or with a share of the model.

use std::fmt;

use serde::Serialize;

use super::CONTEXT_BYTES;
use crate::scale::{Layout, ModelParallel};
use crate::sharding::{ModelStates, Sharding};
use crate::transformer::TransformerStep;
use habitat_base::units::{Bytes, GIB};
use habitat_step::profile::Working;

/// Share of a layer's activations that tensor parallel GPUs keep whole without sequence parallelism: inputs of
/// normalisations and masks of dropout, 10 of the 34 bytes per token and element of width (Korthikanti et al. 2022,
/// arXiv:2205.05198, equations 1 and 2, without the attention scores, which fused attention does not keep).
const KEPT_WHOLE: f64 = 10.0 / 34.0;

/// Layers whose parameters are whole while one runs with divided parameters: its own, the next one's, and its gradients
/// (PyTorch's FSDP prefetches one layer: Zhao et al. 2023, arXiv:2304.11277, section 3.3).
const GATHERED: f64 = 3.0;

/// Whether the step fits in device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryFit {
    /// Verdict.
    pub fits: Fits,
    /// Memory that the step needs, if known; the lower end if it was recorded in another precision.
    pub needed: Option<Bytes>,
    /// Memory of forward and backward beside the state, if known.
    pub working: Option<Working>,
    /// Maximum memory need, if known.
    pub at_most: Option<Bytes>,
    /// Usable memory: 92 % of nominal.
    pub usable: Bytes,
    /// Reason in words.
    pub reason: String,
    /// If the step does not fit, the largest batch per GPU that would, if peaks or parameters show how memory grows.
    pub largest_batch: Option<u64>,
    /// Parts that can be divided among GPUs, if known.
    pub states: Option<ModelStates>,
    /// Activations that the forward pass keeps, if kinds of memory were recorded.
    pub activations: Option<Activations>,
    /// The same with every number as small as it may be, of a step that is predicted in narrower or wider numbers
    /// than it was recorded in.
    pub narrowest: Option<Box<Self>>,
}

/// Yes, no or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fits {
    /// It fits.
    Yes,
    /// It does not.
    No,
    /// Not enough is known.
    Unknown,
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

impl MemoryFit {
    /// Fit on one of `gpus` GPUs that divide the state: the need less the state kept by the others. Unchanged if the
    /// state is unknown.
    ///
    /// Parameters that stage 3 gathers while a layer runs are counted only if the number of layers is known
    /// ([`Self::on_replica`]).
    #[must_use]
    pub fn sharded(&self, sharding: Sharding, gpus: u32) -> Self {
        self.sharded_beside(sharding, gpus, Bytes::ZERO)
    }

    /// The same with further memory.
    fn sharded_beside(&self, sharding: Sharding, gpus: u32, more: Bytes) -> Self {
        let Some(states) = self.states.filter(|_| sharding != Sharding::None && gpus > 1) else {
            return self.clone();
        };
        if let Some(narrowest) = &self.narrowest {
            let of = |fit: &Self| fit.sharded_beside(sharding, gpus, more);
            return self.between(&of(narrowest), of);
        }
        let saved = states.total().checked_sub(states.on_each(sharding, gpus)).unwrap_or_default();
        // With divided state, the peak may move from the update to the moment of most activations.
        let own = |working: Working| {
            let gradients = ModelStates { gradients: working.gradients, ..states };
            gradients.on_each(sharding, gpus) + working.growing() + Bytes::known(CONTEXT_BYTES)
        };
        let beside = self.working.map_or(Bytes::ZERO, own);
        let less = |bytes: Bytes| bytes.checked_sub(saved).unwrap_or_default().max(beside) + more;
        let how = format!("with {} on {gpus} GPUs", sharding.name());
        self.of_share(self.needed.map(less), self.at_most.map(less), &how, states.is_assumed)
    }

    /// Fit on one GPU of a replica of the model that several share.
    ///
    /// Each keeps a T·P-th of the state, less the part that sharding divides among replicas. Stages that alternate one
    /// micro-batch forward and one backward (Narayanan et al. 2021, arXiv:2104.04473, section 2.2) keep the activations
    /// of up to P micro-batches of 1/P of the layers. With sequence parallelism, which is assumed as for the step, each
    /// GPU has a T-th of these. Without it, as the reason says, some are whole (Korthikanti et al. 2022,
    /// arXiv:2205.05198, section 4), or all if parts of the forward pass are recomputed, which keeps the inputs of layers. Memory not known to be
    /// activations may be temporary, divided like the state, or any activations that fit under the peak before
    /// gradients exist. If the state is unknown, so is its share.
    #[must_use]
    pub fn on_replica(&self, sharding: Sharding, on: &Share) -> Self {
        let Share { parallel, replicas, batches, .. } = *on;
        let gathered = match (self.states, on.layers) {
            (Some(states), Some(layers))
                if sharding == Sharding::Zero3 && replicas.saturating_mul(parallel.context) > 1 =>
            {
                let layers = f64::from(layers.max(1));
                let apart = 1.0 - on.experts * (1.0 - 1.0 / f64::from(parallel.expert.max(1)));
                states.parameters * (GATHERED.min(2.0 * layers) / layers * apart / f64::from(parallel.tensor))
            }
            _ => Bytes::ZERO,
        };
        if parallel.is_none() {
            return self.sharded_beside(sharding, replicas, gathered);
        }
        if let Some(narrowest) = &self.narrowest {
            return self.between(&narrowest.on_replica(sharding, on), |widest| widest.on_replica(sharding, on));
        }
        let Some(states) = self.states else {
            let fits = if self.fits == Fits::Yes { Fits::Yes } else { Fits::Unknown };
            let reason = format!(
                "unknown state size, so the share of one of {} GPUs is unknown: {}",
                parallel.gpus(),
                self.reason
            );
            return Self { fits, needed: None, reason, largest_batch: None, ..self.clone() };
        };
        let (tensor, pipeline) = (f64::from(parallel.tensor), f64::from(parallel.pipeline));
        // At the last micro-batch, the gradients of all others exist.
        let all = ModelStates { gradients: states.gradients.max(states.parameters), ..states };
        // GPUs that share a sequence have the same weights, and divide the state as replicas do.
        let peers = replicas.saturating_mul(parallel.context);
        // Those that divide the experts have fewer experts each, and fewer GPUs have the same ones.
        let of_experts = all.on_each(sharding, (peers / parallel.expert.max(1)).max(1));
        let state = all.on_each(sharding, peers) * (1.0 - on.experts)
            + of_experts * (on.experts / f64::from(parallel.expert.max(1)));
        let own = state * (1.0 / (tensor * pipeline)) + gathered + Bytes::known(CONTEXT_BYTES);
        // Interleaved stages keep more micro-batches (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
        let interleaved = match parallel.chunks {
            ..=1 => 1.0,
            chunks => 1.0 + (pipeline - 1.0) / (pipeline * f64::from(chunks)),
        };
        let micro = (pipeline * interleaved).min(batches.max(1) as f64) / pipeline;
        let whole = if on.recomputes { 1.0 } else { KEPT_WHOLE };
        // GPUs that divide a sequence share its activations.
        let tokens = tensor * f64::from(parallel.context);
        let without_sequences = whole / f64::from(parallel.context) + (1.0 - whole) / tokens;
        let beside = |peak: Bytes| peak.checked_sub(states.total() + Bytes::known(CONTEXT_BYTES)).unwrap_or_default();
        let kept = |peak: Bytes| {
            let any = Activations { least: Bytes::ZERO, most: beside(peak) + states.gradients };
            self.activations.unwrap_or(any)
        };
        let needed = self.needed.map(|peak| {
            let kept = kept(peak).least.min(beside(peak));
            let temporary = beside(peak).checked_sub(kept).unwrap_or_default();
            own + kept * (micro / tokens) + temporary * (1.0 / (tokens * pipeline))
        });
        let most = |peak: Bytes, share: f64| {
            let kept = kept(peak);
            let temporary = beside(peak).checked_sub(kept.least).unwrap_or_default();
            let shared = temporary * (1.0 / (tokens * pipeline));
            // Temporary memory beside the activations belongs to the backward pass of one micro-batch.
            let with_them = if kept.least == kept.most { temporary * share } else { Bytes::ZERO };
            own + (kept.most * (micro * share) + with_them).max(shared)
        };
        let at_most = self.at_most.map(|peak| most(peak, 1.0 / tokens));
        let without = self.at_most.map(|peak| most(peak, without_sequences));
        let divided = if sharding == Sharding::None || peers == 1 {
            String::new()
        } else {
            format!(", {} over {replicas} replicas", sharding.name())
        };
        let without = match without {
            Some(most) if tensor > 1.0 => format!(", {:.1} without sequence parallelism", most.get() / GIB),
            _ => String::new(),
        };
        let how = format!("with {}{divided}{without}", parallel.words());
        Self { largest_batch: None, ..self.of_share(needed, at_most, &how, states.is_assumed) }
    }

    /// A share of a step in narrower or wider numbers than recorded: what the narrowest numbers need at least,
    /// and the widest at most.
    fn between(&self, least: &Self, share: impl Fn(&Self) -> Self) -> Self {
        let widest = share(&Self { narrowest: None, needed: self.at_most, ..self.clone() });
        let fits = match (widest.fits, least.fits) {
            (Fits::Yes, _) => Fits::Yes,
            (_, Fits::No) => Fits::No,
            _ => Fits::Unknown,
        };
        let reason = match (fits, least.needed) {
            (Fits::Unknown, Some(bytes)) => {
                let least = bytes.get() / GIB;
                format!("may fit: at least {least:.1} GB in the narrowest precision; in the widest, {}", widest.reason)
            }
            (Fits::No, _) => least.reason.clone(),
            _ => widest.reason.clone(),
        };
        Self { fits, needed: least.needed, reason, narrowest: Some(Box::new(least.clone())), ..widest }
    }

    /// Fit for a share of the need.
    fn of_share(&self, needed: Option<Bytes>, at_most: Option<Bytes>, how: &str, is_assumed: bool) -> Self {
        let is_within = |bytes: Bytes| bytes.get() <= self.usable.get();
        let fits = match self.fits {
            Fits::Yes => Fits::Yes,
            _ if at_most.is_some_and(is_within) => Fits::Yes,
            Fits::No if needed.is_some_and(|needed| !is_within(needed)) => Fits::No,
            Fits::No | Fits::Unknown => Fits::Unknown,
        };
        let of_gpu = [needed.or(at_most).unwrap_or_default(), self.usable].map(|bytes| bytes.get() / GIB);
        let reason = format!(
            "{} {:.1} GB {how}, {:.1} GB usable{}",
            match fits {
                Fits::Yes => "needs",
                Fits::No => "does not fit: needs",
                Fits::Unknown => "needs at least",
            },
            of_gpu[0],
            of_gpu[1],
            if is_assumed { " (no optimizer found: assuming Adam)" } else { "" },
        );
        let reason = if needed.or(at_most).is_some() { reason } else { self.reason.clone() };
        Self { fits, needed, at_most, reason, ..self.clone() }
    }
}

/// Activations that the forward pass keeps for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activations {
    /// Minimum that is kept.
    pub least: Bytes,
    /// Maximum that may be kept; equal to the minimum if the peak is in the backward pass and thus shows it.
    pub most: Bytes,
}

/// Placement of a replica on GPUs, as far as memory depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// GPUs per replica.
    pub parallel: ModelParallel,
    /// Number of replicas.
    pub replicas: u32,
    /// Micro-batches per optimizer step and replica.
    pub batches: u64,
    /// Whether the backward pass recomputes parts of the forward pass.
    pub recomputes: bool,
    /// Share of the parameters in experts, 0 to 1.
    pub experts: f64,
    /// Layers of the model, if known.
    pub layers: Option<u32>,
}

impl Share {
    /// Placement of a step on a layout.
    pub fn new(layout: &Layout, batches: u64, model: Option<&TransformerStep>, parameters: Option<u64>) -> Self {
        let experts = model.and_then(|model| Some(model.experts?.weights / parameters? as f64));
        Self {
            parallel: layout.parallel,
            replicas: layout.replicas(),
            batches,
            recomputes: model.is_some_and(|model| model.recomputes),
            experts: experts.unwrap_or(0.0).clamp(0.0, 1.0),
            layers: model.map(|model| model.layers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 80 GB of state (10, 10 and 60), 34 beside it and 1 for the process, on 4-way tensor parallel GPUs and 2 stages:
    /// an eighth of the state, and a quarter of the activations of two micro-batches on half the layers.
    #[test]
    fn a_replica_on_several_gpus_by_hand() {
        let gb = |gb: f64| Bytes::known(gb * 1e9);
        let states = ModelStates { parameters: gb(10.0), gradients: gb(10.0), optimizer: gb(60.0), is_assumed: false };
        let usable = gb(22.0);
        let whole = MemoryFit {
            fits: Fits::No,
            needed: Some(gb(115.0)),
            working: None,
            narrowest: None,
            at_most: Some(gb(115.0)),
            usable,
            reason: String::new(),
            largest_batch: Some(1),
            states: Some(states),
            activations: Some(Activations { least: gb(34.0), most: gb(34.0) }),
        };
        let on = |tensor, pipeline, replicas, batches| Share {
            parallel: ModelParallel { tensor, pipeline, ..ModelParallel::NONE },
            replicas,
            batches,
            recomputes: false,
            experts: 0.0,
            layers: None,
        };
        let ends = |sharding, on: Share| {
            let fit = whole.on_replica(sharding, &on);
            let [needed, most] = [fit.needed, fit.at_most].map(|bytes| bytes.unwrap().get() / 1e9);
            ((needed * 1e6).round() / 1e6, (most * 1e6).round() / 1e6, fit.fits)
        };
        // 10 + 1 + 34/4; without sequence parallelism 10 of the 34 stay whole: 10 + 24/4.
        assert_eq!(ends(Sharding::None, on(4, 2, 1, 8)), (19.5, 19.5, Fits::Yes));
        let reason = whole.on_replica(Sharding::None, &on(4, 2, 1, 8)).reason;
        assert!(reason.contains(&format!("{:.1} without sequence parallelism", 27e9 / GIB)), "{reason}");
        // Half of them with one micro-batch: 4.25.
        assert_eq!(ends(Sharding::None, on(4, 2, 1, 1)), (15.25, 15.25, Fits::Yes));
        // Each GPU has 7.5 of 60 GB of optimizer state, and half of that with two replicas.
        assert_eq!(ends(Sharding::Zero1, on(4, 2, 2, 8)), (15.75, 15.75, Fits::Yes));
        assert_eq!(ends(Sharding::None, on(1, 2, 1, 8)), (75.0, 75.0, Fits::No));
        // Three quarters are of experts, which 8 of 16 replicas divide; two GPUs have the same ones: 35 beside 5 and
        // 15 / 8 of weights and gradients, and 15 / 16 and 45 / 8 / 2 of the optimizer's.
        let mut divided = Share { experts: 0.75, ..on(1, 1, 16, 8) };
        divided.parallel.expert = 8;
        assert_eq!(ends(Sharding::Zero1, divided), (45.625, 45.625, Fits::No));
        // Layer inputs kept for recomputation are whole without it.
        let again = Share { recomputes: true, ..on(4, 2, 1, 8) };
        assert_eq!(ends(Sharding::None, again), (19.5, 19.5, Fits::Yes));
        let reason = whole.on_replica(Sharding::None, &again).reason;
        assert!(reason.contains(&format!("{:.1} without sequence parallelism", 45e9 / GIB)), "{reason}");
        // A peak in the update with 34 GB beside the state: activations are unknown, but at most 20 GB.
        let update = Activations { least: Bytes::ZERO, most: gb(20.0) };
        let fit = MemoryFit { activations: Some(update), ..whole.clone() }.on_replica(Sharding::None, &on(4, 2, 1, 8));
        // 11 GB, plus an eighth of the 34 or a quarter of the 20.
        for (found, expected) in [(fit.needed, 15.25e9), (fit.at_most, 16e9)] {
            assert!((found.unwrap().get() / expected - 1.0).abs() < 1e-9, "{found:?}");
        }
        // One GPU per replica is as before; unknown state has no known share.
        assert_eq!(whole.on_replica(Sharding::Zero3, &on(1, 1, 4, 8)), whole.sharded(Sharding::Zero3, 4));
        // Three of ten layers with 10 GB of parameters are whole.
        let layers = Share { layers: Some(10), ..on(1, 1, 4, 8) };
        let [with, without] = [whole.on_replica(Sharding::Zero3, &layers), whole.sharded(Sharding::Zero3, 4)]
            .map(|fit| fit.needed.unwrap().get());
        assert!((with - without - 3e9).abs() < 1.0, "{with} {without}");
        let unknown = MemoryFit { states: None, ..whole.clone() };
        assert_eq!(unknown.on_replica(Sharding::None, &on(4, 2, 1, 8)).fits, Fits::Unknown);
    }
}
