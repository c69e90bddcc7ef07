//! Four workers and two orchestrators drain jobs while a hand kills and pauses them at random, and PostgreSQL is
//! restarted under them. Afterwards every job has ended as it should, and every effect has happened exactly once.
//!
//! The seed is printed; `VODMILL_CHAOS_SEED` repeats the same hand. The short form is a test like any other; `make
//! chaos` runs rounds for as long as `VODMILL_CHAOS_SECONDS` says.

use crate::support::seat::Seat;
use crate::support::{Engine, Process, Program, World, until};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Short, so that a crash costs little time; a pause lasts longer.
const LEASE: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(2500);

#[test]
fn everything_survives_on_sqlite() {
    round(Engine::Sqlite, seed(), Size::Short);
}

#[test]
fn everything_survives_on_postgres() {
    round(Engine::Postgres, seed(), Size::Short);
}

#[test]
#[ignore = "takes as long as it is told to: make chaos"]
fn everything_survives_for_long() {
    let seconds =
        std::env::var("VODMILL_CHAOS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let (begun, first) = (Instant::now(), seed());
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        for engine in [Engine::Postgres, Engine::Sqlite] {
            round(engine, first.wrapping_add(rounds), Size::Full);
        }
        rounds += 1;
    }
    println!("{rounds} rounds on each engine");
}

fn seed() -> u64 {
    let given = std::env::var("VODMILL_CHAOS_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(rand::random)
}

#[derive(Clone, Copy, PartialEq)]
enum Size {
    Short,
    /// 2,000 tasks.
    Full,
}

/// What a job is to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Completes,
    Fails,
    IsCancelled,
}

fn round(engine: Engine, seed: u64, size: Size) {
    println!("chaos on {engine:?}: VODMILL_CHAOS_SEED={seed}");
    let _seat = Seat::take(2);
    let mut dice = StdRng::seed_from_u64(seed);
    let world = match engine {
        Engine::Postgres => World::with_server(),
        Engine::Sqlite => World::new(Engine::Sqlite),
    };
    let jobs = submit(&world, &mut dice, if size == Size::Full { 55 } else { 8 });

    let mut fleet = Fleet::start(&world);
    let mut hand = Hand {
        dice: &mut dice,
        world: &world,
        to_cancel: cancelled(&jobs),
        cancelling: None,
        last_restart: Instant::now(),
    };
    until_with("every job has ended", Duration::from_secs(600), || {
        hand.strike(&mut fleet);
        open_jobs(&world) == Some(0)
    });
    println!("{}", fleet.tally);
    fleet.stop_all();
    // What the last crash left is settled, delivered and recovered by one undisturbed worker.
    program(&world, &["worker", "--exit-when-idle"]).succeeds();

    check(&world, &jobs);
}

/// Diamonds: a plan, a fan-out, a chain and a fan-in; about forty tasks each, every one with an effect.
fn submit(world: &World, dice: &mut StdRng, count: usize) -> BTreeMap<u64, Fate> {
    (0..count)
        .map(|at| {
            let fate = match at % 10 {
                3 => Fate::Fails,
                7 => Fate::IsCancelled,
                _ => Fate::Completes,
            };
            (world.submit(&spec(dice, fate)), fate)
        })
        .collect()
}

const SEGMENTS: usize = 30;

fn spec(dice: &mut StdRng, fate: Fate) -> String {
    let segments: Vec<String> = (0..SEGMENTS).map(|segment| segment.to_string()).collect();
    let effect = "effect = { append = 'effects' }";
    let join = match fate {
        Fate::Fails => "run = ['sh', '-c', 'exit 65']",
        Fate::IsCancelled => "sleep_ms = 3600000",
        Fate::Completes => "run = ['sh', '-c', 'exit 0']",
    };
    let (priority, sleep_ms) = (dice.random_range(0..=10), dice.random_range(5..60));
    format!(
        "name = 'chaos'\npriority = {priority}\nmax_attempts = 100\nbackoff_initial_ms = 50\n\
         [[stage]]\nname = 'plan'\nphase = 'planning'\nrun = ['echo', '{{\"segments\": [{}]}}']\n{effect}\n\
         [[stage]]\nname = 'encode'\nneeds = ['plan']\nexpand = 'plan'\nsleep_ms = {sleep_ms}\n{effect}\n\
         [[stage]]\nname = 'audio'\nneeds = ['plan']\nkind = 'noop'\nsegments = 4\n{effect}\n\
         [[stage]]\nname = 'flaky'\nneeds = ['audio']\nrun = ['sh', '-c', 'test $VODMILL_ATTEMPT -gt 1']\n{effect}\n\
         [[stage]]\nname = 'join'\nneeds = ['encode', 'flaky']\n{join}\n{effect}\n",
        segments.join(", ")
    )
}

/// Tasks that commit in a job that completes.
const COMMITS: usize = 1 + SEGMENTS + 4 + 1 + 1;

fn cancelled(jobs: &BTreeMap<u64, Fate>) -> Vec<u64> {
    jobs.iter().filter(|(_, fate)| **fate == Fate::IsCancelled).map(|(id, _)| *id).collect()
}

fn program(world: &World, args: &[&str]) -> Program {
    let lease = LEASE.as_secs_f64() / 60.0;
    world
        .vodmill(args)
        .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", &lease.to_string())
        .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
        .env("VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", "0.05")
        .env("VODMILL_STALE_JOB_CHECK_INTERVAL", "1")
        .env("VODMILL_LOG", "debug,sqlx=warn")
}

/// Four workers without, two orchestrators; whoever is killed is started again.
struct Fleet<'a> {
    world: &'a World,
    members: Vec<Member>,
    tally: Tally,
}

struct Member {
    args: &'static [&'static str],
    process: Process,
    paused_at: Option<Instant>,
}

const MEMBERS: [&[&str]; 6] = [
    &["worker", "--slots", "4", "--no-orchestrator"],
    &["worker", "--slots", "4", "--no-orchestrator"],
    &["worker", "--slots", "2", "--no-orchestrator"],
    &["worker", "--slots", "1", "--no-orchestrator"],
    &["orchestrate"],
    &["orchestrate"],
];

#[derive(Default)]
struct Tally {
    kills: u32,
    pauses: u32,
    drains: u32,
    restarts: u32,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { kills, pauses, drains, restarts } = self;
        write!(f, "{kills} kills, {pauses} pauses, {drains} drains, {restarts} restarts of the server")
    }
}

impl<'a> Fleet<'a> {
    fn start(world: &'a World) -> Self {
        let member = |args| Member { args, process: start(world, args), paused_at: None };
        Fleet { world, members: MEMBERS.map(member).into(), tally: Tally::default() }
    }

    /// Wakes who has slept long enough; starts again who is gone.
    fn tend(&mut self) {
        for member in &mut self.members {
            if member.paused_at.is_some_and(|since| since.elapsed() > PAUSE) {
                member.process.signal(libc::SIGCONT);
                member.paused_at = None;
            }
            if member.process.has_ended() {
                member.process = start(self.world, member.args);
                member.paused_at = None;
            }
        }
    }

    fn stop_all(&mut self) {
        for member in &mut self.members {
            member.process.signal(libc::SIGCONT);
            member.process.kill();
        }
    }
}

fn start(world: &World, args: &[&str]) -> Process {
    program(world, args).start_logged(&world.folder.path().join("fleet.log"))
}

/// The hand that strikes, by the dice.
struct Hand<'a> {
    dice: &'a mut StdRng,
    world: &'a World,
    to_cancel: Vec<u64>,
    /// Not waited for: on SQLite it may have to wait itself, for a member this hand has paused.
    cancelling: Option<(u64, Process)>,
    last_restart: Instant,
}

impl Hand<'_> {
    fn strike(&mut self, fleet: &mut Fleet<'_>) {
        fleet.tend();
        let victim = self.dice.random_range(0..fleet.members.len());
        let member = &mut fleet.members[victim];
        match self.dice.random_range(0..100) {
            0..30 => {
                member.process.kill();
                fleet.tally.kills += 1;
            }
            30..45 if member.paused_at.is_none() => {
                member.process.signal(libc::SIGSTOP);
                member.paused_at = Some(Instant::now());
                fleet.tally.pauses += 1;
            }
            45..55 if member.paused_at.is_none() => {
                member.process.signal(libc::SIGTERM);
                fleet.tally.drains += 1;
            }
            55..70 => self.cancel(),
            70..80 => self.restart_server(&mut fleet.tally),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(self.dice.random_range(50..400)));
    }

    fn cancel(&mut self) {
        let Some((id, process)) = &mut self.cancelling else {
            let start = |&id: &u64| (id, self.world.vodmill(&["job", "cancel", &id.to_string()]).start());
            self.cancelling = self.to_cancel.choose(self.dice).map(start);
            return;
        };
        if process.has_ended() {
            // The database may have been away; another throw of the dice tries again.
            let (id, is_done) = (*id, process.ends() == Some(0));
            self.to_cancel.retain(|&other| other != id || !is_done);
            self.cancelling = None;
        }
    }

    fn restart_server(&mut self, tally: &mut Tally) {
        let Some(server) = &self.world.server else { return };
        if self.last_restart.elapsed() > Duration::from_secs(4) {
            server.restart(if self.dice.random() { "fast" } else { "immediate" });
            self.last_restart = Instant::now();
            tally.restarts += 1;
        }
    }
}

fn open_jobs(world: &World) -> Option<usize> {
    let output = world.vodmill(&["jobs", "--json", "--limit", "1000"]).output();
    let jobs: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).ok()?;
    let is_open = |job: &&serde_json::Value| job["ended_at"].is_null();
    Some(jobs.iter().filter(is_open).count())
}

fn until_with(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < patience, "waited in vain until {what}");
    }
}

fn check(world: &World, jobs: &BTreeMap<u64, Fate>) {
    for (&id, &fate) in jobs {
        let expected = match fate {
            Fate::Completes => "completed",
            Fate::Fails => "failed",
            Fate::IsCancelled => "cancelled",
        };
        assert_eq!(world.job_state(id), expected, "job {id}");
    }
    world.is_healthy();
    check_effects(world, jobs);
    until("no process of the fleet is left", || no_process_in(world));
}

/// One line for each commit, and no other line.
fn check_effects(world: &World, jobs: &BTreeMap<u64, Fate>) {
    let lines = world.effect_lines();
    let mut once = lines.clone();
    once.dedup();
    assert_eq!(lines, once, "no effect twice");
    let mut committed = Vec::new();
    for (&id, &fate) in jobs {
        let executions = world.vodmill(&["job", "executions", &id.to_string(), "--json"]).json();
        let done: Vec<String> = executions
            .as_array()
            .unwrap()
            .iter()
            .filter(|execution| execution["status"] == "DONE")
            .map(|execution| execution["id"].as_str().unwrap().rsplit_once('.').unwrap().0.to_owned())
            .collect();
        if fate == Fate::Completes {
            assert_eq!(done.len(), COMMITS, "job {id}: every task committed exactly once");
        }
        committed.extend(done.iter().map(|task| format!("append/{task}\t{task}")));
    }
    committed.sort();
    assert_eq!(lines, committed, "each commit has its effect");
}

/// Nothing that was started in this world's folder still runs.
fn no_process_in(world: &World) -> bool {
    let folder = world.folder.path().canonicalize().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().all(|entry| {
        let cwd = std::fs::read_link(entry.path().join("cwd"));
        !cwd.is_ok_and(|cwd| cwd.starts_with(&folder))
    })
}
