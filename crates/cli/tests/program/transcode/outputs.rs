//! What a person may ask for beside the plain stream, and what they are told.

use super::stream::{ONE, STRIPES, Stream, probed};
use super::studio::{Studio, numbers, sine};
use crate::support::{NVENC, said};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two seconds of numbered frames with sound, at 640×360: two rungs.
fn film(studio: &Studio) {
    let (picture, sound) = (numbers("25", 2.0) + ",scale=640:360:flags=neighbor", sine(2.0));
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
    studio.make("film.mp4", &[&inputs[..], &["-preset", "ultrafast", "-c:a", "aac"]].concat());
}

fn sizes(stream: &Stream) -> Vec<&str> {
    stream.pictures().iter().map(|entry| entry.get("RESOLUTION")).collect()
}

#[test]
fn a_ladder_a_plain_file_a_dash_manifest_pictures_and_figures() {
    let studio = Studio::new();
    film(&studio);

    let flags = ["--preset", "ultrafast", "--mp4", "--dash", "--measure"];
    let stream = studio.transcode_as_told("film.mp4", &flags);

    assert_eq!(sizes(&stream), ["640x360", "426x240"]);
    let sound = stream.sounds().first().copied();
    for picture in stream.pictures() {
        let seen = stream.play_with(picture, sound, 25.0, STRIPES).numbers();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
    }
    has_a_plain_file(&studio, &stream);
    has_a_dash_manifest(&stream);
    has_small_pictures(&stream);
    let figures =
        stream.told.lines().filter_map(|line| line.split_once("SSIM ")?.1.split_whitespace().next());
    let figures: Vec<f64> = figures.map(|figure| figure.parse().unwrap()).collect();
    assert!(figures.len() == 2 && figures.iter().all(|ssim| (0.98..=1.0).contains(ssim)), "{}", stream.told);
    assert!(stream.told.contains("1080p          skipped: the source has 640×360"), "{}", stream.told);
}

fn has_a_plain_file(studio: &Studio, stream: &Stream) {
    let folder = stream.pictures()[0].playlist.parent().unwrap().parent().unwrap().to_owned();
    let file = folder.join("video.mp4");
    let seconds: f64 = probed(&file, &["-show_entries", "format=duration"]).parse().unwrap();
    assert!((seconds - 2.0).abs() < 0.04, "{seconds}");
    let frames =
        probed(&file, &["-select_streams", "v", "-count_frames", "-show_entries", "stream=nb_read_frames"]);
    assert_eq!(frames, "50");
    assert_eq!(probed(&file, &["-select_streams", "a", "-show_entries", "stream=codec_name"]), "aac");
    // It is a video like any other.
    std::fs::copy(file, studio.path("again.mp4")).unwrap();
    let again = studio.transcode("again.mp4", &["--rungs", "240p"]);
    assert_eq!(again.play(STRIPES).numbers(), (0..50).collect::<Vec<_>>());
}

fn has_a_dash_manifest(stream: &Stream) {
    let manifest = stream.folder.join("manifest.mpd");
    let text = std::fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("mediaPresentationDuration=\"PT2"), "{text}");
    assert_eq!(text.matches("<Representation").count(), 3, "{text}");
    for tag in ["MPD", "Period", "AdaptationSet", "Representation"] {
        assert_eq!(
            text.matches(&format!("</{tag}>")).count(),
            text.matches(&format!("<{tag} ")).count(),
            "{tag}"
        );
    }
    for name in text.split("initialization=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(!name.starts_with('/') && !name.contains("://"), "{name}");
    }
}

fn has_small_pictures(stream: &Stream) {
    let folder = stream.pictures()[0].playlist.parent().unwrap().parent().unwrap().to_owned();
    let files: Vec<String> = walk(&folder);
    let with =
        |end: &str| files.iter().find(|file| file.ends_with(end)).unwrap_or_else(|| panic!("{files:?}"));
    let size = ["-show_entries", "stream=width,height"];
    assert_eq!(probed(with("poster.jpg").as_ref(), &size), "640,360");
    assert_eq!(probed(with("sprite-1.jpg").as_ref(), &size), "160,90");
    let index =
        files.iter().filter(|file| file.ends_with(".vtt")).map(|file| std::fs::read_to_string(file).unwrap());
    assert!(index.into_iter().any(|text| text.contains("sprite-1.jpg#xywh=0,0,160,90")));
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => walk(&path),
        false => vec![path.to_str().unwrap().to_owned()],
    };
    paths.flat_map(below).collect()
}

#[test]
fn several_codecs_show_the_same_frames() {
    let studio = Studio::new();
    film(&studio);
    for (codecs, names) in [("h264,hevc", &["avc1.", "hvc1."][..]), ("av1", &["av01."])] {
        let stream =
            studio.transcode_as_told("film.mp4", &["--no-thumbnails", "--codec", codecs, "--rungs", "240p"]);

        let pictures = stream.pictures();
        assert_eq!(pictures.len(), names.len(), "{}", stream.master());
        for name in names {
            let picture = pictures.iter().find(|entry| entry.get("CODECS").contains(name)).unwrap();
            let seen = stream.play_with(picture, stream.sounds().first().copied(), 25.0, STRIPES).numbers();
            assert_eq!(seen, (0..50).collect::<Vec<_>>(), "{name}");
        }
    }
}

#[test]
fn a_ladder_can_come_from_a_file_and_rungs_be_chosen() {
    let studio = Studio::new();
    film(&studio);
    let ladder = "segment_seconds = 1.0\ngop_seconds = 1.0\n\
                  [[rung]]\nname = 'big'\nheight = 300\nkbps = 900\n\
                  [[rung]]\nname = 'small'\nheight = 120\nkbps = 200\ncrf = 30\n\
                  [[rung]]\nname = 'huge'\nheight = 4000\nkbps = 20000\n";
    studio.write("ladder.toml", ladder.as_bytes());
    let flags = ["--ladder", "ladder.toml", "--rungs", "small,huge"];

    let stream = studio.transcode("film.mp4", &flags);

    assert!(sizes(&stream).iter().any(|size| size.ends_with("x120")), "{}", stream.master());
    assert!(!stream.master().contains("x300"), "{}", stream.master());
    let list = std::fs::read_to_string(&stream.pictures()[0].playlist).unwrap();
    assert_eq!(list.matches("#EXTINF:1").count(), 2, "{list}");
    assert_eq!(stream.play(STRIPES).numbers(), (0..50).collect::<Vec<_>>());
    let plan = studio.vodmill(&[&["plan", "film.mp4"], &flags[..]].concat()).succeeds();
    assert!(plan.lines().any(|line| line.starts_with("skipped     huge")), "{plan}");
    let wrong = studio.vodmill(&["plan", "film.mp4", "--rungs", "9p"]).ends_with(2);
    assert!(wrong.contains("there is no rung `9p`"), "{wrong}");
}

#[test]
fn events_are_one_object_a_line_and_a_stream_is_made_once() {
    let studio = Studio::new();
    film(&studio);
    let run = || {
        let flags = ["--preset", "ultrafast", "--no-thumbnails", "--json"];
        let output = studio.vodmill(&[&["transcode", "film.mp4", "-o", "out"], &flags[..]].concat()).output();
        assert!(output.status.success(), "{}", said(&output));
        let lines = String::from_utf8(output.stdout).unwrap();
        let events = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        events.collect::<Vec<_>>()
    };

    let (first, second) = (run(), run());

    for events in [&first, &second] {
        let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!((names[0], names[names.len() - 1]), ("started", "done"), "{names:?}");
    }
    let done = &first[first.len() - 1];
    assert_eq!(done["renditions"].as_array().unwrap().len(), 3, "{done}");
    assert!((done["duration"].as_f64().unwrap() - 2.0).abs() < 0.001, "{done}");
    assert_eq!((&first[0]["is_new"], &second[0]["is_new"]), (&true.into(), &false.into()));
}

#[test]
fn a_plan_tells_what_would_be_made_and_its_command_works() {
    let studio = Studio::new();
    film(&studio);
    let plan = studio.vodmill(&["plan", "film.mp4"]).succeeds();
    let begins = |with: &str| plan.lines().any(|line| line.starts_with(with));
    assert!(begins("rung        360p         640×360    h264"), "{plan}");
    assert!(begins("rung        240p         426×240    h264"), "{plan}");
    assert!(begins("skipped     1080p        the source has 640×360"), "{plan}");
    assert!(plan.contains("25.000 frames a second (each frame kept), 50 frames"), "{plan}");
    let json = studio.plan("film.mp4", &[]);
    assert_eq!((&json["picture"]["frames"], &json["source"]["video"]["width"]), (&50.into(), &640.into()));

    let flags = ["--as-ffmpeg", "--preset", "ultrafast", "--codec", "h264,hevc"];
    let command = studio.vodmill(&[&["plan", "film.mp4"], &flags[..]].concat()).succeeds();
    std::fs::create_dir(studio.path("by-hand")).unwrap();
    let ran = Command::new("sh").args(["-c", &command]).current_dir(studio.path("by-hand")).output().unwrap();

    assert!(ran.status.success(), "{command}{}", said(&ran));
    let count = ["-select_streams", "v", "-count_packets", "-show_entries", "stream=nb_read_packets"];
    let rungs: Vec<String> = walk(&studio.path("by-hand"));
    assert_eq!(rungs.len(), 5, "{rungs:?}");
    for rung in rungs.iter().filter(|rung| !rung.contains("audio")) {
        assert_eq!(probed(rung.as_ref(), &count), "50", "{rung}");
    }
}

#[test]
fn other_wishes_replace_the_stream_as_a_whole() {
    let studio = Studio::new();
    film(&studio);
    let first = studio.transcode("film.mp4", &["--rungs", "240p"]);
    let second = studio.transcode("film.mp4", &["--rungs", "360p"]);

    assert_eq!((sizes(&first), sizes(&second)), (vec!["426x240"], vec!["640x360"]));
    let generations = std::fs::read_dir(&second.folder).unwrap().flatten();
    let names = generations.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.starts_with("g-")).count(), 1);
    assert_eq!(second.play(ONE).frames(), 50);
}

#[test]
fn hardware_is_found_by_trying_and_a_flag_wins_over_the_ladder() {
    let studio = Studio::new();
    studio.make("a.mp4", &["-f", "lavfi", "-i", "testsrc=size=160x90:duration=1", "-preset", "ultrafast"]);
    studio.write("ladder.toml", b"encoder = \"nvenc\"\n");
    let path = studio.with_ffmpeg(NVENC);
    let encoder = |path: Option<&str>, flags: &[&str]| {
        let plan = studio.vodmill(&[&["plan", "a.mp4", "--json"], flags].concat());
        let plan = match path {
            Some(path) => plan.env("PATH", path),
            None => plan,
        };
        plan.json()["picture"]["manner"]["family"].clone()
    };

    assert_eq!(encoder(Some(&path), &["--hardware", "auto"]), "nvenc");
    assert_eq!(encoder(None, &["--hardware", "auto"]), "software");
    assert_eq!(encoder(None, &["--ladder", "ladder.toml"]), "nvenc");
    assert_eq!(encoder(None, &["--ladder", "ladder.toml", "--hardware", "none"]), "software");
}

#[test]
fn a_manifest_that_is_not_asked_for_any_more_is_removed() {
    let studio = Studio::new();
    film(&studio);
    let manifest = studio.path("film.mp4.out").join("manifest.mpd");

    studio.transcode("film.mp4", &["--dash"]);
    assert!(manifest.is_file());
    studio.transcode("film.mp4", &[]);

    assert!(!manifest.exists(), "it would name a generation that is gone");
}

#[test]
fn a_stream_that_was_changed_since_is_found_out_and_one_of_others_is_checked_too() {
    let studio = Studio::new();
    let (picture, sound) = (numbers("25", 20.0) + ",scale=320:180:flags=neighbor", sine(20.0));
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
    studio.make("film.mp4", &[&inputs[..], &["-preset", "ultrafast", "-c:a", "aac"]].concat());
    studio.transcode("film.mp4", &[]);
    std::fs::create_dir(studio.path("theirs")).unwrap();
    let theirs = ["-i", "film.mp4", "-c", "copy", "-f", "hls", "-hls_list_size", "0"];
    studio.make("theirs/index.m3u8", &theirs);
    let verdict = |path: &str, code: i32| -> serde_json::Value {
        let output = studio.vodmill(&["check", path, "--json"]).output();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let proved = |verdict: &serde_json::Value| verdict["measured"]["files_proved"].as_u64().unwrap();

    let before = verdict("film.mp4.out", 0);
    // In the middle of what is neither the first nor the last segment: no decoder looks there.
    let middle = find(&studio.path("film.mp4.out"), |path| path.ends_with("180p/seg-00002.m4s")).unwrap();
    let mut bytes = std::fs::read(&middle).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&middle, bytes).unwrap();
    let after = verdict("film.mp4.out", 1);

    assert!(proved(&before) > 6);
    assert_eq!(proved(&after), proved(&before) - 1);
    assert!(after["findings"].to_string().contains("gate.hash"), "{after}");
    let foreign = studio.vodmill(&["check", "theirs", "--json"]).output();
    let foreign: serde_json::Value = serde_json::from_slice(&foreign.stdout).unwrap();
    assert_eq!(proved(&foreign), 0);
    assert!(foreign["measured"]["renditions"].as_array().is_some_and(|found| !found.is_empty()), "{foreign}");
}

fn find(folder: &Path, is_it: impl Fn(&Path) -> bool + Copy) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.find_map(|path| match path.is_dir() {
        true => find(&path, is_it),
        false => is_it(&path).then_some(path),
    })
}
