//! Early playback: in a real browser, a video plays while it is still being made.

use crate::support::house::{House, encoder_in};
use crate::support::{Engine, kill, said, until};
use std::process::Command;

#[test]
fn a_video_is_watched_in_a_browser_while_it_is_made() {
    let house = House::with(
        Engine::Sqlite,
        &[("VODMILL_SERVER_SLOTS", "1"), ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1")],
    );
    let file = house.sample_of("long.mp4", "640x360", 60);
    house.upload(&file, "slug=talk&early_playback=true");
    let master = || house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap();
    until("the first segments can be watched", || master().status() == 200);
    // Held, so that it is not done before a browser has started; for less than it may stand still.
    let mut held = None;
    until("an encoder is held", || {
        assert_ne!(house.get("/api/jobs/1")["state"], "completed");
        held = encoder_in(&house.world.folder.path().join("work")).inspect(|id| kill(*id, libc::SIGSTOP));
        held.is_some()
    });
    let early = master().text().unwrap();
    let rung = early.lines().find(|line| line.starts_with("early/")).unwrap().to_owned();
    let playlist = || house.anyone("GET", &format!("/videos/talk/{rung}")).send().unwrap().text().unwrap();
    let first = playlist();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/early.mjs");
    let seen =
        Command::new("node").arg(script).arg(house.url("/watch/talk")).output().expect("node is needed");

    assert!(seen.status.success(), "{}", said(&seen));
    assert_ne!(house.get("/api/jobs/1")["state"], "completed", "it played before it was made");
    kill(held.unwrap(), libc::SIGCONT);
    assert!(first.contains("#EXT-X-PLAYLIST-TYPE:EVENT") && !first.contains("#EXT-X-ENDLIST"), "{first}");
    assert_eq!(early.matches("#EXT-X-STREAM-INF").count(), 2, "all rungs are listed from the start: {early}");

    // What was listed stays, and at the end it is a whole.
    let grown = playlist();
    assert!(grown.starts_with(first.trim_end()), "{first}\n{grown}");
    house.video_is(1, "ready");
    let whole = playlist();
    assert!(whole.ends_with("#EXT-X-ENDLIST\n") && whole.starts_with(first.trim_end()), "{whole}");
    let segment = whole.lines().find(|line| line.ends_with(".m4s")).unwrap();
    let address = format!("/videos/talk/{}", rung.replace("index.m3u8", segment));
    assert_eq!(house.anyone("GET", &address).send().unwrap().status(), 200, "also after the publication");
    assert!(master().text().unwrap().contains("g-"));
}
