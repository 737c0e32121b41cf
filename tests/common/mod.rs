//! A small step, four GPUs and four offers; the program's own predictor and planner compute what the screens show.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::{Arc, LazyLock};

use habitat_tui::action::Screen;
use habitat_tui::app::screen::profile::Against;
use habitat_tui::app::{Chosen, Engine, Own, SaveOutcome, Setup, Source};
use habitat_tui::catalog::Catalog;
use habitat_tui::keymap::{Key, Keymap};
use habitat_tui::launch::engine;
use habitat_tui::plan::jobs::{Job as PlanJob, Machine, Shared, Supply, plan_jobs};
use habitat_tui::plan::solve::Settings;
use habitat_tui::plan::{Confidence, Goal, Work};
use habitat_tui::predict::Options;
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier, Trust};
use habitat_tui::profile::Profile;
use habitat_tui::report::plan_toml::Request;
use habitat_tui::report::theme::{ColourLevel, GlyphSet, Theme};
use habitat_tui::store::bundled;
use habitat_tui::tui::Launch;
use habitat_tui::units::{GpuSlug, Hours, Micros, Samples, UsdPerHour};

/// Recorded on the first; the step does not fit on the last.
const GPUS: [&str; 4] = ["v100-pcie-32gb", "h100-sxm5-80gb", "l4", "rtx-2060"];

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(Catalog::new(bundled::gpus())));

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
  ],
  "timeline": {"duration_us": 10000,
    "parts": [{"name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}, {"operation": 0},
              {"operation": 1}, {"operation": 2}, {"operation": 3}],
    "lanes": [
      {"kind": "host", "start_us": [0, 1700, 2100, 2300, 8900], "duration_us": [1600, 400, 100, 6400, 200],
       "part": [0, 1, 3, 2, 4]},
      {"kind": "compute", "start_us": [1800, 4000, 4700, 9200], "duration_us": [2000, 600, 4400, 800],
       "part": [1, 3, 2, 4]},
      {"kind": "copies", "start_us": [1700], "duration_us": [50], "part": [1]}]}}"#;

fn slug(text: &str) -> GpuSlug {
    GpuSlug::new(text).unwrap()
}

/// Lines of the screen, without trailing blanks.
pub fn text(buffer: &ratatui::buffer::Buffer) -> String {
    let mut lines = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}

/// Keys as in the settings, separated by spaces.
pub fn keys(text: &str) -> Vec<Key> {
    text.split_whitespace().map(|key| key.parse().unwrap()).collect()
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
        machines: None,
        share_of: None,
        gpu_memory: None,
        vcpus: None,
        host_memory: None,
        network_gbit_per_second: None,
        tier,
        price: UsdPerHour::new(price).unwrap(),
        as_of: Some(jiff::civil::date(2026, 7, 20)),
        until: None,
        trust: Trust::default(),
        term_hours: None,
        held: None,
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

/// Own machines beside these offers, by the program's own parser.
fn own_machines() -> Own {
    let add = |text: &str| habitat_tui::cli::own_machines(text, (None, true), &book(), &CATALOG);
    Own { names: Vec::new(), is_changed: false, add: Arc::new(add) }
}

/// A launch on the data above.
pub fn launch() -> Launch {
    let (profile, _) = Profile::from_json(PROFILE.as_bytes()).unwrap();
    let mut goal = Goal::new(Work::Samples(Samples::new(1e7).unwrap()));
    goal.limits.tiers = vec![Tier::OnDemand, Tier::Spot];
    goal.max_parts = 1;
    let options = Options { targets: GPUS.map(slug).to_vec(), ..Options::default() };
    let (catalog, prices) = (CATALOG.clone(), Arc::new(book()));
    let engine = engine(&catalog, (options, Vec::new()), Request::default());
    Launch {
        setup: Setup {
            profile: Arc::new(profile),
            source: Source::Given("runs/bert-tiny.habitat.json".into()),
            against: None,
            now: || "2026-11-25T12:00[UTC]".parse().unwrap(),
            typed: ["runs/bert-tiny.habitat.json"].into_iter().collect(),
            job: None,
            jobs: None,
            catalog,
            prices,
            own: own_machines(),
            precision: None,
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
            launch: habitat_tui::report::launch::Launch::default(),
        },
        // Saving writes nothing.
        engine: Engine { save: Arc::new(|path, _, _| SaveOutcome::Saved(path.to_owned())), ..engine },
        colours_asked: true,
    }
}

/// The same beside an earlier recording with a faster product and another normalisation.
pub fn compared() -> Launch {
    let mut launch = launch();
    let mut earlier = (*launch.setup.profile).clone();
    earlier.workload.batch_size = Some(8);
    let step = earlier.step.as_mut().unwrap();
    step.duration = Some(Micros::new(9500.0).unwrap());
    step.duration_range = Some([9400.0, 9900.0].map(|us| Micros::new(us).unwrap()));
    earlier.operations[0].device_time = Some(Micros::new(400.0).unwrap());
    earlier.operations[2].name = "aten::native_batch_norm".into();
    earlier.operations[2].count = 3;
    launch.setup.against = Some(Against { profile: Arc::new(earlier), label: "runs/last-week.habitat.json".into() });
    launch
}

/// The same with a file of jobs: three on two machines, by the program's own planner. The first job meets this
/// deadline, or there is no plan.
pub fn jobs(deadline: f64) -> Launch {
    let mut launch = launch();
    launch.setup.jobs = Some("runs/jobs.toml".into());
    launch.setup.screen = Screen::Jobs;
    let (predict, profile, goal) =
        (launch.engine.predict.clone(), launch.setup.profile.clone(), launch.setup.goal.clone());
    launch.engine.jobs = Arc::new(move || {
        let predictions = predict(&profile, Chosen::default())?;
        let job = |name: &str, samples: f64, deadline: Option<f64>| PlanJob {
            name: name.into(),
            predictions: predictions.clone().into(),
            goal: Goal {
                work: Work::Samples(Samples::new(samples).unwrap()),
                deadline: deadline.map(|hours| Hours::new(hours).unwrap()),
                ..goal.clone()
            },
            earliest: Hours::ZERO,
            after: Vec::new(),
            priority: 1.0,
            late_price: None,
            hour_value: None,
        };
        let jobs =
            [job("pictures", 4e7, Some(deadline)), job("translation", 2e7, None), job("faces", 1e7, Some(200.0))];
        let machines = [("l4", 0.1), ("v100-pcie-32gb", 0.2)].map(|(gpu, price)| Machine {
            name: gpu.into(),
            gpu: slug(gpu),
            gpu_count: 1,
            count: 1,
            price: UsdPerHour::new(price).unwrap(),
            is_shared: false,
        });
        let shared = Shared {
            deadline: None,
            budget: None,
            max_price: None,
            quotas: Vec::new(),
            wait: false,
            confidence: Confidence::High,
            late_price: None,
            hour_value: None,
        };
        plan_jobs(&jobs, Supply::Machines(&machines), &shared, Settings::default()).map_err(|error| error.to_string())
    });
    launch
}
