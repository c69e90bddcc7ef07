//! Frames of a rendition beside the same frames of the source: whether it shows what it should.
//!
//! A worker on another machine may return segments that are correct in every way and show something else: another video,
//! another chunk, a black picture. So a few frames of every chunk, at places that nobody can foresee, are decoded from the
//! source by the plan's own filters and compared with each rendition at [`WIDTH`] × [`HEIGHT`].

use crate::manifest::{Segment, Track};
use crate::picture;
use crate::plan::{Picture, Plan};
use crate::probe::input;
use crate::source::{Source, Timing, Video};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub const WIDTH: u32 = 64;
pub const HEIGHT: u32 = 36;
const PIXELS: usize = (WIDTH * HEIGHT) as usize;

/// How many frames of each chunk are compared.
pub const SPOTS_PER_CHUNK: u32 = 2;

/// A decoder may show the neighbour of a frame: so many before and behind it are as good.
const NEIGHBOURS: u64 = 2;

/// A squared error that no picture needs a reason for: of a flat picture, coding noise is all there is.
const NOISE: f64 = 64.0;

/// How much of a picture's own variance the squared error may be. Another picture differs by at least all of it, and so does
/// one without content.
const MOST_OF_VARIANCE: f64 = 0.4;

/// A frame to be compared in all renditions, counted over the whole track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The position of its chunk in the plan.
    pub chunk: usize,
    pub frame: u64,
}

/// Where to look: `random` returns any number below its argument.
pub fn spots(picture: &Picture, mut random: impl FnMut(u64) -> u64) -> Vec<Spot> {
    let mut of = |chunk: usize| {
        let (first, frames) = (picture.chunks[chunk].first_frame, picture.chunks[chunk].frames().max(1));
        let mut frames: Vec<u64> = (0..SPOTS_PER_CHUNK).map(|_| first + random(frames)).collect();
        frames.sort_unstable();
        frames.dedup();
        frames.into_iter().map(move |frame| Spot { chunk, frame }).collect::<Vec<_>>()
    };
    (0..picture.chunks.len()).flat_map(&mut of).collect()
}

/// Where to look in one chunk before it is committed: at a frame of each of its segments, so that none of them can show
/// something else, and at as many frames more as in any chunk, for it is not looked at again. `chunk` is its position in the
/// plan.
pub fn spots_of_segments(picture: &Picture, chunk: usize, mut random: impl FnMut(u64) -> u64) -> Vec<Spot> {
    let Some(of) = picture.chunks.get(chunk) else { return Vec::new() };
    let length = u64::from(picture.segment_frames.max(1));
    let starts = (0..of.frames().div_ceil(length)).map(|at| of.first_frame + at * length);
    let mut frames: Vec<u64> = starts.map(|start| start + random(length.min(of.end_frame - start))).collect();
    frames.extend((0..SPOTS_PER_CHUNK).map(|_| of.first_frame + random(of.frames().max(1))));
    frames.sort_unstable();
    frames.dedup();
    frames.into_iter().map(|frame| Spot { chunk, frame }).collect()
}

/// Where decoding of the source begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum From {
    /// At this time on the file's own clock.
    Seconds(f64),
    Beginning,
}

/// Where to begin, in the order in which to try: a file whose index misleads may be entered too late.
pub fn entries(picture: &Picture, timing: &Timing, spot: Spot) -> Vec<From> {
    let has_index = !timing.keys.is_empty() || !timing.entries.is_empty();
    let near = picture::seek(timing, first(spot)).filter(|_| has_index);
    let chunk = picture.chunks.get(spot.chunk).and_then(|chunk| chunk.seek);
    let mut tries: Vec<From> = near.into_iter().chain(chunk).map(From::Seconds).collect();
    tries.extend(chunk.map(|seconds| From::Seconds(seconds - 10.0)));
    tries.push(From::Beginning);
    tries
}

fn first(spot: Spot) -> u64 {
    spot.frame.saturating_sub(NEIGHBOURS)
}

fn end(spot: Spot, frames: u64) -> u64 {
    (spot.frame + NEIGHBOURS + 1).min(frames)
}

/// Writes the source's frames around a spot to `to`, small and gray.
pub fn of_source(
    plan: &Plan,
    picture: &Picture,
    video: &Video,
    spot: Spot,
    from: From,
    source: &str,
    to: &Path,
) -> Vec<String> {
    let mut args = ffmpeg();
    args.extend(words(&["-threads", "1"]));
    if is_trusted(&plan.source) {
        args.push("-copyts".into());
    }
    if let From::Seconds(seconds) = from {
        args.extend(words(&["-seek_timestamp", "1", "-noaccurate_seek", "-ss", &format!("{seconds:.6}")]));
    }
    args.extend(picture::through_changes(video));
    args.extend(input::arguments(source));
    let smallest = picture.rungs.iter().min_by_key(|rung| u64::from(rung.width) * u64::from(rung.height));
    let (width, height) = smallest.map_or((WIDTH, HEIGHT), |rung| (rung.width, rung.height));
    let graph = format!(
        "{},{},{}[small]",
        picture::frames(video, first(spot), end(spot, picture.frames)),
        picture::prepare(video, width, height),
        small(),
    );
    args.extend(words(&["-filter_complex_threads", "1", "-filter_complex", &graph, "-map", "[small]"]));
    args.extend(raw(to));
    args
}

/// A frame of a rendition, in a file of its own.
#[derive(Debug, Clone)]
pub struct Excerpt<'a> {
    pub file: &'a Path,
    /// Which of the file's frames it is, in the order in which they are shown.
    pub frame: u64,
}

/// Writes these frames to `to`, one after the other, as small and gray as those of the source.
pub fn of_renditions(excerpts: &[Excerpt<'_>], to: &Path) -> Vec<String> {
    let mut args = ffmpeg();
    for excerpt in excerpts {
        args.extend(words(&[
            "-threads",
            "1",
            "-noautorotate",
            "-protocol_whitelist",
            "file",
            "-f",
            "mov",
            "-i",
        ]));
        args.push(format!("file:{}", excerpt.file.display()));
    }
    let one = |(at, excerpt): (usize, &Excerpt<'_>)| {
        let (frame, next) = (excerpt.frame, excerpt.frame + 1);
        format!("[{at}:v:0]trim=start_frame={frame}:end_frame={next},setpts=0,{}[s{at}];", small())
    };
    let mut graph: String = excerpts.iter().enumerate().map(one).collect();
    let all: String = (0..excerpts.len()).map(|at| format!("[s{at}]")).collect();
    graph += &match excerpts.len() {
        1 => format!("{all}null[all]"),
        count => format!("{all}vstack=inputs={count}[all]"),
    };
    args.extend(words(&["-filter_complex_threads", "1", "-filter_complex", &graph, "-map", "[all]"]));
    args.extend(raw(to));
    args
}

/// The brightness alone, whatever the range is said to be: a filter that scales gray would change it.
fn small() -> String {
    format!("format=yuv420p,scale={WIDTH}:{HEIGHT}:flags=area,format=yuv420p,extractplanes=y,setsar=1")
}

fn ffmpeg() -> Vec<String> {
    words(&["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-v", "error", "-y"])
}

fn raw(to: &Path) -> Vec<String> {
    let to = format!("file:{}", to.display());
    words(&["-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", &to])
}

fn is_trusted(source: &Source) -> bool {
    source.video.as_ref().is_none_or(|video| video.timing.can_seek)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Copies the group of pictures in which a frame is, with its init segment, to `to`; the frame's number in it. `folder` is
/// where the generation is.
pub fn excerpt(folder: &Path, track: &Track, picture: &Picture, frame: u64, to: &Path) -> io::Result<u64> {
    let time = frame.saturating_mul(picture.frame_ticks.into());
    let is_in = |segment: &&Segment| (segment.start..segment.start + segment.duration).contains(&time);
    let segment = track.segments.iter().find(is_in).ok_or(io::ErrorKind::NotFound)?;
    let mut file = File::open(folder.join(&segment.file.path))?;
    let fragments = fragments(&mut file)?;
    let at =
        segment.key_frames.iter().rposition(|key| key.start <= time).ok_or(io::ErrorKind::InvalidData)?;
    let key = segment.key_frames[at];
    // What players decode is what is between two fragments of the file itself, wherever the result says that they are.
    let own = fragments.iter().position(|offset| *offset == key.offset);
    if own != Some(at) || fragments.len() != segment.key_frames.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its fragments are not where its result says",
        ));
    }
    let end = fragments.get(at + 1).copied().unwrap_or(segment.file.bytes);
    let mut out = File::create(to)?;
    io::copy(&mut File::open(folder.join(&track.init_of(segment).path))?, &mut out)?;
    file.seek(SeekFrom::Start(key.offset))?;
    io::copy(&mut file.take(end.saturating_sub(key.offset)), &mut out)?;
    out.flush()?;
    Ok((time - key.start) / u64::from(picture.frame_ticks.max(1)))
}

/// Where fragments begin in a segment.
fn fragments(file: &mut File) -> io::Result<Vec<u64>> {
    let length = file.metadata()?.len();
    let (mut found, mut at) = (Vec::new(), 0);
    while at + 8 <= length {
        let mut head = [0; 16];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut head[..8])?;
        let mut size = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
        match size {
            0 => size = length - at,
            1 => {
                file.read_exact(&mut head[8..])?;
                size = head[8..].iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
            }
            _ => {}
        }
        if size < 8 || size > length - at {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if &head[4..8] == b"moof" {
            found.push(at);
        }
        at += size;
    }
    Ok(found)
}

/// How far a frame of a rendition is from the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// The mean squared error of the brightness, of the nearest neighbour.
    pub error: f64,
    /// The source's variance there.
    pub variance: f64,
}

impl Distance {
    pub fn is_same_picture(self) -> bool {
        self.error <= NOISE.max(self.variance * MOST_OF_VARIANCE)
    }
}

/// Whether these are all frames around a spot.
pub fn is_whole(source: &[u8], picture: &Picture, spot: Spot) -> bool {
    let frames = end(spot, picture.frames).saturating_sub(first(spot));
    source.len() as u64 == frames * PIXELS as u64
}

/// The distance of each rendition, in the order of [`of_renditions`]; fewer, if some could not be decoded.
pub fn distances(source: &[u8], made: &[u8]) -> Vec<Distance> {
    let nearest = |made: &[u8]| {
        let to = |source: &[u8]| Distance { error: error(source, made), variance: variance(source) };
        let all = source.chunks_exact(PIXELS).map(to);
        all.min_by(|a, b| {
            (a.error - a.variance * MOST_OF_VARIANCE).total_cmp(&(b.error - b.variance * MOST_OF_VARIANCE))
        })
    };
    made.chunks_exact(PIXELS).filter_map(nearest).collect()
}

fn error(a: &[u8], b: &[u8]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(i32::from(*a) - i32::from(*b)).powi(2));
    squares.sum::<f64>() / PIXELS as f64
}

fn variance(picture: &[u8]) -> f64 {
    let mean = picture.iter().map(|pixel| f64::from(*pixel)).sum::<f64>() / PIXELS as f64;
    picture.iter().map(|pixel| (f64::from(*pixel) - mean).powi(2)).sum::<f64>() / PIXELS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stripes of this width, between two shades.
    fn stripes(width: usize, low: u8, high: u8) -> Vec<u8> {
        let shade = |at: usize| if (at % WIDTH as usize / width).is_multiple_of(2) { low } else { high };
        (0..PIXELS).map(shade).collect()
    }

    fn is_same(source: &[u8], made: &[u8]) -> bool {
        distances(source, made)[0].is_same_picture()
    }

    #[test]
    fn the_same_picture_in_worse_quality_is_the_same() {
        let source = stripes(8, 60, 180);
        let blurred: Vec<u8> = stripes(8, 75, 160);
        let darker: Vec<u8> = source.iter().map(|pixel| pixel - 8).collect();

        assert!(is_same(&source, &source) && is_same(&source, &blurred) && is_same(&source, &darker));
        assert!(is_same(&[stripes(2, 0, 255), source.clone()].concat(), &source), "a neighbour is as good");
    }

    #[test]
    fn another_picture_is_another() {
        let source = stripes(8, 60, 180);

        for other in [stripes(4, 60, 180), stripes(8, 180, 60), vec![16; PIXELS], vec![120; PIXELS]] {
            assert!(!is_same(&source, &other));
        }
        assert!(!is_same(&stripes(8, 30, 60), &[16; PIXELS]), "black in place of a dark scene");
    }

    #[test]
    fn a_flat_picture_may_have_noise_and_no_more() {
        assert!(is_same(&[100; PIXELS], &stripes(1, 96, 104)));
        assert!(!is_same(&[100; PIXELS], &[120; PIXELS]));
    }
}
