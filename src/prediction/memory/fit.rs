//! Fit of a step in the memory of a GPU, alone or with a share of the model.

use super::{Activations, Division, Fits, MemoryBasis, RESERVED, Share, Stage};
use crate::sharding::{ModelStates, Sharding};
use habitat_base::units::Bytes;
use habitat_step::profile::Working;

/// Share of a layer's activations that tensor parallel GPUs keep whole without sequence parallelism: inputs of
/// normalisations and masks of dropout, 10 of the 34 bytes per token and element of width (Korthikanti et al. 2022,
/// arXiv:2205.05198, equations 1 and 2, without the attention scores, which fused attention does not keep).
const KEPT_WHOLE: f64 = 10.0 / 34.0;

/// Layers whose parameters are whole while one runs with divided parameters: its own, the next one's, and its gradients
/// (PyTorch's FSDP prefetches one layer: Zhao et al. 2023, arXiv:2304.11277, section 3.3).
const GATHERED: f64 = 3.0;

/// Temporary memory of `PyTorch`'s loss relative to 16-bit logits, and what it has more if logits are divided.
const PLAIN_LOSS: f64 = 5.0;
const DIVIDED_LOSS: f64 = 2.0;

/// Whether the step fits in device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryFit {
    /// Verdict.
    pub fits: Fits,
    /// Memory that the step needs as the driver shows it, with the allocator's reserve and the process; if known. The lower
    /// end if it was recorded in another precision.
    pub needed: Option<Bytes>,
    /// Peak of the tensors, if known.
    pub allocated: Option<Bytes>,
    /// Memory of the process beside its tensors.
    pub process: Bytes,
    /// Memory of forward and backward beside the state, if known.
    pub working: Option<Working>,
    /// Maximum memory need, if known.
    pub at_most: Option<Bytes>,
    /// Usable memory: 92 % of nominal.
    pub usable: Bytes,
    /// Basis of the verdict.
    pub basis: MemoryBasis,
    /// If the step is not known to fit, the largest batch per GPU that is, if peaks or parameters show how memory grows.
    pub largest_batch: Option<u64>,
    /// Parts that can be divided among GPUs, if known.
    pub states: Option<ModelStates>,
    /// Activations that the forward pass keeps, if kinds of memory were recorded.
    pub activations: Option<Activations>,
    /// The same with every number as small as it may be, of a step that is predicted in narrower or wider numbers
    /// than it was recorded in.
    pub narrowest: Option<Box<Self>>,
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
            gradients.on_each(sharding, gpus) + working.growing()
        };
        let beside = self.working.map_or(Bytes::ZERO, own);
        let less =
            |shown: Bytes| self.shown(self.tensors(shown).checked_sub(saved).unwrap_or_default().max(beside) + more);
        let division = Division::Sharded { sharding, gpus };
        self.of_share(self.needed.map(less), self.at_most.map(less), division, states.is_assumed)
    }

    /// Memory of the tensors of what the driver shows, which is also what fits in it.
    pub fn tensors(&self, shown: Bytes) -> Bytes {
        shown.checked_sub(self.process).unwrap_or_default() * (1.0 / RESERVED)
    }

    /// Memory that the driver shows for tensors.
    fn shown(&self, tensors: Bytes) -> Bytes {
        super::shown(tensors, self.process)
    }

    /// Fit on one GPU of a replica of the model that several share.
    ///
    /// Each keeps a T·P-th of the state, less the part that sharding divides among replicas. Stages that alternate one
    /// micro-batch forward and one backward (Narayanan et al. 2021, arXiv:2104.04473, section 2.2) keep the activations
    /// of up to P micro-batches of 1/P of the layers. With sequence parallelism, which is assumed as for the step, each
    /// GPU has a T-th of these. Without it, as its basis says, some are whole (Korthikanti et al. 2022,
    /// arXiv:2205.05198, section 4), or all if parts of the forward pass are recomputed, which keeps the inputs of layers. Memory not known to be
    /// activations may be temporary, divided like the state, or any activations that fit under the peak before
    /// gradients exist. If the state is unknown, so is its share.
    #[must_use]
    pub fn on_replica(&self, sharding: Sharding, on: &Share) -> Self {
        let Share { parallel, .. } = *on;
        let peers = on.peers(sharding);
        if parallel.is_none() {
            return self.sharded_beside(sharding, peers, self.gathered(sharding, on));
        }
        if let Some(narrowest) = &self.narrowest {
            return self.between(&narrowest.on_replica(sharding, on), |widest| widest.on_replica(sharding, on));
        }
        let Some(states) = self.states else {
            let fits = if self.fits == Fits::Yes { Fits::Yes } else { Fits::Unknown };
            let basis = MemoryBasis::UnknownState { gpus: parallel.gpus(), whole: Box::new(self.basis.clone()) };
            return Self { fits, needed: None, basis, largest_batch: None, ..self.clone() };
        };
        let whole = if on.recomputes { 1.0 } else { KEPT_WHOLE };
        // GPUs that divide a sequence share its activations.
        let tokens = f64::from(parallel.tensor) * f64::from(parallel.context);
        let without_sequences = whole / f64::from(parallel.context) + (1.0 - whole) / tokens;
        let gathered = self.gathered(sharding, on) + self.of_tensor(on);
        let ends = self.stages(&states, sharding, on);
        let beside = |peak: Bytes| peak.checked_sub(states.total()).unwrap_or_default();
        let recorded = |peak: Bytes| {
            let any = Activations { least: Bytes::ZERO, most: beside(peak) + states.gradients };
            self.activations.unwrap_or(any)
        };
        let kept = |peak: Bytes| on.kept(recorded(peak));
        let largest = |need: &dyn Fn(&OnStage) -> Bytes| {
            let needs = ends.iter().map(|stage| (need(stage), stage.place));
            needs.max_by(|a, b| a.0.get().total_cmp(&b.0.get())).unwrap_or_default()
        };
        let least = self.needed.map(|shown| {
            let peak = self.tensors(shown);
            let temporary = beside(peak).checked_sub(recorded(peak).least).unwrap_or_default();
            let kept = kept(peak).least.min(beside(peak));
            largest(&|stage| {
                self.shown(
                    stage.state + gathered + kept * (stage.micro / tokens) + temporary * (stage.temporary / tokens),
                )
            })
        });
        let most = |shown: Bytes, share: f64| {
            let peak = self.tensors(shown);
            let temporary = beside(peak).checked_sub(recorded(peak).least).unwrap_or_default();
            let kept = kept(peak);
            // Temporary memory beside the activations belongs to the backward pass of one micro-batch.
            let is_beside = kept.least == kept.most;
            let need = |stage: &OnStage| {
                let shared = temporary * (stage.temporary / tokens);
                let with_them = if is_beside { temporary * (stage.temporary * share) } else { Bytes::ZERO };
                self.shown(stage.state + gathered + (kept.most * (stage.micro * share) + with_them).max(shared))
            };
            largest(&need).0
        };
        let at_most = self.at_most.map(|peak| most(peak, 1.0 / tokens));
        let without = self.at_most.map(|peak| most(peak, without_sequences));
        let division = Division::Replica {
            parallel,
            stage: least.and_then(|(_, stage)| stage),
            sharded: (sharding != Sharding::None && peers > 1).then_some((sharding, peers)),
            without_sequences: without.filter(|_| parallel.tensor > 1),
        };
        let needed = least.map(|(bytes, _)| bytes);
        Self { largest_batch: None, ..self.of_share(needed, at_most, division, states.is_assumed) }
    }

    /// Whole parameters beside the divided ones: those outside the layers during both passes, and those of a few layers.
    /// The latter only if they exceed the temporary memory of the loss, which no layer runs beside.
    fn gathered(&self, sharding: Sharding, on: &Share) -> Bytes {
        let is_gathered = sharding >= Sharding::Zero3 && on.peers(sharding) > 1;
        let known = self.states.zip(on.layers).filter(|_| is_gathered);
        let Some((states, layers)) = known else { return Bytes::ZERO };
        let layers = f64::from(layers.max(1));
        let apart = 1.0 - on.experts * (1.0 - 1.0 / f64::from(on.parallel.expert.max(1)));
        let both = on.ends[0] + on.ends[1] - on.tied;
        let ends = if on.parallel.pipeline > 1 { on.ends[0].max(on.ends[1]) } else { both };
        let of_layers = GATHERED.min(2.0 * layers) / layers * (1.0 - both) * apart;
        let whole = |share: f64| states.parameters * (share / f64::from(on.parallel.tensor));
        let temporary = self.working.map_or(Bytes::ZERO, |working| working.temporary)
            * (1.0 / f64::from(on.parallel.tensor * on.parallel.context));
        whole(ends) + whole(of_layers).checked_sub(temporary).unwrap_or_default()
    }

    /// Memory of tensor parallel GPUs beside their shares: the input of a product that all of them gather, with its gradient
    /// (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2), and what a loss over divided logits keeps. `PyTorch`'s
    /// has a gradient of zeros, exponentials and their sum beside the log-probabilities, 16 bytes a logit
    /// (`torch/distributed/tensor/_ops/_loss.py`); the whole one has 12; a loss with fewer copies is not `PyTorch`'s.
    fn of_tensor(&self, on: &Share) -> Bytes {
        let [tensor, context] = [on.parallel.tensor, on.parallel.context].map(f64::from);
        if tensor <= 1.0 {
            return Bytes::ZERO;
        }
        let [between, logits] = on.whole.map(|bytes| bytes * (1.0 / context));
        let temporary = self.working.map_or(Bytes::ZERO, |working| working.temporary) * (1.0 / context);
        let is_plain = logits.get() > 0.0 && temporary.get() >= PLAIN_LOSS * logits.get() * (1.0 - 1e-6);
        let divided = if is_plain { logits * (DIVIDED_LOSS / tensor) } else { Bytes::ZERO };
        between * (2.0 * (1.0 - 1.0 / tensor)) + divided
    }

    /// Stages that may need most: the first keeps the most micro-batches and the embedding, the last one the loss.
    fn stages(&self, states: &ModelStates, sharding: Sharding, on: &Share) -> Vec<OnStage> {
        let Share { parallel, batches, experts, .. } = *on;
        // At the last micro-batch, the gradients of all others exist.
        let all = ModelStates { gradients: states.gradients.max(states.parameters), ..*states };
        // Those that divide the experts have fewer experts each, and fewer GPUs have the same ones.
        let peers = on.peers(sharding);
        let expert = parallel.expert.max(1);
        let [dense, of_experts] = [peers, (peers / expert).max(1)].map(|gpus| all.on_each(sharding, gpus));
        let parts = f64::from(parallel.pipeline);
        let ends = on.ends[0] + on.ends[1] - on.tied;
        // Layers of the stage with most of them, relative to equal stages.
        let most =
            on.layers.map_or(1.0, |layers| f64::from(parallel.most_layers(layers)) * parts / f64::from(layers.max(1)));
        let (layers, experts) = ((1.0 - experts - ends).max(0.0) * most / parts, experts * most);
        let state = |ends: f64| {
            (dense * (layers + ends) + of_experts * (experts / f64::from(expert) / parts))
                * (1.0 / f64::from(parallel.tensor))
        };
        if parallel.pipeline <= 1 {
            return vec![OnStage { place: None, state: state(ends), micro: 1.0, temporary: 1.0 }];
        }
        // Interleaved stages keep more micro-batches (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
        let of_chunks = (parts - 1.0) / (parts * f64::from(parallel.chunks.max(1)));
        let interleaved = if parallel.chunks <= 1 { [1.0, 1.0 / parts] } else { [1.0 + of_chunks, 1.0 - of_chunks] };
        let micro = interleaved.map(|of| (parts * of).min(batches.max(1) as f64) / parts * most);
        // Unknown temporary memory may be that of the update.
        let temporary = if self.working.is_some() { [0.0, 1.0] } else { [1.0 / parts; 2] };
        let at = |place, end: usize| OnStage {
            place: Some(place),
            state: state(on.ends[end]),
            micro: micro[end],
            temporary: temporary[end],
        };
        vec![at(Stage::Last, 1), at(Stage::First, 0)]
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
        let basis = match (fits, least.needed) {
            (Fits::Unknown, Some(least)) => MemoryBasis::Between { least, widest: Box::new(widest.basis.clone()) },
            (Fits::No, _) => least.basis.clone(),
            _ => widest.basis.clone(),
        };
        Self { fits, needed: least.needed, basis, narrowest: Some(Box::new(least.clone())), ..widest }
    }

    /// Fit for a share of the need.
    fn of_share(&self, needed: Option<Bytes>, at_most: Option<Bytes>, division: Division, is_assumed: bool) -> Self {
        let verdict = |shown: Bytes| super::verdict(self.tensors(shown), self.process, self.usable);
        let fits = match self.fits {
            Fits::Yes => Fits::Yes,
            _ if at_most.is_some_and(|most| most.get() <= self.usable.get()) => Fits::Yes,
            Fits::No if needed.is_some_and(|needed| verdict(needed) == Fits::No) => Fits::No,
            Fits::No | Fits::Unknown => Fits::Unknown,
        };
        let basis = match needed.or(at_most) {
            Some(shown) => MemoryBasis::Share {
                fits,
                needed: shown,
                is_least: needed != at_most,
                division,
                usable: self.usable,
                assumes_adam: is_assumed,
            },
            None => self.basis.clone(),
        };
        Self { fits, needed, allocated: None, at_most, basis, ..self.clone() }
    }
}

/// Memory of a pipeline stage.
struct OnStage {
    /// `None` if it is the only one.
    place: Option<Stage>,
    state: Bytes,
    /// Micro-batches whose activations it keeps at once, relative to those of the whole model.
    micro: f64,
    /// Share of the temporary memory.
    temporary: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::{Layout, ModelParallel};

    /// 80 GB of state (10, 10 and 60), 34 beside it, 1.4 for the process and a reserve of a tenth, on 4-way tensor parallel GPUs and 2 stages:
    /// an eighth of the state, and a quarter of the activations of two micro-batches on half the layers.
    #[test]
    fn a_replica_on_several_gpus_by_hand() {
        let gb = |gb: f64| Bytes::known(gb * 1e9);
        let states = ModelStates { parameters: gb(10.0), gradients: gb(10.0), optimizer: gb(60.0), is_assumed: false };
        let usable = gb(22.0);
        let whole = MemoryFit {
            fits: Fits::No,
            needed: Some(gb(126.8)),
            allocated: None,
            process: gb(1.4),
            working: None,
            narrowest: None,
            at_most: Some(gb(126.8)),
            usable,
            basis: MemoryBasis::Unknown,
            largest_batch: Some(1),
            states: Some(states),
            activations: Some(Activations { least: gb(34.0), most: gb(34.0) }),
        };
        let on = |tensor, pipeline, replicas, batches| {
            let parallel = ModelParallel { tensor, pipeline, ..ModelParallel::NONE };
            let layout = Layout { parallel, ..Layout::one_machine(tensor * pipeline * replicas) };
            Share::new(&layout, [1, batches], None, None)
        };
        let ends = |sharding, on: Share| {
            let fit = whole.on_replica(sharding, &on);
            let [needed, most] = [fit.needed, fit.at_most].map(|bytes| bytes.unwrap().get() / 1e9);
            ((needed * 1e6).round() / 1e6, (most * 1e6).round() / 1e6, fit.fits)
        };
        // 1.4 + 1.1 (10 + 34/4); without sequence parallelism 10 of the 34 stay whole: 10 + 24/4.
        assert_eq!(ends(Sharding::None, on(4, 2, 1, 8)), (21.75, 21.75, Fits::Yes));
        let division = |fit: &MemoryFit| {
            let MemoryBasis::Share { division: Division::Replica { stage, without_sequences, .. }, .. } = fit.basis
            else {
                panic!("{fit:?}")
            };
            (stage, without_sequences.map(|most| (most.get() / 1e6).round() / 1e3))
        };
        assert_eq!(division(&whole.on_replica(Sharding::None, &on(4, 2, 1, 8))).1, Some(30.0));
        // Half of them with one micro-batch: 4.25.
        assert_eq!(ends(Sharding::None, on(4, 2, 1, 1)), (17.075, 17.075, Fits::Yes));
        // Each GPU has 7.5 of 60 GB of optimizer state, and half of that with two replicas.
        assert_eq!(ends(Sharding::Zero1, on(4, 2, 2, 8)), (17.625, 17.625, Fits::Yes));
        assert_eq!(ends(Sharding::None, on(1, 2, 1, 8)), (82.8, 82.8, Fits::No));
        // Three quarters are of experts, which 8 of 16 replicas divide; two GPUs have the same ones: 35 beside 5 and
        // 15 / 8 of weights and gradients, and 15 / 16 and 45 / 8 / 2 of the optimizer's.
        let mut divided = Share { experts: 0.75, ..on(1, 1, 16, 8) };
        divided.parallel.expert = 8;
        assert_eq!(ends(Sharding::Zero1, divided), (50.4875, 50.4875, Fits::No));
        // Layer inputs kept for recomputation are whole without it.
        let again = Share { recomputes: true, ..on(4, 2, 1, 8) };
        assert_eq!(ends(Sharding::None, again), (21.75, 21.75, Fits::Yes));
        assert_eq!(division(&whole.on_replica(Sharding::None, &again)).1, Some(49.8));
        // A peak in the update with 34 GB beside the state: activations are unknown, but at most 20 GB.
        let update = Activations { least: Bytes::ZERO, most: gb(20.0) };
        let fit = MemoryFit { activations: Some(update), ..whole.clone() }.on_replica(Sharding::None, &on(4, 2, 1, 8));
        // 1.4 GB, plus 1.1 times 10 GB and an eighth of the 34 or a quarter of the 20.
        for (found, expected) in [(fit.needed, 17.075e9), (fit.at_most, 17.9e9)] {
            assert!((found.unwrap().get() / expected - 1.0).abs() < 1e-9, "{found:?}");
        }
        // An eighth of the 80 GB in the embedding, and in the last product: the first stage has 10 + 30 of 80 GB, and
        // activations of two micro-batches; the last one those of one and all of the 20 GB at the loss.
        let working = Working { gradients: gb(10.0), activations: gb(14.0), temporary: gb(20.0) };
        let known = Some(Activations { least: gb(14.0), most: gb(14.0) });
        let staged = MemoryFit { working: Some(working), activations: known, ..whole.clone() };
        let ends = Share { ends: [0.125; 2], ..on(1, 2, 1, 8) };
        let fit = staged.on_replica(Sharding::None, &ends);
        assert!((fit.needed.unwrap().get() / (1.4e9 + 1.1 * 67e9) - 1.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(division(&fit).0, Some(Stage::Last));
        let ends = Share { ends: [0.25, 0.0], ..on(1, 2, 1, 8) };
        let fit = staged.on_replica(Sharding::None, &ends);
        assert!((fit.needed.unwrap().get() / (1.4e9 + 1.1 * 64e9) - 1.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(division(&fit).0, Some(Stage::First));
        // Tied, a quarter of the state is at both ends: 20 of 80 GB and half of the other 60, and 27 beside it on the last.
        let tied = Share { ends: [0.25; 2], tied: 0.25, ..on(1, 2, 1, 8) };
        let fit = staged.on_replica(Sharding::None, &tied);
        assert!((fit.needed.unwrap().get() / (1.4e9 + 1.1 * 77e9) - 1.0).abs() < 1e-9, "{fit:?}");
        // Layers that run again keep their inputs, 4 GB, and a tenth of the 14.
        let mut again = Share { inputs: Some(gb(4.0)), layers: Some(10), ..on(1, 1, 1, 8) };
        again.parallel.recompute = true;
        let fit = staged.on_replica(Sharding::None, &again);
        assert!((fit.needed.unwrap().get() / (1.4e9 + 1.1 * 105.4e9) - 1.0).abs() < 1e-9, "{fit:?}");
        // One GPU per replica is as before; unknown state has no known share.
        assert_eq!(whole.on_replica(Sharding::Zero3, &on(1, 1, 4, 8)), whole.sharded(Sharding::Zero3, 4));
        // Three of ten layers with 10 GB of parameters are whole.
        let layers = Share { layers: Some(10), ..on(1, 1, 4, 8) };
        let [with, without] = [whole.on_replica(Sharding::Zero3, &layers), whole.sharded(Sharding::Zero3, 4)]
            .map(|fit| fit.needed.unwrap().get());
        assert!((with - without - 3.3e9).abs() < 1.0, "{with} {without}");
        let unknown = MemoryFit { states: None, ..whole.clone() };
        assert_eq!(unknown.on_replica(Sharding::None, &on(4, 2, 1, 8)).fits, Fits::Unknown);
    }
}
