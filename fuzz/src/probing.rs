//! What ffprobe says of a file that somebody crafted.

use media::plan;
use media::probe::{Answer, File, Looked};
use media::settings::Settings;
use media::source::Source;

/// The report in JSON, a NUL, and the list of packets.
pub fn probe(data: &[u8]) {
    let Some(source) = source(data) else { return };
    assert!(source.duration().is_finite() && source.duration() >= 0.0, "{source:?}");
    let plan = plan::make(source, Settings::default());
    crate::specs::is_sound(&plan);
}

pub(crate) fn source(data: &[u8]) -> Option<Source> {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (report, packets) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let file = File { input: "a.mp4", bytes: 1 << 20, head: b"" };
    let answer = |stdout| Answer { stdout, stderr: "", succeeded: true };
    let looked = Looked::read(&file, &answer(report)).ok()?;
    looked.finish(&answer(packets)).ok()
}
