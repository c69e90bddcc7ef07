//! Why a file cannot become a stream, in a person's words.

use super::Answer;
use crate::limits::Exceeded;

/// What is wrong with the file and what to do about it. Permanent: the same file gives the same answer for ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("the file is empty: upload it again")]
    Empty,
    #[error("this is not a video or audio file, whatever its name says")]
    NotMedia,
    #[error("this is a list of other files, not a video: give the video itself")]
    Playlist,
    #[error("this is a still picture, not a video")]
    StillPicture,
    #[error(
        "the file ends before its index (`moov`): it was cut short, or its recording never finished; upload it again, \
         or repair it from a good file of the same camera"
    )]
    Unfinished,
    #[error("the file is damaged and cannot be opened ({0}): upload it again, or export it anew")]
    Damaged(String),
    #[error("the file holds neither picture nor sound")]
    NoStreams,
    #[error("the file is encrypted (DRM): give one without protection")]
    Encrypted,
    #[error(
        "the {what} is coded as {codec}, which the installed ffmpeg cannot decode: convert it, to H.264 for example"
    )]
    UnknownCodec { what: &'static str, codec: String },
    #[error("the {codec} picture cannot be decoded at all: export the video anew")]
    Undecodable { codec: String },
    #[error("the only picture in the file is its cover, and there is no sound")]
    CoverOnly,
    #[error("the file only points to a picture kept in another file: export it as self-contained")]
    Elsewhere,
    #[error(
        "this is Dolby Vision profile {0}, which has no base layer that other players understand: export it as HDR10, \
         HLG or SDR"
    )]
    DolbyVision(u32),
    #[error("there is a picture stream, but not one frame in it")]
    NoFrames,
    #[error("the file holds no sound that can be decoded, and no picture")]
    NoSound,
    #[error(transparent)]
    TooMuch(Exceeded),
    #[error("the file cannot be believed: {0}")]
    Absurd(String),
}

/// Why there is no [`Source`](crate::source::Source).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The fault may be the machine's or the network's: worth another try.
    #[error("reading the file failed: {0}")]
    Failed(String),
}

/// ffprobe's words for what is not the file's fault.
const PASSING: &[&str] = &[
    "No such file or directory",
    "Permission denied",
    "Input/output error",
    "Cannot allocate memory",
    "Too many open files",
    "Connection",
    "Network",
    "Server returned",
    "HTTP error",
    "timed out",
    "Failed to resolve",
    "Immediate exit requested",
    "Stream ends prematurely",
    "Protocol not found",
    "Is a directory",
];

/// ffprobe's last words when it is the file that cannot be opened.
const VERDICTS: &[&str] = &[
    "Invalid data found when processing input",
    "Invalid argument",
    "Operation not permitted",
    "End of file",
    "Not yet implemented in FFmpeg, patches welcome",
    "Function not implemented",
    "Unknown error occurred",
    "Decoder not found",
    "Demuxer not found",
];

/// Reads out of ffprobe's complaints why it could not open a file.
pub fn refusal(answer: &Answer<'_>, head: &[u8]) -> Error {
    let says = |words: &str| answer.stderr.contains(words);
    if let Some(unusable) = at_first_sight(head) {
        return unusable.into();
    }
    if broke_off(answer.stderr) || !has_verdict(answer.stderr) {
        return failure(answer.stderr);
    }
    // A name that ends in .mp4 makes ffprobe try that format for want of a better one.
    if says("detected only with low score") || says("not on whitelist") {
        return Unusable::NotMedia.into();
    }
    if says("moov atom not found") {
        return Unusable::Unfinished.into();
    }
    match complaint(answer.stderr) {
        Some(reason) => Unusable::Damaged(reason).into(),
        None if says("Invalid data found") => Unusable::NotMedia.into(),
        None => failure(answer.stderr),
    }
}

/// What is worth another try.
pub fn failure(stderr: &str) -> Error {
    Error::Failed(last_line(stderr))
}

/// Whether words of a remote read tell that it broke off, which ffprobe does not count as failure.
pub fn broke_off(stderr: &str) -> bool {
    PASSING.iter().any(|words| stderr.contains(words))
}

/// Whether ffprobe came to the end of opening the file: one that was killed leaves only warnings.
fn has_verdict(stderr: &str) -> bool {
    VERDICTS.iter().any(|words| stderr.trim_end().ends_with(words))
}

/// What the first bytes give away. A playlist, a page or a picture may bear any name.
fn at_first_sight(head: &[u8]) -> Option<Unusable> {
    let text =
        String::from_utf8_lossy(&head[..head.len().min(1024)]).trim_start_matches('\u{feff}').to_lowercase();
    let text = text.trim_start();
    let begins = |with: &[&str]| with.iter().any(|start| text.starts_with(start));
    if begins(&["#extm3u", "ffconcat", "[playlist]", "[reference]", "<asx", "<smil"]) || text.contains("<mpd")
    {
        return Some(Unusable::Playlist);
    }
    let pictures: [&[u8]; 5] = [b"\x89PNG", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*"];
    pictures.iter().any(|magic| head.starts_with(magic)).then_some(Unusable::StillPicture)
}

/// The demuxer's last complaint that says something, without its address: `contradictionary STSC and STCO`.
fn complaint(stderr: &str) -> Option<String> {
    let complaints =
        stderr.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("] "));
    let (_, words) = complaints.rev().find(|(_, words)| *words != "error reading header")?;
    Some(short(words))
}

/// The last words, without the name of the file before them.
fn last_line(stderr: &str) -> String {
    let line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("ffprobe gave no reason");
    short(line.rsplit_once(": ").map_or(line, |(_, words)| words))
}

fn short(words: &str) -> String {
    words.trim().trim_end_matches('.').chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(stderr: &str, head: &[u8]) -> Error {
        refusal(&Answer { stdout: b"", stderr, succeeded: false }, head)
    }

    #[test]
    fn ffprobes_complaints_become_reasons() {
        let low = "[mov @ 0x5] Format mov detected only with low score of 1, misdetection possible!\n\
                   [mov @ 0x5] moov atom not found\nfile:a: Invalid data found when processing input\n";
        let cut = "[mov @ 0x5] moov atom not found\nfile:a: Invalid data found when processing input\n";
        let bad = "[mov @ 0x5] stream 0, contradictionary STSC and STCO\n[mov @ 0x5] error reading header\n\
                   file:a: Invalid data found when processing input\n";

        assert_eq!(refused(low, b"\x7fELF"), Unusable::NotMedia.into());
        assert_eq!(refused(low, b"\xef\xbb\xbf#EXTM3U\n"), Unusable::Playlist.into());
        assert_eq!(refused(low, b"ffconcat version 1.0"), Unusable::Playlist.into());
        assert_eq!(refused(low, b"<?xml version='1.0'?>\n<MPD>"), Unusable::Playlist.into());
        assert_eq!(refused(cut, b"\0\0\0\x20ftypisom"), Unusable::Unfinished.into());
        assert_eq!(
            refused(bad, b""),
            Unusable::Damaged("stream 0, contradictionary STSC and STCO".into()).into()
        );
        assert_eq!(
            refused("file:a: Invalid data found when processing input", b""),
            Unusable::NotMedia.into()
        );
    }

    #[test]
    fn what_may_pass_is_not_the_files_fault() {
        for (stderr, words) in [
            ("file:/a: No such file or directory\n", "No such file or directory"),
            ("http://a/b: Server returned 5XX Server Error reply", "Server returned 5XX Server Error reply"),
            ("", "ffprobe gave no reason"),
        ] {
            assert_eq!(refused(stderr, b""), Error::Failed(words.into()));
        }
        let killed = Answer { stdout: b"", stderr: "[mov @ 0x5] moov atom not found\n", succeeded: false };
        assert!(matches!(refusal(&killed, b""), Error::Failed(_)));
    }
}
