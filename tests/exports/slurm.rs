//! The scripts for Slurm, run by Slurm itself: a cluster of only this machine, with other devices as GPUs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::scripts::Place;
use super::stories::{jobs, read, typed};
use crate::needs::Need;

/// Programs of Debian's packages slurmctld, slurmd, slurm-client and munge.
const PROGRAMS: [&str; 6] = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo"];
/// Devices that every Linux has.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"];

/// Path of a program, also in the folders of system services.
fn found(name: &str) -> Option<PathBuf> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

pub(crate) fn installed() -> Need<()> {
    match PROGRAMS.iter().find(|name| found(name).is_none()) {
        Some(name) => Err(format!("no {name}: apt-get install slurmctld slurmd slurm-client munge")),
        None => Ok(()),
    }
}

/// A cluster of one node with four GPUs; stops when dropped.
struct Cluster {
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let key = at("key");
        fs::write(&key, [47; 128]).unwrap();
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let output = |program: &str, option: &str| {
            let out = Command::new(program).arg(option).output().unwrap();
            String::from_utf8(out.stdout).unwrap().trim().to_owned()
        };
        let (host, user) = (output("uname", "-n"), output("id", "-un"));
        let host = host.split('.').next().unwrap();
        let [control, node] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let folder = dir.path().display();
        let conf = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\nSlurmdPort={node}\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge\nSlurmUser={user}\nSlurmdUser={user}\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\n\
             SlurmctldPidFile={folder}/control.pid\nSlurmdPidFile={folder}/node.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             MpiDefault=none\nSelectType=select/cons_tres\nGresTypes=gpu\nReturnToService=2\n\
             SchedulerType=sched/builtin\nSchedulerParameters=sched_interval=1\nSlurmdParameters=config_overrides\n\
             NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=512000 Gres=gpu:4\n\
             PartitionName=lab Nodes=node Default=YES State=UP\n"
        );
        fs::write(at("slurm.conf"), conf).unwrap();
        let gpus: Vec<String> =
            DEVICES.iter().map(|device| format!("NodeName=node Name=gpu File={device}\n")).collect();
        fs::write(at("gres.conf"), gpus.concat()).unwrap();
        for name in ["state", "spool"] {
            fs::create_dir(at(name)).unwrap();
        }
        let mut cluster = Self { dir, daemons: Vec::new() };
        let of = |option: &str, name: &str| format!("--{option}={}", at_of(&cluster, name));
        let munge = [of("key-file", "key"), of("socket", "munge"), of("pid-file", "munge.pid")];
        let logs = [of("log-file", "munge.log"), of("seed-file", "munge.seed"), "--foreground".to_owned()];
        let conf = at_of(&cluster, "slurm.conf");
        let daemons = [
            ("munged", [munge, logs].concat()),
            ("slurmctld", ["-D", "-f", &conf].map(str::to_owned).to_vec()),
            ("slurmd", ["-D", "-N", "node", "-f", &conf].map(str::to_owned).to_vec()),
        ];
        for (name, args) in daemons {
            let log = fs::File::create(cluster.dir.path().join(format!("{name}.out"))).unwrap();
            let mut daemon = Command::new(found(name).unwrap());
            daemon.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            cluster.daemons.push(daemon.spawn().unwrap());
            if name == "munged" {
                cluster.waits("munged", || cluster.dir.path().join("munge").exists());
            }
        }
        cluster.waits("the node", || cluster.says("sinfo", &["-h", "-o", "%T"]).trim() == "idle");
        cluster
    }

    fn says(&self, program: &str, args: &[&str]) -> String {
        let out = Command::new(program).args(args).env("SLURM_CONF", at_of(self, "slurm.conf")).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Waits two minutes at most.
    fn waits(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            if begin.elapsed() > Duration::from_secs(120) {
                let log =
                    |name: &str| fs::read_to_string(self.dir.path().join(format!("{name}.out"))).unwrap_or_default();
                let logs = ["munged", "slurmctld", "slurmd"].map(log).concat();
                panic!("waited for {what}: {}\n{logs}", self.says("squeue", &[]));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs the script that starts all jobs, and waits until they have ended.
    fn runs(&self, place: &Place, script: &str) -> Vec<String> {
        for stub in ["srun", "sbatch", "sleep"] {
            let _ = fs::remove_file(place.path().join("bin").join(stub));
        }
        let out: Output =
            place.bash_with(&place.path().join(script), "store", &[("SLURM_CONF", at_of(self, "slurm.conf"))]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        self.waits("the jobs", || self.says("squeue", &["-h"]).is_empty());
        place.read("log").lines().map(str::to_owned).collect()
    }
}

fn at_of(cluster: &Cluster, name: &str) -> String {
    Path::new(cluster.dir.path()).join(name).display().to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A chain and a sweep of 40 end as planned; jobs that wait for a failed one leave the queue.
pub(crate) fn slurm_runs_a_chain_and_a_sweep() {
    let cluster = Cluster::start();
    let place = Place::new();
    let file = |first: &str| {
        format!(
            "[[job]]\nname = \"pictures\"\nSTEP\nsteps = \"50k\"\nlaunch.command = \"{first}\"\n\
             [[job]]\nname = \"faces\"\nSTEP\nsteps = \"5k\"\nafter = [\"pictures\"]\nlaunch.command = \"python faces.py\"\n\
             [[job]]\nname = \"sweep\"\ncount = 40\nSTEP\nsteps = 10\nlaunch.command = \"python sweep.py --seed $COPY\"\n\
             [[machine]]\ngpu = \"rtx-4090\"\ngpus = 2\n\
             [launch]\npartition = \"lab\"\ncpus = 16\nmemory_gb = 96\n"
        )
    };
    jobs(&place, &file("python pictures.py"));
    typed(&place, &["plan-jobs", "jobs.toml", "--export", "slurm", "-o", "runs"]);
    let log = cluster.runs(&place, "runs/start.sh");
    let (mut sweep, chain): (Vec<String>, Vec<String>) = log.into_iter().partition(|line| line.contains("sweep.py"));
    let ranks = "torchrun --standalone --nproc-per-node=2";
    assert_eq!(chain, ["pictures", "faces"].map(|name| format!("{ranks} {name}.py")));
    sweep.sort_unstable();
    let mut copies: Vec<String> = (1..=40).map(|seed| format!("{ranks} sweep.py --seed {seed}")).collect();
    copies.sort_unstable();
    assert_eq!(sweep, copies);
    // The first job of the chain fails.
    fs::remove_file(place.path().join("log")).unwrap();
    jobs(&place, &file("false").replace("count = 40", "count = 2"));
    typed(&place, &["plan-jobs", "jobs.toml", "--export", "slurm", "-o", "failing"]);
    let log = cluster.runs(&place, "failing/start.sh");
    assert!(log.len() == 2 && log.iter().all(|line| line.contains("sweep.py")), "{log:?}");
    assert!(read(&place, "failing/start.sh").contains("--kill-on-invalid-dep=yes"));
}
