//! The worlds that are walked. Each is as small as its question allows, for every worker, word and attempt
//! more multiplies their number.

use crate::config::{Config, Faults, job, stage};
use rules::Millis;
use rules::job::Phase::{Planning, Processing, UploadingOutputs};

/// The heart of it: one task, two workers, every misfortune, words overtaking each other.
pub fn one_task() -> Config {
    Config { mail: 2, ..Config::new("one task", vec![job([stage("encode", Processing, 1)])]) }
}

/// As above, with a third who may be late as well.
pub fn three_workers() -> Config {
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { processes: 3, mail: 2, faults, ..Config::new("three workers", one_task().jobs) }
}

/// A committed plan says which segments exist; they run side by side, and are joined.
pub fn plan_and_segments() -> Config {
    let stages = job([
        stage("plan", Planning, 1),
        stage("segment", Processing, 2).expands("plan"),
        stage("join", UploadingOutputs, 1).needs("segment"),
    ]);
    Config {
        faults: Faults { drain: false, ..Faults::ALL },
        ..Config::new("plan and segments", vec![stages])
    }
}

/// Work the job can do without, beside work it cannot; both before what publishes.
pub fn optional_stage() -> Config {
    let stages = job([
        stage("thumbnails", Processing, 1).optional(),
        stage("encode", Processing, 1),
        stage("publish", UploadingOutputs, 1).needs("thumbnails").needs("encode"),
    ]);
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { max_attempts: 1, faults, ..Config::new("optional stage", vec![stages]) }
}

/// A plan beside other work, so that a job may fail between the plan's commit and its expansion.
pub fn plan_beside_work() -> Config {
    let stages = job([
        stage("plan", Planning, 1),
        stage("audio", Processing, 1),
        stage("segment", Processing, 1).expands("plan").needs("audio"),
    ]);
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { max_attempts: 1, faults, ..Config::new("plan beside work", vec![stages]) }
}

/// Nothing one job does or suffers may touch another.
pub fn two_jobs() -> Config {
    let single = || job([stage("encode", Processing, 1)]);
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { max_attempts: 1, faults, ..Config::new("two jobs", vec![single(), single()]) }
}

/// Workers that shut down and give back, while the stages of a job follow each other.
pub fn drained_stages() -> Config {
    let stages = job([stage("segment", Processing, 2), stage("join", UploadingOutputs, 1).needs("segment")]);
    let faults = Faults { person: false, ..Faults::ALL };
    Config { processes: 2, max_attempts: 1, faults, ..Config::new("drained stages", vec![stages]) }
}

/// A storage that is away again and again, while the stages of a job follow each other.
pub fn storage_away() -> Config {
    let stages = job([stage("segment", Processing, 2), stage("join", UploadingOutputs, 1).needs("segment")]);
    let faults = Faults { person: false, drain: false, ..Faults::ALL };
    Config { processes: 2, max_attempts: 1, faults, ..Config::new("storage away", vec![stages]) }
}

/// Remote workers: a job that one of them calls hopeless is tried by another.
pub fn remote_workers() -> Config {
    let stages = job([stage("segment", Processing, 1), stage("join", UploadingOutputs, 1).needs("segment")]);
    let faults = Faults { remote: true, drain: false, storage: false, ..Faults::ALL };
    Config { faults, ..Config::new("remote workers", vec![stages]) }
}

/// Work that continues where the execution before it was interrupted.
pub fn durable_progress() -> Config {
    let faults = Faults { keeps: true, person: false, drain: false, storage: false, ..Faults::ALL };
    Config { faults, ..Config::new("durable progress", one_task().jobs) }
}

/// A worker in good health whose encoder may stand still.
pub fn hung_encoder() -> Config {
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { stall: Some(Millis(2)), faults, mail: 2, ..Config::new("hung encoder", one_task().jobs) }
}

/// Heartbeats, silence, and a person who switches workers off and on.
pub fn fleet() -> Config {
    let faults = Faults { fleet: true, crash: true, ..Faults::NONE };
    Config { faults, ..Config::new("fleet", one_task().jobs) }
}

/// A job that can do without all of its work.
pub fn all_optional() -> Config {
    Config::new("all optional", vec![job([stage("thumbnails", Processing, 1).optional()])])
}

/// A plan that says there is nothing to do.
pub fn empty_plan() -> Config {
    let stages = job([
        stage("plan", Planning, 1),
        stage("segment", Processing, 0).expands("plan"),
        stage("join", UploadingOutputs, 1).needs("segment"),
    ]);
    let faults = Faults { drain: false, ..Faults::ALL };
    Config { faults, ..Config::new("empty plan", vec![stages]) }
}
