#![allow(clippy::unwrap_used, dead_code)]
mod action;
mod audit;
mod config;
mod flaw;
mod mill;
mod names;
mod properties;
mod step;
mod transaction;
mod world;
use config::*;
use rules::job::Phase::*;
use stateright::{Checker, Model};

fn count(c: Config, label: &str) {
    let t = std::time::Instant::now();
    let ch =
        mill::Mill(c).checker().threads(2).timeout(std::time::Duration::from_secs(60)).spawn_bfs().join();
    println!(
        "{label}: {} done={} gen {} depth {} {:?}",
        ch.unique_state_count(),
        ch.is_done(),
        ch.state_count(),
        ch.max_depth(),
        t.elapsed()
    );
}
#[test]
fn one() {
    let chain = || {
        job([
            stage("plan", Planning, 1),
            stage("segment", Processing, 2).expands("plan"),
            stage("join", UploadingOutputs, 1).needs("segment"),
        ])
    };
    let chain1 = || {
        job([
            stage("plan", Planning, 1),
            stage("segment", Processing, 1).expands("plan"),
            stage("join", UploadingOutputs, 1).needs("segment"),
        ])
    };
    let two = || job([stage("segment", Processing, 2), stage("join", UploadingOutputs, 1).needs("segment")]);
    let single = || job([stage("encode", Processing, 1)]);
    let opt = || {
        job([
            stage("thumbs", Processing, 1).optional(),
            stage("encode", Processing, 1),
            stage("publish", UploadingOutputs, 1).needs("thumbs").needs("encode"),
        ])
    };
    let noop = || job([stage("thumbs", Processing, 1).optional()]);
    for (name, jobs) in [
        ("single", vec![single()]),
        ("chain1", vec![chain1()]),
        ("chain", vec![chain()]),
        ("two", vec![two()]),
        ("2jobs", vec![single(), single()]),
        ("opt", vec![opt()]),
        ("noop", vec![noop()]),
    ] {
        for (processes, mail) in [(1, 1), (2, 1), (2, 2)] {
            let c = Config { processes, mail, ..Config::new(name, jobs.clone()) };
            let f = Faults { drain: false, failure: false, person: false, ..Faults::ALL };
            if mail == 1 {
                count(
                    Config { faults: f, ..c.clone() },
                    &format!("{name} {processes} {mail} loss+dup+crash"),
                );
                count(
                    Config { faults: Faults { failure: true, person: true, ..f }, ..c.clone() },
                    &format!("{name} {processes} {mail} loss+dup+crash+fail+person"),
                );
                count(
                    Config {
                        faults: Faults { failure: true, person: true, crash: true, ..f },
                        max_attempts: 1,
                        ..c.clone()
                    },
                    &format!("{name} {processes} {mail} loss+dup+crash+fail+person, 1 attempt"),
                );
            }
            if mail == 1 || name == "single" {
                count(c.clone(), &format!("{name} {processes} {mail} all"));
            }
        }
    }
}
