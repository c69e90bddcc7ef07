//! Real media from ffmpeg, cut, joined and listed, and then proved by ffprobe.

#![allow(clippy::unwrap_used)]

use media::manifest::{Presentation, Shape, Sound, Track};
use media::mp4::{Cut, CutAudio, Error, Reader, Sample, cut, cut_audio};
use media::{dash, master, playlist};
use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Of H.264 and HEVC as they are encoded here, and more than AV1 needs.
const DELAY: u32 = 2;
const FRAGMENTED: &str =
    "-movflags +empty_moov+default_base_moof+frag_keyframe+skip_sidx+skip_trailer -f mp4";
const H264: &str = "-c:v libx264 -preset veryfast -bf 2 -sc_threshold 0";

/// How a test's picture is made: at this rate, in groups of this many frames.
struct Picture {
    rate: &'static str,
    timescale: u32,
    ticks: u32,
    group: u32,
    encoder: &'static str,
}

const NTSC: Picture = Picture { rate: "30000/1001", timescale: 30000, ticks: 1001, group: 15, encoder: H264 };
const PAL: Picture = Picture { rate: "25", timescale: 12800, ticks: 512, group: 10, encoder: H264 };

impl Picture {
    /// Encodes frames `first..first + count` of the test pattern, with times that begin at 0.
    fn encode(&self, folder: &Path, first: u64, count: u64) -> PathBuf {
        let path = folder.join(format!("chunk-{first}.mp4"));
        let Picture { rate, timescale, group, encoder, .. } = self;
        let trim = format!("trim=start_frame={first}:end_frame={},setpts=PTS-STARTPTS", first + count);
        let source = format!("-f lavfi -i testsrc2=s=128x72:r={rate} -vf {trim} -pix_fmt yuv420p");
        let groups = format!("-g {group} -keyint_min {group} -video_track_timescale {timescale}");
        ffmpeg(&format!("{source} {encoder} {groups} {FRAGMENTED} {}", path.display()));
        path
    }

    /// A chunk that begins with a whole segment, of two groups each.
    fn cut(&self, first_frame: u64, frames: u64) -> Cut {
        let frames_per_segment = 2 * self.group;
        let first_segment = (first_frame / u64::from(frames_per_segment)) as u32;
        let (name, ticks_per_frame) = ("72p".parse().unwrap(), self.ticks);
        Cut { name, first_frame, frames, frames_per_segment, first_segment, ticks_per_frame, delay: DELAY }
    }

    /// Encodes and cuts chunks of these lengths that follow each other.
    fn runs(&self, folder: &TempDir, lengths: &[u64]) -> Vec<Track> {
        let mut first = 0;
        let run = |count: &u64| {
            let file = self.encode(folder.path(), first, *count);
            let track = cut(&file, folder.path(), &self.cut(first, *count)).unwrap();
            first += count;
            track
        };
        lengths.iter().map(run).collect()
    }
}

/// Runs ffmpeg and returns what it complained of.
fn ffmpeg(arguments: &str) -> String {
    let output = Command::new("ffmpeg")
        .args("-nostdin -v error -y -threads 1".split(' '))
        .args(arguments.split(' '))
        .env("SVT_LOG", "1")
        .output()
        .expect("ffmpeg is needed for this test");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ffmpeg {arguments}: {complaint}");
    complaint
}

/// Writes a track's playlists beside its segments.
fn publish(folder: &Path, track: &Track) -> PathBuf {
    let list = folder.join(&track.name).join(playlist::MEDIA);
    fs::write(&list, playlist::media(track)).unwrap();
    fs::write(folder.join(&track.name).join(playlist::I_FRAMES), playlist::i_frames(track)).unwrap();
    list
}

/// The times of a playlist's frames (`frame=pts`) or packets (`packet=pts`) as ffprobe sees them, in ticks.
fn times(list: &Path, what: &str) -> Vec<i64> {
    times_of(list, "0", what)
}

/// Of one kind of stream: `v` or `a`, or the number of one.
fn times_of(list: &Path, stream: &str, what: &str) -> Vec<i64> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-of", "csv=p=0", "-select_streams", stream, "-show_entries", what])
        .arg(list)
        .output()
        .expect("ffprobe is needed for this test");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let number = |line: &str| line.split(',').next().and_then(|field| field.trim().parse().ok());
    String::from_utf8_lossy(&output.stdout).lines().filter_map(number).collect()
}

fn assert_decodes(list: &Path) {
    let complaint = ffmpeg(&format!("-xerror -i {} -f null -", list.display()));
    assert_eq!(complaint, "");
}

/// The samples of a track as its files have them.
fn samples(folder: &Path, track: &Track) -> Vec<Sample> {
    let init = File::open(folder.join(&track.init.path)).unwrap();
    let movie = Reader::open(init).unwrap().movie().clone();
    let mut samples = Vec::new();
    for segment in &track.segments {
        let file = File::open(folder.join(&segment.file.path)).unwrap();
        let mut reader = Reader::segment(file, movie.clone()).unwrap();
        while let Some(fragment) = reader.next_fragment().unwrap() {
            samples.extend(fragment.samples);
        }
    }
    samples
}

/// Given these chunks, every frame is there, at its time, and nothing else is.
fn assert_frames_are_seamless(picture: &Picture, lengths: &[u64]) {
    let folder = TempDir::new().unwrap();

    let track = Track::join(picture.runs(&folder, lengths)).unwrap();
    let list = publish(folder.path(), &track);

    let frames = lengths.iter().sum::<u64>() as i64;
    let grid: Vec<i64> = (0..frames).map(|number| number * i64::from(picture.ticks)).collect();
    let samples = samples(folder.path(), &track);
    // The edit list takes away what decoding runs ahead of showing.
    let delay = i64::from(samples[0].cts);
    let mut shown: Vec<i64> = samples.iter().map(|sample| sample.pts() as i64 - delay).collect();
    shown.sort_unstable();
    assert_eq!(shown, grid);
    assert_eq!(times(&list, "frame=pts"), grid);
    assert!(samples.iter().all(|sample| sample.cts >= 0), "libavformat takes others for a delay");
    assert_eq!(track.later_inits, [], "chunks of equal settings have equal init segments");
    assert_decodes(&list);
    let key_frames = track.segments.iter().map(|segment| segment.key_frames.len()).sum::<usize>();
    assert_eq!(
        key_frames,
        lengths.iter().map(|length| length.div_ceil(picture.group.into()) as usize).sum::<usize>()
    );
}

#[test]
fn frames_are_seamless_at_29_97() {
    assert_frames_are_seamless(&NTSC, &[60, 30, 37]);
}

#[test]
fn frames_are_seamless_at_25() {
    assert_frames_are_seamless(&PAL, &[40, 41]);
}

#[test]
fn one_frame_is_a_track() {
    assert_frames_are_seamless(&PAL, &[1]);
    assert_frames_are_seamless(&NTSC, &[30, 1]);
}

#[test]
fn frames_of_hevc_are_seamless() {
    let encoder = "-c:v libx265 -preset ultrafast -tag:v hvc1 -x265-params \
                   log-level=none:pools=1:frame-threads=1:bframes=2:open-gop=0:scenecut=0:keyint=10:min-keyint=10";
    let picture = Picture { encoder, ..PAL };
    assert_frames_are_seamless(&picture, &[20, 25]);

    let folder = TempDir::new().unwrap();
    let track = picture.runs(&folder, &[20]).remove(0);
    assert!(track.codec.starts_with("hvc1.1.6.L"), "{}", track.codec);
}

#[test]
fn frames_of_av1_are_seamless() {
    let picture = Picture { encoder: "-c:v libsvtav1 -preset 12 -svtav1-params lp=1", ..PAL };
    assert_frames_are_seamless(&picture, &[20, 25]);

    let folder = TempDir::new().unwrap();
    let track = picture.runs(&folder, &[20]).remove(0);
    assert!(track.codec.starts_with("av01.0.0"), "{}", track.codec);
}

/// Three seconds and a bit of stereo: 147 packets with the one of priming.
fn sound(folder: &Path, codec: &str) -> PathBuf {
    let path = folder.join("sound.mp4");
    let source = "-f lavfi -i sine=r=48000:d=3.12 -ac 2";
    ffmpeg(&format!("{source} -c:a {codec} -frag_duration 1000000 {FRAGMENTED} {}", path.display()));
    path
}

fn cut_sound(packets: u64) -> CutAudio {
    let starts = vec![0, 30 * 1001, 60 * 1001, 90 * 1001];
    CutAudio { name: "audio-en".parse().unwrap(), priming: 1, packets, starts, clock: 30_000 }
}

#[test]
fn sound_begins_at_zero_and_is_cut_near_the_segments_of_the_picture() {
    let folder = TempDir::new().unwrap();
    let file = sound(folder.path(), "aac");

    let track = cut_audio(&file, folder.path(), &cut_sound(147)).unwrap();
    let list = publish(folder.path(), &track);

    assert_eq!(track.codec, "mp4a.40.2");
    assert_eq!(track.shape, Shape::Audio { channels: 2, sample_rate: 48000 });
    let segments: Vec<_> = track.segments.iter().map(|s| (s.start / 1024, s.samples)).collect();
    assert_eq!(segments, [(0, 47), (47, 47), (94, 47), (141, 6)]);
    let expected: Vec<i64> = (0..147).map(|n| n * 1024).collect();
    assert_eq!(times(&list, "packet=pts"), expected);
    assert_decodes(&list);
    let wrong = cut_audio(&file, folder.path(), &cut_sound(150));
    assert!(matches!(wrong, Err(Error::Packets { found: 147, expected: 150 })));
}

#[test]
fn picture_and_sound_are_played_together_over_hls_and_dash() {
    let folder = TempDir::new().unwrap();
    let generation = folder.path().join("g3");
    fs::create_dir(&generation).unwrap();
    let file = NTSC.encode(folder.path(), 0, 93);
    let video = cut(&file, &generation, &NTSC.cut(0, 93)).unwrap();
    let track = cut_audio(&sound(folder.path(), "aac"), &generation, &cut_sound(147)).unwrap();
    publish(&generation, &video);
    publish(&generation, &track);
    let audio = vec![Sound { track, language: "en".into(), title: "English".into(), is_default: true }];
    let all = Presentation { video: vec![video], audio, subtitles: Vec::new() };

    let (hls, mpd) = (folder.path().join("master.m3u8"), folder.path().join("manifest.mpd"));
    fs::write(&hls, master::master(&all, "g3/")).unwrap();
    fs::write(&mpd, dash::mpd(&all, "g3/").unwrap()).unwrap();

    for list in [hls, mpd] {
        assert_decodes(&list);
        let counted = ["v", "a"].map(|kind| times_of(&list, kind, "packet=pts").len());
        assert_eq!(counted, [93, 147], "{}", list.display());
    }
}

#[test]
fn other_codecs_of_sound_are_named() {
    for (encoder, codec) in [("libopus", "opus"), ("aac -ac 6", "mp4a.40.2"), ("flac -strict -2", "fLaC")] {
        let folder = TempDir::new().unwrap();
        let file = sound(folder.path(), encoder);

        let reader = Reader::open(File::open(file).unwrap()).unwrap();

        let track = &reader.movie().tracks[0];
        let channels = if encoder.ends_with('6') { 6 } else { 2 };
        let expected = media::mp4::Entry::Audio { codec: codec.into(), channels, sample_rate: 48000 };
        assert_eq!(track.entry, Some(expected));
    }
}

#[test]
fn a_chunk_is_cut_at_its_place_on_the_grid() {
    let folder = TempDir::new().unwrap();
    let file = NTSC.encode(folder.path(), 60, 45);

    let track = cut(&file, folder.path(), &NTSC.cut(60, 45)).unwrap();

    let rate = "30000/1001".parse().unwrap();
    assert_eq!(track.shape, Shape::Video { width: 128, height: 72, frame_rate: rate });
    assert!(track.codec.starts_with("avc1.64"), "{}", track.codec);
    let segments: Vec<_> =
        track.segments.iter().map(|s| (s.number, s.start, s.duration, s.samples)).collect();
    assert_eq!(segments, [(2, 60 * 1001, 30 * 1001, 30), (3, 90 * 1001, 15 * 1001, 15)]);
    assert_eq!(track.segments[0].file.path, "72p/seg-00003.m4s");
    assert_eq!(track.segments[0].key_frames.len(), 2);
    assert_eq!(track.segments[0].key_frames[1].start, 75 * 1001);
}

#[test]
fn every_key_frame_can_be_read_alone() {
    let folder = TempDir::new().unwrap();
    let track = NTSC.runs(&folder, &[45]).remove(0);
    let init = fs::read(folder.path().join(&track.init.path)).unwrap();

    for segment in &track.segments {
        let bytes = fs::read(folder.path().join(&segment.file.path)).unwrap();
        for key in &segment.key_frames {
            let range = key.offset as usize..(key.offset + key.bytes) as usize;
            let alone = folder.path().join("alone.mp4");
            fs::write(&alone, [&init, &bytes[range]].concat()).unwrap();

            let pixels = folder.path().join("alone.yuv");
            ffmpeg(&format!("-i {} -frames:v 1 -f rawvideo {}", alone.display(), pixels.display()));
            assert_eq!(fs::metadata(pixels).unwrap().len(), 128 * 72 * 3 / 2);
        }
    }
}

#[test]
fn what_is_written_is_what_is_told() {
    let folder = TempDir::new().unwrap();
    let track = NTSC.runs(&folder, &[45]).remove(0);

    for file in track.files() {
        assert_eq!(&media::manifest::Artifact::of(folder.path(), &file.path).unwrap(), file);
    }
    let samples = samples(folder.path(), &track);
    let keys: Vec<_> = samples.iter().filter(|sample| sample.is_sync).map(|key| (key.dts, key.cts)).collect();
    let delay = (DELAY * 1001) as i32;
    assert_eq!(keys, [(0, delay), (15 * 1001, delay), (30 * 1001, delay)]);
    assert_eq!(samples.len(), 45);
}

#[test]
fn a_file_that_is_not_as_planned_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = NTSC.encode(folder.path(), 0, 45);
    let planned = NTSC.cut(0, 45);
    let cut = |plan: Cut| cut(&file, folder.path(), &plan).unwrap_err();

    let fewer = cut(Cut { frames: 44, ..planned.clone() });
    let slower = cut(Cut { ticks_per_frame: 1000, ..planned.clone() });
    let shorter = cut(Cut { frames_per_segment: 20, ..planned.clone() });
    let sound = cut_audio(&file, folder.path(), &cut_sound(45)).unwrap_err();

    assert!(matches!(fewer, Error::Frames { found: 45, expected: 44 }), "{fewer}");
    assert!(matches!(slower, Error::Uneven { frame: 0, found: 1001, expected: 1000 }), "{slower}");
    assert!(matches!(shorter, Error::NoKeyFrame { frame: 20 }), "{shorter}");
    assert!(matches!(sound, Error::Malformed(_)), "{sound}");
}

/// Reads to the end, as [`cut`] does, without writing.
fn walk(bytes: &[u8]) -> Result<usize, Error> {
    let mut reader = Reader::open(Cursor::new(bytes))?;
    let mut samples = 0;
    while let Some(fragment) = reader.next_fragment()? {
        samples += fragment.samples.len();
        assert!(fragment.samples.iter().all(|sample| sample.end() <= bytes.len() as u64));
    }
    Ok(samples)
}

#[test]
fn damaged_files_are_errors_and_never_a_panic() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(NTSC.encode(folder.path(), 0, 45)).unwrap();
    let heads: Vec<usize> = (0..whole.len()).filter(|at| is_head(&whole[*at..])).collect();
    let mut random = Random(7);

    for end in (0..whole.len()).step_by(97) {
        assert!(walk(&whole[..end]).is_err() || is_boundary(&whole, end), "cut off at {end}");
    }
    for _ in 0..20_000 {
        let mut damaged = whole.clone();
        for _ in 0..=random.below(3) {
            let near = heads[random.below(heads.len())];
            let at = (near + random.below(120)).min(whole.len() - 1);
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6)];
        }
        let _ = walk(&damaged);
    }
    for length in 0..500 {
        let noise: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let _ = walk(&noise);
        let _ = walk(&[&whole[..800], &noise].concat());
    }
}

#[test]
fn absurd_sizes_cost_no_memory() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read(PAL.encode(folder.path(), 0, 10)).unwrap();
    let run = whole.windows(4).position(|bytes| bytes == b"trun").unwrap();
    let mut billions = whole.clone();
    billions[run + 4..run + 12].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let mut huge = whole.clone();
    huge[28..36].copy_from_slice(b"\xff\xff\xff\xffmoov");
    let mut longest = whole.clone();
    longest.splice(28..28, *b"\0\0\0\x01free\xff\xff\xff\xff\xff\xff\xff\xff");

    for damaged in [billions, huge, longest] {
        assert!(matches!(walk(&damaged), Err(Error::Malformed(_))));
    }
}

fn is_head(bytes: &[u8]) -> bool {
    [b"moov", b"trak", b"mdhd", b"stsd", b"avcC", b"trex", b"moof", b"tfhd", b"trun"]
        .iter()
        .any(|kind| bytes.starts_with(*kind))
}

/// Whether a file that ends here is only shorter: after the `moov`, between boxes.
fn is_boundary(whole: &[u8], end: usize) -> bool {
    let mut at = 0;
    while at < end {
        at += u32::from_be_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    }
    at == end
}

/// A small generator: the same damage each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
