//! Steps that no worker and no person asks for: what the clock brings, what is told to the outside, and what a server
//! decides when it starts.

use super::{is_killed, survives, worker};
use crate::storage::bucket::{self, Bucket};
use crate::support::{Engine, Program, World, until};

pub const STEPS: &[&str] = &[
    "prune_messages",
    "prune_workers",
    "postpone",
    "postpone_alert",
    "ask_for_alerts",
    "decide",
    "prepare_history",
    "drop_partitions",
    "delete_history",
    "mark",
    "take_storage",
];

/// Changes of files that a server makes by itself when it starts.
pub const OF_FILES: &[&str] = &["mark_folder", "note_mark", "mark_bucket", "note_mark_object"];

crate::on_both_engines![
    what_is_forgotten_is_forgotten_once,
    an_effect_that_cannot_be_had_is_postponed_and_had_once,
    an_alert_that_nobody_takes_is_asked_for_and_postponed,
    an_admin_secret_that_is_kept_has_been_shown,
    a_database_and_its_files_are_bound_by_the_next_start,
];

/// Killed before and after a step: what is counted changes with the second alone.
fn changes(world: &World, step: &str, count: &'static str, program: impl Fn() -> Program) {
    for (moment, is_done) in [("before", false), ("after", true)] {
        let before = world.count(count);
        is_killed(program(), &format!("{step}.{moment}"));
        assert_eq!(world.count(count) != before, is_done, "{step}.{moment}");
        world.is_healthy();
    }
}

fn what_is_forgotten_is_forgotten_once(engine: Engine) {
    let world = World::new(engine);
    world.submit("name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\neffect = { append = 'effects' }");
    worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();
    world.execute("UPDATE outbox SET delivered_at = 1 WHERE delivered_at IS NOT NULL");
    world.execute("UPDATE worker SET last_heartbeat = 1");
    let orchestrate = || world.vodmill(&["orchestrate"]);

    changes(&world, "prune_messages", "SELECT count(*) FROM outbox", orchestrate);
    changes(&world, "prune_workers", "SELECT count(*) FROM worker", orchestrate);
}

fn an_effect_that_cannot_be_had_is_postponed_and_had_once(engine: Engine) {
    let world = World::new(engine);
    let folder = world.folder.path().join("missing");
    world.submit(&format!(
        "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\neffect = {{ append = '{}' }}",
        folder.join("effects").display()
    ));

    changes(&world, "postpone", "SELECT count(*) FROM outbox WHERE error IS NOT NULL", || {
        // Whoever took it and died keeps it from others for a minute.
        world.execute("UPDATE outbox SET available_at = 0 WHERE delivered_at IS NULL");
        worker(&world)
    });
    std::fs::create_dir(&folder).unwrap();
    world.execute("UPDATE outbox SET available_at = 0 WHERE delivered_at IS NULL");
    worker(&world).env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();

    assert_eq!(std::fs::read_to_string(folder.join("effects")).unwrap().lines().count(), 1);
}

fn an_alert_that_nobody_takes_is_asked_for_and_postponed(engine: Engine) {
    let world = World::new(engine);
    let told = |args: &[&str]| {
        world
            .vodmill(args)
            .env("VODMILL_ALERT_WEBHOOK_URL", "http://127.0.0.1:1/")
            .env("VODMILL_ALERT_ALLOW_PRIVATE", "true")
            .env("VODMILL_ALERT_EVENTS", "worker_startup")
    };
    let serve = || {
        told(&["serve"])
            .env("VODMILL_LISTEN", "127.0.0.1:0")
            .env("VODMILL_ADMIN_SECRET", crate::support::house::SECRET)
            .env("VODMILL_DATA_FOLDER", world.folder.path().join("data").to_str().unwrap())
    };

    changes(&world, "ask_for_alerts", "SELECT count(*) FROM alert", serve);
    world.vodmill(&["worker", "--exit-when-idle"]).succeeds();
    changes(&world, "postpone_alert", "SELECT count(*) FROM outbox WHERE error IS NOT NULL", || {
        world.execute("UPDATE outbox SET available_at = 0 WHERE delivered_at IS NULL");
        told(&["orchestrate"])
    });
}

fn an_admin_secret_that_is_kept_has_been_shown(engine: Engine) {
    let world = World::new(engine);
    let log = world.folder.path().join("serve.log");
    let serve = || {
        let mut program = world.vodmill(&["serve"]).env("VODMILL_LISTEN", "127.0.0.1:0");
        program.command.env_remove("VODMILL_ADMIN_SECRET");
        program.env("VODMILL_DATA_FOLDER", world.folder.path().join("data").to_str().unwrap())
    };
    for (moment, is_kept) in [("decide.before", 0), ("decide.after", 1)] {
        let mut process = serve().env("VODMILL_FAILPOINT", moment).start_logged(&log);
        assert_eq!(process.ends(), None, "killed at {moment}");
        let kept = "SELECT count(*) FROM setting WHERE name = 'admin_secret_sha256'";
        assert_eq!(world.count(kept), is_kept, "{moment}");
    }
    let said = || std::fs::read_to_string(&log).unwrap();
    let shown = std::fs::read_to_string(log.with_extension("out")).unwrap();
    let last = shown.rsplit_once("shown this once: ").unwrap().1.lines().next().unwrap().to_owned();

    let _process = serve().start_logged(&log);

    until("the server listens", || said().contains("listening on "));
    let address = said().split_once("listening on ").unwrap().1.split_whitespace().next().unwrap().to_owned();
    let client = crate::support::http().build().unwrap();
    let asked = client.get(format!("{address}/api/videos")).header("x-admin-secret", last).send().unwrap();
    assert_eq!(asked.status(), 200, "what was shown last is the secret");
}

fn a_database_and_its_files_are_bound_by_the_next_start(engine: Engine) {
    let world = World::new(engine);
    let data = world.folder.path().join("data");
    let serve = || {
        world
            .vodmill(&["serve", "--slots", "0"])
            .env("VODMILL_LISTEN", "127.0.0.1:0")
            .env("VODMILL_ADMIN_SECRET", crate::support::house::SECRET)
            .env("VODMILL_DATA_FOLDER", data.to_str().unwrap())
    };
    for (step, file) in [("mark_folder", server::identity::FILE), ("note_mark", server::rewind::FILE)] {
        for (moment, is_done) in [("before", false), ("after", true)] {
            is_killed(serve(), &format!("{step}.{moment}"));
            assert_eq!(data.join(file).exists(), is_done, "{step}.{moment}");
            if moment == "after" {
                continue;
            }
            if step == "mark_folder" {
                // The next step of the same start.
                let storage = "SELECT count(*) FROM setting WHERE name = 'storage'";
                assert_eq!(world.count(storage), 0, "the folder is marked first");
            }
        }
        if step == "mark_folder" {
            changes(&world, "take_storage", "SELECT count(*) FROM setting WHERE name = 'storage'", serve);
            changes(&world, "mark", "SELECT count(*) FROM mark", serve);
        }
    }
    let _process = serve().start_serving(&world.folder.path().join("serve.log"));
    world.is_healthy();
}

#[test]
fn a_database_and_its_bucket_are_bound_by_the_next_start() {
    let (world, bucket) = (World::new(Engine::Sqlite), Bucket::start());
    let serve = || {
        world
            .vodmill(&["serve", "--slots", "0"])
            .env("VODMILL_LISTEN", "127.0.0.1:0")
            .env("VODMILL_ADMIN_SECRET", crate::support::house::SECRET)
            .env("VODMILL_DATA_FOLDER", world.folder.path().join("data").to_str().unwrap())
            .env("VODMILL_STORAGE", &Bucket::url())
            .env("AWS_ENDPOINT", &bucket.endpoint())
            .env("AWS_ACCESS_KEY_ID", bucket::KEY)
            .env("AWS_SECRET_ACCESS_KEY", bucket::SECRET)
            .env("AWS_REGION", "us-east-1")
    };
    for (step, file) in [("mark_bucket", server::identity::FILE), ("note_mark_object", server::rewind::FILE)]
    {
        for (moment, is_done) in [("before", false), ("after", true)] {
            is_killed(serve(), &format!("{step}.{moment}"));
            assert_eq!(bucket.path(file).exists(), is_done, "{step}.{moment}");
        }
    }
    let _process = serve().start_serving(&world.folder.path().join("serve.log"));
    world.is_healthy();
}

/// PostgreSQL drops months, SQLite rows; only PostgreSQL prepares any.
mod history {
    use super::*;

    #[test]
    fn rows_on_sqlite() {
        survives(Engine::Sqlite, "delete_history.before");
        survives(Engine::Sqlite, "delete_history.after:2");
    }

    #[test]
    fn months_on_postgres() {
        survives(Engine::Postgres, "drop_partitions.before");
        survives(Engine::Postgres, "drop_partitions.after:2");
    }

    #[test]
    fn months_to_come_on_postgres() {
        let months = "SELECT count(*) FROM pg_inherits";
        let world = World::new(Engine::Postgres);
        changes(&world, "prepare_history", months, || world.vodmill(&["orchestrate"]));
    }
}
