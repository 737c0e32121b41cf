use super::*;

const KNOWN: Known = Known::new(
    "[llama3-8b]\nmodel_type = \"llama\"\nhidden_size = 4096\nintermediate_size = 14336\n\
     num_hidden_layers = 32\nnum_attention_heads = 32\nnum_key_value_heads = 8\nvocab_size = 128256\n",
);

fn plan(launch: &Launch) -> String {
    launch.plan.iter().map(|(flag, value)| format!("{flag} {value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_script_of_megatron() {
    let script = "#!/bin/bash\nTP=8\nPP=${PP:-4}\n# --num-layers 3\nMODEL_ARGS=(\n    --num-layers 96 \n    --hidden-size 12288\n\
                  --num-attention-heads 96\n --seq-length 2048 --vocab-size 51200\n)\n\
                  torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py --micro-batch-size 1 --global-batch-size=1536 \\\n\
                  --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} --bf16 --train-iters 100 \\\n\
                  --num-layers-per-virtual-pipeline-stage 3 --recompute-activations --use-distributed-optimizer";
    let launch = Launch::read("gpt3", script, KNOWN).unwrap();
    // GPT-3 of Brown et al. 2020 has 175 billion parameters.
    assert_eq!(launch.decoder.parameters()[0] / 1_000_000_000, 174);
    assert_eq!((launch.micro_batch, launch.length, launch.recompute), (1, 2048, Recompute::Selective));
    assert_eq!((launch.loss, launch.has_narrow_gradients), (Loss::InPlace, false));
    let faster = format!("{script} --cross-entropy-loss-fusion --grad-reduce-in-bf16");
    let faster = Launch::read("gpt3", &faster, KNOWN).unwrap();
    assert_eq!((faster.loss, faster.has_narrow_gradients), (Loss::Fused, true));
    assert_eq!(
        plan(&launch),
        "--tensor-parallel 8 --pipeline-parallel 4 --virtual-stages 8 --sharding zero1 --global-batch 1536 \
         --steps 100 --min-gpus 128 --max-gpus 128 --max-machines 16"
    );
}

#[test]
fn a_script_says_what_the_shell_would() {
    let of = |text: &str| Launch::read("x", text, KNOWN).unwrap();
    let rest = "--hidden-size 4096 --num-attention-heads 32 --vocab-size 32000";
    let layers = |text: &str| of(&format!("{text} {rest}")).decoder.layers;
    assert_eq!(layers("--num-layers 80   # 96 layers: --num-layers 96\n"), 80);
    assert_eq!(layers("L=\"80\"\nA=(--num-layers \"$L\")\n"), 80);
    assert_eq!(layers("export L='80'; python x.py --num-layers ${L}"), 80);
    assert_eq!(layers("GPT_ARGS=\"\n    --num-layers 80 --lr 1e-4 \\\n    --bf16\n\"\ntorchrun x.py $GPT_ARGS"), 80);
    // Llama 7B: 11,008 by hand, 10,880 by default.
    assert_eq!(of(&format!("--swiglu --num-layers 32 {rest}")).decoder.inner, 10_880);
    let experts = "--num-layers 60 --num-experts 8 --moe-layer-freq \"([0]*3+[1]*57)\"";
    assert_eq!(of(&format!("{experts} {rest}")).decoder.experts.unwrap().dense_layers, 3);
    let gpt2 = of("--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --merge-file m --train-samples 500");
    assert_eq!(
        (gpt2.decoder.vocabulary, plan(&gpt2).as_str()),
        (50_257, "--sharding none --accept batch --samples 500")
    );
}

#[test]
fn experts_of_megatron() {
    let line = "--swiglu --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 \
                --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
                --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 --padded-vocab-size 32000 \
                --seq-length 4096 --fp8-format hybrid --use-megatron-fsdp";
    let launch = Launch::read("mixtral", line, KNOWN).unwrap();
    // 46.7 billion, 12.9 of which each token uses (Jiang et al. 2024, arXiv:2401.04088).
    assert_eq!(launch.decoder.parameters().map(|count| count / 100_000_000), [467, 128]);
    assert_eq!(plan(&launch), "--expert-parallel 8 --sharding zero3 --accept batch --precision fp8");
}

#[test]
fn torchtitan_by_file_and_by_flags() {
    let file = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n\
                [parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n\
                [activation_checkpoint]\nmode = \"full\"\n[quantize.linear.float8]\nemulate = false\n";
    let line = "torchrun -m torchtitan.train --model.name=llama3 --model.flavor 8B --training.local-batch-size 2 \
                --training.seq_len 8192 --parallelism.tensor_parallel_degree=2 --activation_checkpoint.mode full";
    for text in [file, line] {
        let launch = Launch::read("job", text, KNOWN).unwrap();
        assert_eq!((launch.micro_batch, launch.length, launch.recompute), (2, 8192, Recompute::Full));
        assert_eq!(launch.decoder.width, 4096);
        assert_eq!(plan(&launch), "--tensor-parallel 2 --sharding zero3 --accept batch");
    }
}

#[test]
fn stages_and_degrees_of_torchtitan() {
    let file = "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = [\"float8\"]\n[parallelism]\n\
                pipeline_parallel_degree = 4\ndata_parallel_shard_degree = 32 # not --x\ntensor_parallel_degree = 8\n";
    let launch = Launch::read("job", file, KNOWN).unwrap();
    assert_eq!(
        plan(&launch),
        "--tensor-parallel 8 --pipeline-parallel 4 --sharding zero1 --accept batch --precision fp8 --min-gpus 1024 \
         --max-gpus 1024"
    );
}

#[test]
fn others_are_refused() {
    let said = |text: &str| Launch::read("x", text, KNOWN).unwrap_err().to_string();
    assert!(said("python train.py --lr 1e-3").contains("--num-layers (Megatron-LM)"));
    assert!(said("--num-layers $L --hidden-size 8").starts_with("--num-layers $L: is not in the file"));
    assert!(said("L=$((4 * 8))\n--num-layers $L").starts_with("--num-layers $((4: is not in the file, or is"));
    let branches = "if [ $S = 7 ]; then L=32; else L=40; fi\n--num-layers $L --vocab-size 9";
    assert!(said(branches).contains("--num-layers : has several values"), "{}", said(branches));
    assert!(said("--num-layers 2 --num-layers 4").contains("several values"));
    let recomputes =
        "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 9 --recompute-granularity full";
    assert!(said(&format!("{recomputes} --recompute-granularity selective")).contains("several values"));
    assert_eq!(said("echo \"--num-layers 2"), "a quote does not close");
    assert!(said("[model]\nflavor = 8B\n").starts_with("line 2: "), "{}", said("[model]\nflavor = 8B\n"));
    let titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = \"two\"\n";
    assert!(said(titan).contains("training.local_batch_size two: is not a whole number"), "{}", said(titan));
    let pattern = "--num-layers 2 --num-experts 4 --hidden-size 64 --num-attention-heads 4 --moe-layer-freq 2";
    assert!(said(pattern).contains("--moe-layer-freq 2: only dense layers at the start"));
    assert!(said("--num-layers 2 --hidden-size 64 --num-attention-heads 4").contains("add --vocab-size"));
    assert!(said("--num-layers 2 --vocab-size 9 --num-attention-heads 4").contains("hidden_size: missing"));
    assert!(said("[model]\nname = \"llama3\"\nflavor = \"debugmodel\"").contains("llama3-debugmodel"));
}
