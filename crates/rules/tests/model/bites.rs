//! The checker bites: with a check taken away, or a duty done wrong, it finds the harm and tells the way to
//! it.

use crate::action::{Action, Duty};
use crate::config::{Config, Faults, job, stage};
use crate::configs::{one_task, optional_stage, plan_beside_work};
use crate::flaw::Flaw;
use crate::mill::shortest_trace;
use crate::properties::{
    ATTEMPTS, CANCELLED_TOO_LATE, COUNTED, FM_001, IN_ORDER, LIVE_COMMIT, ONE_COMMIT, RECOVERY,
};
use crate::reverse::{self, CAN_END};
use crate::world::Word;
use rules::job::Phase::{Planning, Processing};
use rules::task::Checks;

const FAIR_WEATHER: Faults = Faults::NONE;

/// The shortest way to break `property`, where a mistake makes that possible and its absence does not.
fn trace(config: Config, flaw: Flaw, property: &'static str) -> Vec<Action> {
    let sound = shortest_trace(config.clone(), property);
    assert_eq!(sound, None, "without the flaw it holds");

    shortest_trace(Config { flaw, ..config }, property).expect("the checker notices")
}

fn stuck_trace(config: Config, flaw: Flaw) -> Vec<Action> {
    let config = Config { merges_alike: false, ..config };
    assert!(reverse::check(config.clone()).is_ok(), "without the flaw nothing is ever stuck");

    let (broken, trace) = reverse::check(Config { flaw, ..config }).expect_err("the search notices");
    assert_eq!(broken, CAN_END);
    trace
}

fn is_commit(action: &Action) -> bool {
    matches!(action, Action::Deliver { letter, .. } if letter.word == Word::Commit)
}

#[test]
fn without_the_fence_two_workers_commit_one_task() {
    let config = Config { faults: FAIR_WEATHER, max_attempts: 3, ..one_task() };

    let trace = trace(config, Flaw::Unchecked(Checks::without_fence()), FM_001);

    // Submit; A claims, says commit, sleeps; its lease is recovered; B claims, says commit; both arrive.
    assert_eq!(trace.len(), 9);
    assert!(trace.contains(&Action::Tick));
    assert!(trace.iter().any(|action| matches!(action, Action::Duty { duty: Duty::Recover, .. })));
    assert_eq!(trace.iter().filter(|action| matches!(action, Action::Claim { .. })).count(), 2);
    assert_eq!(trace.iter().filter(|action| is_commit(action)).count(), 2);
    assert!(trace.last().is_some_and(is_commit));
}

#[test]
fn without_the_fence_a_repeated_commit_takes_effect_twice() {
    let config = Config { faults: Faults { duplicate: true, ..FAIR_WEATHER }, ..one_task() };

    let trace = trace(config, Flaw::Unchecked(Checks::without_fence()), ONE_COMMIT);

    assert_eq!(trace.len(), 5);
    assert!(trace.last().is_some_and(is_commit));
}

#[test]
fn without_the_lease_at_commit_one_that_slept_through_its_lease_commits() {
    let config = Config { faults: FAIR_WEATHER, ..one_task() };

    let trace = trace(config, Flaw::Unchecked(Checks::without_lease_at_commit()), LIVE_COMMIT);

    assert_eq!(trace.len(), 5);
    assert!(trace.contains(&Action::Tick));
    assert!(trace.last().is_some_and(is_commit));
}

#[test]
fn a_recovery_that_does_not_look_at_expiry_is_noticed() {
    let config = Config { faults: FAIR_WEATHER, ..one_task() };

    let trace = trace(config, Flaw::RecoversLiveLeases, RECOVERY);

    assert_eq!(trace.len(), 3);
    assert!(matches!(trace[2], Action::Duty { duty: Duty::Recover, .. }));
}

#[test]
fn a_recovery_that_does_not_count_attempts_is_noticed() {
    let config = Config { faults: FAIR_WEATHER, max_attempts: 1, ..one_task() };

    let trace = trace(config, Flaw::RecoversForEver, ATTEMPTS);

    assert_eq!(trace.len(), 5);
    assert!(matches!(trace[4], Action::Claim { .. }));
}

#[test]
fn a_death_that_is_not_counted_is_noticed() {
    let config = Config { faults: Faults { crash: true, ..FAIR_WEATHER }, ..one_task() };

    let trace = trace(config, Flaw::SparesEveryDeath, COUNTED);

    // Submit, claim, the process dies, and its task is as good as new.
    assert_eq!(trace.len(), 4);
    assert!(matches!(trace[2], Action::Restart { .. }));
}

#[test]
fn a_worker_that_is_taken_for_dead_and_lives_is_noticed() {
    let config = Config { faults: FAIR_WEATHER, ..one_task() };

    let trace = trace(config, Flaw::TakesTheLivingForDead, RECOVERY);

    assert_eq!(trace.len(), 3);
}

#[test]
fn a_retry_that_reopens_given_up_work_would_let_later_stages_overtake_it() {
    let faults = Faults { failure: true, person: true, ..FAIR_WEATHER };

    let trace = trace(Config { faults, ..optional_stage() }, Flaw::ReopensGivenUpWork, IN_ORDER);

    assert_eq!(trace.len(), 14);
    assert_eq!(trace.last(), Some(&Action::Rerun { job: 0 }));
}

#[test]
fn without_recovery_a_lost_answer_hangs_the_job() {
    let config = Config { faults: Faults { loss: true, ..FAIR_WEATHER }, ..one_task() };

    let trace = stuck_trace(config, Flaw::NeverRecovers);

    assert_eq!(trace.len(), 2);
    assert!(matches!(trace[1], Action::Claim { is_heard: false, .. }));
}

#[test]
fn a_plan_not_expanded_because_its_job_had_failed_hangs_the_retried_job() {
    let faults = Faults { failure: true, person: true, ..FAIR_WEATHER };

    let trace = stuck_trace(Config { faults, ..plan_beside_work() }, Flaw::ForgetsToExpand);

    assert_eq!(trace.len(), 13);
    assert!(trace.contains(&Action::Rerun { job: 0 }));
}

#[test]
fn a_retry_that_passes_over_optional_work_hangs_the_job() {
    let faults = Faults { failure: true, person: true, ..FAIR_WEATHER };

    let trace = stuck_trace(Config { faults, ..optional_stage() }, Flaw::PassesOverOptionalWork);

    assert_eq!(trace.len(), 12);
    assert!(trace.contains(&Action::Rerun { job: 0 }));
}

/// Why a job's spec may not make a plan optional.
#[test]
fn a_plan_that_is_given_up_hangs_its_job() {
    let stages =
        job([stage("plan", Planning, 1).optional(), stage("segment", Processing, 1).expands("plan")]);
    let faults = Faults { failure: true, ..FAIR_WEATHER };
    let config = Config { faults, merges_alike: false, ..Config::new("optional plan", vec![stages]) };

    let (broken, trace) = reverse::check(config).expect_err("nobody will ever know its segments");

    assert_eq!(broken, CAN_END);
    assert_eq!(trace.len(), 4);
}

#[test]
fn a_cancel_that_does_not_settle_first_takes_back_what_is_committed() {
    let config = Config { faults: Faults { person: true, ..FAIR_WEATHER }, ..one_task() };

    let trace = trace(config, Flaw::CancelsUnsettled, CANCELLED_TOO_LATE);

    assert_eq!(trace.len(), 5);
    assert_eq!(trace[4], Action::Cancel { job: 0 });
}
