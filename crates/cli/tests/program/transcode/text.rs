//! Subtitles and chapters.

use super::stream::ONE;
use super::studio::Studio;

const SUBTITLES: &str =
    "1\n00:00:00,500 --> 00:00:01,250\nHello.\n\n2\n00:00:02,000 --> 00:00:03,000\nGood <i>bye</i>.\n";
const PICTURE: &str = "testsrc=size=320x180:rate=25:duration=4";

fn are_there(studio: &Studio, name: &str) {
    let stream = studio.transcode(name, &[]);

    assert_eq!(stream.play(ONE).frames(), 100);
    let [track] = stream.subtitles()[..] else { panic!("{}", stream.master()) };
    assert_eq!((track.get("LANGUAGE"), stream.variants[0].get("SUBTITLES")), ("fr", track.get("GROUP-ID")));
    let cues = stream.cues(track);
    let words: Vec<&str> = cues.iter().map(|(_, _, words)| words.as_str()).collect();
    assert_eq!(words, ["Hello.", "Good <i>bye</i>."], "{name}");
    for (cue, due) in cues.iter().zip([(0.5, 1.25), (2.0, 3.0)]) {
        assert!((cue.0 - due.0).abs() < 0.02 && (cue.1 - due.1).abs() < 0.02, "{name}: {cues:?}");
    }
}

#[test]
fn subtitles_are_shown_when_they_were_wherever_the_clock_starts() {
    let studio = Studio::new();
    studio.write("words.srt", SUBTITLES.as_bytes());
    let inputs = ["-f", "lavfi", "-i", PICTURE, "-i", "words.srt", "-metadata:s:s:0", "language=fra"];
    let quick = ["-preset", "ultrafast"];
    studio.make("srt.mkv", &[&inputs[..], &quick, &["-c:s", "srt"]].concat());
    studio.make("late.mkv", &[&inputs[..], &quick, &["-c:s", "srt", "-output_ts_offset", "50"]].concat());
    studio.make("text.mp4", &[&inputs[..], &quick, &["-c:s", "mov_text"]].concat());

    for name in ["srt.mkv", "late.mkv", "text.mp4"] {
        are_there(&studio, name);
    }
}

#[test]
fn chapters_are_kept_and_disturb_nothing() {
    let studio = Studio::new();
    let chapters = ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=1000\ntitle=One\n\
                    [CHAPTER]\nTIMEBASE=1/1000\nSTART=1000\nEND=4000\ntitle=Two\n";
    studio.write("chapters.txt", chapters.as_bytes());
    let inputs = ["-f", "lavfi", "-i", PICTURE, "-f", "ffmetadata", "-i", "chapters.txt", "-map", "0"];
    studio.make("film.mp4", &[&inputs[..], &["-map_chapters", "1", "-preset", "ultrafast"]].concat());

    let plan = studio.plan("film.mp4", &[]);
    let stream = studio.transcode("film.mp4", &["--mp4"]);

    let chapters = plan["source"]["chapters"].as_array().unwrap();
    let told: Vec<_> =
        chapters.iter().map(|one| (one["start"].as_f64().unwrap(), one["title"].as_str().unwrap())).collect();
    assert_eq!(told, [(0.0, "One"), (1.0, "Two")]);
    assert_eq!(stream.play(ONE).frames(), 100);
    let generation = stream.pictures()[0].playlist.parent().unwrap().parent().unwrap();
    let written = std::fs::read_to_string(generation.join("chapters.vtt")).unwrap();
    assert!(written.contains("00:00:01.000 --> 00:00:04.000\nTwo"), "{written}");
}
