//! What files hold: decompressed, never more than a limit, and without a byte order mark.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::Limit;

/// How a file is compressed: its first bytes say it when reading, its name when writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
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

/// The largest window of zstd that is decoded: memory, 128 MiB of it.
const WINDOW_LOG: u32 = 27;
/// From this size on, more than [`DENSEST`] bytes of content to a compressed one are no
/// recording: real ones have 10 to 100.
const DENSE: u64 = 64 << 20;
const DENSEST: u64 = 1000;

/// Counts the bytes that are read through it.
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

/// Ends with an error where there is more than there may be.
pub(super) struct Bounded<R> {
    from: R,
    limit: Limit,
    count: u64,
    /// Compressed bytes read, where it is compressed.
    compressed: Option<Arc<AtomicU64>>,
}

impl<R> Bounded<R> {
    /// Of what is not compressed.
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
                "holds more than {} MB in {} kB, more than {DENSEST} times its size, which no recording does; decompress it first if it is one",
                self.count >> 20,
                compressed >> 10
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        Ok(read)
    }
}

/// What some editors put before a text, and no reader knows.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A decoder of what `reader` gives, whose bytes it adds to `count`.
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
