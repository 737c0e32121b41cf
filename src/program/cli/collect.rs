//! `habitat-tui collect`: operators measured on the GPU of this machine, by `PyTorch`.
//!
//! The Python (`profiler/collect`) is given to the interpreter on its standard input, and
//! takes this process's place where the system can do that: Ctrl-C, signals and exit code
//! are its own.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};

use super::error::CliError;
use super::gpu;
use crate::settings::args::{CollectArgs, CollectDevice};
use crate::store::{self, Paths};

/// The shortest time in which PyTorch is imported and something measured.
const LEAST_SECONDS: f64 = 10.0;

pub(super) fn run(args: &CollectArgs) -> Result<u8, CliError> {
    let seconds = args.budget.as_secs_f64();
    if seconds < LEAST_SECONDS {
        return Err(CliError::Refused(format!(
            "--budget: {seconds:.0} s; importing PyTorch alone takes several, {LEAST_SECONDS:.0} s are the least"
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
                format!("collect: {python}: no such program; --python names a Python with PyTorch")
            }
            _ => format!("collect: {python}: cannot be started: {error}"),
        })
    })
}

/// The script in a file without a name.
fn script() -> Result<File, CliError> {
    let made = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(habitat_profiler::COLLECT.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    made().map_err(|error| {
        CliError::Refused(format!(
            "collect: {}: no file can be made there: {error}; set TMPDIR",
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
