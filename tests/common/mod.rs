//! A small step, three GPUs and a plan, made by hand: nothing the predictors or the solver
//! learn changes the pictures.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;

use habitat_tui::app::engine::Solved;
use habitat_tui::app::{Engine, SaveOutcome, Screen, Setup, Source};
use habitat_tui::catalog::{Catalog, Vendor};
use habitat_tui::plan::{
    Amount, FrontierPoint, Goal, Part, Plan, PlanStatus, Rejection, RejectionKind, SolverReport, Total, Work,
};
use habitat_tui::predict::batches::{Basis, GpuSweep, Sweep, SweepRow};
use habitat_tui::predict::compare::{Answer, Compared, Comparison, OnGpu, Validated};
use habitat_tui::predict::rate::Link;
use habitat_tui::predict::{
    Estimate, Fits, GpuFacts, MemoryFit, Method, MethodChoice, MethodShare, OperationPrediction, Prediction,
    Predictions, StepTime,
};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier, Trust};
use habitat_tui::profile::Phase::{Backward, Forward};
use habitat_tui::profile::Profile;
use habitat_tui::settings::keymap::{Key, Keymap};
use habitat_tui::settings::theme::{ColourLevel, GlyphSet, Theme};
use habitat_tui::tui::Launch;
use habitat_tui::units::{Bytes, GIB, GpuSlug, Hours, Micros, Range, Samples, Usd, UsdPerHour};

const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "bert-tiny", "mode": "training", "batch_size": 16, "sequence_length": 128,
               "precision": "fp32", "parameter_count": 4400000},
  "origin": {"gpu": "v100-pcie-32gb", "gpu_name": "Tesla V100-PCIE-32GB", "framework": "pytorch 2.1.0", "cuda": "12.1"},
  "step": {"duration_us": 10000, "duration_range_us": [9800, 10400], "device_busy_us": 8000,
           "peak_memory_bytes": 8589934592, "samples": 20},
  "operations": [
    {"name": "aten::mm", "module": "encoder.0.query", "phase": "forward", "count": 4, "inputs": [[2048, 128], [128, 128]],
     "outputs": [[2048, 128]], "dtype": "float32", "device_time_us": 500,
     "kernels": [{"name": "volta_sgemm_128x64_tn", "duration_us": 490, "grid": [8, 64, 1], "block": [128, 1, 1],
                  "registers_per_thread": 122, "static_shared_memory_bytes": 12288}]},
    {"name": "aten::mm", "phase": "backward", "count": 8, "inputs": [[128, 2048], [2048, 128]], "device_time_us": 550,
     "kernels": [{"name": "volta_sgemm_64x64_nt", "duration_us": 540, "grid": [4, 4, 1], "block": [64, 1, 1]}]},
    {"name": "aten::native_layer_norm", "phase": "forward", "count": 2, "inputs": [[2048, 128]], "device_time_us": 300,
     "kernels": [{"name": "layer_norm_kernel\u001b[31m", "duration_us": 290, "grid": [2048, 1, 1], "block": [32, 4, 1]}]},
    {"name": "aten::addcdiv_", "phase": "optimizer", "count": 40, "inputs": [[128, 128]], "device_time_us": 20}
  ]}"#;

fn micros(value: f64) -> Micros {
    Micros::new(value).unwrap()
}

fn slug(text: &str) -> GpuSlug {
    GpuSlug::new(text).unwrap()
}

/// The screen as lines, without blanks at their ends.
pub fn text(buffer: &ratatui::buffer::Buffer) -> String {
    let mut lines = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}

/// Keys as they are written in settings, between spaces.
pub fn keys(text: &str) -> Vec<Key> {
    text.split_whitespace().map(|key| key.parse().unwrap()).collect()
}

fn prediction(name: &str, gpu: &str, millis: f64, memory: f64, fits: Fits, measured: bool) -> Prediction {
    let mid = micros(millis * 1e3);
    let step = if measured {
        StepTime::Measured { median: mid, range: Some([mid * 0.98, mid * 1.04]) }
    } else {
        StepTime::Predicted(Estimate::with_band(mid, 0.1, Method::Mixed))
    };
    let ratio = millis / 10.0;
    let operation = |index: usize, name: &str, phase, count, time: f64| OperationPrediction {
        index,
        name: name.into(),
        phase,
        count,
        time: Some(Estimate::with_band(micros(time * ratio), 0.2, Method::Roofline)),
        origin_time: Some(micros(time)),
        is_far: false,
        why: "the kernel may differ on this GPU, so the roofline of the shapes is taken".into(),
    };
    Prediction {
        precision_note: None,
        warnings: Vec::new(),
        gpu: GpuFacts {
            slug: slug(gpu),
            name: name.into(),
            vendor: Vendor::Nvidia,
            architecture: "Test".into(),
            memory: Bytes::new(memory * GIB).unwrap(),
            link: Link::new(None, Some(4)),
            power: None,
            doubtful: gpu.starts_with("l4"),
        },
        throughput: step.as_estimate().throughput(16),
        step,
        host_idle: micros(2000.0),
        shares: vec![
            MethodShare { method: Method::WaveScaling, device_time: micros(3000.0), share: 0.4 },
            MethodShare { method: Method::Roofline, device_time: micros(4500.0), share: 0.6 },
        ],
        operations: vec![operation(0, "aten::mm", Forward, 4, 500.0), operation(1, "aten::mm", Backward, 8, 550.0)],
        memory: MemoryFit {
            fits,
            needed: Some(Bytes::new(8.0 * GIB).unwrap()),
            usable: Bytes::new(memory * GIB * 0.92).unwrap(),
            reason: format!("the step needs 8.0 GB, {:.1} GB may be used", memory * 0.92),
        },
        notes: vec!["bandwidth assumed: 83 % of the specification".into()],
    }
}

/// Methods that agree but for the roofline; one has no answer.
fn comparison(profile: &Profile, gpu: &GpuSlug, method: Option<MethodChoice>) -> Comparison {
    let found = predictions(profile).predictions.into_iter().find(|prediction| prediction.gpu.slug == *gpu).unwrap();
    let step = found.step.as_estimate();
    let judged =
        |error, steps| Some(Validated { error, steps, on: "training steps from a trace of another GPU".into() });
    let answer = |factor: f64, validated| {
        Some(Answer { step: Estimate::with_band(step.range.mid * factor, 0.1, Method::Mixed), validated })
    };
    let methods = [MethodChoice::Auto, MethodChoice::WaveScaling, MethodChoice::Roofline, MethodChoice::HabitatMlp];
    Comparison {
        workload: profile.workload.clone(),
        origin: profile.origin.clone(),
        methods: methods
            .iter()
            .map(|&method| Compared {
                method,
                missing: (method == MethodChoice::HabitatMlp).then(|| "no networks were given".to_owned()),
            })
            .collect(),
        warnings: Vec::new(),
        gpus: vec![OnGpu {
            recorded: None,
            answers: vec![answer(1.0, judged(0.08, 50)), answer(1.1, judged(0.07, 6)), answer(0.7, None), None],
            taken: methods.iter().position(|it| *it == method.unwrap_or_default()),
            why: "8.0 % off on 50 training steps from a trace of another GPU".into(),
            disagreement: Some(
                "no step time is in the ranges of all methods: roofline 2.52–3.08 ms; auto 3.60–4.40 ms".into(),
            ),
            gpu: found.gpu,
        }],
    }
}

/// Twice and four times the recorded batch; the last is too large.
fn sweep(profile: &Profile, gpu: &GpuSlug) -> Sweep {
    let found = predictions(profile).predictions.into_iter().find(|prediction| prediction.gpu.slug == *gpu).unwrap();
    let recorded = found.step.as_estimate();
    let row = |batch: u64| {
        let step = Estimate::with_band(recorded.range.mid * (batch as f64 / 16.0), 0.1, Method::BatchLine);
        SweepRow {
            batch,
            wide: [step.range.low * 0.9, step.range.high * 1.1],
            throughput: step.throughput(batch),
            step,
            memory: MemoryFit { fits: if batch > 32 { Fits::No } else { Fits::Yes }, ..found.memory.clone() },
        }
    };
    Sweep {
        workload: profile.workload.clone(),
        basis: Basis::Shapes,
        recorded: vec![16],
        shapes_only: false,
        gpus: vec![GpuSweep {
            gpu: found.gpu.clone(),
            rows: vec![row(16), row(32), row(64)],
            line: None,
            families: Vec::new(),
            largest: Some(40),
            notes: Vec::new(),
        }],
        memory: None,
        warnings: Vec::new(),
        notes: vec!["one batch size recorded (16): shapes scaled to the others".into()],
    }
}

fn predictions(profile: &Profile) -> Predictions {
    Predictions {
        workload: profile.workload.clone(),
        origin: profile.origin.clone(),
        predictions: vec![
            prediction("Tesla V100-PCIE-32GB", "v100-pcie-32gb", 10.0, 32.0, Fits::Yes, true),
            prediction("H100 SXM5 80GB", "h100-sxm5-80gb", 4.0, 80.0, Fits::Yes, false),
            prediction("L4", "l4", 16.0, 24.0, Fits::Yes, false),
            prediction("Quadro P620", "quadro-p620", 90.0, 2.0, Fits::No, false),
        ],
        notes: vec!["GPU idle, waiting for the CPU: 2.0 ms of each step".into()],
    }
}

fn offer(provider: &str, gpu: &str, count: u32, tier: Tier, price: f64) -> Offer {
    Offer {
        id: OfferId::new(provider, "eu-1", &format!("{gpu}-x{count}"), tier),
        provider: provider.into(),
        region: "eu-1".into(),
        instance_type: format!("{gpu}-x{count}"),
        gpu_name: gpu.to_uppercase(),
        gpu: Some(slug(gpu)),
        gpu_count: count,
        gpu_memory: None,
        vcpus: None,
        host_memory: None,
        tier,
        price: UsdPerHour::new(price).unwrap(),
        as_of: Some(jiff::civil::date(2026, 7, 20)),
        trust: Trust::default(),
        source: "test".into(),
        unusable: None,
        note: None,
    }
}

/// On this day the spot price is old.
const DAY: jiff::civil::Date = jiff::civil::date(2026, 9, 1);

fn book() -> PriceBook {
    PriceBook::new([
        offer("alpha", "h100-sxm5-80gb", 1, Tier::OnDemand, 2.4),
        offer("beta", "l4", 1, Tier::Spot, 0.3),
        offer("beta", "l4", 1, Tier::OnDemand, 0.35),
        offer("beta", "v100-pcie-32gb", 2, Tier::OnDemand, 1.2),
    ])
    .on(DAY)
}

/// The corners that the parts of a plan and its alternatives make.
fn frontier(plan: &Plan) -> Vec<FrontierPoint> {
    let mut all: Vec<&Part> = plan.parts.iter().chain(&plan.alternatives).collect();
    all.sort_by(|a, b| a.hours.mid.total_cmp(&b.hours.mid));
    let mut least = f64::INFINITY;
    all.retain(|part| {
        let (cost, before) = (part.cost.mid.get(), least);
        least = least.min(cost);
        cost < before
    });
    all.iter().map(|part| FrontierPoint { hours: part.hours, cost: part.cost, parts: Vec::new() }).collect()
}

fn part(offer: &Offer, hours: f64) -> Part {
    let range = |mid: f64| Range { low: mid * 0.9, mid, high: mid * 1.15 };
    let hours = range(hours);
    let cost = |hours: f64| Usd::new(hours * offer.price.get()).unwrap();
    Part {
        offer: offer.id.clone(),
        provider: offer.provider.clone(),
        region: offer.region.clone(),
        instance_type: offer.instance_type.clone(),
        gpu: offer.gpu.clone().unwrap(),
        gpu_count: offer.gpu_count,
        nodes: 1,
        tier: offer.tier,
        batch_size: Some(16),
        global_batch_size: Some(16 * u64::from(offer.gpu_count)),
        work: Amount::Samples(Samples::new(1e7).unwrap()),
        step_time_us: Range { low: 3600.0, mid: 4000.0, high: 4400.0 },
        hours: Range {
            low: Hours::new(hours.low).unwrap(),
            mid: Hours::new(hours.mid).unwrap(),
            high: Hours::new(hours.high).unwrap(),
        },
        cost: Range { low: cost(hours.low), mid: cost(hours.mid), high: cost(hours.high) },
        price: offer.price,
        price_as_of: offer.as_of,
        trust: offer.trust.clone(),
        notes: vec!["one GPU, no communication".into()],
    }
}

/// Feasible unless the budget is below $2; without spot the L4 is out.
fn solve(goal: &Goal) -> Plan {
    let book = book();
    let offers = book.offers();
    let infeasible = goal.budget.is_some_and(|budget| budget.get() < 2.0);
    let spot = goal.limits.tiers.contains(&Tier::Spot);
    let fast = goal.deadline.is_some_and(|deadline| deadline.get() < 4.0);
    let mut parts = vec![part(&offers[1], 5.5), part(&offers[0], 0.9), part(&offers[2], 1.9)];
    if !spot || fast {
        parts.remove(0);
    }
    let best = parts.remove(0);
    let total = Total { hours: best.hours, cost: best.cost };
    Plan {
        status: if infeasible { PlanStatus::Infeasible } else { PlanStatus::Optimal },
        parts: if infeasible { Vec::new() } else { vec![best] },
        total: (!infeasible).then_some(total),
        alternatives: if infeasible { Vec::new() } else { parts },
        rejected: vec![Rejection {
            offer: OfferId::new("gamma", "eu-1", "p620-x1", Tier::OnDemand),
            kind: RejectionKind::Memory,
            reason: "the step needs 8.0 GB, 1.8 GB may be used".into(),
        }],
        reasons: if infeasible {
            vec!["the cheapest plan costs $2.28: $0.28 more than the budget".into()]
        } else {
            Vec::new()
        },
        work: Amount::Samples(Samples::new(1e7).unwrap()),
        goal: goal.clone(),
        solver: SolverReport { name: "filter and sort".into(), configurations: 3, gap: None },
        warnings: Vec::new(),
        notes: Vec::new(),
    }
}

/// A launch on the data above.
pub fn launch() -> Launch {
    let (profile, _) = Profile::from_json(PROFILE.as_bytes()).unwrap();
    let mut goal = Goal::new(Work::Samples(Samples::new(1e7).unwrap()));
    goal.limits.tiers = vec![Tier::OnDemand, Tier::Spot];
    goal.max_parts = 1;
    Launch {
        setup: Setup {
            profile: Arc::new(profile),
            source: Source::Given("runs/bert-tiny.habitat.json".into()),
            job: None,
            catalog: Arc::new(Catalog::default()),
            prices: Arc::new(book()),
            goal,
            keymap: Keymap::default(),
            themes: Theme::shipped(),
            theme: 0,
            colours: ColourLevel::True,
            glyphs: GlyphSet::Braille,
            mouse: true,
            screen: Screen::Overview,
            gpu: None,
            filter: None,
        },
        engine: Engine {
            predict: Arc::new(|profile, _| Ok(predictions(profile))),
            compare: Arc::new(|profile, gpu, method| Ok(comparison(profile, gpu, method))),
            batches: Arc::new(|profile, gpu, _| Ok(sweep(profile, gpu))),
            plan: Arc::new(|_, goal| {
                let plan = solve(goal);
                Ok(Solved { frontier: Arc::new(frontier(&plan)), plan: Arc::new(plan) })
            }),
            export: Arc::new(|_, _| Ok(String::new())),
            save: Arc::new(|path, _, _| SaveOutcome::Saved(path.to_owned())),
        },
        colours_asked: true,
    }
}
