#![allow(clippy::unwrap_used, dead_code)]
mod action; mod audit; mod config; mod configs; mod flaw; mod mill; mod names; mod properties; mod reverse; mod step; mod transaction; mod world;
use config::*;
use configs::*;
use stateright::{Model, Checker};

fn count(c: Config) {
    let t = std::time::Instant::now();
    let name = c.name;
    let ch = mill::Mill(c.clone()).checker().threads(2).timeout(std::time::Duration::from_secs(60)).spawn_bfs().join();
    println!("{name}: {} done={} gen {} depth {} {:?}", ch.unique_state_count(), ch.is_done(), ch.state_count(), ch.max_depth(), t.elapsed());
    let d = ch.discoveries();
    for p in properties::all() {
        let is = d.contains_key(p.name);
        if is && p.expectation == stateright::Expectation::Always { mill::shortest_trace(c.clone(), p.name);}
        if !is && p.expectation == stateright::Expectation::Sometimes { println!("   never {}", p.name);}
    }
    let t = std::time::Instant::now();
    println!("  {:?} {:?}", reverse::check(c).is_ok(), t.elapsed());
}
#[test]
fn one() {
    for c in [one_task(), plan_and_segments(), optional_stage(), plan_beside_work(), two_jobs(), drained_stages(), hung_encoder(), fleet(), all_optional(), empty_plan()] { count(c) }
}
