//! What `probe` makes of real files, each with one oddity, made by ffmpeg on the spot.

#![allow(clippy::unwrap_used)]

use media::probe::{self, Answer, Error, File, Looked, Unusable};
use media::ratio::Ratio;
use media::source::{DynamicRange, Source, Timing, Video};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PICTURE: &str = "testsrc=s=160x120:r=25:d=1";
const SOUND: &str = "sine=r=48000:d=1";
const X264: [&str; 6] = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"];

/// A folder of media that goes with the test.
struct Studio(tempfile::TempDir);

impl Studio {
    fn new() -> Self {
        Studio(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes `name` from generators with further options.
    fn shoot(&self, name: &str, generators: &[&str], options: &[&str]) -> PathBuf {
        let inputs: Vec<&str> = generators.iter().flat_map(|source| ["-f", "lavfi", "-i", source]).collect();
        self.ffmpeg(&[&inputs, options].concat(), name)
    }

    /// Makes `name` from another file without encoding it anew.
    fn copy(&self, from: &Path, name: &str, before: &[&str], after: &[&str]) -> PathBuf {
        let input = ["-i", from.to_str().unwrap()];
        self.ffmpeg(&[before, &input, &["-map", "0", "-c", "copy"], after].concat(), name)
    }

    fn ffmpeg(&self, options: &[&str], name: &str) -> PathBuf {
        let path = self.path(name);
        let start = ["-nostdin", "-v", "error", "-y", "-threads", "1"];
        let output = Command::new("ffmpeg").args(start).args(options).arg(&path).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }
}

fn run(command: &[String]) -> Output {
    Command::new(&command[0]).args(&command[1..]).output().unwrap()
}

fn answer<T>(output: &Output, read: impl FnOnce(&Answer<'_>) -> T) -> T {
    let stderr = String::from_utf8_lossy(&output.stderr);
    read(&Answer { stdout: &output.stdout, stderr: &stderr, succeeded: output.status.success() })
}

fn probe(path: &Path) -> Result<Source, Error> {
    let mut head = Vec::new();
    fs::File::open(path).unwrap().take(1024).read_to_end(&mut head).unwrap();
    let input = path.to_str().unwrap();
    let file = File { input, bytes: fs::metadata(path).unwrap().len(), head: &head };
    let looked = answer(&run(&probe::look(input)), |answer| Looked::read(&file, answer))?;
    answer(&run(&looked.scan()), |answer| looked.finish(answer))
}

fn source(path: &Path) -> Source {
    probe(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn video(path: &Path) -> Video {
    source(path).video.unwrap()
}

fn timing(path: &Path) -> Timing {
    video(path).timing
}

fn unusable(path: &Path) -> Unusable {
    match probe(path) {
        Err(Error::Unusable(unusable)) => unusable,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn ratio(text: &str) -> Ratio {
    text.parse().unwrap()
}

fn is_near(a: f64, b: f64, by: f64) -> bool {
    (a - b).abs() <= by
}

#[test]
fn a_plain_file_is_described_whole() {
    let studio = Studio::new();
    let file = studio.shoot("plain.mp4", &[PICTURE, SOUND], &X264);

    let source = source(&file);

    let video = source.video.as_ref().unwrap();
    assert!(source.container.contains("mp4"));
    assert_eq!(source.bytes, fs::metadata(&file).unwrap().len());
    assert_eq!((video.stream, video.codec.as_str()), (0, "h264"));
    assert_eq!((video.width, video.height, video.rotation, video.bit_depth), (160, 120, 0, 8));
    assert_eq!(video.color.range, DynamicRange::Sdr);
    assert!(!video.is_interlaced);
    assert_eq!((video.timing.rate, video.timing.frames, video.timing.held), (ratio("25"), 25, 0));
    assert!(video.timing.is_one_to_one && video.timing.can_seek);
    let [audio] = &source.audio[..] else { panic!("{:?}", source.audio) };
    assert_eq!((audio.codec.as_str(), audio.channels, audio.sample_rate), ("aac", 1, 48_000));
    assert_eq!((audio.language.as_str(), audio.layout.as_deref()), ("und", Some("mono")));
    assert!(is_near(audio.start, 0.0, 0.001) && is_near(audio.duration, 1.0, 0.03), "{audio:?}");
    assert_eq!(source.notes, Vec::<String>::new());
}

#[test]
fn a_name_is_only_a_name() {
    let studio = Studio::new();
    let plain = studio.shoot("plain.mp4", &[PICTURE], &X264);
    for name in
        ["-i", "concat:a|b.mp4", "100%03d.mp4", "new\nline.mp4", "no extension", "wrong.txt", "ümläut 视频"]
    {
        fs::copy(&plain, studio.path(name)).unwrap();

        assert_eq!(timing(&studio.path(name)).frames, 25, "{name:?}");
    }
}

#[test]
fn all_eight_orientations_are_as_ffmpeg_shows_them() {
    let studio = Studio::new();
    let upright =
        fs::read(studio.shoot("upright.mp4", &[PICTURE], &[&X264[..], &["-frames:v", "2"]].concat()))
            .unwrap();
    for (a, b, c, d) in [
        (1, 0, 0, 1),
        (0, 1, -1, 0),
        (-1, 0, 0, -1),
        (0, -1, 1, 0),
        (-1, 0, 0, 1),
        (1, 0, 0, -1),
        (0, 1, 1, 0),
        (0, -1, -1, 0),
    ] {
        let turned = studio.write("turned.mp4", &turn(&upright, [a, b, c, d]));
        let picture =
            fs::read(studio.ffmpeg(&["-i", turned.to_str().unwrap(), "-frames:v", "1"], "shown.ppm"))
                .unwrap();

        let video = video(&turned);

        let size = format!("P6\n{} {}\n", video.width, video.height);
        assert!(picture.starts_with(size.as_bytes()), "{:?}: {size}", (a, b, c, d));
        assert_eq!(video.rotation % 180 == 90, a == 0, "{:?}", (a, b, c, d));
    }
    let clockwise = studio.write("turned.mp4", &turn(&upright, [0, 1, -1, 0]));
    assert_eq!(video(&clockwise).rotation, 90);
}

/// The file with another matrix in the header of its only track.
fn turn(mp4: &[u8], matrix: [i32; 4]) -> Vec<u8> {
    let entries =
        |[a, b, c, d]: [i32; 4]| [a << 16, b << 16, 0, c << 16, d << 16, 0].map(i32::to_be_bytes).concat();
    let track = mp4.windows(4).position(|four| four == b"tkhd").unwrap();
    let identity = entries([1, 0, 0, 1]);
    let at = track + mp4[track..].windows(identity.len()).position(|found| found == identity).unwrap();
    [&mp4[..at], &entries(matrix), &mp4[at + identity.len()..]].concat()
}

#[test]
fn pixels_are_square_and_sizes_may_be_odd() {
    let studio = Studio::new();
    for (aspect, expected) in [("2/1", (320, 120)), ("1/2", (160, 240)), ("16/11", (233, 120))] {
        let filter = format!("setsar={aspect}");
        let oblong = studio.shoot("oblong.mp4", &[PICTURE], &[&X264[..], &["-vf", &filter]].concat());
        let video = video(&oblong);
        assert_eq!((video.width, video.height, video.sample_aspect), (expected.0, expected.1, ratio(aspect)));
    }

    let odd = studio.shoot(
        "odd.webm",
        &["testsrc=s=161x121:r=25:d=0.4"],
        &["-c:v", "libvpx", "-deadline", "realtime"],
    );
    let video = video(&odd);
    assert_eq!((video.width, video.height), (161, 121));
}

#[test]
fn even_rates_are_found_exactly() {
    let studio = Studio::new();
    for (rate, name) in [
        ("30000/1001", "a.mp4"),
        ("30000/1001", "a.ts"),
        ("24000/1001", "a.mkv"),
        ("60000/1001", "a.mkv"),
        ("24", "a.mkv"),
        ("50", "a.flv"),
        ("25/2", "a.mp4"),
        ("47/2", "a.mp4"),
    ] {
        let generator = format!("testsrc=s=64x48:r={rate}:d=3");
        let file = studio.shoot(name, &[&generator], &X264);

        let timing = timing(&file);

        assert_eq!(timing.rate, ratio(rate), "{name}");
        assert!(timing.is_one_to_one && timing.can_seek, "{rate} {name} {timing:?}");
        assert_eq!(
            (timing.frames, timing.source_frames),
            (timing.source_frames, (3.0 * ratio(rate).to_f64()).round() as u64)
        );
    }
}

#[test]
fn too_many_frames_a_second_are_halved() {
    let studio = Studio::new();
    let file = studio.shoot("fast.mp4", &["testsrc=s=64x48:r=120:d=1"], &X264);

    let timing = timing(&file);

    assert_eq!((timing.rate, timing.frames, timing.source_frames), (ratio("60"), 60, 120));
    assert!(!timing.is_one_to_one);
}

#[test]
fn variable_rates_become_constant_and_keep_their_duration() {
    let studio = Studio::new();
    // The first second whole, of the second only each fifth frame.
    let uneven = ["-vf", "select='lt(n,30)+not(mod(n,5))'", "-fps_mode", "vfr"];
    for name in ["uneven.mkv", "uneven.mp4"] {
        let file = studio.shoot(name, &["testsrc=s=64x48:r=30:d=2"], &[&X264[..], &uneven].concat());

        let timing = timing(&file);

        assert_eq!(
            (timing.rate, timing.source_frames, timing.is_one_to_one),
            (ratio("30"), 36, false),
            "{name}"
        );
        assert!(is_near(timing.duration(), 2.0, 0.17), "{name}: {timing:?}");
    }
}

#[test]
fn the_clock_may_start_anywhere() {
    let studio = Studio::new();
    let plain = studio.shoot("plain.ts", &[PICTURE, SOUND], &X264);
    let late = studio.copy(&plain, "late.ts", &[], &["-output_ts_offset", "3600", "-muxdelay", "0"]);

    let source = source(&late);

    let timing = &source.video.as_ref().unwrap().timing;
    assert!(is_near(timing.first_seconds(), 3600.0, 0.2), "{timing:?}");
    assert!(is_near(source.start, 3600.0, 0.2) && is_near(source.audio[0].start, 3600.0, 0.2));
    assert_eq!((timing.frames, timing.can_seek), (25, true));
    assert_eq!(source.notes, Vec::<String>::new());
}

#[test]
fn a_torn_recording_is_one_recording() {
    let studio = Studio::new();
    let plain = studio.shoot("plain.ts", &[PICTURE, SOUND], &X264);
    let late = studio.copy(&plain, "late.ts", &[], &["-output_ts_offset", "50000"]);
    let torn = [&late, &plain, &late].map(|part| fs::read(part).unwrap()).concat();

    let source = source(&studio.write("torn.ts", &torn));

    let timing = &source.video.as_ref().unwrap().timing;
    assert!((74..=76).contains(&timing.source_frames), "{timing:?}");
    assert!(is_near(timing.duration(), 3.0, 0.2) && !timing.can_seek, "{timing:?}");
    assert!(is_near(source.audio[0].duration, 3.0, 0.2), "{:?}", source.audio);
    assert_eq!(source.notes, ["the clock leaps within the file, which is encoded in one piece"]);
}

#[test]
fn frames_cut_off_by_an_edit_list_are_not_frames() {
    let studio = Studio::new();
    let long = studio.shoot(
        "long.mp4",
        &["testsrc=s=64x48:r=25:d=2"],
        &[&X264[..], &["-g", "50", "-bf", "2"]].concat(),
    );
    let cut = studio.copy(&long, "cut.mp4", &["-ss", "0.8"], &[]);

    let timing = timing(&cut);

    assert!((29..=31).contains(&timing.frames), "{timing:?}");
    assert!(timing.is_one_to_one && is_near(timing.first_seconds(), 0.0, 0.041));
}

#[test]
fn frames_are_measured_by_when_they_are_shown() {
    let studio = Studio::new();
    let options = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "3"];
    let file = studio.shoot("reordered.mp4", &[PICTURE], &options);

    let timing = timing(&file);

    assert_eq!((timing.frames, timing.first), (25, 0));
    assert!(timing.reorder_seconds > 0.07 && timing.reorder_seconds < 0.3, "{timing:?}");
}

#[test]
fn fields_and_colours_are_recognised() {
    let studio = Studio::new();
    let fields = ["-vf", "interlace", "-flags", "+ilme+ildct", "-c:v", "mpeg2video"];
    assert!(video(&studio.shoot("fields.ts", &["testsrc=s=160x120:r=50:d=1"], &fields)).is_interlaced);

    let tags = "colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:hdr10=1:log-level=none:pools=1:frame-threads=1";
    let hdr = [
        "-c:v",
        "libx265",
        "-preset",
        "ultrafast",
        "-pix_fmt",
        "yuv420p10le",
        "-tag:v",
        "hvc1",
        "-x265-params",
        tags,
    ];
    let hdr = video(&studio.shoot("hdr.mp4", &["testsrc=s=160x120:r=25:d=0.4"], &hdr));
    assert_eq!((hdr.codec.as_str(), hdr.bit_depth, hdr.color.range), ("hevc", 10, DynamicRange::Pq));
    assert_eq!(hdr.color.primaries.as_deref(), Some("bt2020"));
}

#[test]
fn sound_tracks_keep_their_languages_and_channels() {
    let studio = Studio::new();
    let surround = "sine=r=48000:d=1,pan=5.1|c0=c0|c1=c0|c2=c0|c3=c0|c4=c0|c5=c0";
    let options = [
        "-map",
        "0",
        "-map",
        "1",
        "-map",
        "2",
        "-metadata:s:a:0",
        "language=ger",
        "-metadata:s:a:1",
        "language=eng",
    ];
    let titled =
        ["-metadata:s:a:1", "title=Commentary", "-disposition:a:0", "0", "-disposition:a:1", "default"];
    let file = studio.shoot("two.mkv", &[PICTURE, surround, SOUND], &[&X264[..], &options, &titled].concat());

    let source = source(&file);

    let [german, english] = &source.audio[..] else { panic!("{:?}", source.audio) };
    assert_eq!((german.language.as_str(), german.channels, german.is_default), ("de", 6, false));
    assert_eq!((english.language.as_str(), english.channels, english.is_default), ("en", 1, true));
    assert!(german.layout.as_deref().unwrap().starts_with("5.1"));
    assert_eq!(english.title.as_deref(), Some("Commentary"));
}

#[test]
fn sound_and_picture_may_be_of_different_length() {
    let studio = Studio::new();
    let longer = source(&studio.shoot("longer.mp4", &[PICTURE, "sine=r=48000:d=3"], &X264));
    let timing = &longer.video.as_ref().unwrap().timing;
    assert!((50..=52).contains(&timing.held) && timing.frames == 25 + timing.held, "{timing:?}");
    assert!(longer.notes[0].contains("its last frame is held"), "{:?}", longer.notes);

    let shorter = source(&studio.shoot("shorter.mp4", &["testsrc=s=64x48:r=25:d=2", SOUND], &X264));
    assert_eq!(shorter.video.as_ref().unwrap().timing.frames, 50);
    assert!(shorter.notes[0].contains("ends 1.0 s before the picture"), "{:?}", shorter.notes);

    let song = studio.shoot("song.mp4", &["color=s=64x48:r=25:d=0.04", "sine=r=48000:d=3"], &X264);
    let song = source(&song);
    assert!(is_near(song.duration(), 3.0, 0.1), "{song:?}");
    assert_eq!(song.video.unwrap().timing.source_frames, 1);
}

#[test]
fn sound_alone_is_enough_and_so_is_a_picture() {
    let studio = Studio::new();
    let song = source(&studio.shoot("song.m4a", &[SOUND], &[]));
    assert!(song.video.is_none() && is_near(song.duration(), 1.0, 0.05));
    assert!(source(&studio.shoot("silent.mp4", &[PICTURE], &X264)).audio.is_empty());

    let cover =
        ["-map", "0", "-map", "1", "-frames:v", "1", "-c:v", "mjpeg", "-disposition:v", "attached_pic"];
    let covered = source(&studio.shoot("covered.m4a", &[SOUND, PICTURE], &cover));
    assert!(covered.video.is_none() && covered.audio.len() == 1);
    assert!(is_near(covered.duration(), 1.0, 0.05));
    assert_eq!(covered.notes, ["the cover picture is left out"]);

    let cover = ["-frames:v", "1", "-c:v", "mjpeg", "-disposition:v", "attached_pic"];
    assert_eq!(unusable(&studio.shoot("cover.mp4", &[PICTURE], &cover)), Unusable::CoverOnly);
}

#[test]
fn one_frame_is_a_video() {
    let studio = Studio::new();
    for name in ["one.mp4", "one.mkv", "one.ts"] {
        let timing = timing(&studio.shoot(name, &[PICTURE], &[&X264[..], &["-frames:v", "1"]].concat()));

        assert_eq!((timing.frames, timing.source_frames, timing.rate), (1, 1, ratio("25")), "{name}");
    }
}

#[test]
fn of_several_pictures_the_default_is_taken() {
    let studio = Studio::new();
    let options = ["-map", "0", "-map", "1", "-disposition:v:0", "0", "-disposition:v:1", "default"];
    let generators = ["testsrc=s=320x240:r=25:d=1", PICTURE];
    let file = studio.shoot("two.mkv", &generators, &[&X264[..], &options].concat());
    let source_of_default = source(&file);
    assert_eq!(source_of_default.video.unwrap().stream, 1);
    assert_eq!(source_of_default.notes, ["another picture stream is left out"]);

    let file =
        studio.copy(&file, "none.mkv", &[], &["-disposition:v:1", "0", "-default_mode", "passthrough"]);
    assert_eq!(source(&file).video.unwrap().width, 320);
}

#[test]
fn subtitles_and_chapters_come_along() {
    let studio = Studio::new();
    let words = studio.write("words.srt", b"1\n00:00:00,100 --> 00:00:00,900\nhello\n");
    let chapters = b";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=400\ntitle=One\n[CHAPTER]\nTIMEBASE=1/1000\n\
                     START=400\nEND=1000\ntitle=Two\n";
    let chapters = studio.write("chapters.txt", chapters);
    let plain = studio.shoot("plain.mp4", &[PICTURE, SOUND], &X264);
    for (name, codec) in [("all.mkv", "subrip"), ("all.mp4", "mov_text")] {
        let inputs = [&plain, &words, &chapters].map(|path| path.to_str().unwrap());
        let [a, b, c] = inputs;
        let options =
            ["-i", a, "-i", b, "-i", c, "-map", "0", "-map", "1", "-map_metadata", "2", "-c", "copy"];
        let file = studio
            .ffmpeg(&[&options[..], &["-c:s", codec, "-metadata:s:s:0", "language=fre"]].concat(), name);

        let source = source(&file);

        let [subtitle] = &source.subtitles[..] else { panic!("{:?}", source.subtitles) };
        assert_eq!(
            (subtitle.codec.as_str(), subtitle.language.as_str(), subtitle.is_text),
            (codec, "fr", true)
        );
        let [one, two] = &source.chapters[..] else { panic!("{:?}", source.chapters) };
        assert_eq!((one.title.as_str(), two.title.as_str()), ("One", "Two"));
        // In the one container the picture begins a little later than the clock.
        assert!(is_near(one.end, 0.4, 0.03) && one.end == two.start, "{:?}", source.chapters);
        assert!(is_near(two.end, 1.0, 0.03), "{:?}", source.chapters);
    }
}

#[test]
fn a_header_need_not_know_the_duration() {
    let studio = Studio::new();
    let vp8 = ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus", "-live", "1"];
    let live = source(&studio.shoot("live.webm", &[PICTURE, SOUND], &vp8));
    assert_eq!(live.video.as_ref().unwrap().timing.frames, 25);
    assert!(is_near(live.audio[0].duration, 1.0, 0.05));

    for name in ["raw.h264", "b-frames.avi"] {
        let generator = "testsrc=s=64x48:r=30000/1001:d=1";
        let timing = timing(&studio.shoot(
            name,
            &[generator],
            &["-c:v", "libx264", "-preset", "veryfast", "-bf", "2"],
        ));
        assert_eq!((timing.rate, timing.frames, timing.can_seek), (ratio("30000/1001"), 30, false), "{name}");
    }
}

#[test]
fn what_is_cut_short_is_told() {
    let studio = Studio::new();
    let whole = studio.shoot("whole.mkv", &["testsrc2=s=320x240:r=25:d=3"], &X264);
    let bytes = fs::read(&whole).unwrap();
    let cut = source(&studio.write("cut.mkv", &bytes[..bytes.len() / 3]));
    assert!(cut.duration() < 1.9, "{cut:?}");
    assert!(cut.notes.iter().any(|note| note.contains("may be cut short")), "{:?}", cut.notes);

    let whole = fs::read(studio.shoot("whole.mp4", &[PICTURE], &X264)).unwrap();
    assert_eq!(unusable(&studio.write("cut.mp4", &whole[..whole.len() / 2])), Unusable::Unfinished);
}

#[test]
fn what_is_no_video_is_refused_in_words() {
    let studio = Studio::new();
    let playlist = b"#EXTM3U\n#EXTINF:5,\nhttp://localhost:1/a.ts\n#EXT-X-ENDLIST\n";
    let picture = studio.shoot("still.png", &[PICTURE], &["-frames:v", "1"]);
    let subtitles = b"1\n00:00:00,100 --> 00:00:00,900\nhello\n";
    for (name, content, expected) in [
        ("empty.mp4", &b""[..], Unusable::Empty),
        ("text.mp4", b"hello, this is a letter and not a video\n", Unusable::NotMedia),
        ("text", b"hello, this is a letter and not a video\n", Unusable::NotMedia),
        ("program.mp4", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", Unusable::NotMedia),
        ("subtitles.mp4", subtitles, Unusable::NotMedia),
        ("list.mp4", playlist, Unusable::Playlist),
        ("list.m3u8", playlist, Unusable::Playlist),
        ("joined.mp4", b"ffconcat version 1.0\nfile /etc/hostname\n", Unusable::Playlist),
        ("manifest.mpd", b"<?xml version='1.0'?>\n<MPD></MPD>", Unusable::Playlist),
        ("still.mp4", &fs::read(picture).unwrap(), Unusable::StillPicture),
    ] {
        assert_eq!(unusable(&studio.write(name, content)), expected, "{name}");
    }

    let missing = answer(&run(&probe::look("/nowhere/at/all.mp4")), |answer| {
        Looked::read(&File { input: "/nowhere/at/all.mp4", bytes: 1, head: b"" }, answer).map(|_| ())
    });
    assert_eq!(missing, Err(Error::Failed("No such file or directory".into())));
}

#[test]
fn a_file_cannot_make_ffprobe_open_another() {
    let studio = Studio::new();
    let plain = studio.shoot("plain.ts", &[PICTURE], &X264);
    let list = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n", plain.display());
    for name in ["list.m3u8", "list.mp4", "list.ts"] {
        let list = studio.write(name, list.as_bytes());

        let output = run(&probe::look(list.to_str().unwrap()));

        assert!(!output.status.success(), "{name}");
    }
}

#[test]
fn the_encrypted_is_refused() {
    let studio = Studio::new();
    let key = ["-encryption_scheme", "cenc-aes-ctr", "-encryption_key", "76a6c65c5ea762046bd749a2e632ccbb"];
    let id = ["-encryption_kid", "a7e61c373e219033c21091fa607bf3b8"];

    let file = studio.shoot("secret.mp4", &[PICTURE, SOUND], &[&X264[..], &key, &id].concat());

    assert_eq!(unusable(&file), Unusable::Encrypted);
}

#[test]
fn a_codec_nobody_knows_is_named() {
    let studio = Studio::new();
    let mut bytes = fs::read(studio.shoot("known.mp4", &[PICTURE], &X264)).unwrap();
    let at = bytes.windows(4).rposition(|four| four == b"avc1").unwrap();
    bytes[at..at + 4].copy_from_slice(b"vvc1");

    let refused = unusable(&studio.write("unknown.mp4", &bytes));

    assert_eq!(refused, Unusable::UnknownCodec { what: "picture", codec: "VVC (H.266)".into() });
    assert!(refused.to_string().contains("VVC (H.266)"));
}

#[test]
fn no_frame_is_no_video() {
    let studio = Studio::new();
    let index_first = [&X264[..], &["-movflags", "+faststart"]].concat();
    let whole = fs::read(studio.shoot("whole.mp4", &[PICTURE], &index_first)).unwrap();
    let content = whole.windows(4).position(|four| four == b"mdat").unwrap() + 4;

    let none = studio.write("none.mp4", &whole[..content]);

    assert_eq!(unusable(&none), Unusable::NoFrames);
}
