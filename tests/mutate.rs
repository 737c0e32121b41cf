//! Damaged and hostile files on the command line. Whatever a file holds, the program ends with one of its exit codes,
//! within limits of time and memory, names the file that it refuses, and prints no control sequences.
//!
//! `cargo test` runs a few hundred cases. All of them, some twenty thousand:
//!
//! ```text
//! HABITAT_TUI_MUTATIONS=20000 cargo test --test commands mutate -- --nocapture
//! ```
//!
//! The number identifies a case: `HABITAT_TUI_MUTATION=1234` runs that one and keeps its files.
//! `HABITAT_TUI_MUTATIONS_FROM` is the number of the first.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::too_many_lines, missing_docs)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Cases of a plain `cargo test`.
const FEW: u64 = 200;
/// Most CPU seconds of a case, and of waiting on a busy machine.
const SECONDS: u64 = 10;
const WAIT: u64 = 60;
/// Most kilobytes of memory of a case: 1 GB, including reserved memory.
const MEMORY: u64 = 1_000_000;

/// Pseudorandom numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// A file to start from, its place, and the commands that read it: `FILE` is replaced by it, `STEP` by a valid profile.
struct Seed {
    name: &'static str,
    /// In the folder of the case; `config/…` is the configuration.
    place: &'static str,
    content: Vec<u8>,
    commands: &'static [&'static str],
}

const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64, "sequence_length": 128, "precision": "fp32", "parameter_count": 1000000},
  "origin": {"gpu": "v100-sxm2-16gb", "gpu_name": "Tesla V100-SXM2-16GB", "framework": "pytorch 2.1.0", "cuda": "12.1"},
  "step": {"duration_us": 1000.0, "duration_range_us": [980.0, 1040.0], "device_busy_us": 900.0, "peak_memory_bytes": 4000000000, "samples": 20},
  "operations": [
    {"name": "aten::mm", "module": "encoder.0", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 500.0},
    {"name": "aten::convolution", "phase": "forward", "inputs": [[32, 64, 56, 56], [64, 64, 3, 3]], "outputs": [[32, 64, 56, 56]], "dtype": "float32",
     "attributes": {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": false, "groups": 1}, "device_time_us": 200.0},
    {"name": "aten::relu", "phase": "forward", "count": 2, "inputs": [[4096, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 100.0,
     "kernels": [{"name": "relu", "duration_us": 100.0, "grid": [4096, 1, 1], "block": [256, 1, 1], "registers_per_thread": 32, "static_shared_memory_bytes": 1024}]}]}"#;

const OP_LIST: &str = r#"{"format": "habitat-op-list", "version": 1,
  "info": {"case": "net", "torch": "2.15.0", "batch": 64, "seq": 16, "params": 9408, "amp": null, "notes": ["a note"],
    "memory": {"kinds": {"parameters": 1, "gradients": 2, "optimizer_state": 4, "activations": 8, "temporary": 16}, "peak_phase": "backward"}},
  "ops": [
    {"phase": "forward", "op": "aten.convolution.default", "module": "a.b", "inputs": [{"shape": [64, 3, 224, 224], "dtype": "float32"},
      {"shape": [64, 3, 7, 7], "dtype": "float32"}, null, [2, 2], [3, 3], [1, 1], false, [0, 0], 1], "kwargs": {"alpha": -0.1},
      "outputs": [{"shape": [64, 64, 112, 112], "dtype": "float32"}], "count": 1, "view": false},
    {"phase": "backward", "op": "aten.mm.default", "inputs": [{"shape": [64, 512], "dtype": "float32"}, {"shape": [512, 10], "dtype": "float32"}],
      "outputs": [{"shape": [64, 10], "dtype": "float32"}], "count": 2}]}"#;

const SETTINGS: &str = "theme = \"dark\"\ncolor = \"auto\"\nascii = false\nmouse = true\n\n[plan]\ntiers = [\"on-demand\", \"spot\"]\nexclude_providers = [\"vast\"]\nmax_usd_per_hour = 20\nspot_losses_per_hour = 0.1\nsetup_hours = 0.2\nmax_parts = 2\n\n[keys]\n\"app.quit\" = [\"q\"]\n";

const TABLE: &str =
    "gpu,op,dtype,B,M,N,K,latency_ms\nt4,linear,float32,1,4096,1024,1024,2.5\nt4,linear,float32,1,2048,1024,512,0.7\n";

const COLLECTED: &str = "# habitat-operator-measurements 1 {\"device\": \"cuda\", \"name\": \"Tesla T4\", \"compute_capability\": \"7.5\", \"sm_count\": 40, \"memory_bytes\": 15828320256, \"seed\": 0, \"tiny\": false, \"torch\": \"2.11.0\"}\nnumber,op,pass,dtype,config,status,device,latency_us,low_us,high_us,regions,calls,sets,l2,queued,note\n7,linear,fwd,fp32,b=64;k=1024;n=4096,ok,cuda,120.5,119,123,9,30,4,rotated,1,\n8,softmax,fwd,fp32,b=64;h=1024,ok,cuda,20.5,19,23,9,30,4,rotated,1,\n";

const CATALOG: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\na2-highgpu-1g,,,12,85,,0.7,0.2,r,r-a\n,A100,1,,,\"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}]}\",2.9,1.4,r,r-a\n,T4,0.5,,,,0.2,,r,r-a\n";

const HUNTED: &str = "{\"provider\": \"lab\", \"instance_name\": \"m\", \"location\": \"r\", \"price\": 1.5, \"cpu\": 8, \"memory\": 32.0, \"gpu_count\": 1, \"gpu_name\": \"L4\", \"gpu_memory\": 24.0, \"spot\": false}\n";

/// An export of Nsight Systems: two steps of a kernel, with the needed tables.
fn nsight(folder: &Path) -> Vec<u8> {
    let path = folder.join("seed.sqlite");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
         INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'relu_kernel');
         CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0');
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'Tesla T4', 15828320256, 320000000000, 1590000000, 40, 0, 7, 5);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, deviceId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
         CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, domainId INTEGER);",
    )
    .unwrap();
    for step in 0..3_i64 {
        let at = 1_000_000 + step * 100_000;
        db.execute("INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, 'step', NULL, 16777217, 0)", [at, at + 90_000])
            .unwrap();
        for kernel in 0..4 {
            let (launch, id) = (at + kernel * 10_000, step * 4 + kernel);
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 16777217, ?3, 1)",
                [launch, launch + 500, id],
            )
            .unwrap();
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, ?3, 16777216, 2, 8, 2, 1, 128, 1, 1, 40, 1024, 2048)",
                [launch + 2_000, launch + 9_000, id],
            )
            .unwrap();
        }
    }
    drop(db);
    std::fs::read(path).unwrap()
}

fn seeds(folder: &Path) -> Vec<Seed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = |path: &str| std::fs::read(root.join(path)).unwrap();
    let unpacked = |path: &str| zstd::stream::decode_all(&file(path)[..]).unwrap();
    let step = &["predict FILE --to t4,h100-sxm5-80gb", "check FILE", "import FILE -o out.habitat.json --force"];
    std::fs::write(folder.join("p.habitat.json"), PROFILE).unwrap();
    let output = program(folder, &folder.join("config"), &["export", "--black-box", "p.habitat.json"]);
    let black_box = output.stdout;
    assert!(output.status.success());
    let calibration = "format = \"habitat-calibration\"\nversion = 1\ngpu = \"t4\"\n";
    let profile: &[&str] = &[
        "predict FILE --to t4",
        "predict FILE --to t4,l4 --json --operations",
        "predict FILE --to t4,l4 --csv --operations",
        "predict FILE --to t4 --markdown --operations",
        "predict FILE --to t4 --all-methods",
        "predict FILE --to t4 --ignore-origin --method roofline",
        "predict FILE",
        "plan FILE --steps 1000",
        "plan FILE --samples 1e6 --toml",
        "check FILE",
        "FILE",
        "FILE --screenshot out.svg --size 100x30 --force",
        "export --black-box FILE",
        "batches FILE --to t4",
        "models suggest FILE --to t4",
        "fit kernelwise FILE -o out.json --force",
    ];
    let seed = |name, place, content: Vec<u8>, commands| Seed { name, place, content, commands };
    vec![
        seed("profile", "p.habitat.json", PROFILE.into(), profile),
        seed("profile", "p.habitat.json.zst", file("profiler/samples/dcgan-b64.habitat.json.zst"), profile),
        seed("profile", "p.habitat.json", unpacked("profiler/samples/dcgan-b64.habitat.json.zst"), profile),
        seed("op list", "ops.json", OP_LIST.into(), step),
        seed("trace", "trace.json", crate::trace::two_steps().json().into(), step),
        seed("Nsight", "report.sqlite", nsight(folder), step),
        seed("XPlane", "vm.xplane.pb", file("tests/fixtures/hostile/vm.xplane.pb"), step),
        seed(
            "black box",
            "step.blackbox.json",
            black_box,
            &["predict --black-box FILE --to t4", "plan --black-box FILE --steps 1000", "check FILE"],
        ),
        seed("log", "runs.csv", file("tests/fixtures/logs/mlp.csv"), &["fit FILE --at 256x100", "fit FILE --json"]),
        seed(
            "GPU",
            "config/catalog/t4.toml",
            file("catalog/t4.toml"),
            &["gpus t4", "predict STEP --to t4", "check FILE", "gpus --toml t4"],
        ),
        seed(
            "calibration",
            "config/catalog/t4.calibration.toml",
            calibration.into(),
            &["gpus t4", "check FILE", "predict STEP --to t4"],
        ),
        seed(
            "prices",
            "config/pricing/own.toml",
            file("pricing/hyperbolic.toml"),
            &["offers", "offers --csv", "offers --markdown", "plan STEP --steps 1000", "check FILE"],
        ),
        seed(
            "catalog",
            "gcp.csv",
            CATALOG.into(),
            &["prices update --from FILE --provider gcp", "prices update --from FILE --provider lab --json --dry-run"],
        ),
        seed(
            "rows of gpuhunt",
            "lab.jsonl",
            HUNTED.into(),
            &["prices update --from FILE --as-of 2026-11-20 --provider lab"],
        ),
        seed(
            "settings",
            "config/config.toml",
            SETTINGS.into(),
            &["config --keys", "config", "plan STEP --steps 1000", "STEP --screenshot out.svg --size 80x24 --force"],
        ),
        seed(
            "linear models",
            "kernelwise.json",
            unpacked("models/kernelwise.json.zst"),
            &["predict STEP --method kernel-wise --kernel-wise FILE --to t4"],
        ),
        seed("measured", "config/measured/linear.csv", TABLE.into(), &["predict STEP --to t4"]),
        seed("collected", "config/measured/operators.csv", COLLECTED.into(), &["predict STEP --to t4"]),
        seed(
            "weights",
            "operators.safetensors",
            file("models/operators.safetensors"),
            &["predict STEP --models . --to t4"],
        ),
        seed(
            "black-box model",
            "blackbox.json",
            file("models/blackbox.json"),
            &["predict STEP --models . --to t4 --all-methods"],
        ),
    ]
}

/// Numbers that no step has, and invalid names.
const NUMBERS: &[&str] = &[
    "0",
    "-0.0",
    "-1",
    "1e300",
    "1e19",
    "1e-320",
    "NaN",
    "Infinity",
    "-Infinity",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "0.1",
    "1e999",
    "007",
    "2147483648",
    "[]",
    "{}",
    "null",
    "\"1\"",
    "true",
    "1e15",
    "1000000000000",
];
const TEXTS: &[&str] = &[
    "\u{1b}[2J\u{1b}]0;x\u{7}",
    "\\u001b[31mred",
    "\u{202e}olleh",
    "\u{61c}\u{2028}\u{3164}\u{115f}\u{e0041}\u{fe0f}",
    "=1+1|'a'!A0",
    "<img src=x onerror=y>|[a](b)",
    "",
    " ",
    "\u{9b}31m",
    "\r\n",
    "\0",
    "a\\ud800",
    "aten::mm",
    "../../../../etc/passwd",
    "日本語",
    "float8_e4m3fn",
    "forward",
    "t4",
];
const KEYWORDS: &[&str] = &[
    "forward",
    "backward",
    "training",
    "float32",
    "aten::mm",
    "kernels",
    "inputs",
    "operations",
    "format",
    "version",
    "traceEvents",
    "ProfilerStep",
    "name",
    "duration_us",
    "grid",
    "count",
    "on-demand",
    "offer",
    "gpu",
    "t4",
];

/// Positions of digits in a text.
fn numbers(content: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < content.len() && found.len() < 20_000 {
        if content[at].is_ascii_digit() {
            let end = content[at..]
                .iter()
                .position(|byte| !b"0123456789.eE+-".contains(byte))
                .map_or(content.len(), |n| at + n);
            found.push((at, end));
            at = end;
        }
        at += 1;
    }
    found
}

fn replace(content: &mut Vec<u8>, from: usize, to: usize, with: &[u8]) {
    content.splice(from.min(content.len())..to.min(content.len()), with.iter().copied());
}

/// Changes the content once; returns the kind of change.
fn mutate(content: &mut Vec<u8>, other: &[u8], random: &mut Random) -> &'static str {
    let length = content.len();
    let at = random.below(length + 1);
    let part = |random: &mut Random| (at + 1 + random.below(200)).min(length);
    match random.below(20) {
        0 | 1 => {
            for _ in 0..=random.below(8) {
                let at = random.below(length);
                if let Some(byte) = content.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            "bits"
        }
        2 => {
            content.truncate(at);
            "cut"
        }
        3 => {
            let end = part(random);
            replace(content, at, end, b"");
            "hole"
        }
        4 => {
            let again = content[at.min(length)..part(random)].to_vec();
            for _ in 0..=random.below(20) {
                replace(content, at, at, &again);
            }
            "again"
        }
        5 => {
            let from = random.below(other.len());
            let with = &other[from..(from + random.below(2000)).min(other.len())];
            let end = part(random);
            replace(content, at, end, with);
            "splice"
        }
        6..=10 => {
            let places = numbers(content);
            for _ in 0..=random.below(3) {
                let places = if places.len() > 1 { numbers(content) } else { places.clone() };
                if let Some(&(from, to)) = places.get(random.below(places.len())) {
                    replace(content, from, to, random.of(NUMBERS).as_bytes());
                }
            }
            "number"
        }
        11 | 12 => {
            // A text between quotes, or anywhere.
            let quotes: Vec<usize> =
                content.iter().enumerate().filter(|(_, byte)| **byte == b'"').map(|(at, _)| at).collect();
            let which = random.below(quotes.len());
            let (from, to) = match (quotes.get(which), quotes.get(which + 1)) {
                (Some(from), Some(to)) => (from + 1, *to),
                _ => (at, at),
            };
            replace(content, from, to, random.of(TEXTS).as_bytes());
            "text"
        }
        13 => {
            let with = random.of(TEXTS).as_bytes().repeat(1 + random.below(2000));
            replace(content, at, at, &with);
            "long text"
        }
        14 => {
            let (from, to) = (random.of(KEYWORDS), random.of(KEYWORDS));
            if let Some(at) = content.windows(from.len()).position(|window| window == from.as_bytes()) {
                replace(content, at, at + from.len(), to.as_bytes());
            }
            "word"
        }
        15 => {
            let open = random.of(&["[", "{\"a\":", "[[1],", "(", "{", "a = [", "\"kernels\": ["]);
            let deep = open.repeat(1 << random.below(17));
            replace(content, at, at, deep.as_bytes());
            "nesting"
        }
        16 => {
            let characters = ["\u{1b}", "\0", "\r", "\u{7f}", "\u{85}", "\u{202e}", "\u{feff}", "\u{fffe}", "\n", "\t"];
            for _ in 0..=random.below(10) {
                let at = random.below(content.len() + 1);
                replace(content, at, at, random.of(&characters).as_bytes());
            }
            "controls"
        }
        17 => {
            let mut packed = Vec::new();
            if random.below(2) == 0 {
                let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap();
            } else {
                packed = zstd::stream::encode_all(&content[..], 1).unwrap();
            }
            *content = packed;
            "packed"
        }
        18 => {
            // A packed file is mostly zeros or blanks, and far larger than it seems.
            let filler = random.of(&[b" ".as_slice(), b"0", b"[", b"\0", b"\n", b"1,"]);
            let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
            encoder.write_all(content).unwrap();
            let block = filler.repeat((1 << 16) / filler.len());
            for _ in 0..1 << random.below(13) {
                encoder.write_all(&block).unwrap();
            }
            *content = encoder.finish().unwrap();
            "bomb"
        }
        _ => {
            let mut unpacked = Vec::new();
            let done = zstd::stream::Decoder::new(&content[..])
                .and_then(|decoder| decoder.take(8 << 20).read_to_end(&mut unpacked))
                .is_ok();
            if done && !unpacked.is_empty() {
                *content = unpacked;
                "unpacked"
            } else {
                content.reverse();
                "reversed"
            }
        }
    }
}

/// Runs the program with its limits.
fn program(folder: &Path, config: &Path, args: &[&str]) -> Output {
    let limits = format!("ulimit -v {MEMORY}; ulimit -t {SECONDS}; ulimit -c 0; exec timeout {WAIT} \"$@\"");
    Command::new("sh")
        .args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_habitat-tui")])
        .args(args)
        .current_dir(folder)
        .env("HABITAT_TUI_CONFIG_DIR", config)
        .env_remove("HABITAT_TUI_MODELS")
        .env_remove("HABITAT_TUI_THEME")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

/// A character that must not be printed; independent of the program's own list.
fn is_forbidden(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{180e}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202e}\u{2066}\u{3164}\u{fe0f}\u{feff}\u{ffa0}"
            .contains(c)
        || ('\u{e0000}'..='\u{e007f}').contains(&c)
}

/// The fault in how the program ended.
fn judged(output: &Output, name: &str) -> Option<String> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(2) if !err.contains("error: ") => return Some("exit code 2 without an error".to_owned()),
        // Truncated before characters that are not printed.
        Some(2) if !err.contains(name.split(is_forbidden).next().unwrap_or(name)) => {
            return Some("the error does not name the file".to_owned());
        }
        Some(0..=2) => {}
        Some(124) => return Some("a hang".to_owned()),
        _ => return Some(format!("ended by {}", output.status)),
    }
    if err.contains("panicked") || err.contains("internal error") {
        return Some("a panic".to_owned());
    }
    if let Some(c) = out.chars().chain(err.chars()).find(|c| is_forbidden(*c)) {
        return Some(format!("prints U+{:04X}", c as u32));
    }
    let longest = err.split("\nerror: ").map(str::len).max().unwrap_or(0);
    (longest > 12_000).then(|| format!("{longest} bytes of errors"))
}

struct Found {
    case: u64,
    what: String,
    story: String,
}

/// One case, reproducible by its number.
fn case(number: u64, seeds: &[Seed], keep: Option<&Path>) -> Option<Found> {
    let mut random = Random(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let seed = &seeds[random.below(seeds.len())];
    let other = &seeds[random.below(seeds.len())].content;
    let mut content = seed.content.clone();
    let mut done = Vec::new();
    for _ in 0..=random.below(3) {
        done.push(mutate(&mut content, other, &mut random));
    }
    let made = tempfile::tempdir().unwrap();
    let folder = keep.unwrap_or(made.path());
    let file = Path::new(seed.place);
    let hostile = ["", "", "", "", "\u{1b}[31m", "\u{202e}x", "a b'\"", "\n", "=1+"];
    let prefix = if seed.place.contains('/') || seed.commands.iter().any(|it| it.contains("--models")) {
        ""
    } else {
        random.of(&hostile)
    };
    let name = format!("{prefix}{}", file.file_name().unwrap().to_str().unwrap());
    let path = file.with_file_name(&name);
    std::fs::create_dir_all(folder.join(&path).parent().unwrap()).unwrap();
    std::fs::write(folder.join(&path), &content).unwrap();
    std::fs::write(folder.join("step.habitat.json"), PROFILE).unwrap();
    let command = random.of(seed.commands);
    let words: Vec<String> = command
        .split(' ')
        .map(|word| match word {
            "FILE" => path.to_str().unwrap().to_owned(),
            "STEP" => "step.habitat.json".to_owned(),
            word => word.to_owned(),
        })
        .collect();
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    let began = Instant::now();
    let output = program(folder, &folder.join("config"), &args);
    let left: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".habitat-tui"))
        .collect();
    let what = judged(&output, &name).or_else(|| (!left.is_empty()).then(|| format!("left {left:?}")))?;
    let err = String::from_utf8_lossy(&output.stderr);
    let shown: String = err.chars().take(600).flat_map(char::escape_debug).collect();
    let story = format!(
        "{} by {}: {args:?}, {} after {:.1} s\n    {shown}",
        seed.name,
        done.join(", "),
        output.status,
        began.elapsed().as_secs_f64()
    );
    Some(Found { case: number, what, story })
}

fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_a_file_holds_the_program_says_so() {
    let place = tempfile::tempdir().unwrap();
    let seeds = seeds(place.path());
    // Every seed must be valid, or the test would show nothing.
    for seed in &seeds {
        let path = place.path().join(seed.place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &seed.content).unwrap();
    }
    if let Some(number) = told("HABITAT_TUI_MUTATION") {
        let keep = std::env::temp_dir().join(format!("habitat-tui-mutation-{number}"));
        std::fs::create_dir_all(&keep).unwrap();
        match case(number, &seeds, Some(&keep)) {
            Some(found) => panic!("{}: {}\n    in {}", found.what, found.story, keep.display()),
            None => return,
        }
    }
    let count = told("HABITAT_TUI_MUTATIONS").unwrap_or(FEW);
    let first = told("HABITAT_TUI_MUTATIONS_FROM").unwrap_or(1);
    let (next, found, codes) =
        (AtomicU64::new(first), Mutex::new(Vec::new()), Mutex::new(BTreeMap::<String, u64>::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + count {
                        return;
                    }
                    if let Some(one) = case(number, &seeds, None) {
                        eprintln!("case {}: {}", one.case, one.what);
                        *codes.lock().unwrap().entry(one.what.clone()).or_default() += 1;
                        found.lock().unwrap().push(one);
                    }
                    if (number - first) % 1000 == 999 {
                        eprintln!("{} of {count} cases, {:?}", number - first + 1, codes.lock().unwrap());
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let took = Duration::from_secs(began.elapsed().as_secs());
    println!(
        "{count} damaged files from number {first} on, {} kinds of seeds, {took:?}: {} faults {:?}",
        seeds.len(),
        found.len(),
        codes.into_inner().unwrap()
    );
    let shown: Vec<String> =
        found.iter().take(40).map(|one| format!("case {}: {}\n  {}", one.case, one.what, one.story)).collect();
    assert!(found.is_empty(), "{}", shown.join("\n"));
}
