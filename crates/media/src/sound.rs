//! Compares an encoded track of sound with the source: whether one hears what one should.
//!
//! Both are decoded to [`RATE`] samples a second, and each second of each channel is compared by correlation. Encoding
//! changes a waveform a little; other sound has nothing in common with it.

use crate::command;
use crate::manifest::Track;
use crate::plan::{AudioTrack, Plan};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// Samples per second and channel. What is higher than half of it is not compared: encoders replace it by noise.
pub const RATE: u32 = 8000;

/// By how many samples the sound may be moved.
const MOST_SHIFT: i64 = 8;

/// A track differs if it does for this long without interruption, in seconds.
const SECONDS_IN_A_ROW: usize = 3;

/// A track also differs if single seconds of it do, and they are more than this many and one of so many.
const SINGLE_SECONDS: usize = 2;
const ONE_OF: usize = 100;

/// The mean square of a sample (of 32,768) below which nothing is heard: about -66 dB.
const SILENCE: f64 = 300.0;

/// How much of the power of a second has to be explained by the source, and how much louder or softer it may be.
const EXPLAINED: f64 = 0.2;
const GAIN: f64 = 4.0;

/// A channel with less than this part of the power of all is compared in loudness alone: encoders spend few bits on it.
const FAINT: f64 = 0.02;

/// Channels of the published track.
pub fn channels(track: &AudioTrack) -> usize {
    if track.channels > 2 { 6 } else { 2 }
}

/// How many bytes either command below writes.
pub fn bytes(track: &AudioTrack) -> u64 {
    let samples = track.packets * u64::from(crate::plan::AAC_FRAME) * u64::from(RATE)
        / u64::from(crate::plan::AUDIO_RATE);
    samples * channels(track) as u64 * 2
}

/// Writes the sound of the source to `to`, as the encoder was to get it.
pub fn of_source(plan: &Plan, track: &AudioTrack, source: &str, to: &Path) -> Vec<String> {
    let mut args = command::decode_audio(plan, track, source, &format!(",aresample={RATE}"));
    args.extend(raw(to));
    args
}

/// Writes the sound of `file`, made by [`join`], to `to`.
pub fn of_track(track: &AudioTrack, file: &Path, to: &Path) -> Vec<String> {
    let layout = if track.channels > 2 { "5.1" } else { "stereo" };
    let filter = format!("aformat=sample_fmts=fltp:channel_layouts={layout},aresample={RATE}");
    let input = format!("file:{}", file.display());
    let mut args: Vec<String> = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-v", "error", "-y"]
        .into_iter()
        .chain(["-protocol_whitelist", "file", "-f", "mov", "-i", &input, "-map", "0:a:0", "-af", &filter])
        .map(String::from)
        .collect();
    args.extend(raw(to));
    args
}

fn raw(to: &Path) -> Vec<String> {
    let to = format!("file:{}", to.display());
    ["-c:a", "pcm_s16le", "-f", "s16le", &to].map(String::from).into()
}

/// Copies a whole track, of which the files are in `folder`, to `to`.
pub fn join(folder: &Path, track: &Track, to: &Path) -> io::Result<()> {
    let mut out = File::create(to)?;
    for file in track.files() {
        io::copy(&mut File::open(folder.join(&file.path))?, &mut out)?;
    }
    out.flush()
}

/// Where a track differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The first second that does.
    pub second: usize,
    pub seconds: usize,
}

/// Compares what the two commands wrote; none if the track has the sound of the source.
pub fn difference(source: &Path, made: &Path, channels: usize) -> io::Result<Option<Difference>> {
    let mut source = Samples::open(source, channels)?;
    let mut made = Samples::open(made, channels)?;
    let (mut seconds, mut differ, mut in_a_row, mut first) = (0, 0, 0, None);
    loop {
        let (source, made) = (source.next_second()?, made.next_second()?);
        if source.iter().all(Vec::is_empty) {
            break;
        }
        if (0..channels).any(|channel| differs(&source, &made, channel)) {
            (differ, in_a_row) = (differ + 1, in_a_row + 1);
            first.get_or_insert(seconds);
        } else {
            in_a_row = 0;
        }
        seconds += 1;
        if in_a_row >= SECONDS_IN_A_ROW {
            return Ok(Some(Difference { second: seconds - in_a_row, seconds: in_a_row }));
        }
    }
    // A short track is all its seconds.
    let is_other = differ > SINGLE_SECONDS && differ * ONE_OF > seconds || differ == seconds && differ > 0;
    Ok(first.filter(|_| is_other).map(|second| Difference { second, seconds: differ }))
}

struct Samples {
    file: BufReader<File>,
    channels: usize,
}

impl Samples {
    fn open(path: &Path, channels: usize) -> io::Result<Self> {
        Ok(Samples { file: BufReader::new(File::open(path)?), channels: channels.max(1) })
    }

    /// The samples of each channel; fewer or none at the end of the file.
    fn next_second(&mut self) -> io::Result<Vec<Vec<f64>>> {
        let mut bytes = Vec::new();
        let wanted = RATE as usize * self.channels * 2;
        self.file.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
        let mut second = vec![Vec::new(); self.channels];
        for frame in bytes.chunks_exact(self.channels * 2) {
            for (channel, sample) in second.iter_mut().zip(frame.chunks_exact(2)) {
                channel.push(f64::from(i16::from_le_bytes([sample[0], sample[1]])));
            }
        }
        Ok(second)
    }
}

fn differs(source: &[Vec<f64>], made: &[Vec<f64>], channel: usize) -> bool {
    let (own, heard) = (power(&source[channel]), power(&made[channel]));
    let faint = source.iter().map(|it| power(it)).sum::<f64>() * FAINT;
    if own < SILENCE.max(faint) {
        // Nothing to correlate with; what is there may be a trace of the other channels, and no more.
        return heard > (SILENCE + own + faint) * GAIN;
    }
    let is_explained = |shift| explained(&source[channel], &made[channel], shift) >= EXPLAINED;
    let mut shifts = (0..=MOST_SHIFT).flat_map(|shift| [shift, -shift]);
    !(own / GAIN..=own * GAIN).contains(&heard) || !shifts.any(is_explained)
}

fn power(samples: &[f64]) -> f64 {
    samples.iter().map(|it| it * it).sum::<f64>() / samples.len().max(1) as f64
}

/// How much of the power of `made` is that of `source`, if it is moved by so many samples: from 0 to 1.
fn explained(source: &[f64], made: &[f64], shift: i64) -> f64 {
    let by = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
    let (from, to) = if shift < 0 {
        (source.get(by..).unwrap_or_default(), made)
    } else {
        (source, made.get(by..).unwrap_or_default())
    };
    let (mut both, mut one, mut other) = (0.0, 0.0, 0.0);
    for (a, b) in from.iter().zip(to) {
        both += a * b;
        one += a * a;
        other += b * b;
    }
    if both <= 0.0 || one * other <= 0.0 {
        0.0
    } else {
        both * both / (one * other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Tones that follow each other, each a second long, in two channels.
    fn tones(hertz: &[(f64, f64)], loudness: f64) -> Vec<u8> {
        let rate = f64::from(RATE);
        let sample = |hertz: f64, at: u32| {
            let level = (f64::from(at) * hertz * std::f64::consts::TAU / rate).sin() * loudness;
            (level as i16).to_le_bytes()
        };
        hertz
            .iter()
            .flat_map(|&(left, right)| (0..RATE).flat_map(move |at| [sample(left, at), sample(right, at)]))
            .flatten()
            .collect()
    }

    fn compare(source: &[u8], made: &[u8]) -> Option<Difference> {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("source"), folder.path().join("made"));
        std::fs::write(&one, source).unwrap();
        std::fs::write(&other, made).unwrap();
        difference(&one, &other, 2).unwrap()
    }

    const TUNE: [(f64, f64); 6] =
        [(440.0, 440.0), (500.0, 700.0), (440.0, 440.0), (300.0, 301.0), (900.0, 440.0), (440.0, 220.0)];

    #[test]
    fn the_same_sound_a_little_changed_is_the_same() {
        let source = tones(&TUNE, 9000.0);
        let moved = [vec![0; 5 * 4], source.clone()].concat();

        assert_eq!(compare(&source, &source), None);
        assert_eq!(compare(&source, &tones(&TUNE, 6000.0)), None, "softer");
        assert_eq!(compare(&source, &moved), None, "some samples later");
        let silence = vec![0; source.len()];
        assert_eq!(compare(&silence, &tones(&TUNE, 10.0)), None, "noise that nobody hears");
    }

    #[test]
    fn other_sound_differs_from_its_first_second() {
        let source = tones(&TUNE, 9000.0);
        let (higher, lower) = (TUNE.map(|(l, r)| (l + 50.0, r + 50.0)), TUNE.map(|(l, _)| (l, 120.0)));
        let silence = vec![0; source.len()];

        for (what, made) in [
            ("another tune", tones(&higher, 9000.0)),
            ("another right channel", tones(&lower, 9000.0)),
            ("silence", silence.clone()),
            ("nothing", Vec::new()),
            ("much louder", tones(&TUNE, 30_000.0)),
        ] {
            assert_eq!(compare(&source, &made).unwrap().second, 0, "{what}");
        }
        assert_eq!(compare(&silence, &source).unwrap().second, 0, "sound in place of silence");
    }

    #[test]
    fn a_damaged_second_is_forgiven_and_three_in_a_row_are_not() {
        let source = tones(&TUNE, 9000.0);
        let changed = |seconds: std::ops::Range<usize>| {
            let mut tune = TUNE;
            tune[seconds].fill((1234.0, 1234.0));
            compare(&source, &tones(&tune, 9000.0))
        };

        assert_eq!(changed(2..3), None);
        assert_eq!(changed(3..6), Some(Difference { second: 3, seconds: 3 }));
    }
}
