//! What is kept of a command's output: all of it up to a limit, the tail, and the lines as they come.

const TAIL: usize = 4096;
const LINE: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Capture {
    /// How much is kept from the beginning; zero for a stream of which only the tail matters.
    limit: usize,
    kept: Vec<u8>,
    /// At least the last [`TAIL`] bytes, at most twice as many.
    tail: Vec<u8>,
    /// The line being written, up to [`LINE`] bytes of it.
    line: Vec<u8>,
    bytes: u64,
}

impl Capture {
    pub fn keeping(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Takes what was read and calls `on_line` for each line that is complete with it. A carriage return ends
    /// a line too: progress displays rewrite theirs.
    pub fn take(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) {
        self.bytes += bytes.len() as u64;
        let room = self.limit - self.kept.len();
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
        for piece in bytes.split_inclusive(|byte| is_line_end(*byte)) {
            let content = piece.strip_suffix(b"\n").or(piece.strip_suffix(b"\r")).unwrap_or(piece);
            let room = LINE - self.line.len();
            self.line.extend_from_slice(&content[..room.min(content.len())]);
            if content.len() < piece.len() {
                on_line(&self.line);
                self.line.clear();
            }
        }
    }

    /// Hands out a last line that was never ended.
    pub fn finish(&mut self, mut on_line: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            on_line(&self.line);
            self.line.clear();
        }
    }

    /// Everything ever taken, kept or not.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_over_limit(&self) -> bool {
        self.bytes > self.limit as u64
    }

    /// At most the last [`TAIL`] bytes as text, without the half of a character it may begin with.
    pub fn tail(&self) -> String {
        let mut tail = &self.tail[self.tail.len().saturating_sub(TAIL)..];
        if self.bytes > TAIL as u64 {
            let broken = tail.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            tail = &tail[broken..];
        }
        let text = text(tail);
        text[text.ceil_char_boundary(text.len().saturating_sub(TAIL))..].to_owned()
    }

    pub fn into_kept(self) -> Vec<u8> {
        self.kept
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Valid UTF-8 without NUL, which PostgreSQL refuses in text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut capture = Capture::default();
        for piece in pieces {
            capture.take(piece.as_bytes(), |line| lines.push(text(line)));
        }
        capture.finish(|line| lines.push(text(line)));
        lines
    }

    #[test]
    fn lines_are_found_across_pieces() {
        assert_eq!(lines(&["a", "b\nc", "\rd", "", "\n", "last"]), ["ab", "c", "d", "last"]);
        assert_eq!(lines(&[&"x".repeat(LINE + 5), "\ny\n"]), [&"x".repeat(LINE), "y"]);
    }

    #[test]
    fn the_beginning_is_kept_up_to_the_limit() {
        let mut capture = Capture::keeping(4);

        capture.take(b"abc", |_| {});
        assert!(!capture.is_over_limit());
        capture.take(b"def", |_| {});

        assert!(capture.is_over_limit());
        assert_eq!((capture.bytes(), capture.into_kept()), (6, b"abcd".to_vec()));
    }

    #[test]
    fn the_tail_is_text_of_at_most_four_kibibytes() {
        let tail = |bytes: &[u8]| {
            let mut capture = Capture::default();
            bytes.chunks(999).for_each(|chunk| capture.take(chunk, |_| {}));
            capture.tail()
        };

        assert_eq!(tail(b"short"), "short");
        assert_eq!(tail(format!("{}!", "ä".repeat(9000)).as_bytes()), format!("{}!", "ä".repeat(2047)));
        assert_eq!(tail(&[0xff; 9000]), "\u{fffd}".repeat(TAIL / 3));
        assert_eq!(tail(b"a\0b"), "a\u{fffd}b");
    }
}
