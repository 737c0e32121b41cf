use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use habitat_tui::profile::{Attribute, DType, Execution, MemorySource, Mode, Operation, Phase, Precision, Profile};
use serde_json::Value;

use crate::needs::{python, torch};
use crate::place::{Place, err, out};

trials! {
    with (python()) => [
        what_is_wrong_before_pytorch_is_told,
        a_file_that_is_there_stays,
    ],
    with (torch()) => [
        what_cannot_be_traced_is_told_with_the_users_own_lines,
        a_small_network_has_known_work_and_memory,
        what_is_traced_is_predicted_and_told_as_computed,
        mixed_precision_is_seen_and_prints_stay_apart,
        inference_and_functions_that_make_the_step,
        channels_last_and_types_of_tensors_are_kept,
        attention_is_the_gpus,
        a_mask_that_nothing_needs_is_left_out,
        functions_for_torchscript_are_traced,
        flags_of_tf32_are_seen,
        what_is_compiled_is_fused,
        tensors_that_take_operators_apart_are_looked_into,
        weights_in_4_bits_take_their_own_memory,
        an_rms_norm_is_the_one_call_of_a_gpu,
        calls_that_do_not_go_along_memory_are_told,
        recurrent_layers_are_one_call,
        sequences_of_unlike_lengths_are_packed,
        small_tensors_have_values_while_a_model_is_built,
        numbers_drawn_in_the_step_have_their_values,
        masks_are_known_at_any_size,
        experts_get_as_many_tokens_as_the_others,
        numbers_are_finite,
        accumulated_batches_are_of_one_step,
        what_runs_again_is_of_backward_and_what_follows_of_the_update,
        gradients_of_a_table_have_the_rows_looked_up,
        edges_of_a_graph_are_no_sequence,
        what_no_cpu_computes_has_no_values,
        a_model_beside_its_average_is_traced,
        a_trace_by_shapes_has_the_products_of_a_real_step,
        a_model_whose_shapes_do_not_fit_is_shown_in_five_lines,
        what_names_a_gpu_or_takes_addresses_is_traced,
    ],
}

pub(crate) fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/shapes").join(name).to_str().unwrap().to_owned()
}

impl Place {
    pub(crate) fn trace(&self, python: &str, target: &str, more: &[&str]) -> Output {
        self.habitat(&[&["trace-shapes", target, "--python", python], more].concat()).output().unwrap()
    }

    fn read(&self, name: &str) -> Profile {
        habitat_tui::store::read_profile(Path::new(&self.path(name))).unwrap().0
    }

    /// The profile of one function of a fixture.
    pub(crate) fn profile(&self, python: &str, target: &str, more: &[&str]) -> Profile {
        let options = [&["-o", "p.habitat.json", "--force"], more].concat();
        let output = self.trace(python, &fixture(target), &options);
        assert!(output.status.success(), "{}", err(&output));
        self.read("p.habitat.json")
    }

    /// The error for a function that cannot be traced.
    pub(crate) fn refused(&self, python: &str, target: &str, more: &[&str]) -> String {
        let output = self.trace(python, target, more);
        assert_eq!(output.status.code(), Some(2), "{target}: {}", out(&output));
        assert!(out(&output).is_empty());
        let left = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        assert!(left.into_iter().all(|entry| entry.file_name() == "cache"), "{target} left something");
        err(&output)
    }
}

pub(crate) fn named<'a>(profile: &'a Profile, name: &str) -> Vec<&'a Operation> {
    profile.operations.iter().filter(|operation| operation.name == name).collect()
}

pub(crate) fn notes(profile: &Profile) -> String {
    profile.recording.as_ref().unwrap().notes.join("\n")
}

fn kinds(profile: &Profile) -> [f64; 5] {
    let memory = profile.step.as_ref().unwrap().memory.as_ref().unwrap();
    assert_eq!(memory.source, MemorySource::Computed);
    assert_eq!(profile.step.as_ref().unwrap().peak_memory_bytes, Some(memory.total()));
    memory.kinds().map(|(_, bytes)| bytes.get())
}

fn what_is_wrong_before_pytorch_is_told(python: &str) {
    let place = Place::new();
    let mlp = fixture("mlp.py");
    let told = |target: &str, python: &str, more: &[&str]| place.refused(python, target, more);
    assert!(told(&mlp, python, &[]).contains("lacks a function; pass a file or module"));
    assert!(told("nowhere.py:build", python, &[]).contains("nowhere.py: no such file"));
    assert!(told(&format!("{mlp}:build"), python, &["--batch-sizes", "8,0"]).contains("'0' for '--batch-sizes"));
    let gone = told(&format!("{mlp}:build"), "/nowhere/python", &[]);
    assert!(gone.contains("/nowhere/python: ") && gone.contains("--python"), "{gone}");
    let no_python = told(&format!("{mlp}:build"), "/bin/false", &[]);
    assert!(no_python.contains("ended without an answer (exit status: 1)"), "{no_python}");
    let output = place
        .habitat(&["trace-shapes", &format!("{mlp}:build"), "--python", python])
        .env("PYTHONPATH", fixture("old"))
        .output()
        .unwrap();
    assert!(
        err(&output).contains("PyTorch 1.13.1 is too old; tracing by shapes needs 2.2 or newer"),
        "{}",
        err(&output)
    );
    let has_torch = Command::new(python).args(["-c", "import torch"]).output().unwrap().status.success();
    if !has_torch {
        let none = told(&format!("{mlp}:build"), python, &[]);
        assert!(none.contains("this Python has no PyTorch (No module named 'torch'); name one that has it"), "{none}");
    }
}

fn a_file_that_is_there_stays(python: &str) {
    let place = Place::new();
    std::fs::write(place.path("mlp-build-b8.habitat.json.zst"), "mine").unwrap();
    let output = place.trace(python, &format!("{}:build", fixture("mlp.py")), &["--batch-sizes", "8,16"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("mlp-build-b8.habitat.json.zst"), "{}", err(&output));
    assert_eq!(std::fs::read(place.path("mlp-build-b8.habitat.json.zst")).unwrap(), b"mine");
}

/// 128 → 256 → 64 with biases, Adam, batch 32: 49,472 parameters, 197,888 bytes, of which the second bias takes a block
/// of 512.
fn a_small_network_has_known_work_and_memory(python: &str) {
    let place = Place::new();
    let profile = place.profile(python, "mlp.py:build", &[]);
    let workload = &profile.workload;
    assert_eq!((workload.name.as_str(), workload.mode), ("mlp-build", Mode::Training));
    assert_eq!((workload.batch_size, workload.parameter_count), (Some(32), Some(49_472)));
    assert_eq!((workload.precision, workload.sequence_length), (Some(Precision::Fp32), None));
    assert_eq!((&profile.origin, profile.measured_step()), (&None, None));
    let work = habitat_tui::op::StepWork::of(&profile);
    let (first, second) = (128.0 * 256.0, 256.0 * 64.0);
    assert_eq!(work.forward.get(), 2.0 * 32.0 * (first + second));
    // The first layer's input has no gradient.
    assert_eq!(work.backward.get(), 2.0 * 32.0 * (first + 2.0 * second));
    let parameters = 4.0 * (first + 256.0 + second) + 512.0;
    // At the peak Adam holds the roots of its second moments; inputs, labels, loss and the loss's weight are still
    // there.
    let left = 32.0 * 128.0 * 4.0 + 512.0 + 512.0;
    assert_eq!(kinds(&profile), [parameters, parameters, 2.0 * parameters, left, parameters]);
    assert!(notes(&profile).contains("largest in optimizer"));
    let phases = |phase| profile.operations.iter().filter(|operation| operation.phase == phase).count();
    assert!(phases(Phase::Forward) >= 4 && phases(Phase::Backward) >= 5 && phases(Phase::Optimizer) >= 5);
    let modules: Vec<Option<&str>> =
        named(&profile, "aten::addmm").iter().map(|operation| operation.module.as_deref()).collect();
    assert_eq!(modules, [Some("*"), Some("*")]);
    // The peak of a large batch is in backward, when ReLU's gradient is computed from that of its result: input, labels
    // and result still exist, the softmax is freed.
    let output =
        place.trace(python, &format!("{}:build", fixture("mlp.py")), &["--batch-sizes", "8192,4096", "--json"]);
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((json["format"].as_str(), json["version"].as_u64()), (Some("habitat-shapes"), Some(1)));
    let steps = json["steps"].as_array().unwrap();
    let of = |at: usize, pointer: &str| steps[at].pointer(pointer).and_then(Value::as_f64).unwrap();
    assert_eq!((of(0, "/workload/batch_size"), of(1, "/workload/batch_size")), (4096.0, 8192.0));
    assert_eq!(of(1, "/flops/forward"), 2.0 * of(0, "/flops/forward"));
    let grown = |kind: &str| of(1, &format!("/memory/{kind}_bytes")) - of(0, &format!("/memory/{kind}_bytes"));
    assert_eq!(grown("activations"), 4096.0 * (4.0 * (128.0 + 256.0) + 8.0));
    assert_eq!(grown("temporary"), 4096.0 * 4.0 * 2.0 * 256.0);
    assert_eq!(grown("parameters") + grown("optimizer_state"), 0.0);
    let line = json["memory_line"]["per_sample_bytes"].as_f64().unwrap();
    assert!((line - (of(1, "/peak_memory_bytes") - of(0, "/peak_memory_bytes")) / 4096.0).abs() < 1.0);
    assert_eq!(place.read("mlp-build-b8192.habitat.json.zst").workload.batch_size, Some(8192));
}

fn what_is_traced_is_predicted_and_told_as_computed(python: &str) {
    let place = Place::new();
    let output = place.trace(python, &format!("{}:build", fixture("mlp.py")), &["--batch-sizes", "4096,8192"]);
    let text = out(&output);
    assert!(text.contains("traced by shapes"), "{text}");
    assert!(text.contains("computed from shapes at 2 batch sizes, not checked on a GPU"), "{text}");
    let files = ["mlp-build-b4096.habitat.json.zst", "mlp-build-b8192.habitat.json.zst"];
    let batches = place.habitat(&["batches", files[0], files[1], "--to", "t4"]).output().unwrap();
    assert!(out(&batches).contains("traced at batch 4096, 8192"), "{}", out(&batches));
    assert!(out(&batches).contains("computed from shapes at 2 batch sizes"), "{}", out(&batches));
    let predicted = place.habitat(&["predict", files[0], "--to", "t4", "--json"]).output().unwrap();
    assert!(out(&predicted).contains("peak computed from shapes, not checked on a GPU"), "{}", out(&predicted));
    assert!(!out(&predicted).contains("recorded peak"));
    let shown = place.habitat(&["predict", files[0], "--to", "t4"]).output().unwrap();
    assert!(out(&shown).contains("computed from shapes: parameters 194 KB"), "{}", out(&shown));
    let shot = ["--screenshot", "shot.svg", "--size", "80x24", "--screen", "overview", files[0]];
    let screen = place.habitat(&shot).output().unwrap();
    assert!(screen.status.success(), "{}", err(&screen));
    let screen = std::fs::read_to_string(place.path("shot.svg")).unwrap();
    assert!(
        screen.contains(", computed<") && screen.contains(">memory<") && screen.contains(">activations "),
        "{screen}"
    );
}

fn mixed_precision_is_seen_and_prints_stay_apart(python: &str) {
    let place = Place::new();
    let target = format!("{}:mixed", fixture("mlp.py"));
    let output = place.trace(python, &target, &["--json", "-o", "m.habitat.json"]);
    let json: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(json["steps"][0]["workload"]["precision"], "amp-bf16");
    assert!(err(&output).contains("loss 1"), "{}", err(&output));
    let profile = place.read("m.habitat.json");
    assert!(notes(&profile).contains("reads numbers back"));
    let dtypes: Vec<_> = named(&profile, "aten::addmm").iter().map(|o| o.dtype.clone().unwrap().to_string()).collect();
    assert_eq!(dtypes, ["bfloat16", "bfloat16"]);
    // A GPU computes the softmax in 32 bits.
    assert_eq!(named(&profile, "aten::_log_softmax")[0].dtype.clone().unwrap().to_string(), "float32");
    // Clipping belongs to the optimizer, in lists as on a GPU.
    assert_eq!(named(&profile, "aten::_foreach_norm")[0].phase, Phase::Optimizer);
}

fn inference_and_functions_that_make_the_step(python: &str) {
    let place = Place::new();
    let inference = place.profile(python, "mlp.py:inference", &["--arg", "batch_size=16"]);
    assert_eq!((inference.workload.mode, inference.workload.batch_size), (Mode::Inference, Some(16)));
    let [_, gradients, state, ..] = kinds(&inference);
    assert_eq!((gradients, state), (0.0, 0.0));
    let step = place.profile(python, "mlp.py:one_step", &[]);
    assert_eq!((step.workload.batch_size, step.workload.parameter_count), (Some(4), Some(136)));
    // 128 weights and a block for the biases, the same again for gradients and momentum.
    assert_eq!(kinds(&step)[..3], [1024.0, 1024.0, 1024.0]);
    let converted = place.profile(python, "layers.py:converted", &[]);
    assert_eq!(converted.workload.precision, Some(Precision::Bf16));
    // The module form.
    let folder = Path::new(&fixture("mlp.py")).parent().unwrap().to_owned();
    let output = place
        .habitat(&["trace-shapes", "mlp:build", "--python", python, "-o", "x.habitat.json"])
        .env("PYTHONPATH", folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.read("x.habitat.json").workload.name, "mlp-build");
}

fn channels_last_and_types_of_tensors_are_kept(python: &str) {
    let place = Place::new();
    let profile = place.profile(python, "layers.py:pixels", &[]);
    let last = |operation: &&Operation| {
        operation.attributes.get("memory_format") == Some(&Attribute::Text("channels_last".to_owned()))
    };
    let kinds = ["convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward", "add"];
    let more = ["max_pool2d_with_indices", "max_pool2d_with_indices_backward", "relu", "threshold_backward"];
    for name in kinds.into_iter().chain(more) {
        let found = named(&profile, &format!("aten::{name}"));
        let images: Vec<_> = found.into_iter().filter(|operation| operation.inputs[0].len() == 4).collect();
        assert!(!images.is_empty() && images.iter().all(last), "{name}");
        assert!(images.iter().all(|operation| operation.dtype == Some(DType::Float16)), "{name}");
    }
    assert!(!profile.operations.iter().filter(|operation| operation.phase == Phase::Optimizer).any(|one| last(&one)));
    let bytes = |operation: &Operation| habitat_tui::op::work(operation, None).unwrap().bytes.get();
    // Weights in 32 bits, read once and written in 16.
    let casts = named(&profile, "aten::_to_copy");
    let weight = casts.iter().find(|cast| cast.phase == Phase::Forward && cast.inputs[0] == [16, 16, 3, 3]).unwrap();
    assert_eq!(bytes(weight), 6.0 * 2304.0);
    // The index of a maximum takes eight bytes.
    let pool = named(&profile, "aten::max_pool2d_with_indices")[0];
    assert_eq!(bytes(pool), 2.0 * 131_072.0 + 10.0 * 32_768.0);

    let usual = place.profile(python, "layers.py:pixels", &["--arg", "channels_last=False"]);
    assert!(!usual.operations.iter().any(|one| last(&one)));
    let inference = place.profile(python, "layers.py:pixels", &["--arg", "train=False"]);
    assert!(named(&inference, "aten::convolution").iter().all(last));
    let norm = named(&inference, "aten::native_batch_norm")[0];
    assert_eq!(norm.attributes["training"], Attribute::Bool(false));
    assert_eq!(bytes(norm), 4.0 * (2.0 * 32_768.0 + 4.0 * 16.0));
}

fn attention_is_the_gpus(python: &str) {
    let place = Place::new();
    let full = place.profile(python, "layers.py:attention", &[]);
    assert_eq!(full.workload.sequence_length, Some(32));
    let forward = named(&full, "aten::_scaled_dot_product_efficient_attention");
    assert_eq!((forward.len(), forward[0].count), (1, 3));
    assert_eq!(forward[0].module.as_deref(), Some("layers.*"));
    assert_eq!(forward[0].attributes["is_causal"], Attribute::Bool(true));
    assert_eq!(forward[0].attributes["dropout_p"], Attribute::Float(0.1));
    let backward = named(&full, "aten::_scaled_dot_product_efficient_attention_backward");
    assert_eq!((backward[0].phase, backward[0].count), (Phase::Backward, 3));
    assert_eq!(backward[0].module.as_deref(), Some("layers.*"));
    assert_eq!(named(&full, "aten::native_dropout")[0].count, 3);
    assert!(!notes(&full).contains("unfused"));
    let narrow = place.profile(python, "layers.py:attention", &["--arg", "amp=True", "--arg", "seq=64"]);
    assert_eq!(narrow.workload.precision, Some(Precision::AmpBf16));
    let flash = named(&narrow, "aten::_scaled_dot_product_flash_attention");
    assert_eq!((flash.len(), flash[0].inputs[0].as_slice()), (1, &[2, 4, 64, 16][..]));
    assert_eq!(named(&narrow, "aten::native_layer_norm")[0].dtype.clone().unwrap().to_string(), "float32");
    let cudnn = place.profile(python, "layers.py:only_cudnn", &[]);
    let backward = named(&cudnn, "aten::_scaled_dot_product_cudnn_attention_backward");
    assert_eq!((backward.len(), backward[0].phase), (1, Phase::Backward));
    let odd = place.profile(python, "layers.py:odd_heads", &[]);
    assert!(
        notes(&odd).contains("attention is computed unfused") && notes(&odd).contains("dropout kept"),
        "{}",
        notes(&odd)
    );
}

fn a_mask_that_nothing_needs_is_left_out(python: &str) {
    let place = Place::new();
    let profile = place.profile(python, "layers.py:masked", &[]);
    let flash = named(&profile, "aten::_scaled_dot_product_flash_attention");
    assert_eq!(flash.len(), 1);
    assert_eq!(flash[0].attributes["is_causal"], Attribute::Bool(true));
    let padded = place.profile(python, "layers.py:masked", &["--arg", "hidden=5"]);
    assert_eq!(named(&padded, "aten::_scaled_dot_product_efficient_attention").len(), 1);
    let overwritten = Place::new().refused(python, &fixture("layers.py:overwritten"), &[]);
    assert!(overwritten.contains("reads a value of a tensor"), "{overwritten}");
}

fn functions_for_torchscript_are_traced(python: &str) {
    let profile = Place::new().profile(python, "layers.py:scripted", &[]);
    let names = ["aten::sigmoid", "aten::mul", "aten::native_dropout"];
    assert_eq!(names.map(|name| named(&profile, name).first().map(|one| one.phase)), [Some(Phase::Forward); 3]);
}

/// Both flags, in PyTorch's older and newer form; reading the older one is an error beside the newer.
fn flags_of_tf32_are_seen(python: &str) {
    for (kind, expected) in [
        ("none", Precision::Fp32),
        ("off", Precision::Fp32Strict),
        ("high", Precision::Tf32),
        ("products", Precision::Tf32Products),
        ("new-off", Precision::Fp32Strict),
        ("new-on", Precision::Tf32),
    ] {
        let profile = Place::new().profile(python, "layers.py:flags", &["--arg", &format!("kind={kind}")]);
        assert_eq!(profile.workload.precision, Some(expected), "{kind}");
        assert!(profile.recording.unwrap().tf32_known, "{kind}");
    }
}

/// The recorded product is the 8-bit one, not the one that the wrapper received.
fn tensors_that_take_operators_apart_are_looked_into(python: &str) {
    let profile = Place::new().profile(python, "layers.py:eight_bits", &[]);
    let products = named(&profile, "aten::_scaled_mm");
    assert_eq!(products.iter().map(|one| one.dtype.clone()).collect::<Vec<_>>(), [Some(DType::Float8E4m3)]);
    assert_eq!((products[0].inputs[0].clone(), products[0].outputs[0].clone()), (vec![16, 64], vec![16, 64]));
    assert_eq!(profile.workload.precision, Some(Precision::Fp8));
}

/// A compiled model: GELU and layer norm are one kernel. Forward reads the first product with the norm's weight and
/// bias, and writes the norm, its means and deviations. Backward recomputes GELU from the product; the norm's gradients
/// need two passes.
fn what_is_compiled_is_fused(python: &str) {
    let profile = Place::new().profile(python, "layers.py:compiled", &[]);
    let fused: Vec<_> = named(&profile, "triton_poi_fused")
        .iter()
        .map(|one| (one.phase, one.count, one.inputs[0].clone(), one.outputs[0].clone()))
        .collect();
    let (rows, weight) = (16 * 64, 64);
    let read = rows + 2 * weight;
    assert_eq!(
        fused,
        [
            (Phase::Forward, 1, vec![read], vec![rows + 2 * 16]),
            // The gradients of the biases.
            (Phase::Backward, 2, vec![rows], vec![weight]),
            (Phase::Backward, 1, vec![2 * (rows + read + 2 * 16)], vec![rows + 2 * weight]),
        ]
    );
    assert!(named(&profile, "aten::gelu").is_empty());
    assert_eq!(named(&profile, "aten::addmm")[0].count, 2);
    assert!(notes(&profile).contains("torch.compile was not run"), "{}", notes(&profile));
    // In inference mode too: all calls after the product are one kernel.
    let inferred = Place::new().profile(python, "layers.py:inferred", &[]);
    let fused = named(&inferred, "triton_poi_fused");
    assert_eq!(fused.len(), 1);
    assert_eq!((fused[0].inputs[0].clone(), fused[0].outputs[0].clone()), (vec![2 * rows + 2 * weight], vec![rows]));
    // A step with only that is one too.
    let looked_up = Place::new().profile(python, "layers.py:looked_up", &[]);
    assert_eq!(named(&looked_up, "triton_poi_fused").len(), 1);
    // A kernel has at most 64 calls.
    let chain = Place::new().profile(python, "layers.py:chained", &[]);
    let forward = named(&chain, "triton_poi_fused");
    let forward = forward.iter().filter(|one| one.phase == Phase::Forward);
    assert_eq!(forward.map(|one| one.count).sum::<u32>(), 2);
    // In one mode they are replayed as CUDA graphs.
    let execution = |more: &[&str]| Place::new().profile(python, "layers.py:chained", more).step.unwrap().execution;
    assert_eq!(execution(&[]), None);
    assert_eq!(execution(&["--arg", "mode=reduce-overhead"]), Some(Execution::CudaGraphs));
    assert_eq!(execution(&["--arg", "mode=reduce-overhead", "--arg", "calls=2"]), None);
    // An eager model can be treated as compiled.
    let taken = Place::new().profile(python, "layers.py:compiled", &["--compile", "--arg", "backend=eager"]);
    assert_eq!(named(&taken, "triton_poi_fused").len(), 3);
    // A compiled function that is not called is reported.
    let none = Place::new().profile(python, "layers.py:uncalled", &[]);
    assert!(named(&none, "triton_poi_fused").is_empty() && named(&none, "aten::relu").len() == 1);
    assert!(notes(&none).contains("torch.compile changes nothing"), "{}", notes(&none));
    // The rest is unchanged: only the loss is compiled, whose sums have to be written.
    let loss = Place::new().profile(python, "layers.py:compiled", &["--arg", "whole=False"]);
    let fused = named(&loss, "triton_poi_fused");
    assert_eq!((fused[0].inputs[0].clone(), fused[0].outputs[0].clone()), (vec![rows], vec![16]));
    assert_eq!(named(&loss, "aten::gelu").len(), 1);
    // GELU's result takes no memory.
    let activations = |backend: &str| {
        let backend = format!("backend={backend}");
        let profile = Place::new().profile(python, "layers.py:compiled", &["--batch-sizes", "1024", "--arg", &backend]);
        profile.step.unwrap().memory.unwrap().activations.get()
    };
    assert_eq!(activations("eager") - activations("inductor"), 1024.0 * 64.0 * 4.0);
    // Products of odd lengths are padded if they are compute-bound.
    let padded = |more: &[&str]| {
        let profile = Place::new().profile(python, "layers.py:odd", more);
        let products = profile.operations.iter().filter(|one| ["aten::addmm", "aten::mm"].contains(&one.name.as_str()));
        products.map(|one| one.attributes.contains_key("padded")).collect::<Vec<_>>()
    };
    assert_eq!(padded(&[]), [true, true]);
    assert_eq!(padded(&["--arg", "rows=16"]), [false, false]);
    // A model's result is written, although nothing here reads it.
    let given_back = Place::new().profile(python, "layers.py:compiled", &["--arg", "trains=False"]);
    let fused = named(&given_back, "triton_poi_fused");
    assert_eq!((fused[0].inputs[0].clone(), fused[0].outputs[0].clone()), (vec![rows], vec![rows]));
}

/// A 4-bit weight stores two numbers per byte, beside a 32-bit layer.
fn weights_in_4_bits_take_their_own_memory(python: &str) {
    let profile = Place::new().profile(python, "layers.py:four_bits", &[]);
    let memory = profile.step.as_ref().unwrap().memory.as_ref().unwrap();
    assert_eq!(memory.parameters.get(), 64.0 * 32.0 + 64.0 * 64.0 * 4.0 + 512.0);
    assert_eq!(named(&profile, "aten::__rshift__").len(), 1);
    // A weight that is packed on its way to the GPU, for a product that dequantizes it.
    let profile = Place::new().profile(python, "layers.py:quantized", &[]);
    let memory = profile.step.as_ref().unwrap().memory.as_ref().unwrap();
    assert_eq!(memory.parameters.get(), 1024.0 + 1024.0 + 512.0);
    assert_eq!(named(&profile, "bitsandbytes::dequantize_4bit")[0].outputs, [vec![32, 64]]);
    let product = |one: &&Operation| one.inputs == [vec![16, 64], vec![64, 32]];
    assert_eq!(named(&profile, "aten::mm").into_iter().filter(product).count(), 1);
}

/// From PyTorch 2.9 on, if the weight has the type of the input.
fn an_rms_norm_is_the_one_call_of_a_gpu(python: &str) {
    let has_call = "import torch; torch.ops.aten._fused_rms_norm_backward";
    let has_call = Command::new(python).args(["-c", has_call]).output().unwrap().status.success();
    let names = |dtype: &str| {
        let profile = Place::new().profile(python, "layers.py:normed", &["--arg", &format!("dtype={dtype}")]);
        let is_norm = |one: &&Operation| one.name.contains("rms_norm");
        let norms = profile.operations.iter().filter(is_norm);
        let norms = norms.map(|one| (one.name.clone(), one.phase, one.outputs.clone())).collect::<Vec<_>>();
        (norms, named(&profile, "aten::rsqrt").len())
    };
    let call = |name: &str, phase, kept: Vec<u64>| (format!("aten::{name}"), phase, vec![vec![16, 64], kept]);
    let fused = [
        call("_fused_rms_norm", Phase::Forward, vec![16, 1]),
        call("_fused_rms_norm_backward", Phase::Backward, vec![64]),
    ];
    assert_eq!(names("bfloat16"), if has_call { (fused.to_vec(), 0) } else { (vec![], 1) });
    assert_eq!(names("float32"), (vec![], 1));
    let by_name = Place::new().profile(python, "layers.py:normed_by_name", &[]);
    assert_eq!(named(&by_name, "aten::_fused_rms_norm").len(), usize::from(has_call));
    // `torch.func` decomposes the norm.
    let within = Place::new().profile(python, "layers.py:normed_within_a_transform", &[]);
    assert_eq!(named(&within, "aten::rsqrt").len(), 1);
}

fn calls_that_do_not_go_along_memory_are_told(python: &str) {
    let profile = Place::new().profile(python, "layers.py:scattered", &[]);
    let access = |name: &str| named(&profile, name)[0].attributes.get("access").cloned();
    assert_eq!(access("aten::silu"), Some(Attribute::Text("strided".to_owned())));
    assert_eq!(access("aten::clone"), Some(Attribute::Text("transposed".to_owned())));
    assert_eq!([access("aten::tanh"), access("aten::sum"), access("aten::mul")], [None, None, None]);
    // A broadcast tensor is read once.
    assert_eq!(named(&profile, "aten::mul")[0].inputs, [vec![16, 128], vec![16, 1]]);
}

/// Five positions of three samples multiply the weights of four gates: 8 and 16 features in the first layer, 16 and 16
/// in the second.
fn recurrent_layers_are_one_call(python: &str) {
    let place = Place::new();
    let profile = place.profile(python, "layers.py:lstm", &[]);
    assert_eq!(named(&profile, "aten::_cudnn_rnn").len(), 1);
    assert_eq!(named(&profile, "aten::_cudnn_rnn_backward")[0].phase, Phase::Backward);
    let work = habitat_tui::op::StepWork::of(&profile);
    assert_eq!(work.forward.get(), 2.0 * 5.0 * 3.0 * 4.0 * 16.0 * (8.0 + 16.0 + 16.0 + 16.0));
    assert_eq!(work.backward.get(), 2.0 * work.forward.get());
}

fn sequences_of_unlike_lengths_are_packed(python: &str) {
    let profile = Place::new().profile(python, "layers.py:packed", &[]);
    let layer = named(&profile, "aten::_cudnn_rnn");
    assert_eq!((layer.len(), layer[0].inputs[0].clone()), (1, vec![5 + 4 + 2, 8]));
    // Each position with 4 gates of 16 features, backward twice.
    let [forward, backward] = ["aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"]
        .map(|name| habitat_tui::op::work(named(&profile, name)[0], None).unwrap().flops.get());
    assert_eq!((forward, backward), (2.0 * 11.0 * 64.0 * (8.0 + 16.0), 2.0 * forward));
}

/// Three layers of 24, 32, 48 and 64 features, which the model reads back from a tensor.
fn small_tensors_have_values_while_a_model_is_built(python: &str) {
    let profile = Place::new().profile(python, "layers.py:values", &[]);
    assert_eq!(profile.workload.parameter_count, Some(24 * 32 + 32 + 32 * 48 + 48 + 48 * 64 + 64));
    assert!(!notes(&profile).contains("answered with"), "{}", notes(&profile));
}

fn numbers_drawn_in_the_step_have_their_values(python: &str) {
    let profile = Place::new().profile(python, "layers.py:augmented", &[]);
    assert!(!notes(&profile).contains("answered with"), "{}", notes(&profile));
}

/// 7 million tokens; the first two of each sequence are masked.
fn masks_are_known_at_any_size(python: &str) {
    let profile = Place::new().profile(python, "layers.py:replaced", &[]);
    let backward: Vec<_> =
        named(&profile, "aten::index").into_iter().filter(|operation| operation.phase == Phase::Backward).collect();
    assert_eq!(backward.len(), 1, "{backward:?}");
    assert_eq!(backward[0].outputs[0], [2 * 70, 8]);
    assert!(!notes(&profile).contains("spread evenly"), "{}", notes(&profile));
}

/// 24 tokens with two of eight experts each.
fn experts_get_as_many_tokens_as_the_others(python: &str) {
    let profile = Place::new().profile(python, "layers.py:experts", &[]);
    let products: Vec<_> = named(&profile, "aten::addmm")
        .into_iter()
        .filter(|operation| operation.outputs[0] == [24 * 2 / 8, 16])
        .collect();
    assert_eq!(products.iter().map(|operation| operation.count).sum::<u32>(), 8, "{products:?}");
    assert!(notes(&profile).contains("the choices were spread evenly"), "{}", notes(&profile));
}

fn numbers_are_finite(python: &str) {
    let profile = Place::new().profile(python, "layers.py:policy", &[]);
    assert!(!notes(&profile).contains("answered with"), "{}", notes(&profile));
    assert_eq!(named(&profile, "aten::multinomial").len(), 1);
}

/// Three micro-batches of four; an average of the model, and a copy of its 72 parameters, are not activations.
fn accumulated_batches_are_of_one_step(python: &str) {
    let profile = Place::new().profile(python, "layers.py:accumulated", &[]);
    assert_eq!((profile.workload.batch_size, profile.workload.micro_batches), (Some(12), Some(3)));
    let memory = profile.step.clone().unwrap().memory.unwrap();
    // Blocks of 512 bytes: weight and bias, and twice those for averages.
    assert_eq!((memory.parameters.get(), memory.optimizer_state.get()), (2.0 * 512.0, 4.0 * 512.0));
    let again = Place::new().profile(python, "layers.py:accumulated", &["--arg", "again=True"]);
    assert_eq!((again.workload.batch_size, again.workload.micro_batches), (Some(4), None));
    let same = Place::new().profile(python, "layers.py:accumulated", &["--arg", "same=True"]);
    assert_eq!((same.workload.batch_size, notes(&same).contains("the same samples again")), (Some(4), true));
}

fn what_runs_again_is_of_backward_and_what_follows_of_the_update(python: &str) {
    let profile = Place::new().profile(python, "layers.py:checkpointed", &[]);
    let phases = |name: &str| named(&profile, name).iter().map(|one| (one.phase, one.count)).collect::<Vec<_>>();
    assert_eq!(phases("aten::addmm"), [(Phase::Forward, 4), (Phase::Backward, 4)]);
    assert_eq!(phases("aten::_foreach_norm"), [(Phase::Optimizer, 1)]);
    // The update needs more than forward and backward keep; each layer keeps its input.
    let memory = profile.step.clone().unwrap().memory.unwrap();
    let working = memory.working.unwrap();
    assert!(working.activations.get() >= 4.0 * 64.0 * 64.0 * 4.0, "{working:?}");
}

fn gradients_of_a_table_have_the_rows_looked_up(python: &str) {
    let profile = Place::new().profile(python, "layers.py:sparse", &[]);
    assert_eq!(named(&profile, "aten::_embedding_bag_backward")[0].outputs, [vec![16, 8]]);
    let added = named(&profile, "aten::index_add_");
    assert_eq!((added.len(), added[0].inputs.last().unwrap().clone()), (1, vec![16, 8]));
}

fn edges_of_a_graph_are_no_sequence(python: &str) {
    let profile = Place::new().profile(python, "layers.py:graph", &[]);
    assert_eq!((profile.workload.batch_size, profile.workload.sequence_length), (Some(1), None));
}

fn what_no_cpu_computes_has_no_values(python: &str) {
    let profile = Place::new().profile(python, "layers.py:on_gpu_alone", &[]);
    assert_eq!(named(&profile, "habitat_layers::on_gpu_alone").len(), 1);
}

/// Copies the statistics of batch norm, whose tensors have no values.
fn a_model_beside_its_average_is_traced(python: &str) {
    let profile = Place::new().profile(python, "layers.py:averaged", &[]);
    let once = Place::new().profile(python, "layers.py:pixels", &[]);
    let convolutions = |profile: &Profile| -> u32 {
        named(profile, "aten::convolution").iter().map(|operation| operation.count).sum()
    };
    assert_eq!((convolutions(&profile), convolutions(&once)), (2, 2));
    assert!(profile.workload.mode == Mode::Training && !named(&profile, "aten::native_batch_norm").is_empty());
}

/// Products and convolutions by phase and shapes, with their counts.
fn products(profile: &Profile) -> BTreeMap<(String, String, Vec<Vec<u64>>), u32> {
    let mut found = BTreeMap::new();
    for operation in &profile.operations {
        let (name, tensors) = match operation.name.trim_start_matches("aten::") {
            name @ ("mm" | "bmm") => (name, 2),
            "addmm" => ("addmm", 3),
            "convolution_backward" => ("convolution_backward", 3),
            name if name.contains("convolution") => ("convolution", 2),
            _ => continue,
        };
        let inputs: Vec<_> = operation.inputs.iter().filter(|shape| !shape.is_empty()).take(tensors).cloned().collect();
        *found.entry((operation.phase.to_string(), name.to_owned(), inputs)).or_default() += operation.count;
    }
    found
}

fn a_trace_by_shapes_has_the_products_of_a_real_step(python: &str) {
    let place = Place::new();
    let traced = place.profile(python, "real.py:build", &[]);
    let ran = Command::new(python).arg(fixture("real.py")).arg(place.path("trace.json")).output().unwrap();
    assert!(ran.status.success(), "{}", err(&ran));
    let import = ["import", "trace.json", "-o", "real.habitat.json", "--shapes-only"];
    let imported = place.habitat(&import).output().unwrap();
    assert!(imported.status.success(), "{}", err(&imported));
    let real = products(&place.read("real.habitat.json"));
    assert!(real.values().sum::<u32>() >= 12, "{real:?}");
    assert_eq!(products(&traced), real);
}

fn what_cannot_be_traced_is_told_with_the_users_own_lines(python: &str) {
    let place = Place::new();
    let bad = |function: &str, more: &[&str]| place.refused(python, &format!("{}:{function}", fixture("bad.py")), more);
    for (function, parts) in [
        (
            "raises",
            &["bad.py:raises(): the function failed: ValueError: the data set is not there", "bad.py:11, in inner\n"][..],
        ),
        ("of_values", &["its step failed: the size of a result depends on values", "torch.where", "out[out > 0]"]),
        ("nonzero", &["(aten::nonzero)", "bad.py:112\n", "habitat-tui run"]),
        ("counts", &["its step failed: it reads a value", "(torch.randn(5_000_000) > 0).sum().item()"]),
        ("branches", &["it reads a value", "in step\n      if model(torch.randn(20_000, 4)).sum() > 0:"]),
        ("to_numpy", &["its step failed", "holds no values"]),
        ("custom_operator", &["habitat_test::twice does not say what shape its result has", "register_fake"]),
        ("crashes", &["bad.py:crashes: native code crashed (signal: 11 (SIGSEGV)", "bad.py\", line 127 in <lambda>"]),
        ("nonsense", &["it returned (int, str)", "(model, inputs, optimizer[, loss_fn])"]),
        ("nothing", &["it returned nothing, and made no step"]),
        ("no_optimizer", &["its third result is not an optimizer: str"]),
        ("no_loss", &["the model returned no loss (Tensor (2, 4))", "where loss_fn(output) is the loss"]),
        ("no_call", &["its step called no operation of PyTorch"]),
        ("rebuilds", &["every call creates a new model and optimizer"]),
        ("needs", &["needs(width) needs width\n", "give it: --arg width=VALUE"]),
        ("needs_two", &["needs width, depth\n", "--arg width=VALUE --arg depth=VALUE"]),
        ("on_gpu", &["device = \"cpu\"", "get_device_properties(0)"]),
        ("leaves", &["SystemExit: 3", "it ended Python"]),
        ("nope", &["no such function", "functions there: inner, raises, of_values", "custom_operator and 4 more"]),
        ("NOT_A_FUNCTION", &["is not a function"]),
    ] {
        let told = bad(function, &[]);
        for part in parts {
            assert!(told.contains(part), "{function}: {part:?} is not in {told}");
        }
        assert!(!told.contains("habitat_shapes"), "{function} shows our own frames: {told}");
        assert!(told.lines().count() <= 6, "{function}: {told}");
    }
    let fixed = bad("fixed", &["--batch-sizes", "2,4"]);
    assert!(fixed.contains("takes no batch_size") && fixed.contains("def fixed(batch_size=32)"), "{fixed}");
    assert!(bad("fixed", &["--arg", "x=1"]).contains("takes no argument x"));
    let slow = bad("slow", &["--timeout", "4s"]);
    assert!(slow.contains("stopped after 4 s"), "{slow}");
    let file = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.py"), text).unwrap();
        place.refused(python, &format!("{}:build", folder.path().join("own.py").display()), &[])
    };
    let syntax = file("def build():\n    return (1,\n");
    assert!(syntax.contains("importing it failed: SyntaxError: ") && syntax.contains("own.py:2\n"), "{syntax}");
    let missing = file("import torch\nimport no_such_package_anywhere\n");
    assert!(missing.contains("own.py:2\n      import no_such_package") && missing.contains("--python"), "{missing}");
    let relative = file("from . import models\n");
    assert!(relative.contains("relative import") && relative.contains("package.module:function"), "{relative}");
    let trains = place.refused(python, &format!("{}:build", fixture("trains.py")), &[]);
    assert!(trains.contains("trains.py: trains when it is imported"), "{trains}");
    let module = place.refused(python, "no.such.place:build", &[]);
    assert!(module.contains("no.such.place: no such module"), "{module}");
}

/// PyTorch would first log dozens of internal lines about the error.
fn a_model_whose_shapes_do_not_fit_is_shown_in_five_lines(python: &str) {
    let place = Place::new();
    let target = format!("{}:does_not_fit", fixture("bad.py"));
    let told = place.refused(python, &target, &["--batch-sizes", "8"]);
    let lines: Vec<&str> = told.lines().collect();
    let [what, at, line, why, more] = lines[..] else { panic!("{told}") };
    assert!(what.contains("bad.py:does_not_fit(batch_size=8): its step failed: RuntimeError: "), "{told}");
    assert!(at.starts_with("  --> ") && at.ends_with("bad.py:93, in Net.forward"), "{told}");
    assert_eq!(line.trim(), "return self.second(self.first(x))");
    assert!(why.contains("[8, 64] and [32, 4]; a real step would fail there too"), "{told}");
    assert_eq!(more, "  --verbose shows the whole traceback");
    let whole = place.refused(python, &target, &["--verbose"]);
    assert!(whole.contains("Traceback (most recent call last)") && whole.contains("_dispatch_impl"), "{whole}");
}

fn what_names_a_gpu_or_takes_addresses_is_traced(python: &str) {
    let place = Place::new();
    let moved = place.profile(python, "bad.py:moves_to_gpu", &[]);
    assert!(moved.operations.iter().any(|operation| operation.phase == Phase::Backward));
    let output = place.trace(python, &format!("{}:takes_addresses", fixture("bad.py")), &["-o", "a.habitat.json"]);
    assert!(output.status.success() && !err(&output).contains("Warning"), "{}", err(&output));
    assert!(notes(&place.read("a.habitat.json")).contains("reads addresses of tensors (data_ptr)"));
}
