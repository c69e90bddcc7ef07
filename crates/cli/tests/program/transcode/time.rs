//! Clocks, rates and lengths that headers do not tell, or tell wrongly.

use super::stream::{ONE, STRIPES, Stream};
use super::studio::{Studio, ffmpeg, numbers, sine};

const QUICK: [&str; 4] = ["-c:v", "libx264", "-preset", "ultrafast"];

#[test]
fn frames_that_are_missing_are_bridged_by_the_one_before() {
    let studio = Studio::new();
    let picture = numbers("25", 26.0) + ",select='not(between(mod(n,10),3,5))'";
    let vfr = ["-fps_mode", "vfr", "-g", "100", "-bf", "2"];
    studio.make("gaps.mkv", &[&["-f", "lavfi", "-i", &picture], &QUICK[..], &vfr].concat());

    let stream = studio.transcode("gaps.mkv", &["--slots", "2"]);

    let latest = |number: u32| if (3..=5).contains(&(number % 10)) { number / 10 * 10 + 2 } else { number };
    assert_eq!(stream.play(STRIPES).numbers(), (0..650).map(latest).collect::<Vec<_>>());
}

#[test]
fn a_rate_that_changes_is_made_even_and_time_is_kept() {
    let studio = Studio::new();
    let picture = numbers("30", 4.0) + ",select='lt(n,60)+not(mod(n,2))'";
    studio.make("phone.mp4", &[&["-f", "lavfi", "-i", &picture], &QUICK[..], &["-fps_mode", "vfr"]].concat());

    let seen = studio.transcode("phone.mp4", &[]).play(STRIPES).numbers();

    // The last frame lasts as long as one of the first: its container says so.
    let due: Vec<u32> = (0..60).chain((60..119).map(|number| number / 2 * 2)).collect();
    assert_eq!(seen, due);
}

#[test]
fn a_live_recording_without_a_length_is_measured() {
    let studio = Studio::new();
    let (picture, sound) = (numbers("25", 2.0), sine(2.0));
    let mut live = ffmpeg();
    live.args([
        "-f",
        "lavfi",
        "-i",
        &picture,
        "-f",
        "lavfi",
        "-i",
        &sound,
        "-c:v",
        "libvpx",
        "-deadline",
        "realtime",
    ]);
    live.args(["-c:a", "libopus", "-live", "1", "-f", "webm", "pipe:1"]);
    studio.write("live.webm", &live.output().unwrap().stdout);

    let seen = studio.transcode("live.webm", &[]).play(STRIPES).numbers();

    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_bare_stream_without_times_is_counted() {
    let studio = Studio::new();
    let picture = numbers("25", 2.0);
    studio.make(
        "bare.h264",
        &[&["-f", "lavfi", "-i", &picture], &QUICK[..], &["-bf", "2", "-f", "h264"]].concat(),
    );

    let seen = studio.transcode("bare.h264", &[]).play(STRIPES).numbers();

    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_length_in_the_header_that_lies_is_not_believed() {
    const DURATION: &[u8] = b"\x44\x89\x88";
    for lie in [60.0, 0.25] {
        let studio = Studio::new();
        let (picture, sound) = (numbers("25", 2.0), sine(2.0));
        let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
        studio.make("lie.mkv", &[&inputs[..], &QUICK, &["-c:a", "aac"]].concat());
        studio.patch("lie.mkv", DURATION, |at| at[..8].copy_from_slice(&(lie * 1000.0_f64).to_be_bytes()));

        let seen = studio.transcode("lie.mkv", &[]).play(STRIPES).numbers();

        assert_eq!(seen, (0..50).collect::<Vec<_>>(), "{lie}");
    }
}

/// A flash and a beep together, a tenth of a second long, in the middle of every second.
const FLASH: &str = "color=black:size=320x180:rate=25:duration=5,\
                     drawbox=color=white:thickness=fill:enable='between(mod(t+0.001,1),0.5,0.599)'";
const BEEP: &str = "aevalsrc='if(between(mod(t,1),0.5,0.6),sin(2*PI*1000*t),0)':sample_rate=48000:duration=5";

fn are_together(stream: &Stream, first: f64) {
    let (flashes, beeps) = (stream.play(ONE).flashes(), stream.beeps());
    assert!((flashes[0] - first).abs() < 0.021, "{flashes:?}");
    assert_eq!(flashes.len(), beeps.len(), "{flashes:?} {beeps:?}");
    for (flash, beep) in flashes.iter().zip(&beeps) {
        assert!((flash - beep).abs() < 0.04, "{flashes:?} {beeps:?}");
    }
}

#[test]
fn picture_and_sound_stay_together_when_they_start_apart_and_late() {
    let late = ["-copyts", "-output_ts_offset", "100"];
    let sound = ["-c:a", "aac"];
    for (name, picture_from, sound_from) in
        [("late.mkv", 0.8, 0.0), ("late.mkv", 0.0, 0.72), ("late.ts", 0.8, 0.0), ("late.ts", 0.0, 0.72)]
    {
        let studio = Studio::new();
        let picture = format!("{FLASH},trim=start={picture_from}");
        let beeps = format!("{BEEP},atrim=start={sound_from}");
        let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &beeps];
        studio.make(name, &[&inputs[..], &QUICK, &sound, &late].concat());

        let stream = studio.transcode(name, &[]);

        let first = if picture_from > 0.0 { 1.5 - picture_from } else { 0.5 };
        if sound_from > 0.0 {
            // The first flash has no sound.
            let (flashes, beeps) = (stream.play(ONE).flashes(), stream.beeps());
            assert_eq!((flashes.len(), beeps.len()), (5, 4), "{flashes:?} {beeps:?}");
            assert!(
                flashes[1..].iter().zip(&beeps).all(|(a, b)| (a - b).abs() < 0.04),
                "{flashes:?} {beeps:?}"
            );
        } else {
            are_together(&stream, first);
        }
    }
}

#[test]
fn picture_and_sound_stay_together_behind_an_edit_list() {
    let studio = Studio::new();
    let inputs = ["-f", "lavfi", "-i", FLASH, "-f", "lavfi", "-i", BEEP];
    studio.make("whole.mp4", &[&inputs[..], &QUICK, &["-g", "250", "-bf", "2", "-c:a", "aac"]].concat());
    studio.make("cut.mp4", &["-ss", "1.2", "-i", "whole.mp4", "-c", "copy"]);

    let stream = studio.transcode("cut.mp4", &[]);

    are_together(&stream, 0.3);
}

#[test]
fn one_frame_is_a_video() {
    let studio = Studio::new();
    let picture = numbers("25", 0.04);
    studio.make("one.mp4", &[&["-f", "lavfi", "-i", &picture], &QUICK[..]].concat());

    let stream = studio.transcode("one.mp4", &[]);

    assert_eq!(stream.play(STRIPES).numbers(), [0]);
}

#[test]
fn high_rates_are_halved_and_low_ones_kept() {
    for (rate, seconds, seen) in [
        ("120", 2.0, (0..120).map(|number| number * 2).collect::<Vec<u32>>()),
        ("1", 5.0, (0..5).collect()),
        ("0.5", 6.0, vec![0, 0, 1, 1, 2, 2]),
    ] {
        let studio = Studio::new();
        let (picture, sound) = (numbers(rate, seconds), sine(seconds));
        let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
        studio.make("rate.mp4", &[&inputs[..], &QUICK, &["-bf", "0", "-c:a", "aac"]].concat());

        let stream = studio.transcode("rate.mp4", &[]);

        assert_eq!(stream.play(STRIPES).numbers(), seen, "{rate}");
    }
}

#[test]
fn a_file_cut_short_is_encoded_as_far_as_it_goes() {
    let studio = Studio::new();
    let (picture, sound) = (numbers("25", 4.0), sine(4.0));
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
    studio.make("whole.mkv", &[&inputs[..], &QUICK, &["-c:a", "aac"]].concat());
    let whole = std::fs::read(studio.path("whole.mkv")).unwrap();
    studio.write("half.mkv", &whole[..whole.len() / 2]);

    let stream = studio.transcode("half.mkv", &[]);

    let seen = stream.play(STRIPES).numbers();
    assert!((25..75).contains(&seen.len()), "{}", seen.len());
    assert_eq!(seen, (0..seen.len() as u32).collect::<Vec<_>>());
    assert!(stream.told.contains("note: "), "{}", stream.told);
}

#[test]
fn a_broadcast_clock_may_wrap_around() {
    let studio = Studio::new();
    let inputs = ["-f", "lavfi", "-i", FLASH, "-f", "lavfi", "-i", BEEP];
    // 33 bits of a clock of 90 kHz end after 95443.7 s.
    let late = ["-g", "25", "-c:a", "aac", "-muxdelay", "0", "-output_ts_offset", "95441.5"];
    studio.make("wraps.ts", &[&inputs[..], &QUICK, &late].concat());

    let stream = studio.transcode("wraps.ts", &[]);

    assert_eq!(stream.play(ONE).frames(), 125);
    are_together(&stream, 0.5);
}

#[test]
fn a_size_that_changes_midway_changes_no_frame() {
    let studio = Studio::new();
    let (large, small) = (numbers("25", 2.0), numbers("25", 2.0) + ",scale=160:90:flags=neighbor");
    studio.make("large.ts", &[&["-f", "lavfi", "-i", &large], &QUICK[..]].concat());
    studio.make(
        "small.ts",
        &[&["-f", "lavfi", "-i", &small], &QUICK[..], &["-output_ts_offset", "2"]].concat(),
    );
    let joined = ["large.ts", "small.ts"].map(|name| std::fs::read(studio.path(name)).unwrap()).concat();
    studio.write("joined.ts", &joined);

    let stream = studio.transcode_as_told("joined.ts", &["--preset", "ultrafast", "--measure"]);

    assert_eq!(stream.size(), (320, 180));
    assert_eq!(stream.play(STRIPES).numbers(), (0..50).chain(0..50).collect::<Vec<_>>());
}
