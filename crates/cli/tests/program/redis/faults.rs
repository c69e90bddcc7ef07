//! Jobs go on whatever happens to Redis meanwhile.

use super::line::State;
use super::room::Room;
use crate::support::until;

#[test]
fn nothing_that_happens_to_redis_matters_in_mode_database() {
    survives("database");
}

#[test]
fn nothing_that_happens_to_redis_matters_in_mode_redis() {
    survives("redis");
}

#[test]
fn nothing_that_happens_to_redis_matters_in_mode_hybrid() {
    survives("hybrid");
}

const SEGMENTS: usize = 6;

/// Three stages: what the second and third wait for is told by hints. Each task has an effect.
fn spec() -> String {
    let effect = "effect = { append = 'effects' }";
    format!(
        "name = 'x'\nbackoff_initial_ms = 10\n\
         [[stage]]\nname = 'plan'\nkind = 'noop'\n{effect}\n\
         [[stage]]\nname = 'encode'\nneeds = ['plan']\nsegments = {SEGMENTS}\nsleep_ms = 20\n{effect}\n\
         [[stage]]\nname = 'join'\nneeds = ['encode']\nkind = 'noop'\n{effect}\n"
    )
}

struct Fault {
    name: &'static str,
    strike: fn(&Room),
    heal: fn(&Room),
}

const FAULTS: [Fault; 6] = [
    Fault {
        name: "stopped",
        strike: |room| drop(room.redis.run("stop", &[])),
        heal: |room| drop(room.redis.run("start", &[])),
    },
    Fault {
        name: "killed and restarted",
        strike: |room| {
            room.redis.run("stop", &["KILL"]);
            room.redis.run("start", &[]);
        },
        heal: |_| {},
    },
    Fault { name: "emptied", strike: |room| drop(room.redis.ask(&["FLUSHALL"])), heal: |_| {} },
    Fault {
        name: "full",
        strike: |room| drop(room.redis.ask(&["CONFIG", "SET", "maxmemory", "1"])),
        heal: |room| drop(room.redis.ask(&["CONFIG", "SET", "maxmemory", "0"])),
    },
    Fault {
        name: "slow",
        strike: |room| room.line.set(State::Slow),
        heal: |room| room.line.set(State::Good),
    },
    Fault {
        name: "cut off",
        strike: |room| room.line.set(State::Cut),
        heal: |room| room.line.set(State::Good),
    },
];

fn survives(mode: &'static str) {
    let room = Room::new(mode);
    let mut fleet = vec![room.start(&["orchestrate"], "orchestrator.log")];
    for _ in 0..2 {
        fleet.push(room.start(&["worker", "--slots", "2", "--no-orchestrator"], "workers.log"));
    }
    let mut jobs = vec![room.world.submit(&spec())];
    until("the fleet works", || is_done(&room, &jobs));

    for fault in FAULTS {
        // One job is under way when it strikes, one comes while it lasts, one afterwards.
        jobs.push(room.world.submit(&spec()));
        (fault.strike)(&room);
        jobs.push(room.world.submit(&spec()));
        until(&format!("what runs while Redis is {} is done", fault.name), || is_done(&room, &jobs));
        (fault.heal)(&room);
    }
    jobs.push(room.world.submit(&spec()));
    until("the last is done", || is_done(&room, &jobs));

    assert!(fleet.iter_mut().all(|process| !process.has_ended()), "{}", room.log("workers.log"));
    drop(fleet);
    // What was committed and not yet delivered, one undisturbed worker delivers.
    room.program(&["worker", "--exit-when-idle"]).succeeds();
    let lines = room.world.effect_lines();
    let mut once = lines.clone();
    once.dedup();
    assert_eq!(lines, once, "no effect twice");
    assert_eq!(lines.len(), jobs.len() * (SEGMENTS + 2), "and none is missing");
    room.world.is_healthy();
}

fn is_done(room: &Room, jobs: &[u64]) -> bool {
    let listed = room.world.vodmill(&["jobs", "--json", "--limit", "1000"]).json();
    let listed = listed.as_array().unwrap();
    let completed = listed.iter().filter(|job| job["state"] == "completed").count();
    assert!(listed.iter().all(|job| job["state"] != "failed"), "{listed:?}");
    completed == jobs.len()
}
