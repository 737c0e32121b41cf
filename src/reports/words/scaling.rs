//! Sentences for steps on several GPUs.

use super::Words;
use crate::format;
use habitat_base::text::grouped;
use habitat_base::units::{Micros, Range};
use habitat_planning::plan::LayoutVerdict;
use habitat_prediction::Sharding;
use habitat_prediction::scale::{
    BoardLink, Layout, LayoutCost, LayoutFactors, Link, ModelParallel, Network, OnReplicas, Scaling, ScalingBasis,
};
use habitat_step::catalog::Vendor;

/// Bubble relative to the work of a stage from which its sentence has a remedy (a choice).
const LARGE_BUBBLE: f64 = 0.2;

/// Divided state.
impl Words for Sharding {
    fn words(&self) -> String {
        match self {
            Self::None => "nothing",
            Self::Zero1 => "optimizer state",
            Self::Zero2 => "optimizer state and gradients",
            Self::Zero3 => "optimizer state, gradients and parameters",
            Self::Hsdp => "optimizer state, gradients and parameters within a machine",
        }
        .to_owned()
    }
}

impl Words for Scaling {
    fn words(&self) -> String {
        let batches =
            self.batches.map(|batches| format!("{batches} batches per GPU and update, gradients exchanged once; "));
        let data = self.data.map(|data| {
            let cpus = data.cpus.map(|cpus| format!(" on {cpus:.0} CPUs")).unwrap_or_default();
            format!("; {:.1} ms for data{cpus}", data.wait.as_millis())
        });
        format!("{}{}{}", batches.unwrap_or_default(), self.basis.words(), data.unwrap_or_default())
    }
}

impl Words for ScalingBasis {
    fn words(&self) -> String {
        match self {
            Self::OneGpu => "one GPU, no communication".to_owned(),
            Self::Independent { gpus } => format!("{gpus} independent GPUs: inference exchanges no gradients"),
            Self::AllReduce { layout, link, gradients, extra, factor, spread: [least, most] } => {
                let machines = layout.machines > 1;
                let factor = factor.map(|factor| {
                    let of = if machines { " within a machine" } else { "" };
                    format!("{factor:.2} times the estimate{of}, as measured")
                });
                let within = if layout.gpus > 1 { format!(" over {}", link.words()) } else { String::new() };
                let between = machines.then(|| {
                    let then = if layout.gpus > 1 { ", then" } else { " over" };
                    format!("{then} {}", layout.network.words())
                });
                format!(
                    "{}: adds {:.1} ms per step, {} (all-reduce of {gradients}{within}{}); range {least:.1} to {most:.1} times that{}",
                    layout.words(),
                    extra.as_millis(),
                    factor.unwrap_or_else(|| "estimated".to_owned()),
                    between.unwrap_or_default(),
                    if machines { ", plus that of the network" } else { "" },
                )
            }
            Self::Replicas(on) => on.words(),
        }
    }
}

impl Words for OnReplicas {
    fn words(&self) -> String {
        let layout = &self.layout;
        let bubble = self.bubble.map(|bubble| {
            // A larger global batch gives more micro-batches per update.
            let remedy = if bubble > LARGE_BUBBLE { " (a larger --global-batch shrinks it)" } else { "" };
            format!("{:.0} % bubble{remedy}", bubble * 100.0)
        });
        let exchange = if layout.sharding == Sharding::None { "all-reduce" } else { "gathers and scatters" };
        let millis = |(cost, time): (LayoutCost, Option<Micros>)| {
            let what = if cost == LayoutCost::Exposed { format!("exposed {exchange}") } else { cost.words() };
            time.map(|time| format!("{} ms {what}", grouped(time.as_millis())))
        };
        let parts: Vec<String> = bubble.into_iter().chain(self.exchanges().into_iter().filter_map(millis)).collect();
        let replicas = layout.replicas();
        let of = match (layout.parallel.is_none(), replicas) {
            (true, _) => layout.words(),
            (_, 1) => format!("1 replica of {}", layout.parallel.words()),
            _ => format!("{replicas} replicas of {}", layout.parallel.words()),
        };
        let micro = if self.micro_batches == 1.0 { "micro-batch" } else { "micro-batches" };
        let rack = self.rack.map(|gpus| format!(" in racks of {gpus} GPUs")).unwrap_or_default();
        let network = if self.uses_network { format!(" and {}", layout.network.words()) } else { String::new() };
        let measured = self.measured.map_or_else(String::new, |LayoutFactors { compute, exchange }| {
            format!("; as measured: {compute:.2} times the operations, {exchange:.2} times the exchange")
        });
        let (parts, link) = (parts.join(", "), self.link.words());
        format!("{of}, {} {micro}: {parts}; over {link}{rack}{network}{measured}", self.micro_batches)
    }
}

/// To follow a time.
impl Words for LayoutCost {
    fn brief(&self) -> String {
        let words = self.words();
        let bare = ["in ", "from ", "for "].iter().find_map(|preposition| words.strip_prefix(preposition));
        bare.map(str::to_owned).unwrap_or(words)
    }

    fn words(&self) -> String {
        match self {
            Self::Bubble => "idle in the pipeline",
            Self::Collectives => "in collectives",
            Self::Tokens => "token exchange",
            Self::Ring => "ring attention",
            Self::Handed => "from stage to stage",
            Self::Exposed => "exposed exchange",
            Self::Recompute => "for recomputed layers",
            Self::Operations => "in operations",
        }
        .to_owned()
    }
}

impl Words for LayoutVerdict {
    fn words(&self) -> String {
        match self {
            Self::Chosen => "the plan's".to_owned(),
            Self::Time { share, cause, more_us } => {
                let sign = if *more_us < 0.0 { '-' } else { '+' };
                let time = format::time(Micros::known(more_us.abs()));
                format!("{}: {} {sign}{time}", format::signed_percent(*share), cause.brief())
            }
            Self::Memory { short_bytes, usable_bytes, stage } => {
                let stage = stage.as_ref().map(Words::words).unwrap_or_default();
                format!("{} short of {}{stage}", format::memory(*short_bytes), format::memory(*usable_bytes))
            }
            Self::LeavesLinks { joined } => format!("leaves the {joined} GPUs that links join"),
        }
    }
}

/// `8-way tensor parallel × 2 pipeline stages`; in brief `TP 8 · PP 2`.
impl Words for ModelParallel {
    fn brief(&self) -> String {
        let stages =
            if self.chunks > 1 { format!("{}×{}", self.pipeline, self.chunks) } else { self.pipeline.to_string() };
        let parts = [
            (self.tensor > 1, format!("TP {}", self.tensor)),
            (self.context > 1, format!("CP {}", self.context)),
            (self.pipeline > 1, format!("PP {stages}")),
            (self.expert > 1, format!("EP {}", self.expert)),
        ];
        parts.into_iter().filter_map(|(is_used, words)| is_used.then_some(words)).collect::<Vec<_>>().join(" · ")
    }

    fn words(&self) -> String {
        let stages = match self.chunks {
            ..=1 => format!("{} pipeline stages", self.pipeline),
            chunks => format!("{} pipeline stages of {chunks} interleaved chunks", self.pipeline),
        };
        let parts = [
            (self.tensor > 1, format!("{}-way tensor parallel", self.tensor)),
            (self.context > 1, format!("{}-way context parallel", self.context)),
            (self.pipeline > 1, stages),
        ];
        let parts = parts.into_iter().filter(|(is_used, _)| *is_used).map(|(_, words)| words);
        let parts = parts.collect::<Vec<_>>().join(" × ");
        // GPUs of several replicas divide the experts.
        let experts = (self.expert > 1).then(|| format!("{}-way expert parallel", self.expert));
        let recompute = self.recompute.then(|| "recomputed layers".to_owned());
        let whole = Some("whole models".to_owned()).filter(|_| parts.is_empty() && experts.is_none());
        let parts = Some(parts).filter(|parts| !parts.is_empty());
        let all = [whole.filter(|_| self.recompute), parts, experts, recompute];
        all.into_iter().flatten().collect::<Vec<_>>().join(", with ")
    }
}

/// `8 GPUs`, `2 machines with 8 GPUs each`.
impl Words for Layout {
    fn words(&self) -> String {
        match (self.machines, self.gpus) {
            (1, gpus) => format!("{gpus} GPUs"),
            (machines, 1) => format!("{machines} machines with 1 GPU each"),
            (machines, gpus) => format!("{machines} machines with {gpus} GPUs each"),
        }
    }
}

/// To follow `over`.
impl Words for Network {
    fn words(&self) -> String {
        let Range { low, mid, high } = self.reached().map(|rate| rate.get() / 1e9);
        let of = match self {
            Self::Rate(rate) => {
                let [least, most] = [low, high].map(|reached| reached * 8.0 / rate * 100.0);
                format!("{least:.0} to {most:.0} % of a {rate} Gbit/s network")
            }
            Self::Unknown => "unknown network: assuming 10 to 100 Gbit/s over TCP".to_owned(),
        };
        format!("{mid:.1} GB/s between machines ({low:.1} to {high:.1}, {of})")
    }
}

impl Words for BoardLink {
    fn words(&self) -> String {
        match (self.link, self.vendor) {
            (Link::HostMemory, _) => "PCI Express through host memory",
            (Link::PciExpress, _) => "PCI Express",
            (Link::Modules | Link::Switched, Vendor::Amd) => "Infinity Fabric",
            (Link::Modules, Vendor::Nvidia) => "modules with NVLink",
            (Link::Switched, Vendor::Nvidia) => "NVLink with switches",
        }
        .to_owned()
    }
}
