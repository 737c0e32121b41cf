//! Decompressed content of files, up to a limit and without a byte order mark.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Compression of a file, detected from its first bytes when reading and from its name when writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    pub(super) fn from_bytes(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    pub(super) fn from_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Largest zstd window to decode: log2 of 128 MiB of memory.
const WINDOW_LOG: u32 = 27;
/// Above this size, files with more than [`DENSEST`] bytes per compressed byte are rejected. Real recordings have 10 to
/// 100.
const DENSE: u64 = 64 << 20;
const DENSEST: u64 = 1000;

/// Reader that counts its bytes.
struct Counted<R> {
    from: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Purpose of a file and its maximum size in (decompressed) bytes. Limits are several times the size of any known file
/// of the kind, and small enough for the memory of a laptop. Limits on streams, which keep little in memory, only stop
/// endless ones.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    what: &'static str,
    pub(super) bytes: u64,
}

impl Limit {
    /// Profiles.
    pub const PROFILE: Self = Self::megabytes("a profile", 64);
    /// Lists of operators.
    pub const OP_LIST: Self = Self::megabytes("an op list", 20);
    /// Black boxes.
    pub const BLACK_BOX: Self = Self::megabytes("a black box", 4);
    /// Linear models, and black-box models.
    pub const MODEL: Self = Self::megabytes("a model", 32);
    /// Weights of networks, and training checkpoints.
    pub const WEIGHTS: Self = Self::megabytes("weights", 512);
    /// Settings, themes and key bindings.
    pub const SETTINGS: Self = Self::megabytes("settings", 1);
    /// GPUs, prices, calibrations.
    pub const CATALOG: Self = Self::megabytes("a catalog or price file", 16);
    /// A plan, or the result of a run.
    pub const PLAN: Self = Self::megabytes("a plan", 4);
    /// Logs of runs.
    pub(crate) const LOG: Self = Self::megabytes("a log of runs", 64);
    /// Tables of measured operators.
    pub const TABLE: Self = Self::megabytes("a table of measurements", 128);
    /// XPlane recordings; a protocol buffer has at most 2 GiB.
    pub(crate) const XPLANE: Self = Self::megabytes("an XPlane recording", 2 << 10);
    /// Traces, which are read as a stream.
    pub const TRACE: Self = Self::megabytes("a trace", 1 << 20);
    /// Content of a pipe, which is copied to a temporary file, since files are read more than once.
    pub(super) const PIPE: Self = Self::megabytes("a pipe (save it to a file first)", 1 << 10);

    /// Price catalogs of other programs.
    pub const fn prices(bytes: u64) -> Self {
        Self { what: "prices (raise it with --max-size)", bytes }
    }

    const fn megabytes(what: &'static str, megabytes: u64) -> Self {
        Self { what, bytes: megabytes << 20 }
    }

    /// Checks a size against the limit.
    ///
    /// # Errors
    /// An error with the limit.
    pub(super) fn check(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(self.exceeded("has"))
    }

    pub(super) fn exceeded(self, held: &str) -> io::Error {
        let Self { what, bytes } = self;
        let most = if bytes < 1 << 20 { format!("{bytes} bytes") } else { format!("{} MB", bytes >> 20) };
        let problem = format!("{held} more than {most}, the limit for {what}; is it the right file?");
        io::Error::new(io::ErrorKind::FileTooLarge, problem)
    }
}

/// Reader that fails above a size limit.
pub(super) struct Bounded<R> {
    from: R,
    limit: Limit,
    count: u64,
    /// Number of compressed bytes read, if compressed.
    compressed: Option<Arc<AtomicU64>>,
}

impl<R> Bounded<R> {
    /// Limits content that is not compressed.
    pub(super) fn new(from: R, limit: Limit) -> Self {
        Self { from, limit, count: 0, compressed: None }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to).map_err(|error| match error.kind() {
            io::ErrorKind::Other if self.compressed.is_some() => io::Error::new(io::ErrorKind::InvalidData, error),
            _ => error,
        })?;
        self.count += read as u64;
        if self.count > self.limit.bytes {
            return Err(self.limit.exceeded(if self.compressed.is_some() { "holds" } else { "has" }));
        }
        let compressed = self.compressed.as_ref().map(|compressed| compressed.load(Ordering::Relaxed));
        if let Some(compressed) = compressed
            && self.count > DENSE.max(DENSEST.saturating_mul(compressed))
        {
            let problem = format!(
                "holds more than {} MB in {} kB, over {DENSEST} times its size, unlike any recording; if it is one, decompress it first",
                self.count >> 20,
                compressed >> 10
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(read)
    }
}

/// Mark that some editors write before a text, and that parsers do not accept.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decoder of the content of `reader`; adds the bytes read from it to `count`.
pub(super) fn decoder<'a>(
    reader: impl Read + Send + 'a,
    limit: Limit,
    count: Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut reader = BufReader::with_capacity(1 << 16, Counted { from: reader, count: count.clone() });
    let compression = Compression::from_bytes(reader.fill_buf()?);
    let from: Box<dyn Read + Send + 'a> = match compression {
        Compression::None => Box::new(reader),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(reader)?;
            decoder.window_log_max(WINDOW_LOG)?;
            Box::new(decoder)
        }
    };
    let compressed = (compression != Compression::None).then_some(count);
    let mut content = BufReader::new(Bounded { compressed, ..Bounded::new(from, limit) });
    if content.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        content.consume(BYTE_ORDER_MARK.len());
    }
    Ok(Box::new(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        for (text, content) in [("\u{feff}{}", "{}"), ("{}", "{}"), ("\u{feff}", ""), ("", "")] {
            for bytes in [text.as_bytes().to_vec(), zstd::encode_all(text.as_bytes(), 1).unwrap()] {
                let mut read = String::new();
                decoder(&bytes[..], Limit::SETTINGS, Arc::default()).unwrap().read_to_string(&mut read).unwrap();
                assert_eq!(read, content);
            }
        }
    }
}
