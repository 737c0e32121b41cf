use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

use crate::needs::Need;

trials! {
    when (no_gpu()) => [
        where_there_is_no_gpu_it_says_what_it_looked_for,
    ],
    when (libraries()) => [
        a_driver_that_does_not_work_is_explained,
        known_answers_become_a_calibration_that_predictions_use,
        nothing_is_written_that_was_not_asked_for,
        what_goes_wrong_midway_is_said_and_nothing_is_written,
        without_cublaslt_products_are_left_out,
        a_gpu_in_use_or_unknown_is_not_measured_unasked,
    ],
    when (no_cublaslt()) => [
        a_machine_without_cublaslt_is_told_how_to_install_it,
    ],
}

/// Folder of the compiled libraries, if there is a compiler.
static LIBRARIES: LazyLock<Need<tempfile::TempDir>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_cuda.c");
    for (kind, name) in [("-DDRIVER", "driver/libcuda.so.1"), ("-DPRODUCTS", "products/libcublasLt.so.12")] {
        let target = folder.path().join(name);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let arguments = ["-shared", "-fPIC", kind, "-o"];
        match Command::new("gcc").args(arguments).arg(&target).arg(&source).arg("-ldl").output() {
            Err(_) => return Err("there is no gcc".to_owned()),
            Ok(made) => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
        }
    }
    Ok(folder)
});

fn libraries() -> Need<()> {
    LIBRARIES.as_ref().map(drop).map_err(Clone::clone)
}

/// Requires a machine without an NVIDIA GPU.
fn no_gpu() -> Need<()> {
    let found = ["/proc/driver/nvidia", "/dev/nvidia0"].iter().any(|path| Path::new(path).exists());
    if found { Err("there is a GPU here".to_owned()) } else { Ok(()) }
}

fn without_cublaslt() -> Machine {
    let mut machine = Machine::whole(0);
    machine.libraries.pop();
    machine
}

/// Requires that the program finds no cuBLASLt.
fn no_cublaslt() -> Need<()> {
    libraries()?;
    let found = without_cublaslt().ok(&["calibrate", "--dry-run"]).contains("TFLOP/s");
    if found { Err("a cuBLASLt is installed here".to_owned()) } else { Ok(()) }
}

/// A folder to run the program in, with the libraries of its machine.
struct Machine {
    folder: tempfile::TempDir,
    libraries: Vec<PathBuf>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Machine {
    fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        Self { folder, libraries: Vec::new(), variables: Vec::new() }
    }

    /// With a driver, cuBLASLt and an `nvidia-smi` that reports this utilisation.
    fn whole(busy: u32) -> Self {
        let mut machine = Self::bare();
        let libraries = LIBRARIES.as_ref().unwrap();
        machine.libraries = ["driver", "products"].map(|name| libraries.path().join(name)).to_vec();
        let smi = machine.folder.path().join("bin/nvidia-smi");
        let script = format!(
            r#"#!/bin/sh
[ "$1 $2" = "-i 0000:3b:00.0" ] || exit 9
case "$3" in
*driver_version*) echo '570.86.15, 1410, 1215, 200.00, 250.00, 4, 16, Enabled, Disabled';;
*utilization*) echo '{busy}';;
*compute-apps*) echo 4711;;
*clocks_event_reasons*) echo '1200, 1215, 199.50, 61, 0x4, 0x4';;
esac
"#
        );
        std::fs::write(&smi, script).unwrap();
        std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn run(&self, args: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
            .args(args)
            .current_dir(self.folder.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.path("config"))
            .env("LD_LIBRARY_PATH", std::env::join_paths(&self.libraries).unwrap())
            .env("PATH", path)
            .env_remove("VIRTUAL_ENV")
            .env_remove("CONDA_PREFIX")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .envs(self.variables.iter().copied())
            .output()
            .unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        text
    }

    fn overlay(&self) -> PathBuf {
        self.path("config/catalog/a100-pcie-40gb.calibration.toml")
    }
}

fn where_there_is_no_gpu_it_says_what_it_looked_for() {
    let text = Machine::bare().error(&["calibrate"]);
    for part in [
        "no NVIDIA GPU can be measured here",
        "libcuda.so.1 (the driver's library): not found",
        "/dev/nvidia0, 1, …: none",
        "nvidia-smi: not found",
        "the catalog's own figures",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn a_driver_that_does_not_work_is_explained() {
    let mut machine = Machine::whole(0);
    for (variable, value, expected) in [
        ("FAKE_CUDA_INIT", "100", "the driver finds no GPU (cuInit: 100)"),
        ("FAKE_CUDA_INIT", "999", "the driver does not work (unknown error)"),
        ("FAKE_CUDA_INIT", "803", "of different versions: restart"),
        ("FAKE_CUDA_INIT", "34", "is a stub for building programs"),
        ("FAKE_CUDA_INIT", "4242", "the driver does not start (cuInit: 4242)"),
        ("FAKE_CUDA_VERSION", "11020", "the driver is too old: it supports CUDA 11.2, but measuring needs 11.4"),
    ] {
        machine.variables = vec![(variable, value)];
        let text = machine.error(&["calibrate"]);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    machine.variables = vec![("FAKE_CUDA_INIT", "100"), ("CUDA_VISIBLE_DEVICES", "7")];
    assert!(machine.error(&["calibrate"]).contains("CUDA_VISIBLE_DEVICES is \"7\": unset it"));
    machine.variables = Vec::new();
    assert!(machine.error(&["calibrate", "--device", "3"]).contains("--device 3: there is one GPU"));
    // A file that is not a library.
    let broken = tempfile::tempdir().unwrap();
    std::fs::write(broken.path().join("libcuda.so.1"), "no library").unwrap();
    machine.libraries = vec![broken.path().to_owned()];
    let text = machine.error(&["calibrate"]);
    assert!(
        text.contains("(the driver's library): cannot be loaded (") && text.contains("nvidia-smi: found"),
        "{text}"
    );
}

fn known_answers_become_a_calibration_that_predictions_use() {
    let machine = Machine::whole(0);
    let predict = [
        "predict",
        "--sample",
        "resnet50-v100",
        "--to",
        "a100-pcie-40gb",
        "--method",
        "roofline",
        "--json",
        "--ignore-origin",
        "--host",
        "keeps-up",
    ];
    let step = |text: String| {
        let found: Value = serde_json::from_str(&text).unwrap();
        let prediction = found["predictions"][0].clone();
        (prediction["step_time_us"]["mid"].as_f64().unwrap_or_else(|| panic!("{prediction}")), prediction.to_string())
    };
    let (before, _) = step(machine.ok(&predict));
    let found: Value = serde_json::from_str(&machine.ok(&["calibrate", "--json"])).unwrap();
    let near = |value: &Value, expected: f64| {
        let median = value["median"].as_f64().unwrap_or_else(|| panic!("{found:#}"));
        assert!((median / expected - 1.0).abs() < 1e-3, "{value} is not {expected}");
    };
    for key in ["copy_gbps", "read_gbps", "write_gbps"] {
        near(&found["bandwidth"][key], 800.0);
    }
    near(&found["launch"]["chain_us"], 2.5);
    let types: Vec<&str> =
        found["product"].as_array().unwrap().iter().map(|one| one["dtype"].as_str().unwrap()).collect();
    assert_eq!(types, ["fp32", "tf32", "fp16"]);
    for (product, rate) in found["product"].as_array().unwrap().iter().zip([16.0, 120.0, 240.0]) {
        near(&product["tflops"], rate);
        assert_eq!(product["software"], "cuBLASLt 12.8.4");
        assert_eq!(product["under_load"]["limited_by"][0], "power cap");
    }
    assert_eq!(found["left_out"][0], "bf16: cuBLASLt: not supported (status 15)");
    assert_eq!(
        (found["device"]["driver"].as_str(), found["device"]["mig"].as_bool()),
        (Some("570.86.15"), Some(false))
    );
    assert_eq!(
        (found["gpu"].as_str(), found["catalog"][0]["nominal"].as_f64()),
        (Some("a100-pcie-40gb"), Some(1555.0))
    );
    // The file is a calibration and takes effect: 800 instead of 1160 GB/s, 16 of 18.1 TFLOP/s.
    let overlay = machine.overlay();
    let checked = machine.ok(&["check", overlay.to_str().unwrap()]);
    assert!(
        checked.contains("calibration of a100-pcie-40gb of 20") && checked.contains("(fp32, tf32, fp16)"),
        "{checked}"
    );
    let (after, text) = step(machine.ok(&predict));
    assert!((1.1..1.45).contains(&(after / before)), "{before} {after}");
    assert!(text.contains("bandwidth and product rates calibrated on 20"), "{text}");
    // A second run: the newer file replaces the older one.
    let again = machine.run(&["calibrate"]);
    let (out, err) = (String::from_utf8(again.stdout).unwrap(), String::from_utf8(again.stderr).unwrap());
    assert!(err.contains("replacing the one of 20") && err.contains("predictions now use it"), "{err}");
    assert!(out.contains("power limit 200 W (default 250 W)"), "{out}");
    let copy = out.lines().find(|line| line.starts_with("copy (read and written)")).unwrap();
    assert!(copy.contains("800.0 GB/s") && copy.contains("51 %") && copy.contains("1160"), "{copy}");
    assert!(out.contains("1200 MHz, 200 W, 61 °C, limited by power cap"), "{out}");
    // A file broken by hand is named.
    let broken = std::fs::read_to_string(&overlay).unwrap().replace("version = 1", "version = 9");
    std::fs::write(&overlay, broken).unwrap();
    let text = machine.error(&["gpus"]);
    assert!(
        text.contains("a100-pcie-40gb.calibration.toml: format")
            && text.contains("reads \"habitat-calibration\" version 1"),
        "{text}"
    );
}

fn nothing_is_written_that_was_not_asked_for() {
    let machine = Machine::whole(0);
    assert!(machine.ok(&["calibrate", "--dry-run"]).contains("800.0 GB/s"));
    assert!(!machine.overlay().exists());
    machine.ok(&["calibrate", "-o", "own.toml"]);
    assert!(machine.path("own.toml").exists() && !machine.overlay().exists());
    assert!(machine.error(&["calibrate", "-o", "own.toml"]).contains("own.toml"));
    machine.ok(&["calibrate", "-o", "own.toml", "--force"]);
}

fn what_goes_wrong_midway_is_said_and_nothing_is_written() {
    let mut machine = Machine::whole(0);
    machine.variables = vec![("FAKE_CUDA_FAIL", "10000")];
    let text = machine.error(&["calibrate"]);
    assert!(text.contains("stopped early, nothing written: launches in a chain: "), "{text}");
    assert!(text.contains("an illegal memory access was encountered (CUDA error 700)"), "{text}");
    assert!(!machine.overlay().exists());
}

fn without_cublaslt_products_are_left_out() {
    let mut machine = Machine::whole(0);
    machine.variables = vec![("FAKE_LT_FAIL", "1")];
    let text = machine.ok(&["calibrate", "--dry-run"]);
    assert!(
        text.contains(
            "omitted: matrix products: no cuBLASLt works with this driver: libcublasLt.so.12: cuBLASLt: not initialized"
        ),
        "{text}"
    );
}

fn a_machine_without_cublaslt_is_told_how_to_install_it() {
    let text = without_cublaslt().ok(&["calibrate", "--dry-run"]);
    assert!(text.contains("cuBLASLt is not installed: `pip install nvidia-cublas-cu12`"), "{text}");
    assert!(text.contains("800.0 GB/s"), "{text}");
}

fn a_gpu_in_use_or_unknown_is_not_measured_unasked() {
    let mut machine = Machine::whole(83);
    let text = machine.error(&["calibrate"]);
    assert!(
        text.contains("the GPU is in use (83 % busy, one program running on it)") && text.contains("--in-use"),
        "{text}"
    );
    assert!(machine.ok(&["calibrate", "--in-use"]).contains("measured while other programs used the GPU"));
    machine = Machine::whole(0);
    machine.variables = vec![("FAKE_CUDA_NAME", "NVIDIA A900-PCIE-40GB")];
    let text = machine.error(&["calibrate"]);
    assert!(
        text.contains(
            "no entry for NVIDIA A900-PCIE-40GB (compute capability 8.0, 108 SMs, 40.0 GiB); pass --gpu with one"
        ),
        "{text}"
    );
    // A T4 cannot have 800 GB/s.
    let text = machine.ok(&["calibrate", "--gpu", "t4"]);
    assert!(text.contains("omitted: bandwidth, copy: measured 800.0 GB/s, more than 1.15 times"), "{text}");
    assert!(machine.error(&["calibrate", "--gpu", "t5"]).contains("no GPU \"t5\" in the catalog"));
}
