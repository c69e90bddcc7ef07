//! The first and the last segment of each rendition, for ffmpeg to decode.

use super::finding::{Findings, Place};
use super::folder::{Folder, Range};
use super::rendition::{Container, Rendition};
use super::rule;
use std::fs::File;
use std::io;
use std::path::Path;

/// One process decodes up to so many segments: each is an open file and a decoder.
const TOGETHER: usize = 48;

/// The rest of the job waits for the gate: two threads for each decoder nearly halve that.
const DECODERS: &str = "2";

/// A command that decodes some segments. It writes nothing. Every symbol is read and every picture predicted; only the
/// smoothing of edges, which cannot fail and takes a quarter of the time, is left out.
#[derive(Debug, Clone)]
pub struct Decode {
    /// Begins with `ffmpeg`.
    pub argv: Vec<String>,
    /// What its inputs are, in order.
    inputs: Vec<Input>,
}

#[derive(Debug, Clone)]
struct Input {
    /// In the scratch folder.
    file: String,
    place: Place,
}

/// How the command ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub is_success: bool,
    /// Its last kilobytes are enough.
    pub stderr: String,
}

/// Writes the segments, each with its init segment before it, into `scratch`.
pub fn prepare(folder: &Folder, renditions: &[Rendition], scratch: &Path) -> io::Result<Vec<Decode>> {
    let mut inputs = Vec::new();
    for rendition in renditions {
        for segment in ends(rendition) {
            let file = format!("{:04}.{}", inputs.len(), extension(rendition.container));
            copy(folder, rendition, segment, &scratch.join(&file))?;
            inputs.push(Input { file, place: rendition.segment_place(segment) });
        }
    }
    Ok(inputs.chunks(TOGETHER).map(|inputs| decode(inputs, scratch)).collect())
}

/// The first and the last segment that could be read.
fn ends(rendition: &Rendition) -> Vec<usize> {
    if rendition.media.is_i_frames_only || !matches!(rendition.container, Container::Fmp4 | Container::Ts) {
        return Vec::new();
    }
    let is_there = |index: &usize| rendition.parts[*index].is_some();
    let first = (0..rendition.parts.len()).find(is_there);
    let last = (0..rendition.parts.len()).rev().find(is_there);
    let mut ends: Vec<_> = first.into_iter().chain(last).collect();
    ends.dedup();
    ends
}

fn extension(container: Container) -> &'static str {
    if container == Container::Ts { "ts" } else { "mp4" }
}

fn copy(folder: &Folder, rendition: &Rendition, segment: usize, to: &Path) -> io::Result<()> {
    let mut out = File::create(to)?;
    let mut append =
        |name: &str, range: Option<Range>| io::copy(&mut folder.window(name, range)?, &mut out).map(drop);
    if let Some((init, _, range)) = rendition.init_of(segment) {
        append(init, range)?;
    }
    let file = rendition.files[segment].as_ref().ok_or(io::ErrorKind::NotFound)?;
    append(file, rendition.media.segments[segment].range)
}

fn decode(inputs: &[Input], scratch: &Path) -> Decode {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut argv = words(&["ffmpeg", "-nostdin", "-hide_banner", "-v", "error"]);
    for input in inputs {
        let format = if input.file.ends_with(".ts") { "mpegts" } else { "mov" };
        argv.extend(words(&["-threads", DECODERS, "-skip_loop_filter", "all"]));
        argv.extend(words(&["-protocol_whitelist", "file", "-f", format, "-i"]));
        argv.push(format!("file:{}", scratch.join(&input.file).display()));
    }
    // An output of its own for each: no stream waits for the times of another.
    for index in 0..inputs.len() {
        let (video, audio) = (format!("{index}:v?"), format!("{index}:a?"));
        argv.extend(words(&["-map", &video, "-map", &audio, "-fps_mode", "passthrough"]));
        argv.extend(words(&["-threads", "1", "-f", "null", "-"]));
    }
    Decode { argv, inputs: inputs.to_vec() }
}

/// Turns what ffmpeg complained of into findings.
pub fn judge(decode: &Decode, outcome: &Outcome, findings: &mut Findings) {
    let lines: Vec<_> = outcome.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut seen = Vec::new();
    for line in &lines {
        let at = decode.inputs.iter().enumerate().position(|(index, input)| is_about(line, index, input));
        if !seen.contains(&at) {
            seen.push(at);
            let place = at.map_or_else(|| decode.somewhere(), |at| decode.inputs[at].place.clone());
            findings.add(&rule::DECODE, place, format!("it does not decode: {}", without_address(line)));
        }
    }
    if lines.is_empty() && !outcome.is_success {
        findings.add(&rule::DECODE, decode.somewhere(), "ffmpeg failed and did not say why");
    }
}

impl Decode {
    /// Where it is when the complaint does not tell.
    fn somewhere(&self) -> Place {
        match &self.inputs[..] {
            [only] => only.place.clone(),
            inputs => {
                let mut files: Vec<_> = inputs.iter().map(|input| input.place.file.as_str()).collect();
                files.dedup();
                Place::file(files.join(", "))
            }
        }
    }
}

/// `… stream #3:0 …`, or the name of its file.
fn is_about(line: &str, index: usize, input: &Input) -> bool {
    line.contains(&format!("#{index}:")) || line.contains(&format!("/{}", input.file))
}

/// `[h264 @ 0x55d0c8a3e2c0] …` without what differs each time.
fn without_address(line: &str) -> String {
    match line.split_once(" @ 0x").and_then(|(head, rest)| Some((head, rest.split_once(']')?.1))) {
        Some((head, rest)) => format!("{head}]{rest}"),
        None => line.into(),
    }
}

impl Decode {
    /// How many segments it decodes.
    pub(super) fn inputs(&self) -> u64 {
        self.inputs.len() as u64
    }
}
