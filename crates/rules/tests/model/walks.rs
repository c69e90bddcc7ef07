//! Every reachable world of each configuration: nothing that must hold is broken, and every job can still
//! end.

use crate::config::{Config, Faults};
use crate::{configs, mill, reverse};
use std::io::Write;

/// Asserts a lower bound as well: a model that has lost most of its worlds proves nothing.
fn holds(config: Config, at_least: usize) {
    let worlds = never_broken(config.clone(), at_least);
    let walked_again = reverse::check(config).map_err(|(broken, _)| broken);
    assert_eq!(walked_again, Ok(worlds), "both searches see the same worlds");
}

fn never_broken(config: Config, at_least: usize) -> usize {
    let name = config.name;
    let worlds = mill::check(config);
    // Past the test harness, which would keep it to itself.
    let _ = writeln!(std::io::stderr(), "{name}: {worlds} worlds");
    assert!(worlds >= at_least, "{name}: only {worlds} worlds; the model has lost some");
    worlds
}

#[test]
fn one_task_survives_every_misfortune() {
    holds(configs::one_task(), 150_000);
}

#[test]
fn three_workers_contend_for_one_task() {
    holds(configs::three_workers(), 100_000);
}

#[test]
fn a_plan_its_segments_and_their_join_come_to_an_end() {
    never_broken(configs::plan_and_segments(), 400_000);
    holds(Config { max_attempts: 1, ..configs::plan_and_segments() }, 50_000);
}

#[test]
fn a_job_that_fails_between_plan_and_expansion_can_be_retried() {
    holds(configs::plan_beside_work(), 60_000);
}

#[test]
fn a_job_goes_on_without_its_optional_work() {
    holds(configs::optional_stage(), 90_000);
    holds(configs::all_optional(), 8_000);
}

#[test]
fn a_plan_may_say_that_there_is_nothing_to_do() {
    holds(configs::empty_plan(), 15_000);
}

#[test]
fn one_remote_worker_alone_fails_no_job_for_good() {
    holds(configs::remote_workers(), 10_000);
}

#[test]
fn jobs_do_not_disturb_each_other() {
    holds(configs::two_jobs(), 100_000);
}

#[test]
fn drained_work_is_done_by_others() {
    holds(configs::drained_stages(), 40_000);
}

#[test]
fn work_given_back_for_the_storages_sake_is_done_in_the_end() {
    holds(configs::storage_away(), 15_000);
}

#[test]
fn work_that_is_interrupted_after_durable_progress_is_done_in_the_end() {
    holds(configs::durable_progress(), 1_000);
}

#[test]
fn a_hung_encoder_loses_its_lease_however_lively_its_worker() {
    holds(configs::hung_encoder(), 70_000);
}

#[test]
fn workers_that_fall_silent_or_are_switched_off_take_nothing_with_them() {
    holds(configs::fleet(), 50_000);
}

#[test]
#[ignore = "takes minutes; run by `make model`"]
fn larger_worlds_hold_too() {
    holds(Config { faults: Faults::ALL, ..configs::three_workers() }, 1_500_000);
    holds(Config { max_attempts: 2, ..configs::optional_stage() }, 400_000);
    holds(Config { max_attempts: 2, ..configs::two_jobs() }, 350_000);
    holds(Config { max_attempts: 3, ..configs::one_task() }, 200_000);
    holds(Config { faults: Faults::ALL, ..configs::plan_and_segments() }, 2_500_000);
}
