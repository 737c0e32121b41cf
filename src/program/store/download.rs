//! Downloads over HTTP at the user's request. An interrupted transfer is kept, and the next one resumes it. The only
//! file that uses ureq.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, StatusCode};

use super::decompress::Limit;
use super::files;
use habitat_base::text;

/// Maximum length of a URL in messages, in characters.
const WIDTH: usize = 200;
/// Maximum number of redirects.
const REDIRECTS: u32 = 5;

/// Error of a download, with the URL.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct DownloadError {
    url: String,
    problem: String,
    is_unreachable: bool,
}

impl DownloadError {
    /// Whether the server could not be reached at all, so that its other files cannot be downloaded either.
    pub(crate) const fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }
}

/// Parameters of a download.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// URL of the file.
    pub url: &'a str,
    /// Maximum time without receiving data.
    pub timeout: Duration,
    /// Maximum time from the first request to the last byte.
    pub whole: Duration,
    /// Maximum size in bytes.
    pub most: u64,
    /// Folder for interrupted transfers; `None` does not keep them.
    pub cache: Option<PathBuf>,
}

/// A downloaded file with data from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Day of the last change.
    pub last_modified: Option<Date>,
}

/// Data about an interrupted transfer.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    url: String,
    /// The server's tag of the content, or the date of its last change, which differ for other content.
    validator: String,
}

/// Received part of an interrupted transfer.
struct Part {
    validator: String,
    bytes: Vec<u8>,
}

impl Download<'_> {
    /// Downloads the file.
    ///
    /// # Errors
    /// [`DownloadError`] with the server's answer, or the number of bytes before the interruption.
    pub fn run(&self) -> Result<Downloaded, DownloadError> {
        let part = self.part();
        match self.attempt(part.as_ref())? {
            Some(done) => Ok(done),
            // The server does not resume the transfer.
            None => self
                .attempt(None)?
                .ok_or_else(|| self.failed("the server sent a part of the file that was not requested")),
        }
    }

    fn failed(&self, problem: impl Into<String>) -> DownloadError {
        DownloadError { url: shown(self.url), problem: problem.into(), is_unreachable: false }
    }

    /// Sends one request; `None` if the server does not resume the transfer at the end of `part`.
    fn attempt(&self, part: Option<&Part>) -> Result<Option<Downloaded>, DownloadError> {
        let mut request = self.agent().get(self.url);
        if let Some(part) = part {
            request =
                request.header("Range", format!("bytes={}-", part.bytes.len())).header("If-Range", &part.validator);
        }
        let response = request.call().map_err(|error| DownloadError {
            is_unreachable: is_unreachable(&error),
            ..self.failed(self.explain(&error))
        })?;
        let (head, mut body) = response.into_parts();
        let resumed = match head.status {
            StatusCode::OK => None,
            StatusCode::PARTIAL_CONTENT => match part.filter(|part| begins_at(&head.headers, part.bytes.len())) {
                Some(part) => Some(part),
                None => return Ok(None),
            },
            StatusCode::RANGE_NOT_SATISFIABLE if part.is_some() => return Ok(None),
            status => return Err(self.failed(refusal(status))),
        };
        let mut bytes = resumed.map(|part| part.bytes.clone()).unwrap_or_default();
        let resumed_at = bytes.len() as u64;
        let announced = header(&head.headers, "content-length").and_then(|length| length.parse::<u64>().ok());
        let whole = announced.map(|length| length + resumed_at);
        if whole.is_some_and(|whole| whole > self.most) {
            self.forget();
            return Err(self.too_large());
        }
        let mut kept = self.keep(&head.headers, resumed_at);
        self.receive(&mut body.as_reader(), &mut bytes, &mut kept, whole)?;
        drop(kept);
        self.forget();
        let last_modified = header(&head.headers, "last-modified").and_then(|date| {
            jiff::fmt::rfc2822::parse(date).ok().map(|date| date.with_time_zone(jiff::tz::TimeZone::UTC).date())
        });
        Ok(Some(Downloaded { bytes, last_modified }))
    }

    fn receive(
        &self,
        body: &mut dyn Read,
        bytes: &mut Vec<u8>,
        kept: &mut Option<File>,
        whole: Option<u64>,
    ) -> Result<(), DownloadError> {
        let mut chunk = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut chunk) {
                Ok(0) if whole.is_none_or(|whole| bytes.len() as u64 >= whole) => return Ok(()),
                Ok(0) => {
                    return Err(self.broken_off(
                        bytes.len(),
                        whole,
                        kept.is_some(),
                        "the server closed the connection",
                    ));
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let why = match error.get_ref().and_then(|error| error.downcast_ref()) {
                        Some(ureq::Error::Timeout(ureq::Timeout::Global)) => self.slowness(),
                        Some(ureq::Error::Timeout(_)) => self.silence(),
                        _ => text::clean(&error.to_string(), WIDTH),
                    };
                    return Err(self.broken_off(bytes.len(), whole, kept.is_some(), &why));
                }
            };
            if (bytes.len() + read) as u64 > self.most {
                *kept = None;
                self.forget();
                return Err(self.too_large());
            }
            bytes.extend_from_slice(&chunk[..read]);
            // Failing to keep the data only costs another download.
            if kept.as_mut().is_some_and(|file| file.write_all(&chunk[..read]).is_err()) {
                *kept = None;
                self.forget();
            }
        }
    }

    fn agent(&self) -> ureq::Agent {
        let timeout = Some(self.timeout);
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(self.url.starts_with("https:"))
            .max_redirects(REDIRECTS)
            .user_agent(concat!("habitat-tui/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .timeout_global(Some(self.whole));
        config.build().new_agent()
    }

    fn explain(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(ureq::Timeout::Global) => self.slowness(),
            ureq::Error::Timeout(_) => format!("{}; try again later, or raise --timeout", self.silence()),
            error if is_unknown_host(error) => "unknown host, or no network".to_owned(),
            error if is_unreachable(error) => {
                let why = match error {
                    ureq::Error::Io(error) => text::clean(&error.to_string(), WIDTH),
                    _ => "no connection".to_owned(),
                };
                format!("the server cannot be reached ({why})")
            }
            ureq::Error::TooManyRedirects => {
                format!("more than {REDIRECTS} redirects: the address redirects in a loop")
            }
            ureq::Error::RequireHttpsOnly(_) => "redirects to an address without TLS, which is refused".to_owned(),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => "not the address of a file".to_owned(),
            error => format!("download failed: {}", text::clean(&error.to_string(), WIDTH)),
        }
    }

    fn silence(&self) -> String {
        format!("nothing arrived for {} s", self.timeout.as_secs_f64())
    }

    fn slowness(&self) -> String {
        format!("took more than {} s (--max-time)", self.whole.as_secs_f64())
    }

    fn too_large(&self) -> DownloadError {
        self.failed(format!("has more than {} bytes; raise the limit with --max-size", self.most))
    }

    fn broken_off(&self, has: usize, whole: Option<u64>, is_kept: bool, why: &str) -> DownloadError {
        let of = whole.map_or_else(String::new, |whole| format!(" of {whole}"));
        let next = if is_kept { "resumes there" } else { "starts over" };
        self.failed(format!("interrupted after {has}{of} bytes: {why}; the next run {next}"))
    }

    /// File of an interrupted transfer, and the file with its data.
    fn kept_at(&self) -> Option<(PathBuf, PathBuf)> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = self.url.chars().map(plain).collect();
        let name = &name[name.len().saturating_sub(120)..];
        let at = |end: &str| Some(self.cache.as_ref()?.join(format!("{name}.{end}")));
        at("part").zip(at("json"))
    }

    fn part(&self) -> Option<Part> {
        let (path, note) = self.kept_at()?;
        let note = files::read_as_it_is(&note, Limit::SETTINGS).ok()?;
        let note: Remembered = serde_json::from_slice(&note).ok().filter(|note: &Remembered| note.url == self.url)?;
        let bytes = files::read_as_it_is(&path, Limit::prices(self.most)).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Part { validator: note.validator, bytes })
    }

    /// Opens the file for received data. Keeps none without a tag of the content, which is needed to check that the
    /// next answer continues it, or while another process keeps the same transfer.
    fn keep(&self, headers: &HeaderMap, resumed_at: u64) -> Option<File> {
        let (path, note) = self.kept_at()?;
        let tag = header(headers, "etag").filter(|tag| !tag.starts_with("W/"));
        let validator = tag.or_else(|| header(headers, "last-modified"))?.to_owned();
        std::fs::create_dir_all(path.parent()?).ok()?;
        let note_text = serde_json::to_vec(&Remembered { url: self.url.to_owned(), validator }).ok()?;
        let file = files::at_once(File::options().append(true).create(true)).open(path).ok()?;
        file.try_lock().ok()?;
        if resumed_at == 0 {
            file.set_len(0).ok()?;
        } else if file.metadata().ok()?.len() != resumed_at {
            // Another process has changed the file since it was read.
            return None;
        }
        super::save_atomically(&note, &note_text, true).ok()?;
        Some(file)
    }

    /// Removes the kept data, unless another process is using them.
    fn forget(&self) {
        if let Some((path, note)) = self.kept_at()
            && let Ok(file) = files::at_once(File::options().append(true)).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_file(note);
        }
    }
}

/// Whether the server's name has no address. The standard library has no error kind for this.
fn is_unknown_host(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => error.to_string().starts_with("failed to lookup address information"),
        _ => false,
    }
}

/// Whether no connection to the server was established.
fn is_unreachable(error: &ureq::Error) -> bool {
    use io::ErrorKind as Kind;
    use ureq::Timeout;
    match error {
        error if is_unknown_host(error) => true,
        ureq::Error::ConnectionFailed | ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => true,
        ureq::Error::Io(error) => matches!(
            error.kind(),
            Kind::ConnectionRefused
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
                | Kind::NetworkDown
                | Kind::AddrNotAvailable
        ),
        _ => false,
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether the server resumes at the end of the part.
fn begins_at(headers: &HeaderMap, length: usize) -> bool {
    let range = header(headers, "content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()?.parse().ok()) == Some(length)
}

fn refusal(status: StatusCode) -> String {
    let said = format!("the server answers {}", status.as_u16());
    match status.as_u16() {
        404 | 410 => format!("{said}: file not found; check the address, or the name of the provider"),
        401 | 403 => format!("{said}: access to this file is restricted"),
        429 => format!("{said}: too many requests; try again later"),
        500.. => format!("{said}: server error; try again later"),
        _ => format!("{said} instead of a file"),
    }
}

/// A URL for display and storage, without a password.
pub fn shown(url: &str) -> String {
    let bare = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some(format!("{scheme}://{}", &rest[at + 1..]))
    });
    text::clean(bare.as_deref().unwrap_or(url), WIDTH)
}

/// Whether a path is a URL.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("http://") || path.starts_with("https://"))
}
