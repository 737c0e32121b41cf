//! How the parts of a plan start: the keys of `[launch]` as flags.

use clap::Args;

use crate::settings::choices::choice;
use habitat_planning::values;
use habitat_reports::launch::{Framework, Launch};

/// How the parts of a plan start, for `--export`; a plan's file keeps it.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct LaunchArgs {
    /// Training command, as typed on one GPU.
    ///
    /// `python …` is started once for each GPU of all machines, by torchrun; other commands once on each machine.
    #[arg(long, value_name = "COMMAND", help_heading = "Launch")]
    pub command: Option<String>,
    /// Framework whose flags for the planned layout and batches follow the command.
    #[arg(long, value_parser = choice::<Framework>(), help_heading = "Launch")]
    pub framework: Option<Framework>,
    /// Command that prepares a machine ('pip install -r requirements.txt').
    #[arg(long, value_name = "COMMAND", help_heading = "Launch")]
    pub setup_command: Option<String>,
    /// Folder with the program.
    ///
    /// `SkyPilot` and dstack copy it to the machine; for Slurm it is on the cluster, for Kubernetes in the image.
    #[arg(long, value_name = "DIR", help_heading = "Launch")]
    pub workdir: Option<String>,
    /// Environment variable of the command (repeatable); KEY alone takes the value from your environment.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Launch")]
    pub env: Vec<String>,
    /// Folder of checkpoints, which the command finds in `CHECKPOINT_DIR`.
    ///
    /// A job that starts again goes on from there. On rented machines it has to be on storage that outlives them
    /// (--mount).
    #[arg(long, value_name = "DIR", help_heading = "Launch")]
    pub checkpoint_dir: Option<String>,
    /// Storage at a path of the machine (repeatable).
    ///
    /// A bucket's URL for `SkyPilot`, a volume for dstack, a persistent volume claim for Kubernetes.
    #[arg(long, value_name = "PATH=SOURCE", help_heading = "Launch")]
    pub mount: Vec<String>,
    /// Container image (needed for Kubernetes).
    #[arg(long, value_name = "NAME", help_heading = "Launch")]
    pub image: Option<String>,
    /// CPUs of one machine, instead of the offer's.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, 100_000), help_heading = "Launch")]
    pub cpus: Option<u32>,
    /// Host memory of one machine in GB, instead of the offer's.
    #[arg(long, value_name = "GB", value_parser = values::within::<u32>(1, 1_000_000), help_heading = "Launch")]
    pub memory_gb: Option<u32>,
    /// Disk of one machine in GB.
    #[arg(long, value_name = "GB", value_parser = values::within::<u32>(1, 1_000_000), help_heading = "Launch")]
    pub disk_gb: Option<u32>,
    /// Slurm partition with these GPUs.
    #[arg(long, value_name = "NAME", help_heading = "Launch")]
    pub partition: Option<String>,
    /// Kubernetes: local queue of Kueue.
    #[arg(long, value_name = "NAME", help_heading = "Launch")]
    pub queue: Option<String>,
}

impl LaunchArgs {
    /// The flags as one value; `KEY` of `--env` is `KEY=`.
    pub fn launch(&self) -> Launch {
        let pairs = |all: &[String]| {
            let pair = |text: &String| {
                let (key, value) = text.split_once('=').unwrap_or((text, ""));
                (key.to_owned(), value.to_owned())
            };
            all.iter().map(pair).collect()
        };
        Launch {
            command: self.command.clone(),
            framework: self.framework,
            setup_command: self.setup_command.clone(),
            workdir: self.workdir.clone(),
            checkpoint_dir: self.checkpoint_dir.clone(),
            image: self.image.clone(),
            cpus: self.cpus,
            memory_gb: self.memory_gb,
            disk_gb: self.disk_gb,
            partition: self.partition.clone(),
            queue: self.queue.clone(),
            env: pairs(&self.env),
            mounts: pairs(&self.mount),
        }
    }
}
