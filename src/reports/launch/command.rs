//! Training command of a part: on all GPUs of its machines, with the flags of its layout.

use super::{Framework, Job, LaunchError, Launcher};
use habitat_base::text;
use habitat_base::units::Hours;
use habitat_prediction::Sharding;
use habitat_step::profile::Precision;

/// Commands of a line, cut at `;`, `|` and `&` outside quotes and parentheses, and the comment at its end. `None` for a
/// quote or a parenthesis without its end, and for a line that goes on in the next one.
fn commands(line: &str) -> Option<(Vec<&str>, &str)> {
    let (mut all, mut start, mut quote, mut depth, mut before) = (Vec::new(), 0, None, 0_u32, ' ');
    let mut chars = line.char_indices().peekable();
    let mut end = line.len();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (None | Some('"' | '`'), '\\') => {
                chars.next()?;
            }
            (Some(open), _) => quote = (c != open).then_some(open),
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, '#') if before.is_whitespace() || matches!(before, ';' | '|' | '&') => {
                end = at;
                break;
            }
            (None, ';' | '|' | '&') if depth == 0 => {
                // `2>&1`, `>|` and `&>` say where output goes.
                let is_output =
                    matches!(before, '<' | '>') || c == '&' && chars.peek().is_some_and(|next| next.1 == '>');
                if !is_output {
                    all.push(&line[start..at]);
                    start = at + 1;
                }
            }
            _ => {}
        }
        before = c;
    }
    all.push(&line[start..end]);
    (quote.is_none() && depth == 0).then_some((all, &line[end..]))
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

/// A command without Slurm's `srun`, which the launcher writes itself: its variables, and the rest.
fn without_srun(command: &str) -> (&str, &str) {
    let command = command.trim();
    let (set, rest) = variables(command.strip_prefix("srun ").unwrap_or(command));
    (set, rest.strip_prefix("srun ").unwrap_or(rest))
}

/// Whether a command is a Python program that `torchrun` can start.
fn is_python(command: &str) -> bool {
    torchrun(without_srun(command).1).is_some()
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
    /// The steps before the program, and the lines that run it on every machine of the part: the last one is the
    /// program, those before it find the machines. The command is one line with closed quotes.
    pub(super) fn program(&self, launcher: Launcher, command: &str) -> Result<[Vec<String>; 2], LaunchError> {
        let command = command.trim();
        // Commands before the program, run on the machine that reads the script.
        let mut steps: Vec<&str> = command.split(" && ").map(str::trim).collect();
        let last = steps.pop().unwrap_or_default();
        let before: Option<Vec<_>> = steps.iter().map(|step| commands(step)).collect();
        let before = before.filter(|steps| steps.iter().all(|(_, comment)| comment.is_empty()));
        let Some((before, (programs, _))) = before.zip(commands(last)) else {
            let expected = "one line of text without && inside quotes, parentheses or comments";
            return Err(LaunchError::invalid("command", command, expected));
        };
        let flags = self.start.launch.framework.map(|framework| self.flags(framework)).transpose()?;
        if flags.is_some() && is_script(last) {
            return Err(LaunchError::Flags(text::clean(command, 80)));
        }
        // Only one program can be started on all GPUs; output into a file may follow it.
        let is_several = programs.len() > 1
            && is_python(programs[0])
            && !programs[1..].iter().all(|program| program.trim_start().starts_with("tee "));
        let is_earlier = before.iter().flat_map(|(programs, _)| programs).any(|program| is_python(program));
        if (is_several || is_earlier) && u64::from(self.part.machines) * u64::from(self.part.offer.gpu_count) > 1 {
            let expected = "Only one Python program can start on all GPUs: put what comes before it into \
                            --setup-command, or write a shell script that starts each by torchrun, and pass that";
            return Err(LaunchError::invalid("command", command, expected));
        }
        let all = std::iter::once(last.to_owned()).chain(flags.into_iter().flatten()).collect::<Vec<_>>().join(" ");
        Ok([steps.into_iter().map(str::to_owned).collect(), self.on_all_gpus(launcher, &all)])
    }

    /// A Python program starts once for each GPU, by `torchrun`; other commands start their processes themselves.
    fn on_all_gpus(&self, launcher: Launcher, command: &str) -> Vec<String> {
        let (machines, gpus) = (self.part.machines, self.part.offer.gpu_count);
        let srun = if launcher == Launcher::Slurm { "srun " } else { "" };
        let (set, command) = without_srun(command);
        let set = if set.is_empty() { String::new() } else { format!("env {set} ") };
        let by_itself = || match launcher {
            Launcher::Slurm if is_script(command) => format!("{srun}{set}bash -c {}", shell_words::quote(command)),
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
            Launcher::Kubernetes => (
                None,
                format!(r#"--node-rank="$JOB_COMPLETION_INDEX" --master-addr="$MASTER_ADDR" --master-port={PORT}"#),
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
    fn flags(&self, framework: Framework) -> Result<Vec<String>, LaunchError> {
        let (part, parallel) = (self.part, self.part.parallel);
        let degree = |flag: &str, of: u32| (of > 1).then(|| format!("{flag}={of}"));
        let number = |flag: &str, of: Option<u64>| of.map(|of| format!("{flag}={of}"));
        let (replicas, stages) = (part.replicas(), u64::from(parallel.pipeline));
        let folder = self.start.launch.checkpoint_dir.as_ref();
        let each = Hours::get(self.checkpoint) * 3.6e9 / part.step_time_us.mid;
        // Programs count from the first part on.
        let updates = Some(self.updates.ceil() as u64);
        let each = folder.map(|_| (each.min(self.updates).round() as u64).max(1));
        let is_fp8 = self.start.precision == Some(Precision::Fp8);
        let all: Vec<Option<String>> = match framework {
            Framework::Megatron => {
                let full = "--use-megatron-fsdp --data-parallel-sharding-strategy=optim_grads_params";
                let in_groups = format!("{full} --num-distributed-optimizer-instances={}", replicas / part.shards());
                let sharding = match part.sharding {
                    Sharding::None => "",
                    Sharding::Zero1 => "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                    Sharding::Zero2 => "--use-megatron-fsdp --data-parallel-sharding-strategy=optim_grads",
                    Sharding::Zero3 => full,
                    Sharding::Hsdp => &in_groups,
                };
                vec![
                    degree("--tensor-model-parallel-size", parallel.tensor),
                    (parallel.tensor > 1).then(|| "--sequence-parallel".to_owned()),
                    degree("--pipeline-model-parallel-size", parallel.pipeline),
                    self.megatron_stages(),
                    degree("--context-parallel-size", parallel.context),
                    degree("--expert-model-parallel-size", parallel.expert),
                    parallel.recompute.then(|| {
                        "--recompute-granularity=full --recompute-method=uniform --recompute-num-layers=1".to_owned()
                    }),
                    Some(sharding.to_owned()).filter(|flags| !flags.is_empty()),
                    is_fp8.then(|| "--fp8-format=hybrid".to_owned()),
                    number("--micro-batch-size", part.batch_size),
                    number("--global-batch-size", part.global_batch_size),
                    number("--seq-length", self.start.sequence_length),
                    number("--train-iters", updates),
                    folder.map(|_| r#"--save="$CHECKPOINT_DIR" --load="$CHECKPOINT_DIR""#.to_owned()),
                    number("--save-interval", each),
                ]
            }
            Framework::Torchtitan => {
                let shards = if part.sharding == Sharding::None { 1 } else { part.shards() };
                // With stages, torchtitan keeps the parameters that it has gathered, unless it is to gather them again.
                let reshards = match part.sharding {
                    Sharding::Zero1 | Sharding::Zero2 => Some("never"),
                    Sharding::Zero3 | Sharding::Hsdp if stages > 1 => Some("always"),
                    _ => None,
                };
                // Stages take micro-batches of one local batch; without stages, gradients of local batches add up.
                let local = part.batch_size.map(|batch| if stages > 1 { batch * part.accumulation } else { batch });
                vec![
                    Some(format!("--parallelism.data_parallel_shard_degree={shards}")),
                    degree("--parallelism.data_parallel_replicate_degree", replicas / shards),
                    reshards.map(|when| format!("--parallelism.fsdp_reshard_after_forward={when}")),
                    degree("--parallelism.tensor_parallel_degree", parallel.tensor),
                    degree("--parallelism.pipeline_parallel_degree", parallel.pipeline),
                    self.torchtitan_stages()?,
                    number("--parallelism.pipeline_parallel_microbatch_size", part.batch_size.filter(|_| stages > 1)),
                    degree("--parallelism.context_parallel_degree", parallel.context),
                    degree("--parallelism.expert_parallel_degree", parallel.expert),
                    parallel.recompute.then(|| "--activation_checkpoint.mode=full".to_owned()),
                    is_fp8.then(|| "--model.converters=quantize.linear.float8".to_owned()),
                    number("--training.local_batch_size", local),
                    number("--training.global_batch_size", part.global_batch_size),
                    number("--training.seq_len", self.start.sequence_length),
                    number("--training.steps", updates),
                    folder.map(|_| r#"--checkpoint.enable --checkpoint.folder="$CHECKPOINT_DIR""#.to_owned()),
                    number("--checkpoint.interval", each),
                ]
            }
        };
        Ok(all.into_iter().flatten().collect())
    }

    /// Flags of chunks, or of stages with unequal numbers of layers, which Megatron-LM needs written out (E embedding,
    /// t layer, L loss; `PipelineParallelLayerLayout` of Megatron-Core since 0.13).
    fn megatron_stages(&self) -> Option<String> {
        let parallel = self.part.parallel;
        let all = parallel.chunk_layers(self.start.layers.unwrap_or(0));
        if all.iter().any(|layers| layers != &all[0]) {
            let chunks: Vec<String> = all.iter().map(|layers| format!("t*{layers}")).collect();
            return Some(format!(r#"--pipeline-model-parallel-layout="E{}L""#, chunks.join("|")));
        }
        (parallel.chunks > 1).then(|| format!("--num-virtual-stages-per-pipeline-rank={}", parallel.chunks))
    }

    /// Flags of torchtitan's stages. It counts layers in its own way: the ends as none or one, chunks by their size,
    /// with two on a stage unless that is given (`pipeline_llm` of torchtitan 0.2).
    ///
    /// # Errors
    /// [`LaunchError::Invalid`] for chunks that no size makes.
    fn torchtitan_stages(&self) -> Result<Option<String>, LaunchError> {
        let (parallel, layers) = (self.part.parallel, self.start.layers.unwrap_or(0));
        if parallel.pipeline <= 1 {
            return Ok(None);
        }
        let ends = |first: u32, last: u32| {
            format!(
                "--parallelism.pipeline_parallel_first_stage_less_layers={first} \
                 --parallelism.pipeline_parallel_last_stage_less_layers={last}"
            )
        };
        if parallel.chunks <= 1 {
            return Ok(Some(ends(0, 0)));
        }
        let chunks = parallel.pipeline * parallel.chunks;
        let sized = [(0, 0), (0, 1), (1, 1)].into_iter().find_map(|(first, last)| {
            let all = layers + first + last;
            let size = all.div_ceil(chunks).max(1);
            (all.div_ceil(size) == chunks).then_some((first, last, size))
        });
        let schedule = "--parallelism.pipeline_parallel_schedule=Interleaved1F1B";
        match sized {
            Some((first, last, size)) => Ok(Some(format!(
                "{schedule} {} --parallelism.pipeline_parallel_layers_per_stage={size}",
                ends(first, last)
            ))),
            None if layers == 0 => Ok(Some(schedule.to_owned())),
            None => {
                let expected = "megatron: torchtitan cannot divide this number of layers into the chunks of the plan";
                Err(LaunchError::invalid("framework", "torchtitan", expected))
            }
        }
    }
}
