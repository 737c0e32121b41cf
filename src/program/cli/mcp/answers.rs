//! Errors that answer no known request have the id null in JSON-RPC 2.0, which `rmcp` leaves out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::{Map, Value};
use tokio::io::AsyncWrite;

/// Start of a message with an error and without an id, as `rmcp` writes it.
const WITHOUT_ID: &[u8] = b"{\"jsonrpc\":\"2.0\",\"error\":";

/// Passes messages on, one a line, when they are flushed.
pub(super) struct Answers<W> {
    output: W,
    /// Bytes that may not be a whole line yet.
    taken: Vec<u8>,
    /// Bytes to be written.
    due: Vec<u8>,
}

impl<W> Answers<W> {
    pub(super) const fn to(output: W) -> Self {
        Self { output, taken: Vec::new(), due: Vec::new() }
    }

    fn take_lines(&mut self) {
        let whole = self.taken.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.taken.drain(..whole).collect::<Vec<u8>>().split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice::<Map<String, Value>>(line) {
                Ok(mut message) if line.starts_with(WITHOUT_ID) && !message.contains_key("id") => {
                    message.insert("id".to_owned(), Value::Null);
                    self.due.extend(Value::Object(message).to_string().bytes().chain(*b"\n"));
                }
                _ => self.due.extend_from_slice(line),
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Answers<W> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.taken.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.take_lines();
        while !this.due.is_empty() {
            match ready!(Pin::new(&mut this.output).poll_write(context, &this.due))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(this.due.drain(..written)),
            }
        }
        Pin::new(&mut this.output).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.output).poll_shutdown(context)
    }
}
