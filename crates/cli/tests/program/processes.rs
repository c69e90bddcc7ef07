//! Workers as processes: signals, deaths, hung children, an absent database. Real ones, on both engines.

use crate::support::{Engine, Process, Program, World, psql, shared_server, until};
use serde_json::Value;
use std::path::Path;

crate::on_both_engines![
    a_worker_asked_to_end_finishes_what_it_has,
    a_worker_asked_twice_gives_its_work_back_and_no_attempt_is_used_up,
    a_killed_worker_leaves_no_process_behind_and_its_task_is_done_again,
    a_worker_asleep_for_longer_than_its_lease_commits_nothing_late,
    a_hung_command_under_a_living_worker_is_noticed_and_tried_again,
    cancelling_a_job_kills_what_it_runs,
    a_disabled_worker_takes_nothing_new_until_it_is_enabled,
    many_workers_share_a_fan_out_and_each_task_is_done_once,
];

/// A worker with a lease of two seconds.
fn worker(world: &World, more: &[&str]) -> Program {
    let args: Vec<&str> = ["worker"].iter().chain(more).copied().collect();
    world
        .vodmill(&args)
        .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.034")
        .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.3")
        .env("VODMILL_STALE_JOB_CHECK_INTERVAL", "0.5")
}

fn one_stage(run: &str, more: &str) -> String {
    format!(
        "name = 'x'\nbackoff_initial_ms = 10\n{more}[[stage]]\nname = 'only'\nrun = ['sh', '-c', '{run}']\n"
    )
}

fn tasks(world: &World, job: u64) -> Vec<Value> {
    world.vodmill(&["job", "tasks", &job.to_string(), "--json"]).json().as_array().unwrap().clone()
}

fn executions(world: &World, job: u64) -> Vec<Value> {
    world.vodmill(&["job", "executions", &job.to_string(), "--json"]).json().as_array().unwrap().clone()
}

fn is_running(world: &World, job: u64) -> bool {
    executions(world, job).iter().any(|execution| execution["status"] == "IN_PROGRESS")
}

/// The process whose id a command wrote into this file.
fn pid_in(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

/// A running job whose command wrote its process id, and the worker that runs it.
fn running(world: &World, command: &str, more: &str, flags: &[&str]) -> (u64, Process) {
    let job = world.submit(&one_stage(command, more));
    let process = worker(world, flags).start_logged(&world.folder.path().join("worker.log"));
    until("the job runs", || is_running(world, job));
    (job, process)
}

fn a_worker_asked_to_end_finishes_what_it_has(engine: Engine) {
    let world = World::new(engine);
    let go = world.folder.path().join("go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let (job, mut process) = running(&world, &wait, "", &[]);

    process.signal(libc::SIGTERM);
    until("it says that it drains", || workers(&world)[0]["status"] == "draining");
    std::fs::write(&go, "").unwrap();

    assert_eq!(process.ends(), Some(0));
    assert_eq!(tasks(&world, job)[0]["state"], "DONE");
    assert_eq!(workers(&world)[0]["status"], "offline");
    world.is_healthy();
}

fn workers(world: &World) -> Vec<Value> {
    world.vodmill(&["workers", "--all", "--json"]).json().as_array().unwrap().clone()
}

fn a_worker_asked_twice_gives_its_work_back_and_no_attempt_is_used_up(engine: Engine) {
    let world = World::new(engine);
    let again = world.folder.path().join("again");
    let command = format!("test -e {0} || {{ touch {0}; sleep 1000; }}", again.display());
    let (job, mut process) = running(&world, &command, "max_attempts = 1\n", &[]);
    until("the command has begun", || again.exists());

    process.signal(libc::SIGTERM);
    until("it says that it drains", || workers(&world)[0]["status"] == "draining");
    process.signal(libc::SIGTERM);

    assert_eq!(process.ends(), Some(0));
    assert_eq!(executions(&world, job)[0]["failure"], "drained");
    worker(&world, &["--exit-when-idle"]).succeeds();
    assert_eq!(world.job_state(job), "completed");
    assert_eq!(tasks(&world, job)[0]["attempts"], 1, "two executions, one of which counts");
    world.is_healthy();
}

fn a_killed_worker_leaves_no_process_behind_and_its_task_is_done_again(engine: Engine) {
    let world = World::new(engine);
    let pids = ["child", "grandchild"].map(|name| world.folder.path().join(name));
    let [child, grandchild] = pids.each_ref().map(|path| path.display());
    let command = format!(
        "test $VODMILL_ATTEMPT -gt 1 && exit 0; echo $$ > {child}; setsid sleep 1000 & echo $! > {grandchild}; sleep 1000"
    );
    let (job, mut process) = running(&world, &command, "", &[]);
    until("both are written", || pids.iter().all(|path| pid_in(path).is_some()));

    process.kill();

    for path in &pids {
        let pid = pid_in(path).unwrap();
        until("the process is gone", || !is_alive(pid));
    }
    worker(&world, &["--exit-when-idle"]).succeeds();
    assert_eq!(world.job_state(job), "completed");
    assert_eq!(executions(&world, job)[0]["failure"], "lease_expired");
    world.is_healthy();
}

fn a_worker_asleep_for_longer_than_its_lease_commits_nothing_late(engine: Engine) {
    let world = World::new(engine);
    let (job, mut sleeper) =
        running(&world, "test $VODMILL_ATTEMPT -gt 1 || sleep 1", "", &["--no-orchestrator"]);

    sleeper.signal(libc::SIGSTOP);
    worker(&world, &["--exit-when-idle"]).succeeds();
    assert_eq!(world.job_state(job), "completed");
    sleeper.signal(libc::SIGCONT);
    let log = world.folder.path().join("worker.log");
    until("the sleeper drops its work", || {
        let log = std::fs::read_to_string(&log).unwrap();
        ["lost", "refused", "committed already", "not running"].iter().any(|word| log.contains(word))
    });

    sleeper.signal(libc::SIGTERM);
    assert_eq!(sleeper.ends(), Some(0));
    let statuses: Vec<Value> = executions(&world, job).into_iter().map(|e| e["status"].clone()).collect();
    assert_eq!(statuses, ["ABORTED", "DONE"]);
    world.is_healthy();
}

fn a_hung_command_under_a_living_worker_is_noticed_and_tried_again(engine: Engine) {
    let world = World::new(engine);
    let pid = world.folder.path().join("pid");
    let command = format!(
        "test $VODMILL_ATTEMPT -gt 1 && exit 0; echo $$ > {}; while true; do echo frame; sleep 0.1; done",
        pid.display()
    );
    let spec = format!("{}stall_ms = 1500\n", one_stage(&command, ""));
    let job = world.submit(&spec);
    let mut process = worker(&world, &["--exit-when-idle"]).start();
    until("the command has begun", || pid_in(&pid).is_some() && is_running(&world, job));

    crate::support::kill(pid_in(&pid).unwrap(), libc::SIGSTOP);

    assert_eq!(process.ends(), Some(0), "the same worker, alive all the time, finishes the job");
    assert_eq!(world.job_state(job), "completed");
    let executions = executions(&world, job);
    assert_eq!(executions.len(), 2);
    assert!(!is_alive(pid_in(&pid).unwrap()), "the hung command was killed");
    world.is_healthy();
}

fn cancelling_a_job_kills_what_it_runs(engine: Engine) {
    let world = World::new(engine);
    let pid = world.folder.path().join("pid");
    let (job, mut process) = running(&world, &format!("echo $$ > {}; sleep 1000", pid.display()), "", &[]);
    until("the command has begun", || pid_in(&pid).is_some());

    world.vodmill(&["job", "cancel", &job.to_string()]).succeeds();

    until("the command is gone", || !is_alive(pid_in(&pid).unwrap()));
    assert_eq!(world.job_state(job), "cancelled");
    assert_eq!(executions(&world, job)[0]["failure"], "withdrawn");
    process.signal(libc::SIGTERM);
    assert_eq!(process.ends(), Some(0));
    world.is_healthy();
}

fn a_disabled_worker_takes_nothing_new_until_it_is_enabled(engine: Engine) {
    let world = World::new(engine);
    let mut process = worker(&world, &[]).start();
    until("it has registered", || !workers(&world).is_empty());
    let id = workers(&world)[0]["id"].as_str().unwrap().to_owned();

    world.vodmill(&["workers", "disable", &id]).succeeds();
    let job = world.submit(&one_stage("true", ""));
    until("two more heartbeats have come", || {
        let (first, last) = (&workers(&world)[0]["registered_at"], &workers(&world)[0]["last_heartbeat"]);
        last.as_i64().unwrap_or(0) > first.as_i64().unwrap() + 1000
    });

    assert_eq!(tasks(&world, job)[0]["state"], "READY");
    world.vodmill(&["workers", "enable", &id]).succeeds();
    until("it is done", || world.job_state(job) == "completed");
    process.signal(libc::SIGTERM);
    assert_eq!(process.ends(), Some(0));
}

fn many_workers_share_a_fan_out_and_each_task_is_done_once(engine: Engine) {
    let world = World::new(engine);
    let job = world.submit(
        "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\nsegments = 200\neffect = { append = 'effects' }\n",
    );

    // On a busy machine the two seconds of other tests would run out, and that is not what this is about.
    let start =
        || worker(&world, &["--exit-when-idle"]).env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1").start();
    let mut fleet: Vec<Process> = (0..4).map(|_| start()).collect();

    assert!(fleet.iter_mut().all(|process| process.ends() == Some(0)));
    assert_eq!(executions(&world, job).len(), 200);
    assert_eq!(world.effect_lines().len(), 200);
    world.is_healthy();
}

#[test]
fn a_worker_outlives_its_database_and_loses_nothing() {
    let world = World::with_server();
    let go = world.folder.path().join("go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let (job, mut process) = running(&world, &wait, "", &["--exit-when-idle"]);
    let server = world.server.as_ref().unwrap();

    server.stop("immediate");
    // The work ends while the desk is away; its result is kept and told later.
    std::fs::write(&go, "").unwrap();
    server.start_again();

    assert_eq!(process.ends(), Some(0), "the same process");
    assert_eq!(world.job_state(job), "completed");
    world.is_healthy();
}

#[test]
fn a_worker_outlives_a_database_that_has_no_connection_for_it() {
    let (world, role) = World::of_stranger();
    let go = world.folder.path().join("go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let (job, mut process) = running(&world, &wait, "", &["--exit-when-idle"]);
    let limit = |to: i32| psql(&shared_server(), &format!("ALTER ROLE {role} CONNECTION LIMIT {to}"));
    let its = format!("FROM pg_stat_activity WHERE usename = '{role}'");

    limit(0);
    psql(&shared_server(), &format!("SELECT pg_terminate_backend(pid) {its}"));
    until("it has none", || psql(&shared_server(), &format!("SELECT count(*) {its}")).trim() == "0");
    let said = world.vodmill(&["jobs"]).ends_with(1);
    assert!(said.contains("too many connections"), "{said}");
    std::fs::write(&go, "").unwrap();
    until("it notices", || {
        std::fs::read_to_string(world.folder.path().join("worker.log"))
            .unwrap()
            .contains("no connection left")
    });
    limit(-1);

    assert_eq!(process.ends(), Some(0), "the same process");
    assert_eq!(world.job_state(job), "completed");
    assert_eq!(executions(&world, job).len(), 1);
    world.is_healthy();
}

/// PostgreSQL ends the transaction of a client that stands still; SQLite cannot, and waits for as long as the pause.
#[test]
fn an_orchestrator_stopped_inside_its_transaction_holds_nobody_up_for_ever() {
    let world = World::new(Engine::Postgres);
    let job = world.submit(&one_stage("true", ""));
    let mut stopped = world
        .vodmill(&["orchestrate"])
        .env("VODMILL_FAILPOINT", "settle.before")
        .env("VODMILL_FAILPOINT_ACTION", "stop")
        .start();
    let mut process = worker(&world, &["--no-orchestrator"]).start();
    until("the orchestrator stands still", || stopped.is_stopped());

    let mut second = world.vodmill(&["orchestrate"]).start();

    until("the other orchestrator ends the job", || world.job_state(job) == "completed");
    stopped.signal(libc::SIGCONT);
    for process in [&mut stopped, &mut second, &mut process] {
        process.signal(libc::SIGTERM);
        assert_eq!(process.ends(), Some(0));
    }
    world.is_healthy();
}
