//! Traces of any size, and the time of other ways to read them: `cargo bench --bench traces -- COMMAND FILE`, once
//! each, for `tests/foreign/import.py`.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

mod generated;

const USAGE: &str = "\
commands, each on a trace whose name ends in .json or .json.gz:
  write MEGABYTES FILE   writes a training trace of that size (before gzip)
  read FILE              reads and inflates it, and nothing else
  tape FILE              does that, then has simd-json find its structure";

fn main() -> io::Result<()> {
    // Arguments that cargo adds.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let began = Instant::now();
    let (bytes, found) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", megabytes, file] => {
            let megabytes: u64 = megabytes.parse().map_err(io::Error::other)?;
            (write(megabytes * 1_000_000, Path::new(file))?, String::new())
        }
        ["read", file] => {
            let mut buffer = vec![0; 1 << 20];
            let (mut text, mut bytes) = (open(Path::new(file))?, 0);
            loop {
                match text.read(&mut buffer)? {
                    0 => break (bytes, String::new()),
                    count => bytes += count as u64,
                }
            }
        }
        ["tape", file] => {
            let mut text = Vec::new();
            open(Path::new(file))?.read_to_end(&mut text)?;
            let bytes = text.len() as u64;
            let nodes = simd_json::to_tape(&mut text).map_err(io::Error::other)?.0.len();
            (bytes, format!(", {nodes} nodes"))
        }
        _ => {
            println!("{USAGE}");
            return Ok(());
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    println!("{bytes} bytes of text in {seconds:.3} s, {:.0} MB/s{found}", bytes as f64 / 1e6 / seconds);
    Ok(())
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    Ok(if is_gzip(path) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// Writes whole steps up to this many bytes of text.
fn write(bytes: u64, path: &Path) -> io::Result<u64> {
    let file = File::create(path)?;
    let mut out: Box<dyn Write> = if is_gzip(path) {
        // As PyTorch's `export_chrome_trace` does, with the default level of Python's gzip.
        Box::new(GzEncoder::new(file, Compression::new(6)))
    } else {
        Box::new(BufWriter::new(file))
    };
    let mut text = generated::head();
    let mut written = 0;
    for step in 0.. {
        text.push_str(&generated::step(step));
        out.write_all(text.as_bytes())?;
        written += text.len() as u64;
        text.clear();
        if written >= bytes {
            break;
        }
    }
    out.write_all(generated::TAIL.as_bytes())?;
    out.flush()?;
    Ok(written + generated::TAIL.len() as u64)
}
