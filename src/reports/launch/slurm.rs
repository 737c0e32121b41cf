//! Slurm script (`sbatch FILE`) for own machines: one for each part.

use super::{Job, LaunchError, Launcher};
use habitat_base::text;
use habitat_planning::pricing::Offer;

/// Whether a job takes all GPUs of its machine. A single GPU may be one of several in a cluster.
fn takes_all_gpus(offer: &Offer) -> bool {
    offer.gpu_count > 1 && offer.share_of.as_ref().is_none_or(|share| share.gpus == offer.gpu_count)
}

/// Script of one part, for the partition if the user names one.
pub(super) fn script(job: &Job<'_>) -> Result<String, LaunchError> {
    let (part, launch) = (job.part, &job.start.launch);
    let partition = job.place_of(Launcher::Slurm, launch.partition.as_ref(), "--partition NAME")?;
    let mut options = vec![format!("--job-name={}", job.name())];
    if let Some(copies) = job.copies {
        let numbers = if copies.is_range() {
            format!("{}-{}", copies.first(), copies.numbers[copies.numbers.len() - 1])
        } else {
            copies.numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
        };
        let is_limited = copies.at_once < copies.numbers.len();
        let at_once = if is_limited { format!("%{}", copies.at_once) } else { String::new() };
        options.push(format!("--array={numbers}{at_once}"));
    }
    options.extend(partition.map(|name| format!("--partition={name}")));
    options.extend([format!("--nodes={}", part.machines), "--ntasks-per-node=1".to_owned()]);
    let cpus = launch.cpus.map(f64::from).or(part.offer.vcpus).filter(|cpus| *cpus >= 1.0);
    // A machine reports less than its nominal memory.
    let gib = part.offer.host_memory.map(|memory| (memory.get() / f64::from(1 << 30) * 0.9).floor());
    let memory = launch.memory_gb.map(f64::from).or(gib.filter(|gib| *gib >= 1.0));
    let is_whole = takes_all_gpus(&part.offer);
    let exclusive = is_whole.then(|| "--exclusive".to_owned());
    options.extend(cpus.map(|cpus| format!("--cpus-per-task={cpus:.0}")).or(exclusive));
    // 0 is all memory of a machine.
    let all = is_whole.then(|| "--mem=0".to_owned());
    options.extend(memory.map(|gb| format!("--mem={gb:.0}G")).or(all));
    let shares = if is_whole || (cpus.is_some() && memory.is_some()) {
        ""
    } else {
        "# Other jobs may use the rest of the machine. --cpus and --memory-gb set its share, otherwise the cluster does.\n"
    };
    options.extend(launch.workdir.as_ref().map(|dir| format!("--chdir={dir}")));
    if launch.checkpoint_dir.is_some() {
        options.extend(["--requeue".to_owned(), "--open-mode=append".to_owned()]);
    }
    let submitted = if job.limit().is_some() { "--export=ALL,SUBMITTED=$(date +%s) " } else { "" };
    let after =
        if job.place.0 > 1 { format!("--dependency=afterok:ID_OF_PART_{} ", job.place.0 - 1) } else { String::new() };
    let (gpus, minutes) = (part.offer.gpu_count, job.most_minutes());
    let (days, hours) = (minutes / 1440, minutes / 60 % 24);
    let options = options.iter().map(|option| format!("#SBATCH {option}\n")).collect::<Vec<_>>().concat();
    // srun does not take it from sbatch.
    let cpus = if cpus.is_some() && launch.command.is_some() {
        "export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n"
    } else {
        ""
    };
    let mounts = launch
        .mounts
        .keys()
        .map(|path| format!("# Slurm mounts nothing: {path} has to exist on its machines.\n"))
        .collect::<Vec<_>>()
        .concat();
    let passed =
        if job.variables()[1].is_empty() { "" } else { "# sbatch passes its environment on (--export=ALL).\n" };
    Ok(format!(
        "#!/bin/bash\n{}# sbatch {submitted}{after}FILE\n{mounts}{passed}{shares}{options}# {}; if the cluster names its GPUs, use gpu:NAME:{gpus}\n#SBATCH --gres=gpu:{gpus}\n# Upper end of the predicted time and 10 %; Slurm stops the job then, and does not requeue it.\n#SBATCH --time={days}-{hours:02}:{:02}:00\n\n{cpus}{}",
        job.comments(Launcher::Slurm),
        text::clean(part.gpu.as_str(), 80),
        minutes % 60,
        job.lines(Launcher::Slurm)?.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat(),
    ))
}
