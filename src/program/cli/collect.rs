//! `habitat-tui collect`: measures operators on the GPU of this machine with `PyTorch`.
//!
//! The interpreter reads the script (`profiler/collect`) on its standard input. If the system allows it, the
//! interpreter replaces this process, so that it handles Ctrl-C and signals and sets the exit code.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};

use super::error::CliError;
use super::gpu;
use crate::settings::args::{CollectArgs, CollectDevice};
use crate::store::{self, Paths};

/// Shortest budget in which PyTorch can be imported and something measured, seconds.
const LEAST_SECONDS: f64 = 10.0;

pub(super) fn run(args: &CollectArgs) -> Result<u8, CliError> {
    let seconds = args.budget.as_secs_f64();
    if seconds < LEAST_SECONDS {
        return Err(CliError::Refused(format!(
            "--budget: {seconds:.0} s is too short, the minimum is {LEAST_SECONDS:.0} s; importing PyTorch alone takes several seconds"
        )));
    }
    let mut command = Command::new(&args.python);
    command.arg("-").arg("--out").arg(&args.output);
    command.args(["--budget", &seconds.to_string(), "--seed", &args.seed.to_string()]);
    command.args(["--index", &args.device_number.to_string()]);
    command.args(["--device", if args.device == CollectDevice::Cpu { "cpu" } else { "cuda" }]);
    if let Some(name) = &args.gpu {
        let gpu = gpu::one(&store::catalog(&Paths::find())?, "--gpu", name)?.slug.clone();
        command.args(["--gpu", gpu.as_str()]);
    }
    if args.tiny {
        command.arg("--tiny");
    }
    command.stdin(Stdio::from(script()?)).env("PYTHONUNBUFFERED", "1").env_remove("PYTHONINSPECT");
    let python = args.python.display().to_string();
    start(command).map_err(|error| {
        CliError::Refused(match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("collect: {python}: no such program; pass a Python with PyTorch with --python")
            }
            _ => format!("collect: {python}: cannot start: {error}"),
        })
    })
}

/// The script in an unnamed temporary file.
fn script() -> Result<File, CliError> {
    let made = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(habitat_profiler::COLLECT.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    made().map_err(|error| {
        CliError::Refused(format!(
            "collect: {}: cannot create a file: {error}; set TMPDIR to another folder",
            std::env::temp_dir().display()
        ))
    })
}

#[cfg(unix)]
fn start(mut command: Command) -> std::io::Result<u8> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn start(mut command: Command) -> std::io::Result<u8> {
    let status = command.status()?;
    Ok(status.code().map_or(2, |code| (code & 0xff) as u8))
}
