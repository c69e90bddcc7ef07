//! The checker on streams that plain ffmpeg made: it lets good ones pass, and each rule is seen to bite on a copy that
//! was broken on purpose.

#![allow(clippy::unwrap_used)]

use media::check::{Check, Expect, Outcome, RULES, Verdict};
use media::manifest::Artifact;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

const VIDEO: &str = "testsrc2=size=320x180:rate=25:duration=14";
const SOUND: &str = "sine=frequency=440:sample_rate=48000:duration=14";
const X264: &[&str] = &[
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-bf",
    "2",
    "-g",
    "50",
    "-keyint_min",
    "50",
    "-sc_threshold",
    "0",
    "-pix_fmt",
    "yuv420p",
];
const HLS: &[&str] =
    &["-f", "hls", "-hls_time", "6", "-hls_playlist_type", "vod", "-hls_flags", "independent_segments"];
const FMP4: &[&str] = &[
    "-hls_segment_type",
    "fmp4",
    "-hls_segment_options",
    "movflags=+negative_cts_offsets",
    "-hls_fmp4_init_filename",
    "init.mp4",
    "-hls_segment_filename",
];

fn ffmpeg(folder: &Path, args: &[&[&str]]) {
    fs::create_dir_all(folder).unwrap();
    let mut command = Command::new("ffmpeg");
    command.current_dir(folder).args(["-nostdin", "-v", "error", "-y"]).args(args.concat());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Two sizes of picture and one sound, each a folder of fragmented MP4, with the playlist over them written from what
/// the checker measured.
fn demuxed() -> &'static Path {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let into = ["seg%d.m4s", "index.m3u8"];
        for (name, size, rate) in [("small", "160x90", "60k"), ("large", "320x180", "200k")] {
            let input = ["-f", "lavfi", "-i", VIDEO, "-s", size, "-b:v", rate];
            // The HLS muxer would delay pictures that are reordered, and so part them from the sound.
            ffmpeg(&root.join(name), &[&input, X264, &["-bf", "0"], HLS, FMP4, &into]);
        }
        let aac = ["-f", "lavfi", "-i", SOUND, "-ac", "2", "-c:a", "aac", "-b:a", "64k"];
        ffmpeg(&root.join("sound"), &[&aac, HLS, FMP4, &into]);
        add_subtitles(root);
        add_i_frames(&root.join("small"));
        fs::write(root.join("master.m3u8"), master(root)).unwrap();
        folder
    });
    made.path()
}

fn add_subtitles(root: &Path) {
    let folder = root.join("text");
    fs::create_dir_all(&folder).unwrap();
    let vtt = "WEBVTT\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000,MPEGTS:0\n\n00:01.000 --> 00:02.000\nhello\n";
    fs::write(folder.join("all.vtt"), vtt).unwrap();
    let playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:14\n#EXT-X-PLAYLIST-TYPE:VOD\n\
                    #EXTINF:14.0,\nall.vtt\n#EXT-X-ENDLIST\n";
    fs::write(folder.join("index.m3u8"), playlist).unwrap();
}

/// The first fragment of each segment, from its `moof` to the end of the file.
fn add_i_frames(folder: &Path) {
    let mut playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n#EXT-X-PLAYLIST-TYPE:VOD\n\
                        #EXT-X-I-FRAMES-ONLY\n#EXT-X-MAP:URI=\"init.mp4\"\n"
        .to_owned();
    for (segment, seconds) in [(0, 6), (1, 6), (2, 2)] {
        let content = fs::read(folder.join(format!("seg{segment}.m4s"))).unwrap();
        let moof = find(&content, b"moof") - 4;
        let bytes = content.len() - moof;
        playlist += &format!("#EXTINF:{seconds}.0,\n#EXT-X-BYTERANGE:{bytes}@{moof}\nseg{segment}.m4s\n");
    }
    fs::write(folder.join("iframes.m3u8"), playlist + "#EXT-X-ENDLIST\n").unwrap();
}

fn master(root: &Path) -> String {
    let measured = |name: &str| {
        let check = Check::open(&root.join(name).join("index.m3u8"), &Expect::default()).unwrap();
        check.verdict().measured.renditions[0].clone()
    };
    let sound = measured("sound");
    let mut text = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"English\",LANGUAGE=\"en\",DEFAULT=YES,URI=\"sound/index.m3u8\"\n\
        #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"English\",LANGUAGE=\"en\",URI=\"text/index.m3u8\"\n"
        .to_owned();
    for name in ["large", "small"] {
        let picture = measured(name);
        text += &format!(
            "#EXT-X-STREAM-INF:BANDWIDTH={},AVERAGE-BANDWIDTH={},CODECS=\"{},{}\",RESOLUTION={}x{},FRAME-RATE=25.000,AUDIO=\"a\",SUBTITLES=\"s\"\n\
             {name}/index.m3u8\n",
            picture.peak_bitrate + sound.peak_bitrate,
            picture.average_bitrate + sound.average_bitrate,
            picture.codec,
            sound.codec,
            picture.width.unwrap(),
            picture.height.unwrap(),
        );
    }
    text + "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=100000,URI=\"small/iframes.m3u8\"\n"
}

/// Sound and picture in one MPEG-TS.
fn muxed() -> &'static Path {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let inputs = ["-f", "lavfi", "-i", VIDEO, "-f", "lavfi", "-i", SOUND, "-b:v", "200k"];
        let aac = ["-ac", "2", "-c:a", "aac", "-b:a", "64k"];
        ffmpeg(
            folder.path(),
            &[&inputs, X264, &aac, HLS, &["-hls_segment_filename", "seg%d.ts", "index.m3u8"]],
        );
        folder
    });
    made.path()
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_into(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Everything, with decoding.
fn check(path: &Path, expect: &Expect) -> Verdict {
    let mut check = Check::open(path, expect).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    for decode in check.decodes(scratch.path()).unwrap() {
        let output = Command::new(&decode.argv[0]).args(&decode.argv[1..]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        check.decoded(&decode, &Outcome { is_success: output.status.success(), stderr });
    }
    check.verdict()
}

fn rules(verdict: &Verdict) -> BTreeSet<&'static str> {
    verdict.findings.iter().map(|finding| finding.rule).collect()
}

fn find(content: &[u8], what: &[u8]) -> usize {
    content.windows(what.len()).position(|window| window == what).unwrap()
}

fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = fs::read(file).unwrap();
    change(&mut content);
    fs::write(file, content).unwrap();
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_good_stream_of_fragmented_mp4_passes_and_is_measured() {
    let verdict = check(demuxed(), &Expect::default());

    assert_eq!(verdict.findings, []);
    let of = |name: &str| verdict.measured.renditions.iter().find(|one| one.name == name).unwrap();
    let large = of("large");
    assert_eq!((large.kind, large.frames, large.segments, large.width), ("video", 350, 3, Some(320)));
    assert!((large.duration - 14.0).abs() < 0.001);
    assert_eq!(
        (of("sound").kind, of("text").kind, of("small/iframes").kind),
        ("audio", "subtitles", "i_frames")
    );
    assert_eq!(verdict.measured.decoded, 6);
}

#[test]
fn a_good_stream_of_mpeg_ts_passes_and_is_measured() {
    let verdict = check(muxed(), &Expect::default());

    assert_eq!(verdict.findings, []);
    let one = &verdict.measured.renditions[0];
    assert_eq!((one.kind, one.frames, one.width, one.height), ("muxed", 350, Some(320), Some(180)));
    assert!(one.codec.starts_with("avc1.") && one.codec.contains(",mp4a.40.2"), "{}", one.codec);
    assert!((one.duration - 14.0).abs() < 0.001, "{}", one.duration);
}

/// Breaks a copy of a good stream, and returns the rules that bite.
fn broken(good: &Path, break_it: impl FnOnce(&Path)) -> BTreeSet<&'static str> {
    let copy = copy(good);
    break_it(copy.path());
    rules(&check(copy.path(), &Expect::default()))
}

type Break = (&'static str, fn(&Path));

fn each_bites(good: &Path, breaks: &[Break]) {
    for (rule, break_it) in breaks {
        assert!(RULES.iter().any(|known| known.id == *rule), "there is no rule {rule}");
        assert_eq!(broken(good, break_it), BTreeSet::from([*rule]));
    }
}

#[test]
fn files_and_lines_that_are_wrong_are_found() {
    each_bites(
        demuxed(),
        &[
            ("hls.segment-missing", |root| fs::remove_file(root.join("large/seg1.m4s")).unwrap()),
            ("hls.segment-missing", |root| fs::remove_file(root.join("large/seg2.m4s")).unwrap()),
            ("hls.playlist-missing", |root| fs::remove_file(root.join("sound/index.m3u8")).unwrap()),
            ("hls.uri-outside", |root| replace(&root.join("large/index.m3u8"), "seg1", "../../seg1")),
            ("hls.uri-outside", |root| {
                replace(&root.join("large/index.m3u8"), "seg1", "https://a.example/seg1")
            }),
            ("hls.not-a-playlist", |root| replace(&root.join("text/index.m3u8"), "#EXTM3U", "#EXTM3")),
            ("hls.syntax", |root| replace(&root.join("master.m3u8"), ",AVERAGE", ",,AVERAGE")),
            ("hls.version", |root| replace(&root.join("small/iframes.m3u8"), "VERSION:7", "VERSION:3")),
            ("hls.no-endlist", |root| replace(&root.join("large/index.m3u8"), "#EXT-X-ENDLIST\n", "")),
            ("apple.playlist-type", |root| replace(&root.join("large/index.m3u8"), "TYPE:VOD", "TYPE:EVENT")),
            ("hls.no-segments", |root| {
                replace(&root.join("small/iframes.m3u8"), "#EXTINF", "#EXT-X-ENDLIST\n\0");
                edit(&root.join("small/iframes.m3u8"), |text| text.truncate(find(text, b"\0")));
            }),
            ("hls.encrypted", |root| {
                let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-I-FRAMES-ONLY";
                replace(&root.join("small/iframes.m3u8"), "#EXT-X-I-FRAMES-ONLY", key);
            }),
            ("hls.playlist-too-large", |root| {
                edit(&root.join("small/iframes.m3u8"), |text| text.resize(17 << 20, b'#'));
            }),
            ("hls.range", |root| replace(&root.join("small/iframes.m3u8"), "BYTERANGE:", "BYTERANGE:9")),
            ("hls.group", |root| replace(&root.join("master.m3u8"), ",SUBTITLES=\"s\"", ",SUBTITLES=\"t\"")),
            ("hls.variant-attribute", |root| {
                replace(&root.join("master.m3u8"), "INF:BANDWIDTH", "INF:WIDTH")
            }),
        ],
    );
}

#[test]
fn segments_that_are_not_what_they_should_be_are_found() {
    each_bites(
        demuxed(),
        &[
            ("cmaf.segment", |root| {
                edit(&root.join("large/seg1.m4s"), |bytes| bytes.truncate(bytes.len() / 2))
            }),
            ("cmaf.segment", |root| edit(&root.join("sound/seg2.m4s"), |bytes| bytes.clear())),
            ("cmaf.init", |root| edit(&root.join("large/init.mp4"), |bytes| bytes.truncate(300))),
            ("cmaf.tfdt-gap", |root| {
                let (one, two) = (root.join("large/seg0.m4s"), root.join("large/seg1.m4s"));
                let first = fs::read(&one).unwrap();
                fs::copy(&two, &one).unwrap();
                fs::write(&two, first).unwrap();
                // Not what this is about: the first segment gives the stream its beginning.
                fs::remove_dir_all(root.join("sound")).unwrap();
                without_sound(root);
            }),
            ("cmaf.tfdt-gap", |root| edit(&root.join("large/seg1.m4s"), |bytes| shift_decode_time(bytes, 2))),
            ("cmaf.not-sync", |root| edit(&root.join("large/seg1.m4s"), |bytes| mark_as_not_sync(bytes))),
            ("decode.error", |root| edit(&root.join("large/seg0.m4s"), |bytes| spoil_media(bytes))),
            ("decode.error", |root| edit(&root.join("large/seg2.m4s"), |bytes| spoil_media(bytes))),
            ("hls.map-missing", |root| {
                replace(&root.join("sound/index.m3u8"), "#EXT-X-MAP", "#NO-MAP");
            }),
            ("apple.i-frame", |root| {
                replace(
                    &root.join("small/iframes.m3u8"),
                    "0,\n#EXT-X-BYTERANGE:",
                    "0,\n#EXT-X-BYTERANGE:40@4\nseg0.m4s\n#EXTINF:1,\n#EXT-X-BYTERANGE:",
                )
            }),
            ("apple.subtitle", |root| replace(&root.join("text/all.vtt"), "X-TIMESTAMP-MAP", "X-MAP")),
            ("apple.subtitles-cover", |root| replace(&root.join("text/index.m3u8"), "14.0", "9.0")),
        ],
    );
}

fn without_sound(root: &Path) {
    let master = root.join("master.m3u8");
    let text = fs::read_to_string(&master).unwrap();
    let text = text.replace(",AUDIO=\"a\"", "").replace(",mp4a.40.2", "");
    let is_sound = |line: &&str| !line.contains("TYPE=AUDIO");
    let text = text.lines().filter(is_sound).map(|line| format!("{line}\n")).collect::<String>();
    fs::write(&master, text).unwrap();
    let measured = |name: &str| {
        let check = Check::open(&root.join(name).join("index.m3u8"), &Expect::default()).unwrap();
        check.verdict().measured.renditions[0].clone()
    };
    for name in ["large", "small"] {
        let (own, rest) = (measured(name), fs::read_to_string(&master).unwrap());
        let mut lines: Vec<_> = rest.lines().map(str::to_owned).collect();
        let at = lines.iter().position(|line| *line == format!("{name}/index.m3u8")).unwrap() - 1;
        let kept = lines[at].split_once(",CODECS").unwrap().1.to_owned();
        let (peak, average) = (own.peak_bitrate, own.average_bitrate);
        lines[at] = format!("#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={average},CODECS{kept}");
        fs::write(&master, lines.join("\n")).unwrap();
    }
}

/// Of every fragment, so that the whole segment begins later.
fn shift_decode_time(bytes: &mut [u8], ticks: u64) {
    let fragments: Vec<_> = (4..bytes.len() - 4).filter(|at| &bytes[*at..*at + 4] == b"tfdt").collect();
    for at in fragments {
        let field = at + 8..at + 16;
        let time = u64::from_be_bytes(bytes[field.clone()].try_into().unwrap());
        bytes[field].copy_from_slice(&(time + ticks).to_be_bytes());
    }
}

fn mark_as_not_sync(bytes: &mut [u8]) {
    let trun = find(bytes, b"trun") + 4;
    let flags = u32::from_be_bytes(bytes[trun..trun + 4].try_into().unwrap());
    assert_eq!(flags & 0xf05, 0x601, "each sample has a size and flags");
    bytes[trun + 16..trun + 20].copy_from_slice(&0x0101_0000_u32.to_be_bytes());
}

fn spoil_media(bytes: &mut [u8]) {
    let start = find(bytes, b"mdat") + 200;
    let end = bytes.len().min(start + 3000);
    bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
}

#[test]
fn times_that_do_not_add_up_are_found() {
    each_bites(
        demuxed(),
        &[
            ("hls.extinf", |root| replace(&root.join("large/index.m3u8"), "EXTINF:6.0", "EXTINF:5.9")),
            ("hls.extinf-sum", |root| {
                let playlist = root.join("large/index.m3u8");
                for _ in 0..2 {
                    replace(&playlist, "EXTINF:6.000000", "EXTINF:5.970000");
                }
            }),
            ("hls.target-duration", |root| {
                replace(&root.join("small/iframes.m3u8"), "DURATION:6", "DURATION:5")
            }),
        ],
    );
    let targets =
        broken(demuxed(), |root| replace(&root.join("sound/index.m3u8"), "DURATION:6", "DURATION:7"));
    assert_eq!(targets, BTreeSet::from(["apple.targets-differ", "apple.segment-length"]));
}

#[test]
fn what_the_multivariant_playlist_claims_is_measured() {
    each_bites(
        demuxed(),
        &[
            ("apple.bandwidth", |root| {
                replace(&root.join("master.m3u8"), "INF:BANDWIDTH=", "INF:BANDWIDTH=1")
            }),
            ("apple.average-bandwidth", |root| {
                replace(&root.join("master.m3u8"), "AVERAGE-BANDWIDTH=", "AVERAGE-BANDWIDTH=1")
            }),
            ("apple.average-bandwidth", |root| replace(&root.join("master.m3u8"), "AVERAGE-BANDWIDTH", "X")),
            ("apple.codecs", |root| replace(&root.join("master.m3u8"), "\"avc1.", "\"avc1.7")),
            ("apple.codecs", |root| replace(&root.join("master.m3u8"), ",mp4a.40.2", "")),
            ("apple.resolution", |root| replace(&root.join("master.m3u8"), "320x180", "320x240")),
            ("apple.frame-rate", |root| replace(&root.join("master.m3u8"), "25.000", "29.970")),
            ("apple.language", |root| {
                replace(&root.join("master.m3u8"), "LANGUAGE=\"en\",DEFAULT", "DEFAULT")
            }),
            ("apple.independent-segments", |root| {
                replace(&root.join("master.m3u8"), "#EXT-X-INDEPENDENT-SEGMENTS\n", "");
                replace(&root.join("small/index.m3u8"), "#EXT-X-INDEPENDENT-SEGMENTS\n", "");
            }),
            ("apple.i-frames-missing", |root| {
                replace(&root.join("master.m3u8"), "#EXT-X-I-FRAME-STREAM-INF", "#NONE");
            }),
            ("apple.one-bitrate", |root| {
                let large = "large/index.m3u8\n";
                edit(&root.join("master.m3u8"), |text| {
                    let end = find(text, large.as_bytes()) + large.len();
                    let rest = text.split_off(end);
                    text.extend(&rest[find(&rest, b"#EXT-X-I-FRAME")..]);
                });
            }),
        ],
    );
}

#[test]
fn pictures_that_differ_are_found() {
    for (rule, encoder, length) in [
        ("hls.frames-unequal", &["-bf", "0", "-frames:v", "349"][..], "6"),
        ("apple.aligned", &["-bf", "0", "-g", "75", "-keyint_min", "75"], "3"),
        ("apple.key-frames", &["-bf", "0", "-g", "150", "-keyint_min", "150"], "6"),
        ("apple.frame-rate-high", &["-bf", "0", "-r", "100", "-g", "200", "-keyint_min", "200"], "6"),
        ("hls.sound-length", &["-bf", "2"], "6"),
    ] {
        let found = broken(demuxed(), |root| {
            fs::remove_dir_all(root.join("large")).unwrap();
            let input = ["-f", "lavfi", "-i", VIDEO];
            let into = ["seg%d.m4s", "-hls_time", length, "index.m3u8"];
            ffmpeg(&root.join("large"), &[&input, X264, encoder, HLS, FMP4, &into]);
        });

        assert!(found.contains(rule), "{rule}: {found:?}");
    }
}

#[test]
fn codecs_and_colours_that_players_stumble_over_are_found() {
    let pq = ["-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc"];
    for (rule, encoder) in [
        ("apple.hevc", &["-c:v", "libx265", "-tag:v", "hev1", "-x265-params", "log-level=none"][..]),
        ("apple.in-band-parameters", &["-tag:v", "avc3"]),
        ("apple.video-range", &pq),
    ] {
        let found = broken(demuxed(), |root| {
            fs::remove_dir_all(root.join("large")).unwrap();
            let input = ["-f", "lavfi", "-i", VIDEO];
            let into = ["seg%d.m4s", "index.m3u8"];
            ffmpeg(&root.join("large"), &[&input, X264, encoder, HLS, FMP4, &into]);
        });
        assert!(found.contains(rule), "{rule}: {found:?}");
    }

    let surround = broken(demuxed(), |root| {
        fs::remove_dir_all(root.join("sound")).unwrap();
        let aac = ["-f", "lavfi", "-i", SOUND, "-ac", "6", "-c:a", "aac"];
        ffmpeg(&root.join("sound"), &[&aac, HLS, FMP4, &["seg%d.m4s", "index.m3u8"]]);
    });
    assert!(surround.contains("apple.stereo-aac"), "{surround:?}");

    let first =
        broken(demuxed(), |root| replace(&root.join("master.m3u8"), "INF:BANDWIDTH=", "INF:BANDWIDTH=9"));
    assert_eq!(first, BTreeSet::from(["apple.bandwidth", "apple.first-variant"]));
}

#[test]
fn segments_of_mpeg_ts_are_looked_into() {
    each_bites(
        muxed(),
        &[
            ("hls.segment-missing", |root| fs::remove_file(root.join("seg1.ts")).unwrap()),
            ("ts.segment", |root| edit(&root.join("seg1.ts"), |bytes| bytes.truncate(bytes.len() - 100))),
            ("ts.segment", |root| edit(&root.join("seg1.ts"), |bytes| bytes[188 * 7] = 0)),
            ("ts.segment", |root| edit(&root.join("seg1.ts"), |bytes| drop(bytes.drain(..188 * 3)))),
            ("hls.extinf", |root| replace(&root.join("index.m3u8"), "EXTINF:6.0", "EXTINF:5.9")),
            ("ts.gap", |root| {
                let (one, two) = (root.join("seg0.ts"), root.join("seg1.ts"));
                let first = fs::read(&one).unwrap();
                fs::copy(&two, &one).unwrap();
                fs::write(&two, first).unwrap();
            }),
            ("apple.independent-segments", |root| {
                replace(&root.join("index.m3u8"), "#EXT-X-INDEPENDENT-SEGMENTS\n", "");
            }),
        ],
    );
}

#[test]
fn a_segment_of_mpeg_ts_that_begins_between_key_frames_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let input = ["-f", "lavfi", "-i", VIDEO];
    let cut =
        ["-hls_flags", "split_by_time", "-hls_time", "5", "-hls_segment_filename", "seg%d.ts", "index.m3u8"];
    ffmpeg(folder.path(), &[&input, X264, HLS, &cut]);

    let found = rules(&Check::open(folder.path(), &Expect::default()).unwrap().verdict());

    assert!(found.contains("ts.not-sync"), "{found:?}");
}

type Change = fn(&mut Expect);

#[test]
fn our_own_output_is_held_to_its_manifest_and_its_plan() {
    let own = copy(demuxed());
    let files = ["large", "small", "sound"].iter().flat_map(|name| {
        ["init.mp4", "index.m3u8", "seg0.m4s", "seg1.m4s", "seg2.m4s"].map(|file| format!("{name}/{file}"))
    });
    let others = ["master.m3u8", "text/index.m3u8", "text/all.vtt", "small/iframes.m3u8"].map(str::to_owned);
    let artifacts: Vec<_> =
        files.chain(others).map(|path| Artifact::of(own.path(), &path).unwrap()).collect();
    let frames = BTreeMap::from([("large".to_owned(), 350), ("small".to_owned(), 350)]);
    let expect = Expect { frames, duration: Some(14.0), artifacts: artifacts.clone(), ..Expect::default() };

    let verdict = check(own.path(), &expect);

    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.measured.files_proved, artifacts.len() as u64);
    let proof = verdict.proof(&artifacts, &BTreeMap::from([("ffmpeg".into(), "5.1".into())]));
    assert_eq!((&proof["is_good"], &proof["files"]), (&true.into(), &19.into()));
    assert_eq!(proof["renditions"]["large/index.m3u8"]["frames"], 350);

    let wrong: [(&str, Change); 6] = [
        ("gate.frames", |expect| expect.frames.extend([("small".into(), 351)])),
        ("gate.rendition", |expect| expect.frames.extend([("1080p".into(), 350)])),
        ("gate.duration", |expect| expect.duration = Some(14.1)),
        ("gate.size", |expect| expect.artifacts[3].bytes += 1),
        ("gate.hash", |expect| expect.artifacts[4].sha256 = "00".repeat(32)),
        ("gate.missing", |expect| expect.artifacts[4].path = "large/seg9.m4s".parse().unwrap()),
    ];
    for (rule, change) in wrong {
        let mut expect = expect.clone();
        change(&mut expect);
        let found = rules(&Check::open(own.path(), &expect).unwrap().verdict());
        assert!(found.contains(rule), "{rule}: {found:?}");
    }

    fs::write(own.path().join("left-over"), "").unwrap();
    let verdict = Check::open(own.path(), &expect).unwrap().verdict();
    assert!(verdict.is_good());
    assert_eq!(rules(&verdict), BTreeSet::from(["gate.unlisted"]));
}

/// As a remote worker could send it: right but for what players are told beside the picture.
#[test]
fn our_own_pictures_are_upright_and_alone() {
    let found = |break_it: &dyn Fn(&Path)| {
        let own = copy(demuxed());
        break_it(own.path());
        let frames = BTreeMap::from([("large".to_owned(), 350), ("small".to_owned(), 350)]);
        let verdict = Check::open(own.path(), &Expect { frames, ..Expect::default() }).unwrap().verdict();
        rules(&verdict).into_iter().filter(|rule| rule.starts_with("gate.")).collect::<Vec<_>>()
    };
    assert!(found(&|_| {}).is_empty());

    for (kind, matrix) in [(b"tkhd", 40), (b"mvhd", 36)] {
        let turned = found(&|root| {
            edit(&root.join("large/init.mp4"), |bytes| {
                let at = find(bytes, kind) + 4 + matrix;
                // Upside down.
                bytes[at..at + 4].copy_from_slice(&(-0x1_0000_i32).to_be_bytes());
                bytes[at + 16..at + 20].copy_from_slice(&(-0x1_0000_i32).to_be_bytes());
            });
        });
        assert_eq!(turned, ["gate.turned"]);
    }
    let with_passenger = found(&|root| {
        fs::remove_dir_all(root.join("large")).unwrap();
        let input = ["-f", "lavfi", "-i", VIDEO, "-f", "lavfi", "-i", SOUND, "-s", "320x180", "-b:v", "200k"];
        let into = ["seg%d.m4s", "index.m3u8"];
        ffmpeg(&root.join("large"), &[&input, X264, &["-bf", "0", "-c:a", "aac"], HLS, FMP4, &into]);
    });
    assert!(with_passenger.contains(&"gate.tracks"), "{with_passenger:?}");
    let without_picture = found(&|root| {
        fs::remove_dir_all(root.join("large")).unwrap();
        copy_into(&root.join("sound"), &root.join("large"));
    });
    assert!(without_picture.contains(&"gate.tracks"), "{without_picture:?}");
}

#[test]
fn hostile_playlists_are_findings_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let playlist = folder.path().join("index.m3u8");
    let head = b"#EXTM3U\n".to_vec();
    let with = |rest: &[u8]| [&head[..], rest].concat();
    let noise: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let tags = "#EXT-X-MAP:URI=\"/dev/zero\"\n#EXTINF:1e308,\n/dev/stdin\n#EXT-X-BYTERANGE:18446744073709551615@1\n\
                #EXTINF:1,\nindex.m3u8\n#EXT-X-BYTERANGE:1@18446744073709551615\n#EXTINF:1,\nindex.m3u8\n";
    for content in [
        Vec::new(),
        noise.clone(),
        with(&noise),
        with(&[0; 10_000]),
        with(&vec![b'a'; 10 << 20]),
        with("#EXTINF:1,\n".repeat(100_000).as_bytes()),
        with("#EXTINF:1,\nx\n".repeat(100_000).as_bytes()),
        with("#EXT-X-STREAM-INF:BANDWIDTH=1\nindex.m3u8\n".repeat(10_000).as_bytes()),
        with(format!("#EXT-X-STREAM-INF:{}", "A=1,".repeat(10_000)).as_bytes()),
        with(tags.as_bytes()),
        vec![b'#'; 20 << 20],
    ] {
        fs::write(&playlist, &content).unwrap();

        let verdict = Check::open(folder.path(), &Expect::default()).unwrap().verdict();

        let shown = String::from_utf8_lossy(&content[..content.len().min(60)]).into_owned();
        assert!(!verdict.is_good(), "{shown:?}");
        assert!(verdict.findings.len() < 100, "{shown:?}");
    }
}

#[test]
fn damaged_segments_are_findings_and_never_a_panic() {
    for (good, file) in [(demuxed(), "large/seg1.m4s"), (demuxed(), "large/init.mp4"), (muxed(), "seg1.ts")] {
        let copy = copy(good);
        let target = copy.path().join(file);
        let whole = fs::read(&target).unwrap();
        let reach = whole.len().min(1500);
        for step in 0..300_usize {
            let mut damaged = whole.clone();
            for at in [step * 7, step * 13 + 5, step * 31 + 2] {
                damaged[at % reach] ^= (step as u8) | 0x80;
            }
            fs::write(&target, &damaged).unwrap();

            let verdict = Check::open(copy.path(), &Expect::default()).unwrap().verdict();

            serde_json::to_string(&verdict).unwrap();
        }
    }
}

#[test]
fn the_playlist_to_begin_with_is_found_or_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let opened = || Check::open(folder.path(), &Expect::default()).map(|check| check.verdict().playlist);
    assert!(opened().is_err());

    fs::write(folder.path().join("b.m3u8"), "#EXTM3U\n").unwrap();
    assert_eq!(opened().unwrap(), "b.m3u8");
    fs::write(folder.path().join("c.m3u8"), "#EXTM3U\n").unwrap();
    assert!(opened().is_err());
    fs::write(folder.path().join("d.m3u8"), "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nb.m3u8\n").unwrap();
    assert_eq!(opened().unwrap(), "d.m3u8");
    fs::write(folder.path().join("index.m3u8"), "#EXTM3U\n").unwrap();
    assert_eq!(opened().unwrap(), "index.m3u8");
}
