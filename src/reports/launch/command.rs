//! Training command of a part: on all GPUs of its machines, with the flags of its layout.

use super::{Job, LaunchError, Launcher};
use habitat_base::text;
use habitat_prediction::Sharding;

/// Training command of a part, and its place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start<'a> {
    /// Partition of a Slurm cluster.
    pub partition: Option<&'a str>,
    /// The training command, as typed on one GPU.
    pub command: Option<&'a str>,
    /// Framework whose flags for the layout follow it.
    pub framework: Option<Framework>,
    /// Tokens of a sequence.
    pub sequence_length: Option<u64>,
}

/// A framework that takes its layout from flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// Megatron-LM (`pretrain_gpt.py`, Megatron Core 0.12 or later).
    Megatron,
    /// torchtitan (`torchtitan.train`, 0.2 or later).
    Torchtitan,
}

/// Placeholder for the training command.
const PLACEHOLDER: [&str; 2] = ["echo 'put the training command here' >&2", "exit 1"];
/// Whether a character ends a line, or is none of text, in a shell or in YAML.
fn is_broken(c: char) -> bool {
    c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&c)
}

/// Whether each quote of a text has its end.
fn is_closed(text: &str) -> bool {
    shell_words::split(text).is_ok()
}

/// Whether a text has characters outside quotes that a shell does not pass on.
fn is_script(text: &str) -> bool {
    let mut quote = None;
    text.chars().any(|c| match quote {
        Some(open) if c == open => {
            quote = None;
            false
        }
        Some(_) => false,
        None if matches!(c, '\'' | '"') => {
            quote = Some(c);
            false
        }
        None => matches!(c, '|' | ';' | '&' | '<' | '>' | '#' | '`' | '('),
    })
}

/// Variables that a command begins with (`A=1 python train.py`), and the rest of it.
fn variables(command: &str) -> (&str, &str) {
    let is_set = |word: &str| {
        word.split_once('=').is_some_and(|(name, value)| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            starts && name.chars().all(is_name) && !is_script(value)
        })
    };
    let words = text::shell_words(command);
    let set = words.iter().take_while(|(word, _)| is_set(word)).map(|(word, space)| word.len() + space.len()).sum();
    let (set, rest) = command.split_at(set);
    (set.trim_end(), rest)
}

/// The `torchrun` of a Python interpreter, and the program with its arguments; `None` for another command, or for
/// options of the interpreter that `torchrun` cannot pass on.
fn torchrun(command: &str) -> Option<(String, &str)> {
    let (python, rest) = command.split_once(' ')?;
    let name = python.rsplit('/').next()?.strip_prefix("python")?;
    if !name.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let rest = rest.trim_start();
    // Its processes are unbuffered anyway.
    let rest = rest.strip_prefix("-u ").map_or(rest, str::trim_start);
    let is_program = !rest.is_empty() && (!rest.starts_with('-') || rest.starts_with("-m "));
    let by = if python.contains('/') { format!("{python} -m torch.distributed.run") } else { "torchrun".to_owned() };
    is_program.then_some((by, rest))
}

/// Port at which the ranks meet; that of `torchrun`'s own examples.
const PORT: u16 = 29_500;

impl Job<'_> {
    /// Lines of a shell script that run on every machine of the part.
    pub(super) fn lines(&self, launcher: Launcher) -> Result<Vec<String>, LaunchError> {
        let Some(command) = self.start.command.map(str::trim) else {
            return Ok(PLACEHOLDER.map(str::to_owned).to_vec());
        };
        if command.is_empty() || command.chars().any(is_broken) || !is_closed(command) {
            return Err(LaunchError::Command(text::clean(command, 80)));
        }
        // What is to be done before the program, on the machine that reads the script.
        let mut steps: Vec<&str> = command.split(" && ").map(str::trim).collect();
        let last = steps.pop().unwrap_or_default();
        if steps.iter().chain([&last]).any(|step| !is_closed(step)) {
            return Err(LaunchError::Command(text::clean(command, 80)));
        }
        let flags = self.start.framework.map(|framework| self.flags(framework));
        if flags.is_some() && is_script(last) {
            return Err(LaunchError::Flags(text::clean(command, 80)));
        }
        let all = std::iter::once(last.to_owned()).chain(flags.into_iter().flatten()).collect::<Vec<_>>().join(" ");
        Ok(steps.into_iter().map(str::to_owned).chain(self.on_all_gpus(launcher, &all)).collect())
    }

    /// A Python program starts once for each GPU, by `torchrun`; other commands start their processes themselves.
    fn on_all_gpus(&self, launcher: Launcher, command: &str) -> Vec<String> {
        let (machines, gpus) = (self.part.machines, self.part.offer.gpu_count);
        let srun = if launcher == Launcher::Slurm { "srun " } else { "" };
        let command = command.strip_prefix("srun ").unwrap_or(command);
        let (set, command) = variables(command);
        let set = if set.is_empty() { String::new() } else { format!("env {set} ") };
        let by_itself = || match launcher {
            Launcher::Slurm if is_script(command) => format!("srun {set}bash -c {}", text::shell_word(command)),
            _ => format!("{srun}{set}{command}"),
        };
        if machines == 1 && gpus == 1 {
            return vec![by_itself()];
        }
        let Some((torchrun, program)) = torchrun(command) else {
            let runs = format!("# Runs once on each machine: it has to start a process on each of {gpus} GPUs.");
            return vec![runs, by_itself()];
        };
        if machines == 1 {
            return vec![format!("{srun}{set}{torchrun} --standalone --nproc-per-node={gpus} {program}")];
        }
        let (before, meeting) = match launcher {
            Launcher::Slurm => (
                Some(r#"head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"#),
                format!(r#"--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:{PORT}""#),
            ),
            Launcher::SkyPilot => (
                Some(r#"head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"#),
                format!(r#"--node-rank="$SKYPILOT_NODE_RANK" --master-addr="$head" --master-port={PORT}"#),
            ),
            Launcher::Dstack => (
                None,
                format!(
                    r#"--node-rank="$DSTACK_NODE_RANK" --master-addr="$DSTACK_MASTER_NODE_IP" --master-port={PORT}"#
                ),
            ),
        };
        let run = format!("{srun}{set}{torchrun} --nnodes={machines} --nproc-per-node={gpus} {meeting} {program}");
        before.map(str::to_owned).into_iter().chain([run]).collect()
    }

    /// Flags of the part's layout, batches and length; degrees of one are left out.
    fn flags(&self, framework: Framework) -> Vec<String> {
        let (part, parallel) = (self.part, self.part.parallel);
        let degree = |flag: &str, of: u32| (of > 1).then(|| format!("{flag}={of}"));
        let number = |flag: &str, of: Option<u64>| of.map(|of| format!("{flag}={of}"));
        let (replicas, stages) = (part.replicas(), u64::from(parallel.pipeline));
        // Programs count from the first part on.
        let updates = Some(self.updates.ceil() as u64);
        let all: Vec<Option<String>> = match framework {
            Framework::Megatron => {
                let sharding = match part.sharding {
                    Sharding::None => "",
                    Sharding::Zero1 => "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                    Sharding::Zero2 => "--use-megatron-fsdp --data-parallel-sharding-strategy=optim_grads",
                    Sharding::Zero3 => "--use-megatron-fsdp --data-parallel-sharding-strategy=optim_grads_params",
                };
                vec![
                    degree("--tensor-model-parallel-size", parallel.tensor),
                    (parallel.tensor > 1).then(|| "--sequence-parallel".to_owned()),
                    degree("--pipeline-model-parallel-size", parallel.pipeline),
                    degree("--num-virtual-stages-per-pipeline-rank", parallel.chunks),
                    degree("--context-parallel-size", parallel.context),
                    degree("--expert-model-parallel-size", parallel.expert),
                    Some(sharding.to_owned()).filter(|flags| !flags.is_empty()),
                    number("--micro-batch-size", part.batch_size),
                    number("--global-batch-size", part.global_batch_size),
                    number("--seq-length", self.start.sequence_length),
                    number("--train-iters", updates),
                ]
            }
            Framework::Torchtitan => {
                let (shards, copies) = if part.sharding == Sharding::None { (1, replicas) } else { (replicas, 1) };
                // Stages take micro-batches of one local batch; without stages, gradients of local batches add up.
                let local = part.batch_size.map(|batch| if stages > 1 { batch * part.accumulation } else { batch });
                vec![
                    Some(format!("--parallelism.data_parallel_shard_degree={shards}")),
                    degree("--parallelism.data_parallel_replicate_degree", copies),
                    matches!(part.sharding, Sharding::Zero1 | Sharding::Zero2)
                        .then(|| "--parallelism.fsdp_reshard_after_forward=never".to_owned()),
                    degree("--parallelism.tensor_parallel_degree", parallel.tensor),
                    degree("--parallelism.pipeline_parallel_degree", parallel.pipeline),
                    (parallel.chunks > 1)
                        .then(|| "--parallelism.pipeline_parallel_schedule=Interleaved1F1B".to_owned()),
                    number("--parallelism.pipeline_parallel_microbatch_size", part.batch_size.filter(|_| stages > 1)),
                    degree("--parallelism.context_parallel_degree", parallel.context),
                    degree("--parallelism.expert_parallel_degree", parallel.expert),
                    number("--training.local_batch_size", local),
                    number("--training.global_batch_size", part.global_batch_size),
                    number("--training.seq_len", self.start.sequence_length),
                    number("--training.steps", updates),
                ]
            }
        };
        all.into_iter().flatten().collect()
    }
}
