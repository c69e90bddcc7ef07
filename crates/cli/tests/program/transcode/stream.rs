//! A stream that was made: what its playlists say, and what a player makes of it.

use super::studio::ffmpeg;
use crate::support::said;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Stream {
    pub folder: PathBuf,
    /// What the program said when it had made it.
    pub told: String,
    pub variants: Vec<Entry>,
    pub renditions: Vec<Entry>,
}

/// A line of the master playlist that names another one.
#[derive(Debug)]
pub struct Entry {
    attributes: HashMap<String, String>,
    pub playlist: PathBuf,
}

impl Entry {
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

impl Stream {
    pub fn open(folder: PathBuf, told: String) -> Self {
        let text = std::fs::read_to_string(folder.join("master.m3u8")).unwrap();
        let (mut variants, mut renditions) = (Vec::new(), Vec::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(list) = line.strip_prefix("#EXT-X-STREAM-INF:") {
                let playlist = folder.join(lines.next().unwrap());
                variants.push(Entry { attributes: attributes(list), playlist });
            } else if let Some(list) = line.strip_prefix("#EXT-X-MEDIA:") {
                let attributes = attributes(list);
                // Without an address of its own it is in the variant.
                let Some(uri) = attributes.get("URI") else { continue };
                let playlist = folder.join(uri);
                renditions.push(Entry { attributes, playlist });
            }
        }
        Stream { folder, told, variants, renditions }
    }

    pub fn master(&self) -> String {
        std::fs::read_to_string(self.folder.join("master.m3u8")).unwrap()
    }

    /// The variants that have a picture, the largest first, each once.
    pub fn pictures(&self) -> Vec<&Entry> {
        let mut pictures: Vec<&Entry> = Vec::new();
        for variant in self.variants.iter().filter(|variant| !variant.get("RESOLUTION").is_empty()) {
            if pictures.iter().all(|seen| seen.playlist != variant.playlist) {
                pictures.push(variant);
            }
        }
        pictures.sort_by_key(|variant| std::cmp::Reverse(size(variant)));
        pictures
    }

    pub fn sounds(&self) -> Vec<&Entry> {
        self.renditions.iter().filter(|entry| entry.get("TYPE") == "AUDIO").collect()
    }

    pub fn subtitles(&self) -> Vec<&Entry> {
        self.renditions.iter().filter(|entry| entry.get("TYPE") == "SUBTITLES").collect()
    }

    pub fn size(&self) -> (u32, u32) {
        size(self.pictures()[0])
    }

    /// What ffprobe says of the largest picture.
    pub fn picture_is(&self, field: &str) -> String {
        let entry = format!("stream={field}");
        probed(&self.pictures()[0].playlist, &["-select_streams", "v", "-show_entries", &entry])
    }

    /// Plays the largest picture with the first sound, from end to end; `filter` makes gray bytes of each frame.
    ///
    /// Whatever the source was: nothing may be said while it is decoded, the first frame is shown at 0, each frame
    /// follows the one before by exactly one frame, and the sound begins and ends within a frame of the picture.
    pub fn play(&self, filter: &str) -> Shown {
        let picture = self.pictures()[0];
        let rate: f64 = picture.get("FRAME-RATE").parse().unwrap();
        self.play_with(picture, self.sounds().first().copied(), rate, filter)
    }

    pub fn play_with(&self, picture: &Entry, sound: Option<&Entry>, rate: f64, filter: &str) -> Shown {
        let list = self.folder.join("played");
        let mut command = ffmpeg();
        command.args(["-y", "-copyts", "-i"]).arg(&picture.playlist);
        if let Some(sound) = sound {
            command.arg("-i").arg(&sound.playlist);
        }
        command.args(["-map", "0:v"]);
        if sound.is_some() {
            command.args(["-map", "1:a"]);
        }
        command.args(["-fps_mode", "passthrough", "-enc_time_base", "-1", "-f", "framecrc"]).arg(&list);
        command.args(["-map", "0:v", "-vf", &format!("{filter},format=gray")]);
        command.args(["-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"]);
        let played = command.output().unwrap();
        let complaints = String::from_utf8_lossy(&played.stderr);
        assert!(played.status.success() && complaints.is_empty(), "{complaints}");

        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        let times: Vec<f64> = spans(&text, 0).map(|(begin, _)| begin).collect();
        let shown = Shown { times, bytes: played.stdout, rate };
        shown.is_even();
        if sound.is_some() {
            shown.is_accompanied(&spans(&text, 1).collect::<Vec<_>>());
        }
        shown
    }

    /// The first sound as samples in one channel, 8000 a second, from time 0.
    pub fn listen(&self) -> Vec<i16> {
        let sound = self.sounds().first().copied().unwrap_or(&self.variants[0]);
        let mut command = ffmpeg();
        command.arg("-i").arg(&sound.playlist).args(["-ac", "1", "-ar", "8000", "-f", "s16le", "-"]);
        let heard = command.output().unwrap();
        assert!(heard.status.success() && heard.stderr.is_empty(), "{}", said(&heard));
        let samples = heard.stdout.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        samples.collect()
    }

    /// The seconds at which a sound begins after silence.
    pub fn beeps(&self) -> Vec<f64> {
        let samples = self.listen();
        let loud: Vec<usize> = (0..samples.len()).filter(|at| samples[*at].abs() > 3000).collect();
        let is_new = |(before, at): (Option<&usize>, &usize)| before.is_none_or(|before| at - before > 800);
        let befores = std::iter::once(None).chain(loud.iter().map(Some));
        let new = befores.zip(&loud).filter(|pair| is_new(*pair));
        new.map(|(_, at)| *at as f64 / 8000.0).collect()
    }

    /// The cues of a track of text: when they begin and end, and what they say.
    pub fn cues(&self, subtitles: &Entry) -> Vec<(f64, f64, String)> {
        let list = std::fs::read_to_string(&subtitles.playlist).unwrap();
        let folder = subtitles.playlist.parent().unwrap();
        let mut cues = Vec::new();
        for segment in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let text = std::fs::read_to_string(folder.join(segment)).unwrap();
            assert!(text.contains("X-TIMESTAMP-MAP="), "{text}");
            for block in text.split("\n\n") {
                let Some((head, words)) = block.split_once('\n') else { continue };
                let Some((begin, end)) = head.split_once(" --> ") else { continue };
                let cue = (seconds(begin), seconds(end), words.trim().to_owned());
                if !cues.contains(&cue) {
                    cues.push(cue);
                }
            }
        }
        cues
    }
}

/// What was seen.
pub struct Shown {
    times: Vec<f64>,
    /// Gray bytes of all frames, as the filter made them.
    pub bytes: Vec<u8>,
    rate: f64,
}

impl Shown {
    pub fn frames(&self) -> usize {
        self.times.len()
    }

    /// In seconds.
    pub fn length(&self) -> f64 {
        self.frames() as f64 / self.rate
    }

    /// The numbers in the pictures of [`super::studio::numbers`], seen through [`STRIPES`].
    pub fn numbers(&self) -> Vec<u32> {
        assert_eq!(self.bytes.len(), self.frames() * 16);
        let number = |stripes: &[u8]| (0..16).map(|bit| u32::from(stripes[bit] > 125) << bit).sum();
        self.bytes.chunks_exact(16).map(number).collect()
    }

    /// The seconds at which a picture is bright after a dark one, seen through [`ONE`].
    pub fn flashes(&self) -> Vec<f64> {
        let is_bright: Vec<bool> = self.bytes.iter().map(|byte| *byte > 125).collect();
        let begins = (0..is_bright.len()).filter(|at| is_bright[*at] && (*at == 0 || !is_bright[at - 1]));
        begins.map(|at| self.times[at]).collect()
    }

    fn is_even(&self) {
        for (number, time) in self.times.iter().enumerate() {
            let due = number as f64 / self.rate;
            assert!((time - due).abs() < 0.1 / self.rate, "frame {number} is shown at {time}, not {due}");
        }
    }

    fn is_accompanied(&self, sound: &[(f64, f64)]) {
        let frame = 1.0 / self.rate;
        let (begin, end) = (sound[0].0, sound[sound.len() - 1].1);
        // AAC comes in packets; where frames are shorter, half of one is as near as can be.
        let near = f64::max(frame, 512.0 / 48_000.0 + 0.0005);
        assert!(begin.abs() <= near, "the sound begins at {begin}");
        assert!(
            (end - self.length()).abs() <= near,
            "the sound ends at {end}, the picture at {}",
            self.length()
        );
        for pair in sound.windows(2) {
            assert!((pair[1].0 - pair[0].1).abs() < 0.001, "the sound is broken at {}", pair[0].1);
        }
    }
}

pub const STRIPES: &str = "scale=16:1:flags=area";
pub const ONE: &str = "scale=1:1:flags=area";

/// What ffprobe says, without line ends.
pub fn probed(file: &Path, args: &[&str]) -> String {
    let mut command = Command::new("ffprobe");
    let told = command.args(["-v", "error", "-of", "csv=p=0"]).args(args).arg(file).output().unwrap();
    assert!(told.status.success() && told.stderr.is_empty(), "{}", said(&told));
    // The streams of a playlist are told once more for its program.
    let text = String::from_utf8(told.stdout).unwrap();
    text.lines().find(|line| !line.is_empty()).unwrap_or_default().trim_end_matches(',').to_owned()
}

fn size(variant: &Entry) -> (u32, u32) {
    let (width, height) = variant.get("RESOLUTION").split_once('x').unwrap();
    (width.parse().unwrap(), height.parse().unwrap())
}

/// `NAME=VALUE,NAME="VALUE, WITH COMMAS"`.
fn attributes(list: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut rest = list;
    while let Some((name, more)) = rest.split_once('=') {
        let (value, more) = match more.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap(),
            None => more.split_at(more.find(',').unwrap_or(more.len())),
        };
        found.insert(name.to_owned(), value.to_owned());
        rest = more.strip_prefix(',').unwrap_or(more);
    }
    found
}

/// When each frame of a stream of a `framecrc` list begins and ends, in seconds.
fn spans(list: &str, stream: usize) -> impl Iterator<Item = (f64, f64)> {
    let base = list.lines().find_map(|line| line.strip_prefix(&format!("#tb {stream}: "))).unwrap();
    let (num, den) = base.split_once('/').unwrap();
    let base: f64 = num.parse::<f64>().unwrap() / den.parse::<f64>().unwrap();
    let of_stream = move |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields[0] != stream.to_string() {
            return None;
        }
        let (pts, length): (f64, f64) = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
        Some((pts * base, (pts + length) * base))
    };
    list.lines().filter(|line| !line.starts_with('#')).filter_map(of_stream)
}

/// Of `01:02:03.456` or `02:03.456`.
fn seconds(clock: &str) -> f64 {
    let clock = clock.split_whitespace().next().unwrap();
    clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}
