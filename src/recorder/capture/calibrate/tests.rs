//! A device with known answers.

use super::*;
use habitat_step::catalog::Layer;

struct Fake {
    facts: CalibratedDevice,
    capability: (u8, u8),
    free: u64,
    products: Result<String, String>,
    /// Copy bandwidth in GB/s; reading is 5 % faster, writing 5 % slower.
    bandwidth: f64,
    /// TFLOP/s when cold and when warm, by type.
    rates: [(f64, f64); 5],
    /// Maximum relative error of a time.
    noise: f64,
    /// Call of `time` that fails, if any.
    fails: Option<u32>,
    prepared: Work,
    calls: u32,
    busy_us: f64,
    state: u64,
}

impl Fake {
    fn new() -> Self {
        Self {
            facts: CalibratedDevice { name: "Fake".to_owned(), sm_count: 80, ..CalibratedDevice::default() },
            capability: (8, 9),
            free: 38 << 30,
            products: Ok("fake 1.0".to_owned()),
            bandwidth: 1_300.0,
            rates: [(19.0, 18.0), (130.0, 120.0), (260.0, 240.0), (270.0, 250.0), (530.0, 500.0)],
            noise: 0.01,
            fails: None,
            prepared: Work::Empty,
            calls: 0,
            busy_us: 0.0,
            state: 7,
        }
    }

    /// Uniform in −1 to 1 (Knuth's linear congruential generator).
    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }

    fn measured(&mut self) -> Outcome {
        calibrate(self, &a100(), "2026-11-21T10:00:00Z", "test", &mut |_| {})
    }
}

impl Device for Fake {
    fn facts(&self) -> &CalibratedDevice {
        &self.facts
    }

    fn capability(&self) -> (u8, u8) {
        self.capability
    }

    fn free_bytes(&self) -> u64 {
        self.free
    }

    fn products(&self) -> Result<String, String> {
        self.products.clone()
    }

    fn prepare(&mut self, work: Work) -> Result<(), Problem> {
        self.prepared = work;
        self.busy_us = 0.0;
        Ok(())
    }

    fn time(&mut self, runs: u64, watch: bool) -> Result<(Micros, Option<UnderLoad>), Problem> {
        self.calls += 1;
        if Some(self.calls) == self.fails {
            return Err(Problem::Failed("an illegal memory access".to_owned()));
        }
        let each = match self.prepared {
            Work::Empty => 2.5,
            Work::Copy(bytes) => 2.0 * bytes as f64 * 1e-3 / self.bandwidth,
            Work::Read(bytes) => bytes as f64 * 1e-3 / (1.05 * self.bandwidth),
            Work::Write(bytes) => bytes as f64 * 1e-3 / (0.95 * self.bandwidth),
            Work::Product { dtype, size } => {
                let (cold, warm) = self.rates[dtype as usize];
                // Throttled after three quarters of a second.
                2.0 * (size as f64).powi(3) * 1e-6 / if self.busy_us < 750_000.0 { cold } else { warm }
            }
        };
        let took = runs as f64 * each * (1.0 + self.noise * self.random());
        self.busy_us += took;
        let load = UnderLoad { sm_clock_mhz: Some(1200.0), ..UnderLoad::default() };
        Ok((Micros::new(took).unwrap(), watch.then_some(load)))
    }

    fn launch_and_wait(&mut self) -> Result<Micros, Problem> {
        let noise = self.random();
        Ok(Micros::new(9.0 + 0.5 * noise).unwrap())
    }
}

fn a100() -> GpuSpec {
    let path = format!("{}/../../catalog/a100-pcie-40gb.toml", env!("CARGO_MANIFEST_DIR"));
    GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
}

#[track_caller]
fn near(figure: Option<Spread>, expected: f64) {
    let figure = figure.expect("a figure");
    assert!((figure.median / expected - 1.0).abs() < 0.005, "{figure:?}, expected {expected}");
    assert!(figure.low <= figure.median && figure.median <= figure.high && figure.high / figure.low < 1.03);
}

#[test]
fn known_answers_come_out() {
    let found = Fake::new().measured();
    assert_eq!(found.failed, None);
    let calibration = found.calibration;
    let bandwidth = calibration.bandwidth.clone().unwrap();
    near(bandwidth.copy_gbps, 1300.0);
    near(bandwidth.read_gbps, 1365.0);
    near(bandwidth.write_gbps, 1235.0);
    assert_eq!(bandwidth.buffer_bytes, 1 << 30);
    let launch = calibration.launch.clone().unwrap();
    near(launch.chain_us, 2.5);
    assert!((launch.wait_us.unwrap().median - 9.0).abs() < 0.2);
    // Sustained rates, not those of the first moments.
    let rates: Vec<(&str, f64)> =
        calibration.product.iter().map(|one| (one.dtype.as_str(), one.tflops.median.round())).collect();
    assert_eq!(rates, [("fp32", 18.0), ("tf32", 120.0), ("bf16", 240.0), ("fp16", 250.0), ("fp8", 500.0)]);
    assert_eq!(calibration.product[0].shape, "8192x8192x8192");
    assert_eq!(calibration.product[0].under_load.as_ref().unwrap().sm_clock_mhz, Some(1200.0));
    assert_eq!((calibration.left_out.len(), calibration.notes.len()), (0, 0), "{calibration:?}");
    assert_eq!(Calibration::parse(&calibration.to_toml().unwrap()).unwrap(), calibration);
}

#[test]
fn what_an_older_board_lacks_is_left_out_and_said() {
    let found = Fake { capability: (7, 5), ..Fake::new() }.measured();
    assert_eq!(found.failed, None);
    let types: Vec<&str> = found.calibration.product.iter().map(|one| one.dtype.as_str()).collect();
    assert_eq!(types, ["fp32", "fp16"]);
    assert_eq!(
        found.calibration.left_out,
        [("tf32", "8.0"), ("bf16", "8.0"), ("fp8", "8.9")].map(|(dtype, since)| format!(
            "{dtype}: compute capability 7.5 has no tensor cores for it ({since} and later have)"
        ))
    );
}

#[test]
fn without_cublaslt_the_rest_is_measured() {
    let why = "cuBLASLt is not installed".to_owned();
    let found = Fake { products: Err(why), ..Fake::new() }.measured();
    assert!(found.calibration.product.is_empty() && found.calibration.bandwidth.unwrap().copy_gbps.is_some());
    assert_eq!(found.calibration.left_out, ["matrix products: cuBLASLt is not installed"]);
}

#[test]
fn a_failure_keeps_what_was_measured_before_it() {
    let calls = {
        let mut whole = Fake::new();
        whole.measured();
        whole.calls
    };
    let found = Fake { fails: Some(calls / 2), ..Fake::new() }.measured();
    let failed = found.failed.expect("it failed");
    assert!(failed.ends_with(": an illegal memory access"), "{failed}");
    assert!(found.calibration.launch.is_some() && found.calibration.product.len() < 4);
    let found = Fake { fails: Some(1), ..Fake::new() }.measured();
    assert_eq!(found.failed.as_deref(), Some("launches in a chain: an illegal memory access"));
    assert_eq!(found.calibration.bandwidth, None);
}

#[test]
fn what_cannot_be_is_not_believed() {
    // More than twice the data sheet: not this board.
    let found = Fake { bandwidth: 3_500.0, ..Fake::new() }.measured();
    assert_eq!(found.calibration.bandwidth.unwrap().copy_gbps, None);
    let left_out = &found.calibration.left_out[0];
    assert!(
        left_out.starts_with("bandwidth, copy: measured 35") && left_out.contains("the catalog's 1555.0"),
        "{left_out}"
    );
}

#[test]
fn noise_is_reported() {
    let found = Fake { noise: 0.2, ..Fake::new() }.measured();
    assert!(found.calibration.notes.iter().any(|note| note.starts_with("bandwidth, copy varied by")));
    // The median is still right.
    let copy = found.calibration.bandwidth.unwrap().copy_gbps.unwrap().median;
    assert!((copy / 1300.0 - 1.0).abs() < 0.1, "{copy}");
}

#[test]
fn a_full_board_is_measured_as_far_as_it_goes() {
    let found = Fake { free: 1 << 30, ..Fake::new() }.measured();
    assert_eq!(found.calibration.bandwidth.unwrap().buffer_bytes, 256 << 20);
    assert_eq!(found.calibration.product[0].shape, "4096x4096x4096");
    let found = Fake { free: 64 << 20, ..Fake::new() }.measured();
    assert!(found.calibration.bandwidth.is_none() && found.calibration.product.is_empty());
    assert_eq!(found.calibration.left_out.len(), 6, "{:?}", found.calibration.left_out);
}
