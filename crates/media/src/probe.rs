//! Finds out what a file is: asks ffprobe twice, and believes packets before headers.
//!
//! ```text
//! look(input)           the first command: container, streams, chapters
//! Looked::read(…)       its answer, or why the file is unusable
//! looked.scan()         the second command: every packet of the file, in one pass over it
//! looked.reader(…)      takes its answer piece by piece, for it can be long
//! looked.finish_read(…) what came of it: the Source
//! ```
//!
//! What is done with what is found is told in `docs/input.md`.

mod describe;
pub mod input;
mod language;
mod list;
mod packets;
mod picture;
mod report;
mod tracks;
mod unusable;

pub use packets::Reader;
pub use unusable::{Error, Unusable};

use crate::limits::FileLimits;
use crate::source::Source;
use report::Report;
use tracks::Chosen;

/// How far into a file ffprobe goes to find what its streams are. A stream that says nothing of itself for so long, in
/// microseconds and bytes, is not understood.
const ANALYZE_US: &str = "30000000";
const ANALYZE_BYTES: &str = "50000000";

/// A longer answer to [`look`] is no description, in bytes.
pub const LONGEST_REPORT: usize = 4 << 20;

/// The file in question, as the one who asks knows it.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// A path, or an `http(s)` URL.
    pub input: &'a str,
    pub bytes: u64,
    /// Its first bytes, some hundred, to tell what it is if not a video; may be empty.
    pub head: &'a [u8],
}

/// What a command left behind.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub stdout: &'a [u8],
    pub stderr: &'a str,
    /// Whether it ended by itself, with code 0.
    pub succeeded: bool,
}

/// The command for a first look at streams, container and chapters. Reads little of the file.
pub fn look(input: &str) -> Vec<String> {
    let wanted = ["-show_format", "-show_streams", "-show_chapters", "-of", "json=compact=1"];
    command(input, &wanted)
}

/// What the first look found, before any packet is counted.
#[derive(Debug)]
pub struct Looked {
    input: String,
    bytes: u64,
    report: Report,
    chosen: Chosen,
}

impl Looked {
    pub fn read(file: &File<'_>, answer: &Answer<'_>) -> Result<Self, Error> {
        if file.bytes == 0 && !input::is_remote(file.input) {
            return Err(Unusable::Empty.into());
        }
        if !answer.succeeded {
            return Err(unusable::refusal(answer, file.head));
        }
        if answer.stdout.len() > LONGEST_REPORT {
            return Err(Unusable::Absurd("it has too many streams or chapters".into()).into());
        }
        let report = Report::parse(answer.stdout)
            .ok_or_else(|| Error::Failed("ffprobe's answer is not what it should be".into()))?;
        let chosen = Chosen::of(&report)?;
        Ok(Looked { input: file.input.into(), bytes: file.bytes, report, chosen })
    }

    /// The command that lists every packet. It reads the whole file, once, and costs 2 s of processor time for an hour of
    /// picture and sound; in return it is right whatever the headers say.
    pub fn scan(&self) -> Vec<String> {
        let wanted = "packet=stream_index,pts,dts,duration,flags:packet_side_data=side_data_type";
        command(&self.input, &["-show_entries", wanted, "-of", "csv=p=0"])
    }

    /// Whether the file may be looked at further.
    pub fn check(&self, limits: &FileLimits) -> Result<(), Error> {
        let Some(picture) = self.picture() else { return Ok(()) };
        let (width, height) = (picture.width.unwrap_or(0), picture.height.unwrap_or(0));
        limits.check_size(width, height).map_err(|exceeded| Unusable::TooMuch(exceeded).into())
    }

    /// What reads the answer of [`Looked::scan`].
    pub fn reader(&self, limits: &FileLimits) -> Reader {
        describe::reader(self, limits.max_frames)
    }

    /// As [`Looked::finish_read`], of an answer that is here as a whole and of any length.
    pub fn finish(self, answer: &Answer<'_>) -> Result<Source, Error> {
        let limits = FileLimits::none();
        let mut reader = self.reader(&limits);
        let _ = reader.feed(answer.stdout);
        self.finish_read(reader, answer, &limits)
    }

    /// `answer` needs nothing on its standard output: that went to the reader.
    pub fn finish_read(
        self,
        reader: Reader,
        answer: &Answer<'_>,
        limits: &FileLimits,
    ) -> Result<Source, Error> {
        let packets = reader.finish();
        // Who had enough has ended the command.
        if packets.has_too_many_frames {
            return Err(Unusable::TooMuch(limits.too_many_frames()).into());
        }
        if packets.is_too_much {
            return Err(Unusable::Absurd("it has more packets than a week of video".into()).into());
        }
        if !answer.succeeded || (input::is_remote(&self.input) && unusable::broke_off(answer.stderr)) {
            return Err(unusable::failure(answer.stderr));
        }
        if packets.is_encrypted {
            return Err(Unusable::Encrypted.into());
        }
        let mut source = describe::source(self, packets, answer.stderr)?;
        limits.check_source(&source).map_err(Unusable::TooMuch)?;
        limits.trim(&mut source);
        Ok(source)
    }
}

fn command(input: &str, wanted: &[&str]) -> Vec<String> {
    let limits = ["-analyzeduration", ANALYZE_US, "-probesize", ANALYZE_BYTES];
    // Warnings tell when a format was only guessed by the file's name.
    let start = ["ffprobe", "-hide_banner", "-v", "warning"];
    let words = start.iter().chain(&limits).chain(wanted).map(|word| word.to_string());
    words.chain(input::arguments(input)).collect()
}
