//! Kubernetes manifest (`kubectl apply -f FILE`): a `Job` (batch/v1) on one machine, a `JobSet` (v1alpha2, 0.8 or later)
//! on several. A queue of Kueue admits it when its quota allows.

use super::names::product;
use super::yaml::{block, quoted};
use super::{Job, LaunchError, Launcher};

/// Command that fills in the time of the submission.
const SUBMITS: &str = "sed \"s/SUBMISSION_TIME/$(date +%s)/\" FILE | kubectl apply -f -";

/// Manifest of one part.
pub(super) fn manifest(job: &Job<'_>) -> Result<String, LaunchError> {
    let launch = &job.start.launch;
    let queue = job.place_of(Launcher::Kubernetes, launch.queue.as_ref(), "--queue NAME, a local queue of Kueue")?;
    if launch.image.is_none() && launch.command.is_some() {
        return Err(LaunchError::NoImage(Launcher::Kubernetes));
    }
    let name = job.name();
    let labels = queue
        .map_or_else(String::new, |queue| format!("  labels:\n    kueue.x-k8s.io/queue-name: {}\n", quoted(queue)));
    // Kueue starts what it admits.
    let suspend = if queue.is_some() { "  suspend: true\n" } else { "" };
    let apply = if job.limit().is_some() { SUBMITS } else { "kubectl apply -f FILE" };
    let head = format!("{}{}# {apply}{}\n", job.comments(Launcher::Kubernetes), secret(job), job.after_words());
    let meta = format!("metadata:\n  name: {}\n{labels}", quoted(&name));
    let machines = job.part.machines;
    if machines == 1 {
        let spec = job_spec(job, "", 2)?;
        return Ok(format!("{head}apiVersion: batch/v1\nkind: Job\n{meta}spec:\n{suspend}{spec}"));
    }
    let spec = job_spec(job, &format!("{name}-machine-0-0.{name}"), 10)?;
    Ok(format!(
        "{head}apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n{meta}spec:\n{suspend}  failurePolicy:\n    maxRestarts: {}\n    rules:\n      - action: FailJobSet\n        onJobFailureReasons: [DeadlineExceeded]\n  replicatedJobs:\n    - name: machine\n      replicas: 1\n      template:\n        spec:\n{spec}",
        restarts(job)
    ))
}

/// Restarts after a failure: only of a job that goes on from a checkpoint.
const fn restarts(job: &Job<'_>) -> u32 {
    if job.start.launch.checkpoint_dir.is_some() { 10 } else { 0 }
}

/// `spec` of a `Job`, indented.
fn job_spec(job: &Job<'_>, master: &str, indent: usize) -> Result<String, LaunchError> {
    let (machines, seconds) = (job.part.machines, job.most_minutes() * 60);
    let mut lines = Vec::new();
    // One pod for each machine of a job, or for each copy of a job on one machine.
    let pods = match (machines, job.copies) {
        (1, copies) => copies.map(|copies| (copies.numbers.len(), copies.at_once)),
        (all, _) => Some((all as usize, all as usize)),
    };
    if let Some((number, at_once)) = pods {
        lines.extend([
            "completionMode: Indexed".to_owned(),
            format!("completions: {number}"),
            format!("parallelism: {at_once}"),
        ]);
    }
    // A set restarts all machines together.
    lines.push(format!("backoffLimit: {}", if machines > 1 { 0 } else { restarts(job) }));
    // A limit of the pods would count as a failure, after which they start again.
    let rounds = match pods {
        Some((number, at_once)) if machines == 1 => number.div_ceil(at_once.max(1)) as u64,
        _ => 1,
    };
    lines.extend([
        "# Upper end of the predicted time and 10 %, for all pods. Kubernetes ends the job then, without a restart; waiting"
            .to_owned(),
        "# for a machine and restarts count.".to_owned(),
        format!("activeDeadlineSeconds: {}", seconds * rounds),
    ]);
    lines.extend(["template:", "  spec:", "    restartPolicy: Never"].map(str::to_owned));
    lines.extend(pod(job, master)?.into_iter().map(|line| format!("    {line}")));
    Ok(block(&lines, indent))
}

/// Fields of a pod after its restart policy.
fn pod(job: &Job<'_>, master: &str) -> Result<Vec<String>, LaunchError> {
    let (part, launch) = (job.part, &job.start.launch);
    let mut lines = Vec::new();
    match product(part.gpu.as_str()) {
        Some(name) => lines.extend(["nodeSelector:".to_owned(), format!("  nvidia.com/gpu.product: {}", quoted(name))]),
        None => lines.push(format!("# Its machines need this GPU: {}.", part.gpu.as_str())),
    }
    lines.extend(["containers:".to_owned(), "  - name: training".to_owned()]);
    let image = launch.image.as_deref().unwrap_or("IMAGE");
    lines.push(format!("    image: {}", quoted(image)));
    if let Some(dir) = &launch.workdir {
        if !dir.starts_with('/') {
            let expected = "a folder of the image for Kubernetes, such as /workspace (it copies no files)";
            return Err(LaunchError::invalid("workdir", dir, expected));
        }
        lines.push(format!("    workingDir: {}", quoted(dir)));
    }
    lines.extend(["    command:", "      - bash", "      - -c", "      - |"].map(str::to_owned));
    lines.extend(job.lines(Launcher::Kubernetes)?.into_iter().map(|line| format!("        {line}")));
    lines.extend(environment(job, master).into_iter().map(|line| format!("    {line}")));
    lines.extend(resources(job).into_iter().map(|line| format!("    {line}")));
    lines.push("    volumeMounts:".to_owned());
    let mount =
        |name: &str, path: &str| [format!("      - name: {name}"), format!("        mountPath: {}", quoted(path))];
    lines.extend(mount("shared-memory", "/dev/shm"));
    let volumes = |at: usize| format!("volume-{at}");
    for (at, path) in launch.mounts.keys().enumerate() {
        lines.extend(mount(&volumes(at + 1), path));
    }
    lines.extend(["volumes:", "  - name: shared-memory", "    emptyDir:", "      medium: Memory"].map(str::to_owned));
    for (at, (path, source)) in launch.mounts.iter().enumerate() {
        if source.contains("://") {
            return Err(LaunchError::invalid(
                "mount",
                &format!("{path}={source}"),
                "PATH=CLAIM for Kubernetes, the name of a persistent volume claim, or a folder of the machine",
            ));
        }
        lines.push(format!("  - name: {}", volumes(at + 1)));
        lines.extend(if source.starts_with('/') {
            ["    hostPath:".to_owned(), format!("      path: {}", quoted(source))]
        } else {
            ["    persistentVolumeClaim:".to_owned(), format!("      claimName: {}", quoted(source))]
        });
    }
    Ok(lines)
}

/// Secret of the cluster with the variables of a job that have no value.
fn secret_name(job: &Job<'_>) -> String {
    format!("{}-env", job.name())
}

/// Comment with the command that creates the secret.
fn secret(job: &Job<'_>) -> String {
    let [_, passed] = job.variables();
    if passed.is_empty() {
        return String::new();
    }
    let values =
        passed.iter().map(|(name, _)| format!(" --from-literal={name}=\"${name}\"")).collect::<Vec<_>>().concat();
    let secret = secret_name(job);
    format!("# It reads the secret {secret:?}: kubectl create secret generic {secret}{values}\n")
}

/// Variables of the container. Those without a value come from a secret of the cluster.
fn environment(job: &Job<'_>, master: &str) -> Vec<String> {
    let [given, passed] = job.variables();
    let master = Some(("MASTER_ADDR", master)).filter(|(_, name)| !name.is_empty());
    let mut lines = vec!["env:".to_owned()];
    let submitted = job.limit().map(|_| ("SUBMITTED", "SUBMISSION_TIME"));
    for (name, value) in master.into_iter().chain(submitted).chain(given) {
        lines.extend([format!("  - name: {name}"), format!("    value: {}", quoted(value))]);
    }
    for (name, _) in passed {
        lines.extend([format!("  - name: {name}"), "    valueFrom:".to_owned(), "      secretKeyRef:".to_owned()]);
        lines.extend([format!("        name: {}", secret_name(job)), format!("        key: {name}")]);
    }
    if lines.len() == 1 { Vec::new() } else { lines }
}

/// GPUs, CPUs and memory of the container. Kubernetes and the system need some of the host, so it requests 90 %.
fn resources(job: &Job<'_>) -> Vec<String> {
    let (part, launch) = (job.part, &job.start.launch);
    let share = |all: f64| (all * 0.9).floor();
    let cpus = launch.cpus.map(f64::from).or(part.offer.vcpus.map(share)).filter(|cpus| *cpus >= 1.0);
    let gib = part.offer.host_memory.map(|memory| share(memory.get() / f64::from(1 << 30)));
    let memory =
        launch.memory_gb.map(|gb| format!("{gb}G")).or(gib.filter(|gib| *gib >= 1.0).map(|gib| format!("{gib}Gi")));
    let device = if part.gpu.as_str().starts_with("mi") { "amd.com/gpu" } else { "nvidia.com/gpu" };
    let mut lines = vec!["resources:".to_owned()];
    if cpus.is_some() || memory.is_some() || job.disk_gb().is_some() {
        lines.push("  requests:".to_owned());
    }
    lines.extend(cpus.map(|cpus| format!("    cpu: {}", quoted(&cpus.to_string()))));
    lines.extend(memory.map(|memory| format!("    memory: {memory}")));
    lines.extend(job.disk_gb().map(|gb| format!("    ephemeral-storage: {gb}G")));
    lines.extend(["  limits:".to_owned(), format!("    {device}: {}", part.offer.gpu_count)]);
    lines
}
