//! Files fetched over HTTP, when the user asks for it. What arrived before a transfer broke off is
//! kept, and taken up where it ended by the next one. The only file that names ureq.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, StatusCode};

use super::files::{self, Limit};
use habitat_base::text;

/// Characters of a URL that are shown.
const WIDTH: usize = 200;
/// Redirects followed.
const REDIRECTS: u32 = 5;

/// Why a file was not fetched; the message names the URL.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct DownloadError {
    url: String,
    problem: String,
    is_unreachable: bool,
}

impl DownloadError {
    /// Whether the server was not reached at all: other files of it will not be, either.
    pub const fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }
}

/// What is to be fetched.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// From where.
    pub url: &'a str,
    /// How long nothing may arrive.
    pub timeout: Duration,
    /// How long it may take from the first request to the last byte.
    pub whole: Duration,
    /// How many bytes it may have.
    pub most: u64,
    /// Where transfers that broke off are kept; `None` keeps none.
    pub cache: Option<PathBuf>,
}

/// A file, and what the server says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Day of its last change.
    pub last_modified: Option<Date>,
}

/// What is remembered of a transfer that broke off.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    url: String,
    /// The server's tag of the content, or the date of its last change: other content has another.
    validator: String,
}

/// What arrived of a transfer that broke off.
struct Part {
    validator: String,
    bytes: Vec<u8>,
}

impl Download<'_> {
    /// Fetches it.
    ///
    /// # Errors
    /// [`DownloadError`] with the server's answer, or after how many bytes the transfer broke off.
    pub fn run(&self) -> Result<Downloaded, DownloadError> {
        let part = self.part();
        match self.attempt(part.as_ref())? {
            Some(done) => Ok(done),
            // The server does not go on from there.
            None => self.attempt(None)?.ok_or_else(|| self.failed("the server sends an unasked part of the file")),
        }
    }

    fn failed(&self, problem: impl Into<String>) -> DownloadError {
        DownloadError { url: shown(self.url), problem: problem.into(), is_unreachable: false }
    }

    /// One request; `None` where the server refuses to go on from where `part` ends.
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
                Ok(0) => return Err(self.broken_off(bytes.len(), whole, kept.is_some(), "the server ended it")),
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
            // What cannot be kept only has to be fetched again.
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
            ureq::Error::Timeout(_) => format!("{}; try again later, or give --timeout", self.silence()),
            error if is_unknown_host(error) => "there is no such host, or no network".to_owned(),
            error if is_unreachable(error) => {
                let why = match error {
                    ureq::Error::Io(error) => text::clean(&error.to_string(), WIDTH),
                    _ => "no connection".to_owned(),
                };
                format!("the server cannot be reached ({why})")
            }
            ureq::Error::TooManyRedirects => format!("more than {REDIRECTS} redirects; the address leads in a circle"),
            ureq::Error::RequireHttpsOnly(_) => "leads to an address without TLS, which is not followed".to_owned(),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => "is no address of a file".to_owned(),
            error => format!("cannot be fetched: {}", text::clean(&error.to_string(), WIDTH)),
        }
    }

    fn silence(&self) -> String {
        format!("nothing arrived for {} s", self.timeout.as_secs_f64())
    }

    fn slowness(&self) -> String {
        format!("it took more than {} s (--max-time)", self.whole.as_secs_f64())
    }

    fn too_large(&self) -> DownloadError {
        self.failed(format!("has more than {} bytes; --max-size raises the limit", self.most))
    }

    fn broken_off(&self, has: usize, whole: Option<u64>, is_kept: bool, why: &str) -> DownloadError {
        let of = whole.map_or_else(String::new, |whole| format!(" of {whole}"));
        let next = if is_kept { "takes it up there" } else { "begins anew" };
        self.failed(format!("broke off after {has}{of} bytes: {why}; the next run {next}"))
    }

    /// The file that a transfer is kept in, and the note beside it.
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

    /// Opens the file for what arrives. Without a tag of the content nobody could say whether the
    /// next answer continues it, so nothing is kept, nor where another process keeps it just now.
    fn keep(&self, headers: &HeaderMap, resumed_at: u64) -> Option<File> {
        let (path, note) = self.kept_at()?;
        let tag = header(headers, "etag").filter(|tag| !tag.starts_with("W/"));
        let validator = tag.or_else(|| header(headers, "last-modified"))?.to_owned();
        std::fs::create_dir_all(path.parent()?).ok()?;
        let note_text = serde_json::to_vec(&Remembered { url: self.url.to_owned(), validator }).ok()?;
        let file = OpenOptions::new().append(true).create(true).open(path).ok()?;
        file.try_lock().ok()?;
        if resumed_at == 0 {
            file.set_len(0).ok()?;
        } else if file.metadata().ok()?.len() != resumed_at {
            // Another process was here since it was read.
            return None;
        }
        super::save_atomically(&note, &note_text, true).ok()?;
        Some(file)
    }

    /// Removes what is kept, unless another process keeps it just now.
    fn forget(&self) {
        if let Some((path, note)) = self.kept_at()
            && let Ok(file) = OpenOptions::new().append(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_file(note);
        }
    }
}

/// Whether the name of the server has no address; the standard library has no kind for that error.
fn is_unknown_host(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => error.to_string().starts_with("failed to lookup address information"),
        _ => false,
    }
}

/// Whether no connection to the server came about.
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

/// Whether the server goes on where the part ends.
fn begins_at(headers: &HeaderMap, length: usize) -> bool {
    let range = header(headers, "content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()?.parse().ok()) == Some(length)
}

fn refusal(status: StatusCode) -> String {
    let said = format!("the server answers {}", status.as_u16());
    match status.as_u16() {
        404 | 410 => format!("{said}: there is no such file; look at the address, or at the name of the provider"),
        401 | 403 => format!("{said}: it does not give this file to everybody"),
        429 => format!("{said}: it was asked too often; try again later"),
        500.. => format!("{said}: it has a fault; try again later"),
        _ => format!("{said}, which is no file"),
    }
}

/// A URL as it may be shown and kept: without a password.
pub fn shown(url: &str) -> String {
    let bare = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some(format!("{scheme}://{}", &rest[at + 1..]))
    });
    text::clean(bare.as_deref().unwrap_or(url), WIDTH)
}

/// Whether a path is the address of a file on a server.
pub fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("http://") || path.starts_with("https://"))
}
