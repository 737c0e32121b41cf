//! The clipboard through the terminal (OSC 52), which also works over SSH.

use std::io::{self, Write};

/// Longest text in bytes, before encoding: terminals silently drop longer sequences.
const LONGEST: usize = 74_000;

/// Sends `text` to the terminal's clipboard.
pub(super) fn copy(out: &mut impl Write, text: &str) -> Result<(), String> {
    if text.len() > LONGEST {
        return Err(format!("{} kB is too long for terminals; filter the table or export it", text.len() / 1000));
    }
    let send = |out: &mut dyn Write| -> io::Result<()> {
        write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        out.flush()
    };
    send(out).map_err(|error| error.to_string())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn base64_of_the_rfc() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn too_long_is_said() {
        let mut out = Vec::new();
        assert!(copy(&mut out, &"x".repeat(100_000)).unwrap_err().contains("100 kB"));
        assert!(out.is_empty());
    }
}
