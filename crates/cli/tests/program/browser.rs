//! What `vodmill transcode` makes, played in Chromium by hls.js and shaka-player.
//!
//! The pictures carry their frames' numbers, so that what is on the screen can be compared with the player's clock.
//! `browser/viewing.js` says what is watched, and how.

use crate::support::seat::Seat;
use crate::support::{Engine, World, said};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const FRAMES_A_SECOND: f64 = 25.0;

#[test]
fn a_stream_plays_over_every_seam_in_every_rung() {
    let (_seat, world) = (Seat::take(Seat::REAL_TIME), World::bare(Engine::Sqlite));
    let source = picture_and_sound(&world, 26);

    let flags = ["--preset", "veryfast", "--slots", "2", "--dash"];
    let plan = transcode(&world, &source, &flags);

    let seams = seams(&world, &plan);
    assert_eq!(seams, [150, 300, 450, 600]);
    let chunks = plan["picture"]["chunks"].as_array().unwrap();
    let begins = |chunk: &Value| chunk["first_frame"].as_u64().unwrap();
    assert!(chunks.len() > 1 && chunks[1..].iter().all(|chunk| seams.contains(&begins(chunk))), "{chunks:?}");
    watch(&world, &[order(&world, "hls.js", &plan, 26), order(&world, "shaka-player", &plan, 26)]);
}

#[test]
fn every_codec_the_browser_knows_plays() {
    let (_seat, world) = (Seat::take(Seat::REAL_TIME), World::bare(Engine::Sqlite));
    let source = picture_and_sound(&world, 6);

    let flags = ["--codec", "h264,hevc,av1", "--rungs", "240p", "--segment-seconds", "2", "--dash"];
    let plan = transcode(&world, &source, &flags);

    watch(&world, &[order(&world, "hls.js", &plan, 6)]);
}

#[test]
fn sound_alone_plays() {
    let (_seat, world) = (Seat::take(Seat::REAL_TIME), World::bare(Engine::Sqlite));
    let source = world.folder.path().join("source.m4a");
    ffmpeg(&["-f", "lavfi", "-i", "sine=frequency=440:duration=14"], &source);

    let plan = transcode(&world, &source, &["--dash"]);

    watch(&world, &[order(&world, "hls.js", &plan, 14), order(&world, "shaka-player", &plan, 14)]);
}

/// Sixteen stripes, white where the frame's number has a one, the lowest bit on the left.
fn picture_and_sound(world: &World, seconds: u32) -> PathBuf {
    let picture = format!(
        "color=size=16x16:rate={FRAMES_A_SECOND}:duration={seconds},format=gray,geq=lum='if(mod(floor(N/pow(2,X)),2),235,16)',\
         scale=640:360:flags=neighbor,setsar=1,format=yuv420p"
    );
    let sound = format!("sine=frequency=440:duration={seconds}");
    let source = world.folder.path().join("source.mp4");
    ffmpeg(&["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound, "-preset", "ultrafast"], &source);
    source
}

fn ffmpeg(args: &[&str], output: &Path) {
    let made = Command::new("ffmpeg").args(["-v", "error", "-nostdin"]).args(args).arg(output).output();
    let made = made.expect("ffmpeg is missing: `make test` installs it");
    assert!(made.status.success(), "ffmpeg: {}", said(&made));
}

/// Makes the stream; the plan it was made by.
fn transcode(world: &World, source: &Path, flags: &[&str]) -> Value {
    let source = source.to_str().unwrap();
    world.vodmill(&[&["transcode", source, "-o", "out"], flags].concat()).succeeds();
    world.vodmill(&[&["plan", source, "--json"], flags].concat()).json()
}

/// The frames that begin a segment, but the first. What has no picture is counted in frames of the same length.
fn seams(world: &World, plan: &Value) -> Vec<u64> {
    let track = plan["picture"]["rungs"][0]["name"].as_str().or(plan["audio"][0]["name"].as_str()).unwrap();
    let generation = std::fs::read_dir(world.folder.path().join("out")).unwrap();
    let list = generation.map(|entry| entry.unwrap().path().join(track).join("index.m3u8"));
    let list = std::fs::read_to_string(list.into_iter().find(|list| list.exists()).unwrap()).unwrap();

    let lengths = list.lines().filter_map(|line| line.strip_prefix("#EXTINF:")?.strip_suffix(','));
    let ends = lengths.scan(0.0, |end, length| {
        *end += length.parse::<f64>().unwrap();
        Some((*end * FRAMES_A_SECOND).round() as u64)
    });
    let ends: Vec<u64> = ends.collect();
    ends[..ends.len() - 1].to_vec()
}

/// What is to be seen of a stream, as `viewing.js` reads it.
fn order(world: &World, player: &str, plan: &Value, seconds: u32) -> Value {
    let manifest = if player == "hls.js" { "/stream/master.m3u8" } else { "/stream/manifest.mpd" };
    json!({
        "player": player,
        "manifest": manifest,
        "seconds": seconds,
        "frames": plan["picture"]["frames"].as_u64().unwrap_or(0),
        "seams": seams(world, plan),
        "rungs": plan["picture"]["rungs"].as_array().unwrap_or(&Vec::new()),
    })
}

/// Plays the stream in a browser; fails when anything is not as ordered.
fn watch(world: &World, orders: &[Value]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let chromium = program("chromium").expect("chromium is missing: `make test` installs it");
    let node = program("node").expect("node is missing: `make test` installs it");
    assert!(
        folder.join("node_modules/.package-lock.json").exists(),
        "the players are missing: `make test` installs them"
    );

    let mut play = Command::new(node);
    play.arg(folder.join("play.mjs"))
        .arg(chromium)
        .arg(world.folder.path().join("out"))
        .arg(json!(orders).to_string());
    let played = play.output().unwrap();

    println!("{}", said(&played));
    assert!(played.status.success(), "{}", said(&played));
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
