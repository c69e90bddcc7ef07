//! Tracks of sound: none, one, several, alone, too long and too short.

use super::stream::{ONE, STRIPES};
use super::studio::{Studio, numbers, sine};

const QUICK: [&str; 4] = ["-c:v", "libx264", "-preset", "ultrafast"];

/// Two seconds of numbered frames at 25 a second, and as much sound as told.
fn film(studio: &Studio, name: &str, sound_seconds: f64) {
    let (picture, sound) = (numbers("25", 2.0), sine(sound_seconds));
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound];
    studio.make(name, &[&inputs[..], &QUICK, &["-c:a", "aac"]].concat());
}

#[test]
fn a_silent_film_has_no_sound() {
    let studio = Studio::new();
    let picture = numbers("25", 2.0);
    studio.make("silent.mp4", &[&["-f", "lavfi", "-i", &picture], &QUICK[..]].concat());

    let stream = studio.transcode("silent.mp4", &[]);

    assert!(stream.renditions.is_empty(), "{}", stream.master());
    assert_eq!(stream.play(STRIPES).numbers(), (0..50).collect::<Vec<_>>());
}

#[test]
fn the_last_frame_is_held_for_sound_that_goes_on() {
    let studio = Studio::new();
    film(&studio, "long.mp4", 3.2);

    let stream = studio.transcode("long.mp4", &[]);

    let seen = stream.play(STRIPES).numbers();
    assert!((80..=82).contains(&seen.len()), "{}", seen.len());
    let due: Vec<u32> = (0..50).chain(std::iter::repeat(49)).take(seen.len()).collect();
    assert_eq!(seen, due);
    let heard = stream.listen();
    assert!(loudness(&heard[3 * 8000..3 * 8000 + 1200]) > 1000.0, "the end is heard");
    assert!(stream.told.contains("held"), "{}", stream.told);
}

#[test]
fn silence_follows_sound_that_ends_early() {
    let studio = Studio::new();
    film(&studio, "short.mp4", 1.0);

    let stream = studio.transcode("short.mp4", &[]);

    assert_eq!(stream.play(STRIPES).numbers(), (0..50).collect::<Vec<_>>());
    let heard = stream.listen();
    assert!(loudness(&heard[4000..7000]) > 1000.0);
    assert!(loudness(&heard[10_000..15_000]) < 20.0);
}

fn loudness(samples: &[i16]) -> f64 {
    samples.iter().map(|sample| f64::from(*sample).abs()).sum::<f64>() / samples.len() as f64
}

#[test]
fn each_language_can_be_chosen() {
    let studio = Studio::new();
    let (picture, sound) = (numbers("25", 2.0), sine(2.0));
    let other = "sine=frequency=880:duration=2";
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound, "-f", "lavfi", "-i", other];
    let tags = "-map 0 -map 1 -map 2 -c:a aac -metadata:s:a:0 language=deu -metadata:s:a:0 title=Deutsch \
                -metadata:s:a:1 language=eng -metadata:s:a:1 title=Commentary -disposition:a:0 0 -disposition:a:1 default";
    let tags: Vec<&str> = tags.split_whitespace().collect();
    studio.make("two.mkv", &[&inputs[..], &QUICK, &tags].concat());

    let stream = studio.transcode("two.mkv", &[]);

    let told = ["NAME", "LANGUAGE", "DEFAULT"];
    let mut tracks: Vec<_> = stream.sounds().iter().map(|entry| told.map(|name| entry.get(name))).collect();
    tracks.sort_unstable();
    assert_eq!(tracks[0], ["Commentary", "en", "YES"]);
    assert_eq!(tracks[1][..2], ["Deutsch", "de"]);
    assert_ne!(tracks[1][2], "YES");
    let picture = stream.pictures()[0];
    for sound in stream.sounds() {
        assert_eq!(stream.play_with(picture, Some(sound), 25.0, ONE).frames(), 50);
    }
}

#[test]
fn surround_becomes_stereo_and_is_kept_beside_it_when_asked() {
    let studio = Studio::new();
    let picture = numbers("25", 2.0);
    let sound = "aevalsrc='0|0|0.5*sin(2764*t)|0|0|0':channel_layout=5.1:sample_rate=48000:duration=2";
    let inputs = ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", sound];
    studio.make("cinema.mkv", &[&inputs[..], &QUICK, &["-c:a", "ac3"]].concat());

    let stereo = studio.transcode("cinema.mkv", &[]);
    let channels: Vec<&str> = stereo.sounds().iter().map(|entry| entry.get("CHANNELS")).collect();
    assert_eq!(channels, ["2"]);
    assert!(loudness(&stereo.listen()[4000..12_000]) > 500.0, "the middle is heard in stereo");

    let both = studio.transcode("cinema.mkv", &["--surround"]);
    let mut channels: Vec<&str> = both.sounds().iter().map(|entry| entry.get("CHANNELS")).collect();
    channels.sort_unstable();
    assert_eq!(channels, ["2", "6"]);
    for sound in both.sounds() {
        assert_eq!(both.play_with(both.pictures()[0], Some(sound), 25.0, ONE).frames(), 50);
    }
}

#[test]
fn sound_alone_with_or_without_a_cover_is_a_stream_of_sound() {
    let studio = Studio::new();
    studio.make("cover.jpg", &["-f", "lavfi", "-i", "color=red:size=64x64", "-frames:v", "1"]);
    let sound = sine(14.0);
    studio.make("plain.ogg", &["-f", "lavfi", "-i", &sound, "-c:a", "libvorbis"]);
    let maps = ["-map", "0", "-map", "1", "-c:v", "copy", "-disposition:v:0", "attached_pic"];
    studio.make("song.mp3", &[&["-f", "lavfi", "-i", &sound, "-i", "cover.jpg"], &maps[..]].concat());
    for name in ["plain.ogg", "song.mp3"] {
        let stream = studio.transcode(name, &[]);

        assert!(stream.pictures().is_empty(), "{}", stream.master());
        let seconds = stream.listen().len() as f64 / 8000.0;
        assert!((seconds - 14.0).abs() < 0.06, "{name}: {seconds} s");
        assert!(loudness(&stream.listen()[..8000]) > 1000.0);
    }
}
