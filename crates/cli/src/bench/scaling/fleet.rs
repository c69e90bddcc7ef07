//! Workers and their chunks, from event to event.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rules::Millis;
use rules::hedge::Straggler;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// To probe the file and to plan.
const BEFORE: f64 = 4.0;
/// Of a task beside its frames: claim, ffmpeg's start, decoding up to its first frame, upload, commit.
const AROUND: f64 = 1.0;
/// What the gate decodes, and what linking one segment takes.
const GATE: f64 = 8.0;
const LINK: f64 = 0.0005;
/// A lease, and how often somebody looks for those that ran out and for those that are slow.
const LEASE: f64 = 60.0;
const LOOK: f64 = 1.0;
/// Until a dead worker's machine has another.
const REBIRTH: f64 = 120.0;
/// How much slower the slow are.
const SLOWNESS: f64 = 4.0;

#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    pub workers: u32,
    pub speed: f64,
    /// In seconds, if they die at all.
    pub mean_life: Option<f64>,
    pub slow_share: f64,
    pub hedges: bool,
    /// Of all rungs together.
    pub segments: u64,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    pub seconds: f64,
    pub lost: u32,
    pub hedged: u32,
}

impl Outcome {
    pub fn json(&self) -> Value {
        json!({ "seconds": self.seconds, "lost": self.lost, "hedged": self.hedged })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Of a worker's life, by number.
    Done {
        worker: usize,
        life: u32,
    },
    Dies {
        worker: usize,
        life: u32,
    },
    Back {
        worker: usize,
    },
    /// A lease that nobody renews has run out.
    Expired {
        chunk: usize,
    },
    Look,
}

#[derive(Debug, Clone, Copy, Default)]
struct Worker {
    life: u32,
    slowness: f64,
    is_dead: bool,
    /// What it does, since when, until when.
    busy: Option<(usize, f64, f64)>,
}

struct World {
    fleet: Fleet,
    draw: StdRng,
    now: f64,
    /// With their times in microseconds.
    events: BinaryHeap<Reverse<(u64, Event)>>,
    workers: Vec<Worker>,
    idle: BTreeSet<usize>,
    /// Seconds of video, and how hard they are.
    chunks: Vec<f64>,
    ready: VecDeque<usize>,
    done: Vec<bool>,
    twinned: Vec<bool>,
    took: Vec<f64>,
    outcome: Outcome,
}

impl Fleet {
    pub fn run(self, chunks: &[f64]) -> Outcome {
        let mut draw = StdRng::seed_from_u64(self.seed);
        // The difficulty of each chunk is the same for every fleet of a seed.
        let chunks: Vec<f64> = chunks.iter().map(|seconds| seconds * difficulty(&mut draw)).collect();
        let worker = |_| {
            let is_slow = draw.random_bool(self.slow_share);
            Worker { slowness: if is_slow { SLOWNESS } else { 1.0 }, ..Worker::default() }
        };
        let workers: Vec<Worker> = (0..self.workers).map(worker).collect();
        let mut world = World {
            fleet: self,
            draw,
            now: BEFORE,
            events: BinaryHeap::new(),
            idle: (0..workers.len()).collect(),
            workers,
            ready: (0..chunks.len()).collect(),
            done: vec![false; chunks.len()],
            twinned: vec![false; chunks.len()],
            took: Vec::new(),
            chunks,
            outcome: Outcome::default(),
        };
        world.live();
        let after = GATE + LINK * self.segments as f64;
        Outcome { seconds: world.now + after, ..world.outcome }
    }
}

impl World {
    fn live(&mut self) {
        for worker in 0..self.workers.len() {
            self.expect_death(worker);
        }
        self.plan(LOOK, Event::Look);
        self.give();
        while self.done.contains(&false) {
            let Some(Reverse((at, event))) = self.events.pop() else { return };
            self.now = at as f64 / 1e6;
            match event {
                Event::Done { worker, life } if self.workers[worker].life == life => self.finish(worker),
                Event::Dies { worker, life } if self.workers[worker].life == life => self.die(worker),
                Event::Done { .. } | Event::Dies { .. } => {}
                Event::Back { worker } => {
                    self.workers[worker].is_dead = false;
                    self.idle.insert(worker);
                    self.expect_death(worker);
                }
                Event::Expired { chunk } if !self.done[chunk] => self.ready.push_front(chunk),
                Event::Expired { .. } => {}
                Event::Look => {
                    self.hedge();
                    self.plan(LOOK, Event::Look);
                }
            }
            self.give();
        }
    }

    fn plan(&mut self, after: f64, event: Event) {
        self.events.push(Reverse((((self.now + after) * 1e6) as u64, event)));
    }

    /// Everybody who is idle takes what waits.
    fn give(&mut self) {
        while let (Some(&worker), false) = (self.idle.first(), self.ready.is_empty()) {
            let Some(chunk) = self.ready.pop_front() else { return };
            if self.done[chunk] {
                continue;
            }
            self.idle.remove(&worker);
            let taken = AROUND + self.chunks[chunk] / self.fleet.speed * self.workers[worker].slowness;
            self.workers[worker].busy = Some((chunk, self.now, self.now + taken));
            let life = self.workers[worker].life;
            self.plan(taken, Event::Done { worker, life });
        }
    }

    /// The first commit counts; who does the same is told to stop.
    fn finish(&mut self, worker: usize) {
        let Some((chunk, since, _)) = self.workers[worker].busy.take() else { return };
        self.done[chunk] = true;
        self.took.push(self.now - since);
        self.rest(worker);
        let others: Vec<usize> = (0..self.workers.len())
            .filter(|&other| self.workers[other].busy.is_some_and(|(same, ..)| same == chunk))
            .collect();
        for other in others {
            self.workers[other].busy = None;
            self.rest(other);
        }
    }

    /// Ready for the next; what was expected of it before is not any more.
    fn rest(&mut self, worker: usize) {
        self.workers[worker].life += 1;
        self.idle.insert(worker);
        self.expect_death(worker);
    }

    /// Its chunk is missed when the lease has run out: some moment after the last renewal.
    fn die(&mut self, worker: usize) {
        let it = &mut self.workers[worker];
        (it.is_dead, it.life) = (true, it.life + 1);
        if let Some((chunk, ..)) = it.busy.take() {
            self.outcome.lost += 1;
            let left = self.draw.random_range(LEASE * 2.0 / 3.0..LEASE) + LOOK;
            self.plan(left, Event::Expired { chunk });
        }
        self.idle.remove(&worker);
        self.plan(REBIRTH, Event::Back { worker });
    }

    fn expect_death(&mut self, worker: usize) {
        if let Some(mean) = self.fleet.mean_life {
            let life = self.workers[worker].life;
            let left = -mean * (1.0 - self.draw.random::<f64>()).ln();
            self.plan(left, Event::Dies { worker, life });
        }
    }

    /// By the product's own rule: where somebody is idle, what is slow is begun a second time.
    fn hedge(&mut self) {
        if !self.fleet.hedges || self.took.is_empty() || !self.ready.is_empty() {
            return;
        }
        let median = median(&self.took);
        let running: Vec<(usize, f64, f64)> = self.workers.iter().filter_map(|it| it.busy).collect();
        for (chunk, since, until) in running {
            let permille = 1000.0 * (self.now - since) / (until - since);
            let straggler =
                Straggler { running: millis(self.now - since), permille: Some(permille as u16), median };
            if self.ready.len() < self.idle.len() && !self.twinned[chunk] && straggler.is_worth_hedging() {
                self.twinned[chunk] = true;
                self.outcome.hedged += 1;
                self.ready.push_back(chunk);
            }
        }
    }
}

/// Some scenes are harder than others: most between half and twice the mean.
fn difficulty(draw: &mut StdRng) -> f64 {
    let sum: f64 = (0..12).map(|_| draw.random::<f64>()).sum();
    (0.3 * (sum - 6.0) - 0.045).exp()
}

fn median(took: &[f64]) -> Millis {
    let mut sorted = took.to_vec();
    sorted.sort_by(f64::total_cmp);
    millis(sorted[sorted.len() / 2])
}

fn millis(seconds: f64) -> Millis {
    Millis((seconds * 1000.0) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Fleet = Fleet {
        workers: 10,
        speed: 0.5,
        mean_life: None,
        slow_share: 0.0,
        hedges: true,
        segments: 1000,
        seed: 7,
    };

    #[test]
    fn more_workers_are_sooner_done_and_never_sooner_than_possible() {
        let chunks = vec![12.0; 200];
        let times = [1, 10, 100].map(|workers| Fleet { workers, ..CALM }.run(&chunks).seconds);
        let least = chunks.iter().sum::<f64>() / CALM.speed;

        assert!(times[0] > times[1] && times[1] > times[2], "{times:?}");
        assert!(times[1] > 0.8 * least / 10.0, "{times:?}");
    }

    #[test]
    fn everything_is_done_though_workers_die() {
        let rough = Fleet { mean_life: Some(120.0), slow_share: 0.1, ..CALM };

        let outcome = rough.run(&[12.0; 200]);

        assert!(outcome.lost > 0 && outcome.seconds.is_finite());
        assert!(outcome.seconds > CALM.run(&[12.0; 200]).seconds);
    }

    #[test]
    fn a_slow_last_one_is_done_a_second_time() {
        let rough = Fleet { slow_share: 0.2, workers: 20, ..CALM };
        let chunks = vec![12.0; 60];

        let (hedged, unhedged) = (rough.run(&chunks), Fleet { hedges: false, ..rough }.run(&chunks));

        assert!(hedged.hedged > 0);
        assert!(hedged.seconds < unhedged.seconds, "{hedged:?} {unhedged:?}");
    }
}
