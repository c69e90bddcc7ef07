//! Files and wishes that ask for more than anybody wants to give: refused, with the limit's name and how to raise it.

use super::studio::{Studio, numbers, sine};
use crate::support::{
    Engine,
    house::{House, problem},
};
use serde_json::{Value, json};

/// A hundred frames, and one more that comes so many hours later.
fn with_a_gap(studio: &Studio, name: &str, hours: u32) {
    let late = format!("setpts='if(lt(N,100),N/60,{hours}*3600)/TB'");
    let picture = "color=size=64x64:rate=60:duration=1.7";
    studio.make(name, &["-f", "lavfi", "-i", picture, "-vf", &late, "-frames:v", "101", "-fps_mode", "vfr"]);
}

fn refused(studio: &Studio, name: &str, settings: &[(&str, &str)]) -> String {
    let plan = studio.vodmill(&["plan", name]);
    settings.iter().fold(plan, |plan, (name, value)| plan.env(name, value)).ends_with(1)
}

#[test]
fn a_few_kilobytes_cannot_claim_days_of_video() {
    let studio = Studio::new();
    with_a_gap(&studio, "days.mkv", 30);
    with_a_gap(&studio, "still.mkv", 10);

    let days = refused(&studio, "days.mkv", &[]);
    let still = refused(&studio, "still.mkv", &[]);
    let raised = studio
        .vodmill(&["plan", "still.mkv"])
        .env("VODMILL_MAX_REPEATED_FRAMES", "3000000")
        .env("VODMILL_MAX_REPEATS_PER_FRAME", "30000")
        .succeeds();

    assert!(days.contains("30.0 hours") && days.contains("--max-video-hours"), "{days}");
    assert!(
        still.contains("would only repeat them") && still.contains("VODMILL_MAX_REPEATED_FRAMES"),
        "{still}"
    );
    assert!(raised.contains("processor hours"), "{raised}");
}

#[test]
fn a_still_picture_needs_sound_that_is_there() {
    let studio = Studio::new();
    with_a_gap(&studio, "gap.mkv", 1);
    let (picture, sound) = ("color=size=64x64:rate=25:duration=0.04", "anullsrc=r=8000:cl=mono:d=2400");
    let sound = ["-f", "lavfi", "-i", sound, "-c:v", "mjpeg", "-c:a", "pcm_alaw"];
    studio.make("podcast.mkv", &[&["-f", "lavfi", "-i", picture][..], &sound].concat());

    let gap = refused(&studio, "gap.mkv", &[]);
    let raised = studio.vodmill(&["plan", "gap.mkv"]).env("VODMILL_MAX_REPEATS_PER_FRAME", "3000").succeeds();
    let podcast = studio.plan("podcast.mkv", &[]);

    assert!(gap.contains("for each frame") && gap.contains("--max-repeats-per-frame"), "{gap}");
    assert!(raised.contains("processor hours"), "{raised}");
    assert_eq!(podcast["picture"]["frames"], 60_000);
}

/// What a header claims is not believed and costs nothing; what costs is frames that are there.
#[test]
fn a_file_of_too_many_frames_a_second_is_refused() {
    let studio = Studio::new();
    // NUT has ticks that are fine enough for such rates.
    for (name, rate, seconds) in [("fast.nut", 100_000, 0.05), ("slow-motion.nut", 960, 2.0)] {
        let picture = format!("color=size=32x32:rate={rate}:duration={seconds}");
        studio.make(name, &["-f", "lavfi", "-i", &picture, "-c:v", "rawvideo"]);
    }

    let fast = refused(&studio, "fast.nut", &[]);
    let raised = studio.vodmill(&["plan", "fast.nut"]).env("VODMILL_MAX_FRAME_RATE", "200000").succeeds();

    assert!(fast.contains("frames a second") && fast.contains("at most 1000 are accepted"), "{fast}");
    assert!(fast.contains("--max-frame-rate or VODMILL_MAX_FRAME_RATE"), "{fast}");
    assert!(raised.contains("processor hours"), "{raised}");
    studio.vodmill(&["plan", "slow-motion.nut"]).succeeds();
}

#[test]
fn frames_pixels_tasks_and_cost_have_limits() {
    let studio = Studio::new();
    studio.make("talk.mkv", &["-f", "lavfi", "-i", &numbers("25", 2.0)]);

    for (setting, value, words) in [
        ("VODMILL_MAX_FRAMES", "49", "more than 49 frames"),
        ("VODMILL_MAX_MEGAPIXELS", "0.001", "million pixels"),
        ("VODMILL_MAX_ENCODE_HOURS", "0.000000001", "processor hours"),
        ("VODMILL_MAX_TASKS", "0", "tasks"),
    ] {
        let said = refused(&studio, "talk.mkv", &[(setting, value)]);
        assert!(said.contains(words) && said.contains(setting), "{said}");
    }
    let transcode = studio.vodmill(&["transcode", "talk.mkv", "-o", "out"]).env("VODMILL_MAX_FRAMES", "49");
    let said = transcode.ends_with(1);
    assert!(said.contains("more than 49 frames") && said.contains("VODMILL_MAX_FRAMES"), "{said}");
}

#[test]
fn of_a_hundred_tracks_of_text_those_within_the_limit_are_made() {
    let studio = Studio::new();
    studio.write("words.srt", b"1\n00:00:00,000 --> 00:00:01,000\nHello\n");
    let (picture, sound) = (numbers("25", 1.0), sine(1.0));
    let mut args =
        vec!["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound, "-i", "words.srt", "-map", "0"];
    for _ in 0..100 {
        args.extend(["-map", "2"]);
    }
    for _ in 0..40 {
        args.extend(["-map", "1"]);
    }
    studio.make("many.mkv", &args);

    let plan = studio.plan("many.mkv", &[]);

    let count = |what: &str| plan[what].as_array().unwrap().len();
    assert_eq!((count("subtitles"), count("audio")), (32, 32));
    let notes = plan["source"]["notes"].to_string();
    assert!(
        notes.contains("68 more tracks of text are left out") && notes.contains("max_subtitle_tracks"),
        "{notes}"
    );
}

/// A ladder of so many rungs.
fn ladder(rungs: u32) -> Value {
    let rung = |n: u32| json!({ "name": format!("r{n}"), "height": 100 + n, "kbps": 100 });
    json!({ "rung": (0..rungs).map(rung).collect::<Vec<_>>() })
}

/// Said by ffprobe, and kept no further than it would be read.
#[test]
fn a_description_that_is_too_long_is_not_taken_in() {
    let studio = Studio::new();
    studio.write("title.txt", format!(";FFMETADATA1\ntitle={}\n", "x".repeat(5 << 20)).as_bytes());
    let picture = numbers("25", 1.0);
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "ffmetadata", "-i", "title.txt"];
    studio.make("novel.mkv", &[&inputs[..], &["-map_metadata", "1"]].concat());

    for command in [&["transcode", "novel.mkv", "-o", "out"][..], &["plan", "novel.mkv"]] {
        let said = studio.vodmill(command).ends_with(1);

        assert!(said.contains("more than 4194304 bytes"), "{said}");
    }
}

#[test]
fn a_ladder_has_no_more_rungs_than_it_may() {
    let studio = Studio::new();
    studio.make("talk.mkv", &["-f", "lavfi", "-i", &numbers("25", 1.0)]);
    studio.write("ladder.json", ladder(400).to_string().as_bytes());

    for command in [&["transcode", "talk.mkv", "-o", "out"][..], &["plan", "talk.mkv"]] {
        let said = studio.vodmill(&[command, &["--ladder", "ladder.json"]].concat()).ends_with(2);
        assert!(said.contains("400 rungs") && said.contains("VODMILL_MAX_RENDITIONS"), "{said}");
    }
}

#[test]
fn a_server_takes_no_more_rungs_than_it_may() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_IMPORT_ALLOW_PRIVATE", "true")]);

    let import = json!({ "url": "http://127.0.0.1:1/talk.mkv", "settings": ladder(400) });
    let answer = house.admin("POST", "/api/videos").json(&import).send().unwrap();

    let said = problem(answer, 422, "bad_settings").to_string();
    assert!(said.contains("400 rungs") && said.contains("VODMILL_MAX_RENDITIONS"), "{said}");
}

#[test]
fn an_encoder_that_runs_out_of_memory_says_so_with_its_limit() {
    let studio = Studio::new();
    studio.make("talk.mkv", &["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=25:duration=2"]);

    let said = studio.vodmill(&["transcode", "talk.mkv", "-o", "out", "--encoder-memory", "60"]).ends_with(1);

    assert!(
        said.contains("ran out of memory: it may take 60 MB") && said.contains("--encoder-memory"),
        "{said}"
    );
}
