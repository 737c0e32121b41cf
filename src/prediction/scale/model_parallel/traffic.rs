//! Traffic of a replica: among the GPUs of a layer, between stages, and among replicas.

use super::{End, Replica};
use crate::fabric::{Collective, Fabric, Group};
use crate::scale::Layout;
use crate::sharding::Sharding;
use habitat_base::units::{Bytes, BytesPerSecond, Micros, Range};

/// Share of a pass that hides traffic (seen on published steps, as [`super::PROGRAM`]).
const HIDING: f64 = 0.85;
/// Share of the time of a layer that hides the keys and values of ring attention (seen on torchtitan's steps).
const HIDING_KEYS: f64 = 0.1;
/// Parts of a step that the passes take.
const FORWARD: f64 = 1.0 / 3.0;
const BACKWARD: f64 = 2.0 / 3.0;

/// Times of a step that are not hidden, for a micro-batch and once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exposed {
    pub(super) each: Micros,
    pub(super) once: Micros,
}

impl Replica<'_> {
    /// Peers that divide the state within a domain of links, and the number of domains.
    pub(super) fn of_peers(&self) -> Group {
        self.among(self.dividing(), 1)
    }

    /// Those with the same experts: those that divide them come first within a domain.
    pub(super) fn of_same_experts(&self) -> Group {
        let expert = self.layout.parallel.expert.max(1);
        self.among(self.dividing() / expert, expert)
    }

    /// Peers with the same part of the state, if only some of all divide it.
    fn of_copies(&self) -> Group {
        let dividing = self.dividing().max(1);
        self.among(self.peers() / dividing, dividing)
    }

    /// Peers, `apart` places from one another.
    fn among(&self, peers: u32, apart: u32) -> Group {
        let (peers, each) = (peers.max(1), self.layout.parallel.tensor.saturating_mul(apart).max(1));
        let inside = (self.domain / each).clamp(1, peers);
        Group { inside, machines: peers.div_ceil(inside) }
    }

    /// Bandwidth that `inside` of a domain's GPUs have of its network.
    pub(super) fn network(&self, end: &End, inside: u32) -> BytesPerSecond {
        let Range { low, mid, high } = self.layout.network.reached();
        let of_machine = [low, mid, high][end.network];
        of_machine * (f64::from(inside) / (f64::from(self.layout.gpus.max(1)) * self.factors().exchange))
    }

    fn fabric(&self, end: &End) -> Fabric {
        self.gpu.fabric.times(end.links / self.factors().exchange)
    }

    /// Exchange of tokens among the GPUs that divide the experts, for a micro-batch through all layers: to the experts
    /// and back, in each pass.
    pub(super) fn tokens(&self, end: &End) -> Micros {
        let (Some(experts), Layout { parallel, .. }) = (self.experts(), self.layout) else { return Micros::ZERO };
        let inside = (self.domain / parallel.tensor.max(1)).clamp(1, parallel.expert);
        let group = Group { inside, machines: parallel.expert.div_ceil(inside) };
        let bytes = experts.exchanged * (self.scale / (self.tensor() * f64::from(parallel.context)));
        let once = self.fabric(end).time(Collective::Exchange, bytes, group, self.network(end, inside));
        once * (f64::from(experts.layers) * 2.0 * self.passes())
    }

    /// Collectives of tensor parallel GPUs for a micro-batch, through all layers.
    pub(super) fn reduced(&self, end: &End) -> Micros {
        let tensor = self.layout.parallel.tensor;
        if tensor <= 1 {
            return Micros::ZERO;
        }
        // They are in one machine.
        let group = Group { inside: tensor, machines: 1 };
        let once = |collective| self.fabric(end).time(collective, self.activations, group, self.network(end, tensor));
        let passes = self.passes();
        if end.is_sequence_parallel {
            once(Collective::Gather) * (self.layers() * (4.0 * passes + 1.0))
        } else {
            once(Collective::AllReduce) * (self.layers() * 2.0 * passes)
        }
    }

    /// Unhidden part of passing keys and values around the ring, forward once and backward twice.
    pub(super) fn ring(&self, end: &End) -> Micros {
        let context = self.layout.parallel.context;
        if context <= 1 {
            return Micros::ZERO;
        }
        let rate = self.between(end, self.layout.parallel.tensor * context);
        // Keys and values together are as wide as the activations if two queries share them; their gradients are too.
        let keys = self.activations * (1.0 / self.tensor());
        let passes = self.passes() + 1.0;
        let sent = keys * (passes * f64::from(context - 1) * self.layers()) / rate;
        sent.checked_sub(self.computed(end) * HIDING_KEYS).unwrap_or_default()
    }

    /// Bandwidth from a GPU to another among `together` neighbours.
    pub(super) fn between(&self, end: &End, together: u32) -> BytesPerSecond {
        if together <= self.domain { self.fabric(end).send() } else { self.network(end, 1) }
    }

    /// Activations and gradients that a stage passes on for a micro-batch.
    pub(super) fn handed(&self, end: &End) -> Micros {
        if self.layout.parallel.pipeline <= 1 {
            return Micros::ZERO;
        }
        let parts = if end.is_sequence_parallel { self.tensor() } else { 1.0 };
        self.activations * (2.0 * self.chunks() / parts) / self.between(end, self.layout.all())
    }

    /// Traffic among replicas that the passes do not hide. The first gather and the last scatter of a layer, or of a
    /// bucket, have nothing to hide behind.
    pub(super) fn exposed(&self, end: &End) -> Exposed {
        let group = self.of_peers();
        if self.peers() <= 1 {
            return Exposed::default();
        }
        let own = 1.0 / (self.tensor() * self.stages());
        let parts = (self.layers() / self.stages()).max(1.0);
        let fabric = self.fabric(end);
        let of_experts = self.experts().map_or(0.0, |experts| (experts.weights / self.parameters).min(1.0));
        let same = self.of_same_experts();
        let time = |collective, bytes: Bytes, parts: f64| {
            let of = |share: f64, group: Group| {
                let network = self.network(end, group.inside);
                fabric.time(collective, bytes * (share * own / parts), group, network) * parts
            };
            of(1.0 - of_experts, group)
                + if of_experts > 0.0 { of(of_experts / self.expert(), same) } else { Micros::ZERO }
        };
        let stage = self.computed(end) * (1.0 / self.stages());
        let behind = |traffic: Micros, pass: f64| traffic.checked_sub(stage * (HIDING * pass)).unwrap_or_default();
        let exposed = |traffic: Micros, pass: f64| behind(traffic, pass) + traffic * (1.0 / parts);
        // Fully sharded programs gather and scatter layer by layer, others all at once.
        let at_a_time = if self.layout.sharding >= Sharding::Zero3 { parts } else { 1.0 };
        let gather = time(Collective::Gather, self.weights, at_a_time);
        let scatter = time(Collective::Gather, self.gradients, at_a_time);
        let [each, once] = match self.layout.sharding {
            Sharding::None => [Micros::ZERO, exposed(time(Collective::AllReduce, self.gradients, 1.0), BACKWARD)],
            Sharding::Zero1 => [Micros::ZERO, exposed(gather, FORWARD) + exposed(scatter, BACKWARD)],
            Sharding::Zero2 => [exposed(scatter, BACKWARD), exposed(gather, FORWARD)],
            Sharding::Zero3 => [behind(gather, FORWARD) + exposed(gather + scatter, BACKWARD), Micros::ZERO],
            Sharding::Hsdp => {
                // Each GPU sums its part of the gradients with those of the other copies, layer by layer.
                let (copies, part) = (self.of_copies(), own * self.share_of_state() / f64::from(self.dividing()));
                let network = self.network(end, copies.inside);
                let summed =
                    fabric.time(Collective::AllReduce, self.gradients * (part / parts), copies, network) * parts;
                [behind(gather, FORWARD) + exposed(gather + scatter + summed, BACKWARD), Micros::ZERO]
            }
        };
        Exposed { each, once }
    }
}
