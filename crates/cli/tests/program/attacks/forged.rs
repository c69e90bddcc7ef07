//! What a worker makes of a task: by the real commands and of any file, so that a test can lie with real segments.

use crate::support::house::{Hand, good, usage};
use media::manifest::{Artifact, Track};
use media::mp4::{Cut, CutAudio, cut, cut_audio};
use media::plan::{AUDIO_RATE, AudioTrack, Piece, Plan};
use media::{command, plan};
use reqwest::blocking::Response;
use serde_json::{Value, json};
use sha2::Digest;
use std::path::Path;
use std::process::Command;

/// Files that look like the result of one task.
pub struct Made {
    folder: tempfile::TempDir,
    pub tracks: Vec<Track>,
}

pub fn plan_of(task: &Value) -> Plan {
    serde_json::from_value(task["results"]["plan"][0].clone()).unwrap()
}

/// What an honest worker makes of this file.
pub fn make(task: &Value, source: &Path) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_of(task);
    let tracks = match task["kind"].as_str().unwrap() {
        "audio" => {
            vec![sound(&plan, &serde_json::from_value(task["input"].clone()).unwrap(), source, folder.path())]
        }
        _ => {
            let piece: Piece = serde_json::from_value(task["input"].clone()).unwrap();
            picture(&plan, &piece, &piece, source, 0, folder.path())
        }
    };
    Made { folder, tracks }
}

/// The pictures of one chunk in the segments of another.
pub fn make_of_another_chunk(task: &Value, other: &Value, source: &Path) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let piece = |task: &Value| serde_json::from_value::<Piece>(task["input"].clone()).unwrap();
    let (own, other) = (piece(task), piece(other));
    let shown = Piece { chunk: other.chunk, group: own.group.clone() };
    let tracks = picture(&plan_of(task), &shown, &own, source, 0, folder.path());
    Made { folder, tracks }
}

/// The right pictures, encoded so that they ask more of players: with these arguments instead of the plan's.
pub fn make_demanding(task: &Value, source: &Path, arguments: &[&str]) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let piece: Piece = serde_json::from_value(task["input"].clone()).unwrap();
    let plan = plan_of(task);
    let (of, video) = (plan.picture.as_ref().unwrap(), plan.source.video.as_ref().unwrap());
    let argv = command::encode(&plan, of, video, &piece, source.to_str().unwrap());
    let more = |word: &String| match word.as_str() {
        "-profile:v" => arguments.iter().map(|it| (*it).to_owned()).chain([word.clone()]).collect(),
        _ => vec![word.clone()],
    };
    run(argv.iter().flat_map(more).collect(), folder.path());
    let tracks = cut_all(&plan, &piece, 0, folder.path());
    Made { folder, tracks }
}

/// The right pictures, each shown two frames late.
pub fn make_late(task: &Value, source: &Path) -> Made {
    let honest = make(task, source);
    let folder = tempfile::tempdir().unwrap();
    let piece: Piece = serde_json::from_value(task["input"].clone()).unwrap();
    let tracks = picture(&plan_of(task), &piece, &piece, source, 2, folder.path());
    let mut made = Made { folder, tracks };
    for (own, other) in made.tracks.iter_mut().zip(&honest.tracks) {
        let init = |made: &tempfile::TempDir| made.path().join("made").join(&own.init.path);
        std::fs::copy(init(&honest.folder), init(&made.folder)).unwrap();
        own.init = other.init.clone();
    }
    made
}

/// Encodes one piece, and cuts it as if it were another.
fn picture(plan: &Plan, piece: &Piece, shown: &Piece, source: &Path, late: u32, folder: &Path) -> Vec<Track> {
    let (picture, video) = (plan.picture.as_ref().unwrap(), plan.source.video.as_ref().unwrap());
    assert!(piece.chunk.frames() >= shown.chunk.frames());
    let mut piece = piece.clone();
    piece.chunk.end_frame = piece.chunk.first_frame + shown.chunk.frames();
    run(command::encode(plan, picture, video, &piece, source.to_str().unwrap()), folder);
    let shown = Piece { chunk: shown.chunk, group: piece.group };
    cut_all(plan, &shown, late, folder)
}

/// Cuts what an encoder made of a piece.
fn cut_all(plan: &Plan, piece: &Piece, late: u32, folder: &Path) -> Vec<Track> {
    let picture = plan.picture.as_ref().unwrap();
    let one = |rung: &media::ladder::Rung| {
        let of = Cut {
            name: rung.name.clone(),
            first_frame: piece.chunk.first_frame,
            frames: piece.chunk.frames(),
            frames_per_segment: picture.segment_frames,
            first_segment: piece.chunk.first_segment,
            ticks_per_frame: picture.frame_ticks,
            delay: piece.group.codec.delay() + late,
        };
        cut(&folder.join(format!("{}.mp4", rung.name)), &folder.join("made"), &of).unwrap()
    };
    picture.rungs_of_group(&piece.group).map(one).collect()
}

fn sound(plan: &Plan, track: &AudioTrack, source: &Path, folder: &Path) -> Track {
    run(command::audio(plan, track, source.to_str().unwrap()), folder);
    let clock = plan.picture.as_ref().map_or(AUDIO_RATE, |picture: &plan::Picture| picture.timescale);
    let ends = plan.boundaries();
    let begins = std::iter::once(0.0).chain(ends.iter().take(ends.len().saturating_sub(1)).copied());
    let of = CutAudio {
        name: track.name.clone(),
        priming: command::PRIMING,
        packets: track.packets,
        starts: begins.map(|seconds| (seconds * f64::from(clock)).round() as u64).collect(),
        clock,
    };
    cut_audio(&folder.join(format!("{}.mp4", track.name)), &folder.join("made"), &of).unwrap()
}

fn run(argv: Vec<String>, folder: &Path) {
    let ended = Command::new(&argv[0]).args(&argv[1..]).current_dir(folder).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

impl Made {
    /// Replaces one segment of each track, and its place in the result, by that of another result.
    pub fn take_segment_of(&mut self, other: &Made, at: usize) {
        let folder = |made: &Made| made.folder.path().join("made");
        for (own, other_track) in self.tracks.iter_mut().zip(&other.tracks) {
            let (mine, theirs) = (&mut own.segments[at], &other_track.segments[at]);
            assert_eq!(mine.file.path, theirs.file.path);
            std::fs::copy(
                folder(other).join(&theirs.file.path),
                self.folder.path().join("made").join(&mine.file.path),
            )
            .unwrap();
            *mine = theirs.clone();
        }
    }

    /// Writes something that is no media into every segment, and declares it so.
    pub fn fill_segments_with(&mut self, byte: u8) {
        let folder = self.folder.path().join("made");
        for segment in self.tracks.iter_mut().flat_map(|track| &mut track.segments) {
            let content = vec![byte; usize::try_from(segment.file.bytes).unwrap()];
            std::fs::write(folder.join(&segment.file.path), &content).unwrap();
            segment.file.sha256 = hex::encode(sha2::Sha256::digest(&content));
        }
    }

    /// Tells players to show the pictures upside down.
    pub fn turn(&mut self) {
        let folder = self.folder.path().join("made");
        for track in &mut self.tracks {
            let path = folder.join(&track.init.path);
            let mut content = std::fs::read(&path).unwrap();
            let at = content.windows(4).position(|kind| kind == b"tkhd").unwrap() + 4;
            let at = at + if content[at] == 1 { 52 } else { 40 };
            content[at..at + 4].copy_from_slice(&(-0x1_0000_i32).to_be_bytes());
            content[at + 16..at + 20].copy_from_slice(&(-0x1_0000_i32).to_be_bytes());
            std::fs::write(&path, &content).unwrap();
            track.init.sha256 = hex::encode(sha2::Sha256::digest(&content));
        }
    }

    /// Adds another track to each init segment: a copy of the first with a number and a handler of its own.
    pub fn add_passenger(&mut self) {
        let folder = self.folder.path().join("made");
        for track in &mut self.tracks {
            let path = folder.join(&track.init.path);
            let mut content = std::fs::read(&path).unwrap();
            let at =
                |content: &[u8], kind: &[u8]| content.windows(4).position(|found| found == kind).unwrap() - 4;
            let size = |content: &[u8], at: usize| {
                u32::from_be_bytes(content[at..at + 4].try_into().unwrap()) as usize
            };
            let (moov, trak) = (at(&content, b"moov"), at(&content, b"trak"));
            let end = trak + size(&content, trak);
            let mut copy = content[trak..end].to_vec();
            let tkhd = at(&copy, b"tkhd") + 8;
            let id = tkhd + if copy[tkhd] == 1 { 20 } else { 12 };
            copy[id + 3] += 1;
            let handler = at(&copy, b"hdlr") + 16;
            copy[handler..handler + 4].copy_from_slice(b"meta");
            let grown = u32::try_from(size(&content, moov) + copy.len()).unwrap();
            content[moov..moov + 4].copy_from_slice(&grown.to_be_bytes());
            content.splice(end..end, copy);
            std::fs::write(&path, &content).unwrap();
            track.init.bytes = content.len() as u64;
            track.init.sha256 = hex::encode(sha2::Sha256::digest(&content));
        }
    }

    /// Puts a box that no player looks into at the end of the last segment of each track.
    pub fn hide_in_segments(&mut self, bytes: usize) {
        let folder = self.folder.path().join("made");
        for segment in self.tracks.iter_mut().filter_map(|track| track.segments.last_mut()) {
            let path = folder.join(&segment.file.path);
            let mut content = std::fs::read(&path).unwrap();
            content.extend(u32::try_from(bytes).unwrap().to_be_bytes());
            content.extend(b"free");
            content.resize(content.len() + bytes - 8, 0x5a);
            std::fs::write(&path, &content).unwrap();
            segment.file.bytes = content.len() as u64;
            segment.file.sha256 = hex::encode(sha2::Sha256::digest(&content));
        }
    }

    pub fn result(&self, task: &Value) -> Value {
        let proof: wire::LeaseToken = serde_json::from_value(task["proof"].clone()).unwrap();
        let execution = proof.shown_by(rules::WorkerId(uuid::Uuid::nil())).execution();
        json!({ "execution": execution, "tracks": self.tracks })
    }

    pub fn files(&self) -> impl Iterator<Item = &Artifact> {
        self.tracks.iter().flat_map(Track::files)
    }

    pub fn outputs(&self) -> Value {
        self.files().map(|file| json!(file)).collect()
    }

    pub fn bytes(&self, file: &Artifact) -> Vec<u8> {
        std::fs::read(self.folder.path().join("made").join(&file.path)).unwrap()
    }

    pub fn upload(&self, hand: &Hand<'_>, task: &Value) {
        for file in self.files() {
            good(hand.put(task, &file.path, &self.bytes(file)).send().unwrap());
        }
    }

    pub fn complete_with(&self, hand: &Hand<'_>, task: &Value, result: Value) -> Response {
        let body =
            json!({ "proof": task["proof"], "result": result, "outputs": self.outputs(), "usage": usage() });
        loop {
            let answer = hand.say("complete", body.clone());
            // The server still compares; a worker sends its report again.
            if answer.status() != 503 {
                return answer;
            }
        }
    }

    /// Uploads everything and completes with the result that belongs to it.
    pub fn hand_in(&self, hand: &Hand<'_>, task: &Value) -> Response {
        self.upload(hand, task);
        self.complete_with(hand, task, self.result(task))
    }
}
