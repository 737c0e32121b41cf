//! Flags of Megatron-LM and torchtitan.

use super::*;

#[test]
fn a_framework_gets_the_flags_of_the_layout() {
    let of = |framework, part| {
        let mut start = with("python -m x");
        (start.launch.framework, start.sequence_length, start.layers) = (Some(framework), Some(4096), Some(32));
        let text = texts(&plan(vec![part]), "gpt", Launcher::Slurm, &start).unwrap().concat();
        assert!(!text.contains("has to enable it"), "{text}");
        text.rsplit_once(" -m x ").unwrap().1.trim_end().to_owned()
    };
    assert_eq!(
        of(Framework::Megatron, divided()),
        "--tensor-model-parallel-size=4 --sequence-parallel --pipeline-model-parallel-size=2 \
         --num-virtual-stages-per-pipeline-rank=2 --use-distributed-optimizer --overlap-grad-reduce \
         --overlap-param-gather --micro-batch-size=1 \
         --global-batch-size=32 --seq-length=4096 --train-iters=101"
    );
    assert_eq!(
        of(Framework::Torchtitan, divided()),
        "--parallelism.data_parallel_shard_degree=2 --parallelism.fsdp_reshard_after_forward=never \
         --parallelism.tensor_parallel_degree=4 --parallelism.pipeline_parallel_degree=2 \
         --parallelism.pipeline_parallel_schedule=Interleaved1F1B \
         --parallelism.pipeline_parallel_first_stage_less_layers=0 \
         --parallelism.pipeline_parallel_last_stage_less_layers=0 \
         --parallelism.pipeline_parallel_layers_per_stage=8 --parallelism.pipeline_parallel_microbatch_size=1 \
         --training.local_batch_size=16 --training.global_batch_size=32 --training.seq_len=4096 --training.steps=101"
    );
    // Copies on two machines, each divided among its 8 GPUs; with stages, parameters are gathered again.
    let offer = Arc::new(Offer { gpu_count: 8, ..(*spot().offer).clone() });
    let hybrid = Part { sharding: Sharding::Hsdp, offer, machines: 2, parallel: ModelParallel::NONE, ..divided() };
    assert!(
        of(Framework::Megatron, hybrid.clone())
            .contains("sharding-strategy=optim_grads_params --num-distributed-optimizer-instances=2 ")
    );
    assert!(of(Framework::Torchtitan, hybrid).starts_with(
        "--parallelism.data_parallel_shard_degree=8 --parallelism.data_parallel_replicate_degree=2 --training"
    ));
    let sharded = of(Framework::Torchtitan, Part { sharding: Sharding::Zero3, ..divided() });
    assert!(sharded.contains(" --parallelism.fsdp_reshard_after_forward=always "), "{sharded}");
    // A step predicted in FP8 trains in it.
    let in_fp8 = |framework| {
        let mut start = Start { precision: Some(Precision::Fp8), ..with("python -m x") };
        start.launch.framework = Some(framework);
        texts(&plan(vec![spot()]), "gpt", Launcher::Slurm, &start).unwrap().concat()
    };
    assert!(in_fp8(Framework::Megatron).contains(" --fp8-format=hybrid "));
    assert!(in_fp8(Framework::Torchtitan).contains(" --model.converters=quantize.linear.float8 "));
    // The second of two parts goes on to the end of both.
    let mut start = with("python x");
    start.launch.framework = Some(Framework::Megatron);
    let refused = texts(&plan(vec![divided(), divided()]), "gpt", Launcher::Slurm, &start).unwrap_err();
    assert!(refused.to_string().contains("pass --checkpoint-dir DIR"), "{refused}");
    start.launch.checkpoint_dir = Some("$SCRATCH/run".to_owned());
    let both = texts(&plan(vec![divided(), divided()]), "gpt", Launcher::Slurm, &start).unwrap();
    // Checkpoints every quarter of an hour, as planned.
    let kept = r#"--train-iters=101 --save="$CHECKPOINT_DIR" --load="$CHECKPOINT_DIR" --save-interval=100"#;
    assert!(both[0].contains(kept) && both[1].contains("--train-iters=201"), "{both:?}");
    let flagged = |command| {
        let mut start = with(command);
        start.launch.framework = Some(Framework::Megatron);
        texts(&plan(vec![spot()]), "gpt", Launcher::Slurm, &start)
    };
    assert!(flagged("python x --name 'a|b'").is_ok());
    for command in ["python a.py # all", "python a.py; date"] {
        assert!(matches!(flagged(command), Err(LaunchError::Flags(_))), "{command}");
    }
    let parallel = ModelParallel { recompute: true, ..divided().parallel };
    let again = Part { parallel, ..divided() };
    assert!(
        of(Framework::Megatron, again.clone()).contains(" --recompute-granularity=full --recompute-method=uniform ")
    );
    assert!(of(Framework::Torchtitan, again).contains(" --activation_checkpoint.mode=full "));
    let experts =
        Part { sharding: Sharding::Zero3, parallel: ModelParallel { expert: 4, ..ModelParallel::NONE }, ..spot() };
    let megatron = of(Framework::Megatron, experts);
    assert!(
        megatron.starts_with("--expert-model-parallel-size=4 --use-megatron-fsdp --data-parallel-sharding"),
        "{megatron}"
    );
}

/// 61 layers on 4 stages, and 126 in 64 chunks: Megatron-LM refuses them without a layout of its own.
#[test]
fn unequal_stages_are_written_out() {
    let of = |framework, layers, pipeline, chunks| {
        let mut start = with("python x");
        (start.launch.framework, start.layers) = (Some(framework), Some(layers));
        let parallel = ModelParallel { pipeline, chunks, ..ModelParallel::NONE };
        texts(&plan(vec![Part { parallel, ..divided() }]), "gpt", Launcher::Slurm, &start).map(|texts| texts.concat())
    };
    let megatron = of(Framework::Megatron, 61, 4, 1).unwrap();
    assert!(megatron.contains(r#"--pipeline-model-parallel-layout="Et*15|t*16|t*15|t*15L""#), "{megatron}");
    let interleaved = of(Framework::Megatron, 126, 8, 8).unwrap();
    let layout = interleaved.split("layout=").nth(1).unwrap().split('"').nth(1).unwrap();
    let stages: Vec<&str> = layout.split('|').collect();
    assert_eq!((stages.len(), stages[0], stages[1], stages[63]), (64, "Et*1", "t*2", "t*1L"));
    assert!(!interleaved.contains("virtual-stages"), "{interleaved}");
    assert!(!interleaved.contains("recompute"), "{interleaved}");
    let titan = of(Framework::Torchtitan, 126, 8, 8).unwrap();
    let sized = "first_stage_less_layers=0 --parallelism.pipeline_parallel_last_stage_less_layers=1 \
                 --parallelism.pipeline_parallel_layers_per_stage=2";
    assert!(titan.contains(sized), "{titan}");
    let refused = of(Framework::Torchtitan, 40, 4, 8).unwrap_err().to_string();
    assert!(refused.contains("torchtitan cannot divide"), "{refused}");
}
