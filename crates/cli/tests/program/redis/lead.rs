//! One orchestrator leads; one that slept too long is told that it does no longer.

use super::room::Room;
use crate::support::{Process, until};

const NAMES: [&str; 2] = ["one.log", "other.log"];

fn leads(room: &Room, name: &str) -> bool {
    let log = room.log(name);
    log.rfind("leading orchestrator") > log.rfind("following orchestrator")
}

fn fence(room: &Room) -> u64 {
    room.redis.ask(&["GET", "vodmill:fence:orchestrator"]).parse().unwrap_or(0)
}

#[test]
fn a_leader_asleep_for_longer_than_its_term_is_told_and_the_next_has_a_higher_number() {
    let room = Room::new("redis");
    let fleet: Vec<Process> = NAMES.map(|name| room.start(&["orchestrate"], name)).into();
    // Each leads until the first answer says otherwise.
    until("one leads, one follows", || NAMES.iter().filter(|name| is_follower(&room, name)).count() == 1);
    let leader = NAMES.iter().position(|name| !is_follower(&room, name)).unwrap();
    let before = fence(&room);

    fleet[leader].signal(libc::SIGSTOP);
    until("the other leads", || leads(&room, NAMES[1 - leader]));
    let after = fence(&room);
    fleet[leader].signal(libc::SIGCONT);

    until("the sleeper is told", || room.log(NAMES[leader]).contains("lost the lead of orchestrator"));
    assert!(before > 0 && after > before, "{before} {after}");
    assert!(leads(&room, NAMES[1 - leader]));
}

fn is_follower(room: &Room, name: &str) -> bool {
    room.log(name).contains("following orchestrator")
}

/// Without Redis, PostgreSQL says who leads.
#[test]
fn a_leader_that_dies_is_followed_by_another_without_redis_too() {
    let room = Room::new("hybrid");
    room.redis.run("stop", &[]);
    let mut fleet: Vec<Process> = NAMES.map(|name| room.start(&["orchestrate"], name)).into();
    until("one leads, one follows", || NAMES.iter().filter(|name| is_follower(&room, name)).count() == 1);
    let leader = NAMES.iter().position(|name| !is_follower(&room, name)).unwrap();

    fleet[leader].kill();

    until("the other leads", || leads(&room, NAMES[1 - leader]));
}
