//! What goes wrong around the program while it reads and writes: kills, full disks, rights, links
//! and special files, folders that go away, others that write the same. `docs/faults.md` is the
//! table; every test it names is there.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(unix)]
mod tests;

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    if let Some(socket) = std::env::var_os(tests::CONNECT) {
        match std::os::unix::net::UnixStream::connect(socket) {
            Ok(_) => println!("connected"),
            Err(error) => println!("{}", error.kind()),
        }
        return std::process::ExitCode::SUCCESS;
    }
    needs::run([
        #[cfg(unix)]
        tests::trials(),
    ])
}
