//! The program is killed before and after every durable step it makes, once for each; then it is run again, and
//! nothing is lost and nothing has happened twice.

mod at_a_server;
mod by_itself;
mod of_files;

use crate::support::{Engine, Program, World, until};
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use store::Step;

/// Commits, retries, a permanent failure in an optional stage, a plan, a fan-in, and effects; slow enough to renew.
const JOB: &str = r#"
name = "failpoints"
max_attempts = 20
backoff_initial_ms = 20

[[stage]]
name = "plan"
phase = "planning"
run = ["echo", '{"segments": [1, 2, 3]}']

[[stage]]
name = "encode"
needs = ["plan"]
expand = "plan"
sleep_ms = 500
effect = { append = "effects" }

[[stage]]
name = "flaky"
needs = ["plan"]
run = ["sh", "-c", "test $VODMILL_ATTEMPT -gt 1"]
effect = { append = "effects" }

[[stage]]
name = "broken"
needs = ["plan"]
optional = true
run = ["sh", "-c", "exit 65"]

[[stage]]
name = "join"
needs = ["encode", "flaky", "broken"]
kind = "noop"
effect = { append = "effects" }
"#;

/// Tasks of [`JOB`] in the order they are numbered: those known at once, then the expanded ones.
const EFFECTS: [&str; 5] = ["2-1", "2-3", "2-4", "2-5", "2-6"];

fn worker(world: &World) -> Program {
    world
        .vodmill(&["worker", "--exit-when-idle", "--slots", "2"])
        .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.015")
        .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.3")
        .env("VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", "0.01")
        .env("VODMILL_STALE_JOB_CHECK_INTERVAL", "0.2")
        .env("VODMILL_ARCHIVE_AFTER_DAYS", "0.000001")
        .env("VODMILL_HISTORY_AFTER_DAYS", "1000")
}

/// An archived-to-be job, and another whose worker was killed right after its first claim.
fn prepared(engine: Engine) -> World {
    let world = World::new(engine);
    world.submit("name = 'before'\n[[stage]]\nname = 'only'\nkind = 'noop'");
    worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();
    assert_eq!(world.submit(JOB), 2);
    is_killed(worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30"), "claim.after");
    world
}

fn is_killed(program: Program, failpoint: &str) {
    use std::os::unix::process::ExitStatusExt;
    let output = program.env("VODMILL_FAILPOINT", failpoint).output();
    let said = crate::support::said(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{failpoint} was not reached:\n{said}");
}

/// One prepared world for each engine, copied for each test.
fn world(engine: Engine) -> World {
    static SQLITE: LazyLock<World> = LazyLock::new(|| prepared(Engine::Sqlite));
    static POSTGRES: LazyLock<World> = LazyLock::new(|| prepared(Engine::Postgres));
    // PostgreSQL copies a database only while nobody else does.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match engine {
        Engine::Sqlite => SQLITE.copy(),
        Engine::Postgres => POSTGRES.copy(),
    }
}

fn survives(engine: Engine, failpoint: &str) {
    let world = world(engine);

    is_killed(worker(&world), failpoint);
    worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();

    has_ended_well(&world);
}

fn has_ended_well(world: &World) {
    assert_eq!(world.job_state(2), "completed");
    let lines: Vec<String> = EFFECTS.iter().map(|task| format!("append/{task}\t{task}")).collect();
    assert_eq!(world.effect_lines(), lines, "each effect exactly once");
    world.is_healthy();
}

macro_rules! killed_at {
    ($($step:ident),+ $(,)?) => {$(
        mod $step {
            use crate::support::Engine;
            #[test]
            fn before_on_sqlite() { crate::failpoints::survives(Engine::Sqlite, concat!(stringify!($step), ".before")) }
            #[test]
            fn after_on_sqlite() { crate::failpoints::survives(Engine::Sqlite, concat!(stringify!($step), ".after")) }
            #[test]
            fn before_on_postgres() { crate::failpoints::survives(Engine::Postgres, concat!(stringify!($step), ".before")) }
            #[test]
            fn after_on_postgres() { crate::failpoints::survives(Engine::Postgres, concat!(stringify!($step), ".after")) }
        }
    )+

    /// Steps killed here; those that a person's command makes are in `by_hand`, below.
    const BY_WORKER: &[&str] = &[$(stringify!($step)),+];
    };
}

killed_at![
    register, heartbeat, claim, progress, renew, commit, fail, settle, judge, retry, recover, offline,
    deliver, append, delivered, archive,
];

/// Steps of commands that people type: killed, and typed again.
mod by_hand {
    use super::*;

    pub const STEPS: &[&str] = &[
        "migrate",
        "submit",
        "cancel",
        "rerun",
        "hedge",
        "manage",
        "lose_worker",
        "begin_timeline",
        "move_storage",
    ];

    crate::on_both_engines![
        a_killed_migration_is_made_whole_by_the_next,
        a_killed_submission_is_repeated_by_its_key,
        a_killed_cancel_is_cancelled_by_the_next,
        a_killed_retry_is_retried_by_the_next,
        a_killed_hedge_is_made_by_the_next_and_the_slower_execution_is_stopped,
        a_killed_word_to_a_worker_is_said_again,
        a_killed_change_of_what_a_database_is_can_be_made_again,
    ];

    /// On SQLite alone a server that starts knows the workers before it to be dead.
    #[test]
    fn a_killed_release_of_a_dead_servers_leases_is_made_by_the_next() {
        use crate::support::house::House;
        let mut house = House::with(Engine::Sqlite, &[("VODMILL_BACKOFF_SECONDS", "0.3")]);
        house.upload(&house.sample("talk.mp4", 5), "slug=talk");
        house.stop();
        house.set("VODMILL_SERVER_SLOTS", "2");
        house.set("VODMILL_FAILPOINT", "claim.after");
        house.starts_and_dies();

        for moment in ["lose_worker.before", "lose_worker.after"] {
            house.set("VODMILL_FAILPOINT", moment);
            house.starts_and_dies();
        }

        house.set("VODMILL_FAILPOINT", "none");
        house.start();
        let lost = "SELECT count(*) FROM execution_aborted WHERE failure = 'worker_lost'";
        assert_eq!(house.world.count(lost), 1, "once for one death");
        house.is_healthy();
    }

    fn a_killed_migration_is_made_whole_by_the_next(engine: Engine) {
        for moment in ["migrate.before", "migrate.after"] {
            let world = World::bare(engine);

            is_killed(world.vodmill(&["migrate"]), moment);
            world.vodmill(&["migrate"]).succeeds();

            world.is_healthy();
        }
    }

    fn a_killed_submission_is_repeated_by_its_key(engine: Engine) {
        let world = World::new(engine);
        let spec = world.write("spec.toml", JOB);
        let submit =
            || world.vodmill(&["submit", spec.to_str().unwrap(), "--idempotency-key", "k", "--json"]);

        is_killed(submit(), "submit.before");
        assert_eq!(world.vodmill(&["jobs", "--json"]).json().as_array().map(Vec::len), Some(0));
        is_killed(submit(), "submit.after");
        let again = submit().json();

        assert_eq!(again["is_new"], false);
        assert_eq!(world.vodmill(&["jobs", "--json"]).json().as_array().map(Vec::len), Some(1));
        world.is_healthy();
    }

    fn a_killed_cancel_is_cancelled_by_the_next(engine: Engine) {
        let world = World::new(engine);
        let id = world.submit(JOB).to_string();

        is_killed(world.vodmill(&["job", "cancel", &id]), "cancel.before");
        assert_eq!(world.job_state(id.parse().unwrap()), "pending");
        is_killed(world.vodmill(&["job", "cancel", &id]), "cancel.after");

        let said = world.vodmill(&["job", "cancel", &id]).ends_with(1);
        assert!(said.contains("cancelled, which is final"), "{said}");
        world.is_healthy();
    }

    fn a_killed_retry_is_retried_by_the_next(engine: Engine) {
        let world = World::new(engine);
        let id = world.submit("name = 'x'\n[[stage]]\nname = 'a'\nrun = ['sh', '-c', 'exit 65']").to_string();
        worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();
        assert_eq!(world.job_state(id.parse().unwrap()), "failed");

        is_killed(world.vodmill(&["job", "retry", &id]), "rerun.before");
        assert_eq!(world.job_state(id.parse().unwrap()), "failed");
        is_killed(world.vodmill(&["job", "retry", &id]), "rerun.after");

        assert_eq!(world.job_state(id.parse().unwrap()), "pending");
        world.is_healthy();
    }

    /// A piece that never ends where it is begun first, and two workers.
    fn a_killed_hedge_is_made_by_the_next_and_the_slower_execution_is_stopped(engine: Engine) {
        let world = World::new(engine);
        let folder = world.folder.path().display();
        let stuck = format!(
            "test $VODMILL_SEGMENT = 3 && mkdir {folder}/stuck && echo $$ >{folder}/pid && exec sleep 600; true"
        );
        let job = world.submit(&format!(
            "name = 'x'\n[[stage]]\nname = 'encode'\nsegments = 4\nhedge = true\nrun = ['sh', '-c', '{stuck}']\n\
             effect = {{ append = 'effects' }}"
        ));
        let able = |args: &[&str]| world.vodmill(args).env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.3");
        let workers = [0, 1].map(|_| able(&["worker", "--slots", "1", "--no-orchestrator"]).start());

        is_killed(able(&["orchestrate"]), "hedge.before");
        is_killed(able(&["orchestrate"]), "hedge.after");
        let orchestrator = able(&["orchestrate"]).start();

        until("the job ends", || world.job_state(job) == "completed");
        let pid = std::fs::read_to_string(world.folder.path().join("pid")).unwrap();
        until("the slower one is stopped", || !Path::new("/proc").join(pid.trim()).exists());
        let executions = world.vodmill(&["job", "executions", &job.to_string(), "--json"]).json();
        assert_eq!(executions.as_array().unwrap().len(), 5, "four, and one more");
        until("the effects are delivered", || world.effect_lines().len() >= 4);
        for mut process in workers.into_iter().chain([orchestrator]) {
            process.signal(libc::SIGTERM);
            assert_eq!(process.ends(), Some(0));
        }
        assert_eq!(world.effect_lines().len(), 4);
        world.is_healthy();
    }

    fn a_killed_change_of_what_a_database_is_can_be_made_again(engine: Engine) {
        let world = World::new(engine);
        let migrate = |flag| {
            let data = world.folder.path().join("data");
            world.vodmill(&["migrate", flag]).env("VODMILL_DATA_FOLDER", data.to_str().unwrap())
        };
        for (flag, step, count) in [
            ("--new-timeline", "begin_timeline", "SELECT count(*) FROM timeline"),
            ("--move-storage", "move_storage", "SELECT count(*) FROM setting WHERE name = 'storage'"),
        ] {
            let before = world.count(count);
            is_killed(migrate(flag), &format!("{step}.before"));
            assert_eq!(world.count(count), before);
            is_killed(migrate(flag), &format!("{step}.after"));
            assert_eq!(world.count(count), before + 1);
            migrate(flag).succeeds();
        }
        world.is_healthy();
    }

    fn a_killed_word_to_a_worker_is_said_again(engine: Engine) {
        let world = World::new(engine);
        world.submit("name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'");
        worker(&world).succeeds();
        let workers = world.vodmill(&["workers", "--all", "--json"]).json();
        let id = workers[0]["id"].as_str().unwrap().to_owned();

        is_killed(world.vodmill(&["workers", "disable", &id]), "manage.before");
        is_killed(world.vodmill(&["workers", "disable", &id]), "manage.after");

        let workers = world.vodmill(&["workers", "--all", "--json"]).json();
        assert_eq!(workers[0]["status"], "disabled");
        world.is_healthy();
    }
}

/// A step that is made again and again is not only killed at its first time.
mod later {
    use super::*;

    crate::on_both_engines![killed_again_and_again_in_the_middle_it_ends_the_same];

    fn killed_again_and_again_in_the_middle_it_ends_the_same(engine: Engine) {
        let world = world(engine);

        for moment in ["progress.after:2", "claim.after:2", "commit.before:2", "commit.after:2"] {
            is_killed(worker(&world), moment);
            world.is_healthy();
        }
        worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();

        has_ended_well(&world);
    }
}

/// Steps of `vodmill transcode` alone: `resume/steps.rs` kills them.
const BY_TRANSCODE: &[&str] = &["create_video", "show", "clear_shown", "clear_parts"];

/// What no program does, only tests of the store.
const BY_NOBODY: &[&str] = &["issue_key", "log"];

/// A new durable step must be killed somewhere.
#[test]
fn every_durable_step_is_killed() {
    let lists = [BY_WORKER, BY_TRANSCODE, by_hand::STEPS, by_itself::STEPS, at_a_server::STEPS, BY_NOBODY];
    for step in Step::ALL {
        let name = step.name();
        assert!(lists.iter().any(|list| list.contains(&name.as_str())), "{name} is killed by no test");
    }
    for name in files::Step::ALL.iter().map(|step| step.name()) {
        let by_itself = [BY_TRANSCODE, by_itself::OF_FILES].concat();
        let is_killed = of_files::is_killed(&name) || by_itself.contains(&name.as_str());
        assert!(is_killed, "{name} is killed by no test");
    }
}

/// A transaction that takes another's name would never be killed: the first of the two is.
#[test]
fn every_durable_step_has_a_name_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/src");
    // Where they are named, and nothing is written.
    let is_other = |file: &std::fs::DirEntry| file.file_name() != "db.rs" && file.path().is_file();
    let files = std::fs::read_dir(folder).unwrap().flatten().filter(is_other);
    let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    for step in Step::ALL {
        let places = text.matches(&format!("Step::{step:?})")).count()
            + text.matches(&format!("Step::{step:?},")).count();
        assert_eq!(places, 1, "Step::{step:?} must be one transaction, in one place");
    }
    let begun = text.matches(".write(Step::").count() + text.matches(", Step::").count();
    assert_eq!(begun, Step::ALL.len(), "each write begins with a step");
}

/// The same for changes of files; and none is made without a name.
#[test]
fn every_change_of_files_has_a_name_of_its_own() {
    // Of files that are nobody's but one execution's or one process's, and of those that are on their way.
    const OTHERS: &[&str] = &[
        "worker/src/transcode/encode.rs",
        "worker/src/transcode/package.rs",
        "worker/src/transcode/thumbnails.rs",
        "worker/src/transcode/compare.rs",
        "worker/src/context.rs",
        "worker/src/kept.rs",
        "worker/src/transcode/partial.rs",
        // A trial file of `doctor --host`.
        "worker/src/guard/cage/examine.rs",
        "worker/src/workshop.rs",
        "cli/src/command/transcode/space.rs",
        // What the steps are made of.
        "files/src/lib.rs",
        "files/src/whole.rs",
        "files/src/bucket.rs",
        "files/src/bucket/unfinished.rs",
    ];
    const CHANGES: &[&str] = &[
        "fs::rename(",
        "hard_link(",
        "remove_file(",
        "remove_dir_all(",
        "files::replace(",
        "files::first(",
        "files::link(",
        "files::place(",
        ".keep(execution",
        "remove_all_but(&kept",
        "bucket.put(",
        "bucket.create(",
        "bucket.send",
        "bucket.seal(",
        "bucket.remove",
        "writer.finish(",
        "give_up_unfinished(",
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut text, mut folders) =
        (String::new(), ["cli", "files", "server", "worker"].map(|it| crates.join(it).join("src")).to_vec());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            let is_other = OTHERS.iter().any(|other| path.ends_with(other));
            match path.is_dir() {
                true => folders.push(path),
                false if is_other => {}
                false => text += std::fs::read_to_string(path).unwrap().split("#[cfg(test)]").next().unwrap(),
            }
        }
    }
    for step in files::Step::ALL {
        let places = text.matches(&format!("Step::{step:?}.")).count()
            + text.matches(&format!("Step::{step:?},")).count();
        assert_eq!(places, 1, "files::Step::{step:?} must be one change, in one place");
    }
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let is_change = CHANGES.iter().any(|change| line.contains(change)) && !line.contains("partial");
        let near = &lines[at.saturating_sub(2)..lines.len().min(at + 4)];
        let is_named = near.iter().any(|line| line.contains("Step::") || line.contains("step.around("));
        assert!(!is_change || is_named, "a change without a step: {line}");
    }
}
