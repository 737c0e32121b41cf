//! A web server on this machine, for the tests of downloads.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Response of the server to a path.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    says_length: bool,
    /// Ends the connection after this many bytes, the first time.
    cut_off: Option<usize>,
    /// Pauses after this many bytes, for this long.
    silent: Option<(usize, Duration)>,
    /// Pause between pieces.
    pause: Option<Duration>,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        let (headers, body) = (Vec::new(), Vec::new());
        Self { status, headers, body, says_length: true, cut_off: None, silent: None, pause: None }
    }

    pub fn ok(body: &str) -> Self {
        Self { body: body.as_bytes().to_vec(), ..Self::status(200) }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without_length(self) -> Self {
        Self { says_length: false, ..self }
    }

    pub fn cut_off_once(self, bytes: usize) -> Self {
        Self { cut_off: Some(bytes), ..self }
    }

    pub fn silent_after(self, bytes: usize, time: Duration) -> Self {
        Self { silent: Some((bytes, time)), ..self }
    }

    pub fn slowly(self, pause: Duration) -> Self {
        Self { pause: Some(pause), ..self }
    }

    fn tag(&self) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == "ETag").map(|(_, value)| value.as_str())
    }
}

type Answers = Arc<Mutex<HashMap<String, Answer>>>;

/// Serves on its own port while the test runs.
pub struct Server {
    port: u16,
    answers: Answers,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn new(answers: Vec<(&str, Answer)>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers: Answers =
            Arc::new(Mutex::new(answers.into_iter().map(|(path, answer)| (path.to_owned(), answer)).collect()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = Self { port, answers: answers.clone(), requests: requests.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, requests) = (answers.clone(), requests.clone());
                std::thread::spawn(move || serve(stream, &answers, &requests));
            }
        });
        server
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn replace(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    /// Headers of the requests so far, in lower case.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answers: &Answers, requests: &Mutex<Vec<String>>) {
    let mut head = String::new();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let line = line.unwrap_or_default();
        if line.is_empty() {
            break;
        }
        head.push_str(&line);
        head.push('\n');
    }
    let Some(path) = head.split(' ').nth(1).map(str::to_owned) else { return };
    requests.lock().unwrap().push(head.to_lowercase());
    let answer = {
        let mut answers = answers.lock().unwrap();
        let found = answers.get(&path).cloned().unwrap_or_else(|| Answer::status(404));
        if let Some(answer) = answers.get_mut(&path) {
            answer.cut_off = None;
        }
        found
    };
    // A client that gave up is not an error.
    let _ = reply(&mut stream, &head, &answer);
}

fn reply(stream: &mut TcpStream, head: &str, answer: &Answer) -> std::io::Result<()> {
    if let Some((0, time)) = answer.silent {
        std::thread::sleep(time);
        return Ok(());
    }
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let asked = header("range").and_then(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().ok());
    let from: Option<usize> = asked.filter(|_| header("if-range").as_deref() == answer.tag());
    let body = &answer.body[from.unwrap_or(0).min(answer.body.len())..];
    let status = if from.is_some() { 206 } else { answer.status };
    let mut lines = vec![format!("HTTP/1.1 {status} x"), "Connection: close".to_owned()];
    lines.extend(answer.says_length.then(|| format!("Content-Length: {}", body.len())));
    let whole = answer.body.len();
    lines.extend(from.map(|from| format!("Content-Range: bytes {from}-{}/{whole}", whole - 1)));
    lines.extend(answer.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    stream.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes())?;
    if let Some((bytes, time)) = answer.silent {
        stream.write_all(&body[..bytes])?;
        stream.flush()?;
        std::thread::sleep(time);
        return Ok(());
    }
    let body = &body[..answer.cut_off.unwrap_or(body.len()).min(body.len())];
    for piece in body.chunks(if answer.pause.is_some() { 40 } else { 1 << 14 }) {
        stream.write_all(piece)?;
        stream.flush()?;
        if let Some(pause) = answer.pause {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}
