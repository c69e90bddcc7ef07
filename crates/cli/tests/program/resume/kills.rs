//! Killed 25 times at random, spread over the whole of one transcode.
//!
//! The seed is printed; `VODMILL_KILL_SEED` repeats the same dice.

use super::room::{Length, Room, assert_same};
use crate::support::{Process, until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const KILLS: u32 = 25;
const SLOTS: usize = 2;

/// Six chunks, the sound, the small pictures and the package.
const LENGTH: Length = Length(70);
const PARTS: u32 = 9;

/// A busy machine makes everything longer, and this need not be.
const LONGEST: Duration = Duration::from_millis(700);

#[test]
fn a_transcode_killed_25_times_makes_what_an_undisturbed_one_makes() {
    let seed = std::env::var("VODMILL_KILL_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("VODMILL_KILL_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let room = Room::new(LENGTH);
    let began = Instant::now();
    let expected = room.undisturbed();
    let undisturbed = began.elapsed();

    let mut struck: BTreeMap<String, u32> = BTreeMap::new();
    let mut kills = 0;
    while kills < KILLS {
        // From the first look at the file to the moment the generation gets its final name.
        let depth = kills * (PARTS + 1) / KILLS;
        let patience = undisturbed.mul_f64(if depth < PARTS { 0.1 } else { 0.005 }).min(LONGEST);
        let mut process = room.transcode().start();
        reaches(&room, &mut process, depth as usize);
        std::thread::sleep(patience.mul_f64(dice.random()));
        let place = place(&room);
        if process.kill_alive() {
            kills += 1;
            *struck.entry(place).or_default() += 1;
        }
        room.is_quiet();
    }
    room.transcode().succeeds();

    let executions = room.executions(1);
    let (committed, aborted) = (executions.committed().len(), executions.failures());
    println!("{KILLS} kills: {struck:?}; {committed} executions committed, {} aborted", aborted.len());
    assert_same(&room.published("out"), &expected);
    assert_eq!(room.job_states(), BTreeMap::from([(1, "completed".to_owned())]), "one job all along");
    executions.each_task_committed_once();
    assert!(aborted.len() <= KILLS as usize * SLOTS, "each kill costs a slot's work at most: {aborted:?}");
    assert!(aborted.iter().all(|why| why.contains("was ended")), "{aborted:?}");
    room.is_complete();
}

/// Waits until so many parts are there, or the whole.
fn reaches(room: &Room, process: &mut Process, depth: usize) {
    until("it is so far", || {
        let mut so_far =
            || process.has_ended() || room.parts().len() >= depth || !room.generations().is_empty();
        (0..20).any(|_| so_far() || pause())
    });
}

/// Packaged is published a moment later.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(1));
    false
}

/// How far it is, as the folder shows it.
fn place(room: &Room) -> String {
    match (room.generations().is_empty(), room.out().join("master.m3u8").exists()) {
        (true, _) => format!("{} parts", room.parts().len()),
        (false, false) => "published".into(),
        (false, true) => "shown".into(),
    }
}
