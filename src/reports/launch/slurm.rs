//! Slurm script (`sbatch FILE`) for own machines: one for each part.

use super::{Job, LaunchError, Launcher};
use habitat_base::text;
use habitat_planning::pricing::Tier;

/// Script of one part, for the partition if the user names one.
pub(super) fn script(job: &Job<'_>) -> Result<String, LaunchError> {
    let (part, partition) = (job.part, job.start.partition);
    if partition.is_none() && part.offer.tier != Tier::Owned {
        return Err(LaunchError::NoPartition { offer: text::clean(part.offer.id.as_str(), 200) });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-,".contains(c);
    if let Some(name) = partition.filter(|name| name.is_empty() || !name.chars().all(allowed)) {
        return Err(LaunchError::Partition(text::clean(name, 80)));
    }
    let partition = partition.map_or_else(String::new, |name| format!("#SBATCH --partition={name}\n"));
    let cpus = part.offer.vcpus.filter(|cpus| *cpus >= 1.0);
    let cpus = cpus.map_or_else(String::new, |cpus| format!("#SBATCH --cpus-per-task={cpus:.0}\n"));
    let (gpus, minutes) = (part.offer.gpu_count, job.most_minutes());
    let (days, hours) = (minutes / 1440, minutes / 60 % 24);
    Ok(format!(
        "#!/bin/bash\n{}# sbatch FILE\n#SBATCH --job-name={}\n{partition}#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n{cpus}# {}; if the cluster names its GPUs, use gpu:NAME:{gpus}\n#SBATCH --gres=gpu:{gpus}\n# Upper end of the predicted time; Slurm stops the job then.\n#SBATCH --time={days}-{hours:02}:{:02}:00\n\n{}",
        job.comments(),
        job.name(),
        part.machines,
        text::clean(part.gpu.as_str(), 80),
        minutes % 60,
        job.lines(Launcher::Slurm)?.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat(),
    ))
}
