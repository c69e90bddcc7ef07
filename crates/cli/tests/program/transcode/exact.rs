//! Each picture shows its number, and the numbers are read back after the seams.

use super::stream::STRIPES;
use super::studio::{Studio, numbers, sine};

/// Long enough for two chunks.
const SECONDS: f64 = 26.0;

/// Makes a source of numbered frames with sound, and plays what becomes of it, at the first attempt.
fn keeps_every_frame(name: &str, rate: &str, codecs: &str) {
    let studio = Studio::new();
    let shown = whatever_it_takes(&studio, name, rate, codecs);

    let (num, den) = rate.split_once('/').unwrap_or((rate, "1"));
    let count = SECONDS * num.parse::<f64>().unwrap() / den.parse::<f64>().unwrap();
    assert_eq!(shown, (0..count.ceil() as u32).collect::<Vec<_>>());
    assert_eq!(pieces_begun_again(&studio, name), 0);
}

fn whatever_it_takes(studio: &Studio, name: &str, rate: &str, codecs: &str) -> Vec<u32> {
    let (picture, sound) = (numbers(rate, SECONDS), sine(SECONDS));
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
    studio.make(name, &[&inputs[..], &codecs.split(' ').collect::<Vec<_>>()].concat());

    // ffmpeg does not know when a frame of an AVI with B-frames is shown: it is encoded in one piece.
    let chunks = if name.ends_with(".avi") { 1 } else { 2 };
    in_chunks(studio, name, chunks)
}

fn pieces_begun_again(studio: &Studio, name: &str) -> usize {
    let database = format!("sqlite:{name}.out/.vodmill/vodmill.db");
    let told = studio.vodmill(&["job", "executions", "1", "--json", "--database-url", &database]).json();
    told.as_array().unwrap().iter().filter(|execution| execution["status"] == "ABORTED").count()
}

/// The numbers that are seen of `name`, which is encoded in so many chunks.
fn in_chunks(studio: &Studio, name: &str, chunks: usize) -> Vec<u32> {
    let flags = ["--slots", "2"];
    let plan = studio.plan(name, &flags);
    assert_eq!(plan["picture"]["chunks"].as_array().unwrap().len(), chunks, "{plan}");
    studio.transcode(name, &flags).play(STRIPES).numbers()
}

#[test]
fn h264_with_b_frames_and_long_groups_in_mp4() {
    keeps_every_frame("a.mp4", "30000/1001", "-c:v libx264 -preset veryfast -g 250 -bf 3 -c:a aac");
}

/// Decoding begins with the very frame that is wanted.
#[test]
fn h264_with_a_key_frame_at_the_seam_in_mp4_and_matroska() {
    for name in ["a.mp4", "a.mkv"] {
        keeps_every_frame(
            name,
            "30",
            "-c:v libx264 -preset veryfast -g 60 -keyint_min 60 -sc_threshold 0 -bf 3 -c:a aac",
        );
    }
}

#[test]
fn a_picture_that_is_only_refreshed_bit_by_bit_is_begun_earlier() {
    let studio = Studio::new();
    let refreshed = "-c:v libx264 -preset veryfast -g 150 -bf 0 -x264-params intra-refresh=1 -c:a aac";

    let shown = whatever_it_takes(&studio, "a.mp4", "25", refreshed);

    assert_eq!(shown, (0..650).collect::<Vec<_>>());
    assert_eq!(pieces_begun_again(&studio, "a.mp4"), 1);
}

#[test]
fn h264_with_open_groups_in_matroska() {
    keeps_every_frame(
        "a.mkv",
        "25",
        "-c:v libx264 -preset veryfast -g 120 -bf 3 -x264-params open-gop=1 -c:a aac",
    );
}

#[test]
fn vp8_in_webm() {
    keeps_every_frame(
        "a.webm",
        "24000/1001",
        "-c:v libvpx -threads 1 -deadline realtime -cpu-used 8 -g 300 -c:a libopus -b:a 64k",
    );
}

#[test]
fn vp9_in_webm() {
    keeps_every_frame("a.webm", "24", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 240 -c:a libvorbis");
}

#[test]
fn h264_in_mpeg_ts() {
    keeps_every_frame("a.ts", "25", "-c:v libx264 -preset veryfast -g 50 -bf 2 -c:a aac");
}

#[test]
fn mpeg_ts_whose_clock_starts_at_5000_s() {
    keeps_every_frame(
        "a.ts",
        "30",
        "-c:v libx264 -preset veryfast -g 60 -bf 2 -c:a aac -output_ts_offset 5000",
    );
}

#[test]
fn mpeg_2_in_mpeg_ts() {
    keeps_every_frame("a.ts", "50", "-c:v mpeg2video -g 15 -bf 2 -q:v 4 -c:a mp2");
}

#[test]
fn mpeg_4_with_b_frames_in_avi() {
    keeps_every_frame("a.avi", "30", "-c:v mpeg4 -g 60 -bf 2 -q:v 4 -c:a libmp3lame");
}

#[test]
fn sixty_frames_a_second_in_mov() {
    keeps_every_frame("a.mov", "60", "-c:v libx264 -preset ultrafast -g 120 -c:a pcm_s16le");
}

#[test]
fn h264_in_flv() {
    keeps_every_frame("a.flv", "25", "-c:v libx264 -preset veryfast -g 100 -bf 2 -c:a aac");
}

#[test]
fn mjpeg_in_mov() {
    keeps_every_frame("a.mov", "25", "-c:v mjpeg -q:v 3 -pix_fmt yuvj420p -c:a aac");
}

#[test]
fn hevc_in_mp4() {
    keeps_every_frame(
        "a.mp4",
        "25",
        "-c:v libx265 -preset ultrafast -x265-params log-level=error:keyint=250 -tag:v hvc1 -c:a aac",
    );
}

/// As they are told without a word about presets: each codec has seams of its own.
#[test]
fn hevc_and_av1_are_made_across_a_seam() {
    let studio = Studio::new();
    let picture = numbers("25", SECONDS);
    studio.make("a.mp4", &["-f", "lavfi", "-i", &picture, "-preset", "ultrafast", "-g", "50"]);
    for codec in ["hevc", "av1"] {
        let flags = ["--slots", "2", "--no-thumbnails", "--codec", codec];
        assert_eq!(studio.plan("a.mp4", &flags)["picture"]["chunks"].as_array().unwrap().len(), 2);

        let stream = studio.transcode_as_told("a.mp4", &flags);

        assert_eq!(stream.play(STRIPES).numbers(), (0..650).collect::<Vec<_>>(), "{codec}");
        let playlist = std::fs::read_to_string(&stream.pictures()[0].playlist).unwrap();
        assert_eq!(playlist.matches("EXT-X-MAP").count(), 1, "{playlist}");
    }
}

#[test]
fn an_edit_list_cuts_frames_off_and_only_those() {
    let studio = Studio::new();
    let (picture, sound) = (numbers("30000/1001", 29.3), sine(29.3));
    let codecs = ["-c:v", "libx264", "-preset", "veryfast", "-g", "250", "-bf", "3", "-c:a", "aac"];
    studio.make(
        "whole.mp4",
        &[&["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound], &codecs[..]].concat(),
    );
    studio.make("cut.mp4", &["-ss", "3.3", "-i", "whole.mp4", "-c", "copy"]);

    let shown = in_chunks(&studio, "cut.mp4", 2);

    assert_eq!(shown, (99..879).collect::<Vec<_>>());
}

#[test]
fn frames_that_come_a_little_early_or_late_are_all_kept() {
    let studio = Studio::new();
    let picture = numbers("25", SECONDS) + ",settb=1/1000,setpts='PTS+4*(mod(N*7,5)-2)+8'";
    let codec = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "100"];
    let times = ["-fps_mode", "passthrough", "-enc_time_base", "1/1000"];
    studio.make("shaky.mkv", &[&["-f", "lavfi", "-i", &picture], &codec[..], &times].concat());

    let shown = in_chunks(&studio, "shaky.mkv", 2);

    assert_eq!(shown, (0..650).collect::<Vec<_>>());
}
