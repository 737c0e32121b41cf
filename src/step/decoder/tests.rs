use super::*;
use crate::op;
use crate::profile::{Operation, Phase, Profile};

fn llama(layers: u32) -> Decoder {
    let json = format!(
        r#"{{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": {layers},
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}}"#
    );
    Decoder::from_config("llama3-8b", json.as_bytes()).unwrap()
}

fn deepseek() -> Decoder {
    let json = br#"{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "vocab_size": 129280, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "first_k_dense_replace": 3}"#;
    Decoder::from_config("deepseek-v3", json).unwrap()
}

const STEP: StepOf = StepOf {
    batch: 1,
    length: 4096,
    recompute: Recompute::None,
    is_fused: true,
    is_compiled: true,
    loss: Loss::Plain,
    has_narrow_gradients: false,
};

fn flops(profile: &Profile, phase: Phase) -> f64 {
    let of = profile.operations.iter().filter(|operation| operation.phase == phase);
    of.filter_map(|one| Some(op::work(one, None)?.flops.get() * f64::from(one.count))).sum()
}

/// The parameters of every known model are those that its publisher names, to 1 %.
#[test]
fn known_models_have_their_published_parameters() {
    let known = Known::new(include_str!("../../../models/decoders.toml"));
    let all = known.all().unwrap();
    assert!(all.len() > 20);
    for (name, config) in &all {
        let found = known.find(name).unwrap().parameters()[0] as f64 / 1e9;
        let published = config.parameters.unwrap();
        assert!((found / published - 1.0).abs() < 0.01, "{name}: {found} {published}");
        assert!(known.find(name).unwrap().longest.is_some(), "{name}");
    }
    assert_eq!(known.find("Llama3.1-405B").unwrap().layers, 126);
    let told = known.find("lama3-8b").unwrap_err().to_string();
    assert!(told.contains("did you mean llama3-8b?"), "{told}");
}

/// Published parameter counts: 8.03 and 70.55 billion (Llama 3), 46.7 and 12.9 (Mixtral 8x7B), 671 and 37
/// (DeepSeek-V3), 124 million (GPT-2; its 0.8 million of positions are left out).
#[test]
fn parameters_of_known_models() {
    let near = |found: u64, expected: f64| assert!((found as f64 / expected - 1.0).abs() < 0.01, "{found} {expected}");
    near(llama(32).parameters()[0], 8.03e9);
    let of = |json: &str| Decoder::from_config("m", json.as_bytes()).unwrap().parameters();
    near(
        of(r#"{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256}"#)[0],
        70.55e9,
    );
    let mixtral = of(r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "num_local_experts": 8, "num_experts_per_tok": 2}"#);
    near(mixtral[0], 46.7e9);
    near(mixtral[1], 12.9e9);
    let [all, active] = deepseek().parameters();
    near(all, 671e9);
    near(active, 37.5e9);
    // The file on huggingface.co has both lengths.
    let gpt2 = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_ctx": 1024,
        "n_positions": 1024}"#;
    near(of(gpt2)[0], 123.6e6);
    let opt = r#"{"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 50272}"#;
    near(of(opt)[0], 123.6e6);
}

/// `trace-shapes` of Llama 3 in Hugging Face's code (4 layers, 4096 tokens, PyTorch 2.15, compiled): 12.0 and 24.3
/// TFLOP forward and backward, 1.923 billion parameters.
#[test]
fn as_many_flops_as_the_traced_code() {
    for is_compiled in [false, true] {
        let profile = llama(4).profile(StepOf { is_compiled, ..STEP }).unwrap();
        assert_eq!(profile.workload.parameter_count, Some(1_923_125_248));
        let [forward, backward] = [Phase::Forward, Phase::Backward].map(|phase| flops(&profile, phase) / 1e12);
        assert!((forward - 12.0).abs() < 0.06 && (backward - 24.3).abs() < 0.06, "{forward} {backward}");
    }
}

/// 6 FLOPs per active parameter and token, without the embedding's table, and 12·h·s²/2 of attention in each layer.
#[test]
fn flops_follow_from_the_parameters_that_a_token_uses() {
    let decoder = deepseek();
    let profile = decoder.profile(STEP).unwrap();
    let found = flops(&profile, Phase::Forward) + flops(&profile, Phase::Backward);
    let [_, active] = decoder.parameters();
    let tables = (decoder.vocabulary * decoder.width) as f64;
    let products = 6.0 * (active as f64 - tables) * 4096.0;
    let sizes = (decoder.heads * (decoder.head_size + decoder.value_size)) as f64;
    let attention = 61.0 * 4096.0 * 4096.0 / 2.0 * sizes * (2.0 + 5.0);
    assert!((found / (products + attention) - 1.0).abs() < 0.03, "{found:e} {:e}", products + attention);
}

#[test]
fn recomputing_layers_repeats_their_forward_pass() {
    let of = |recompute| {
        let profile = llama(4).profile(StepOf { recompute, ..STEP }).unwrap();
        (flops(&profile, Phase::Backward), profile.step.unwrap().memory.unwrap().activations.get())
    };
    let ((none, most), (selective, fewer), (operators, half), (full, least)) =
        (of(Recompute::None), of(Recompute::Selective), of(Recompute::Operators), of(Recompute::Full));
    let head = 2.0 * 4096.0 * 4096.0 * 128_256.0;
    let forward = flops(&llama(4).profile(STEP).unwrap(), Phase::Forward);
    assert!((full - none - (forward - head)).abs() < 1e-3 * forward);
    assert!(selective > none && selective < full);
    assert!(most >= fewer && fewer > half && half > least, "{most} {fewer} {half} {least}");
    // Of products with 4096, 1024, 1024, 4096, 14336, 14336 and 4096 columns the second, fourth and sixth are repeated:
    // keys, behind attention, the second half. Kept are the others, attention and the input of the layer.
    let repeated = 2.0 * 4096.0 * 4096.0 * (1024.0 + 4096.0 + 14_336.0) * 4.0;
    assert!(((operators - none) / repeated - 1.0).abs() < 1e-3, "{operators} {none}");
    let kept = 2.0 * 4096.0 * (4.0 * (4096.0 * 4.0 + 1024.0 + 14_336.0) + 128_256.0 + 2.0 * 4096.0);
    assert!((half / kept - 1.0).abs() < 1e-6, "{half} {kept}");
}

/// Every second product is repeated as it is: queries and keys of `DeepSeek` come from latent vectors of 1,536 and 512.
#[test]
fn repeated_products_have_their_own_sizes() {
    let of = |recompute| deepseek().profile(StepOf { recompute, ..STEP }).unwrap().operations;
    let is_repeated = |operation: &&Operation| {
        operation.name == "aten::mm" && operation.module.as_ref().is_some_and(|module| module.ends_with("repeated"))
    };
    let all = of(Recompute::Operators);
    let repeated: Vec<Vec<u64>> = all.iter().filter(is_repeated).map(|operation| operation.inputs[1].clone()).collect();
    for sizes in [vec![1536, 24_576], vec![512, 32_768]] {
        assert!(repeated.contains(&sizes), "{repeated:?}");
    }
    assert!(!of(Recompute::None).iter().any(|operation| is_repeated(&operation)));
}

/// Of files that transformers 5.23 writes of its defaults, with the parameters that its own models have on its meta
/// device; ours leave out a few biases and norms of heads.
#[test]
fn files_of_transformers_have_its_parameters() {
    let of = |kind: &str, [width, inner, layers, heads, kv_heads, vocabulary]: [u64; 6], more: &str| {
        let json = format!(
            r#"{{"model_type": "{kind}", "hidden_size": {width}, "intermediate_size": {inner}, "num_hidden_layers": {layers},
                "num_attention_heads": {heads}, "num_key_value_heads": {kv_heads}, "vocab_size": {vocabulary}{more}}}"#
        );
        Decoder::from_config(kind, json.as_bytes()).unwrap().parameters()[0] as f64
    };
    for (kind, sizes, more, parameters) in [
        ("granite", [4096, 11_008, 32, 32, 32, 32_000], "", 6_738_415_616.0),
        ("smollm3", [2048, 11_008, 36, 16, 4, 128_256], "", 3_075_098_624.0),
        ("glm4", [4096, 13_696, 40, 32, 2, 151_552], r#", "head_dim": 128"#, 9_400_279_040.0),
    ] {
        let found = of(kind, sizes, more);
        assert!((found / parameters - 1.0).abs() < 1e-4, "{kind}: {found} {parameters}");
    }
}

/// The language model of a model that also takes pictures: Gemma 3 27B (27.0 billion without its 0.4 of the vision part;
/// the published file leaves out the vocabulary), Llama 4 Scout and Maverick (109 and 400 billion, 17 of them active), GLM-4.5-Air (106 billion, with
/// heads wider than the model).
#[test]
fn the_language_model_of_a_larger_one_is_found() {
    let of = |json: &str| Decoder::from_config("m", json.as_bytes()).unwrap();
    let near = |found: u64, expected: f64| assert!((found as f64 / expected - 1.0).abs() < 0.02, "{found} {expected}");
    let gemma = of(r#"{"model_type": "gemma3", "vision_config": {"hidden_size": 1152}, "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}}"#);
    near(gemma.parameters()[0], 27.0e9);
    let notes = |model: &Decoder| model.profile(STEP).unwrap().recording.unwrap().notes.join("\n");
    assert!(notes(&gemma).contains("its parts for pictures or sound are left out"));
    assert!(!notes(&llama(2)).contains("pictures"));
    let llama4 = |experts: u32, every: u32| {
        of(&format!(
            r#"{{"model_type": "llama4", "text_config": {{"model_type": "llama4_text", "hidden_size": 5120,
                "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
                "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048,
                "num_local_experts": {experts}, "num_experts_per_tok": 1, "interleave_moe_layer_step": {every}}}}}"#
        ))
    };
    for (model, all) in [(llama4(16, 1), 109e9), (llama4(128, 2), 400e9)] {
        near(model.parameters()[0], all);
        near(model.parameters()[1], 17.1e9);
    }
    let glm =
        of(r#"{"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46,
        "moe_intermediate_size": 1408, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
        "vocab_size": 151552}"#);
    near(glm.parameters()[0], 106e9);
}

/// A window of w tokens leaves w (L - w / 2) of the L² pairs: 128 in every second layer of gpt-oss; named layers go
/// before the family's; Qwen's files have windows that are not used.
#[test]
fn windows_leave_fewer_pairs() {
    let of = |kind: &str, more: &str| {
        let json = format!(
            r#"{{"model_type": "{kind}", "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 4,
                "num_attention_heads": 8, "vocab_size": 1000, "sliding_window": 128{more}}}"#
        );
        let mut step = Decoder::from_config("m", json.as_bytes()).unwrap().profile(STEP).unwrap();
        step.operations.retain(|operation| operation.name.contains("attention"));
        flops(&step, Phase::Forward)
    };
    let whole = of("qwen3", "");
    let length = STEP.length as f64;
    let left = 128.0 * (length - 64.0) / (length * length / 2.0);
    for (kind, more, windowed) in [
        ("mistral", "", 4.0),
        ("gpt_oss", "", 2.0),
        (
            "gpt_oss",
            r#", "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]"#,
            1.0,
        ),
        ("qwen3", r#", "use_sliding_window": true"#, 4.0),
        ("qwen3", r#", "use_sliding_window": true, "max_window_layers": 3"#, 1.0),
        ("mistral", r#", "use_sliding_window": false"#, 0.0),
    ] {
        let found = of(kind, more) / whole;
        let expected = (windowed * left + 4.0 - windowed) / 4.0;
        assert!((found / expected - 1.0).abs() < 0.01, "{kind} {more}: {found} {expected}");
    }
}

#[test]
fn a_wrong_config_names_its_field() {
    let of = |json: &str| Decoder::from_config("m", json.as_bytes()).unwrap_err().to_string();
    assert!(of("[1").contains("one object"));
    assert!(of(r#"{"model_type": "t5"}"#).contains("trace its code"));
    assert!(of(r#"{"model_type": "llama", "num_hidden_layers": 0}"#).starts_with("num_hidden_layers: 0 is out"));
    assert!(of(r#"{"model_type": "llama", "num_hidden_layers": 2}"#).starts_with("hidden_size: missing"));
    let all = r#"{"model_type": "deepseek_v3", "hidden_size": N, "intermediate_size": N, "moe_intermediate_size": N,
        "num_hidden_layers": N, "num_attention_heads": 1000, "head_dim": 128, "vocab_size": N, "kv_lora_rank": N,
        "n_routed_experts": N, "num_experts_per_tok": N}"#;
    assert!(of(&all.replace('N', "10000000")).contains("the limit is 1000000000000000"));
    assert!(of(&all.replace('N', "4000000000")).contains("out of range"));
    let narrow = r#"{"model_type": "mixtral", "hidden_size": 1, "intermediate_size": 1, "moe_intermediate_size": 10000000,
        "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 1, "vocab_size": 1, "num_local_experts": 10000000,
        "num_experts_per_tok": 10000000}"#;
    let narrow = Decoder::from_config("m", narrow.as_bytes()).unwrap();
    assert!(narrow.profile(StepOf { length: 1_000_000, ..STEP }).unwrap_err().to_string().contains("fewer sequences"));
    let long = StepOf { batch: 1_000_000_000, length: 1_000_000_000, ..STEP };
    assert!(llama(2).profile(long).unwrap_err().to_string().contains("fewer sequences"));
}

/// 4,096 tokens of 128,256 logits: 12, 6 and 4 bytes each at the loss, of which 2 are kept; gradients of 4 or 2 bytes.
#[test]
fn programs_differ_in_the_memory_of_loss_and_gradients() {
    let memory = |step| llama(4).profile(step).unwrap().step.unwrap().memory.unwrap();
    let logits = 4096.0 * 128_256.0;
    for (loss, bytes) in [(Loss::Plain, 10.0), (Loss::InPlace, 4.0), (Loss::Fused, 2.0)] {
        assert!((memory(StepOf { loss, ..STEP }).temporary.get() - bytes * logits).abs() < 1.0, "{loss:?}");
    }
    let [wide, narrow] =
        [false, true].map(|has_narrow_gradients| memory(StepOf { has_narrow_gradients, ..STEP }).gradients.get());
    let parameters = llama(4).parameters()[0] as f64;
    assert_eq!([wide, narrow], [4.0 * parameters, 2.0 * parameters]);
}
