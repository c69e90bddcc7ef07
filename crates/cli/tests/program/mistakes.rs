//! Bad input: each mistake gets a clear error and the right exit code, nothing is lost, nothing panics.

use crate::support::{Engine, World, said};
use std::process::Command;

crate::on_both_engines![
    a_spec_that_makes_no_sense_is_refused_with_the_reason,
    a_key_used_for_another_job_is_refused,
    unknown_things_are_said_to_be_unknown,
    an_ended_job_cannot_be_changed,
    a_database_of_a_newer_program_is_left_alone,
];

fn refuses(world: &World, spec: &str, reason: &str) {
    let path = world.write("bad.toml", spec);

    let said = world.vodmill(&["submit", path.to_str().unwrap()]).ends_with(2);

    assert!(said.contains(reason), "{spec}\n→ {said}");
    assert!(!said.contains("panicked"), "{said}");
}

fn a_spec_that_makes_no_sense_is_refused_with_the_reason(engine: Engine) {
    let world = World::new(engine);
    let stage = |more: &str| format!("name = 'x'\n[[stage]]\nname = 'a'\n{more}\n");
    let two = |more: &str| format!("{}[[stage]]\nname = 'b'\n{more}\n", stage("kind = 'noop'"));
    for (spec, reason) in [
        ("".to_owned(), "missing field `name`"),
        ("name = ".to_owned(), "bad.toml"),
        ("{ \"name\": ".to_owned(), "bad.toml"),
        ("name = 'x'".to_owned(), "at least one stage"),
        (stage(""), "exactly one of `run`, `sleep_ms` and `kind`"),
        (stage("run = []"), "empty `run`"),
        (stage("kind = 'noop'\nphase = 'sometime'"), "unknown phase `sometime`; expected one of validating"),
        (stage("kind = 'noop'\nneeds = ['z']"), "no stage is called that"),
        (stage("kind = 'noop'\nneeds = ['a']"), "waits for itself"),
        (stage("kind = 'noop'\nsegments = 3000000"), "tasks are too many"),
        (stage("kind = 'noop'\nretries = 3"), "unknown field `retries`"),
        (two("kind = 'noop'\nphase = 'planning'\nneeds = ['a']"), "later phase"),
        (two("kind = 'noop'\nexpand = 'a'"), "without needing it"),
        (format!("priority = 99\n{}", stage("kind = 'noop'")), "priority 99 is out of range"),
        (format!("priority = -1\n{}", stage("kind = 'noop'")), "priority -1 is out of range"),
        (format!("max_attempts = 0\n{}", stage("kind = 'noop'")), "max_attempts is 0"),
        (stage(&format!("run = ['{}']", "x".repeat(2_000_000))), "bytes"),
        (format!("name = '{}'", "x".repeat(10_000_000)), "too large"),
    ] {
        refuses(&world, &spec, reason);
    }
    assert_eq!(world.vodmill(&["jobs", "--json"]).json().as_array().map(Vec::len), Some(0));
}

fn a_key_used_for_another_job_is_refused(engine: Engine) {
    let world = World::new(engine);
    let first = world.write("first.toml", "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\n");
    let other = world.write("other.toml", "name = 'y'\n[[stage]]\nname = 'a'\nkind = 'noop'\n");
    let submit = |path: &std::path::Path| {
        world.vodmill(&["submit", path.to_str().unwrap(), "--idempotency-key", "same"])
    };
    submit(&first).succeeds();

    let said = submit(&other).ends_with(1);

    assert!(said.contains("idempotency key `same` was used for a different job"), "{said}");
    assert!(submit(&first).succeeds().contains("submitted before"));
}

fn unknown_things_are_said_to_be_unknown(engine: Engine) {
    let world = World::new(engine);
    let nobody = "00000000-0000-0000-0000-000000000000";
    for (args, code, reason) in [
        (vec!["job", "show", "77"], 1, "no such job"),
        (vec!["job", "why", "77"], 1, "no such job"),
        (vec!["job", "audit", "77"], 1, "no such job"),
        (vec!["job", "tasks", "77"], 1, "no such job"),
        (vec!["job", "cancel", "77"], 1, "no such job"),
        (vec!["job", "retry", "77"], 1, "no such job"),
        (vec!["watch", "77"], 1, "no such job"),
        (vec!["job", "show", "x"], 2, "not a job id; it looks like 42"),
        (vec!["job", "show", "99999999999999999999"], 2, "not a job id"),
        (vec!["jobs", "--state", "sleeping"], 2, "unknown job state `sleeping`; expected one of pending"),
        (vec!["workers", "drain", nobody], 1, "no such worker"),
        (vec!["workers", "drain", "me"], 1, "no worker is called `me`"),
        (vec!["submit", "no-such-file.toml"], 2, "cannot read no-such-file.toml"),
        (vec!["frobnicate"], 2, "unrecognized subcommand"),
        (vec!["worker", "--slots", "0"], 2, "invalid value '0'"),
        (vec!["worker", "--capability", "Not OK"], 2, "capability `Not OK` is not usable"),
        (vec!["worker", "--server", "ftp://host", "--key", "k"], 2, "by http or https, not by `ftp`"),
        (vec!["worker", "--server", "http://ann:pw@host", "--key", "k"], 2, "leave user and password out"),
        (vec!["worker", "--server", "http://host"], 2, "needs a key"),
        (vec!["worker", "--server", "http://host", "--key", "two words"], 2, "was something else pasted?"),
        (vec!["worker", "--server", "http://host", "--key-file", "nowhere"], 2, "key from nowhere"),
        (vec!["worker", "--server", "http://host", "--key", "k", "--name", "anna"], 2, "cannot be used with"),
        (vec!["worker", "--allow-commands"], 2, "--server"),
    ] {
        let said = world.vodmill(&args).ends_with(code);
        assert!(said.contains(reason), "{args:?} → {said}");
    }
}

#[test]
fn a_workers_key_is_not_shown_by_the_help() {
    let world = World::bare(Engine::Sqlite);

    let help = world.vodmill(&["worker", "--help"]).env("VODMILL_WORKER_KEY", "vmw_s3cr3t").succeeds();

    assert!(help.contains("VODMILL_WORKER_KEY") && !help.contains("vmw_s3cr3t"), "{help}");
}

fn an_ended_job_cannot_be_changed(engine: Engine) {
    let world = World::new(engine);
    let id = world.submit("name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'").to_string();
    world.vodmill(&["worker", "--exit-when-idle"]).succeeds();

    let cancelled = world.vodmill(&["job", "cancel", &id]).ends_with(1);
    let retried = world.vodmill(&["job", "retry", &id]).ends_with(1);

    assert!(cancelled.contains("the job is completed, which is final"), "{cancelled}");
    assert!(retried.contains("only a failed job can be retried"), "{retried}");
}

fn a_database_of_a_newer_program_is_left_alone(engine: Engine) {
    let world = World::new(engine);
    let newer = "INSERT INTO schema_version (version, name, applied_at) VALUES (9000, 'from the future', 0)";
    world.execute(newer);

    for args in [vec!["jobs"], vec!["migrate"], vec!["doctor"], vec!["worker"], vec!["orchestrate"]] {
        let said = world.vodmill(&args).ends_with(1);
        assert!(said.contains("schema version 9000"), "{args:?} → {said}");
        assert!(said.contains("use the newer program"), "{args:?} → {said}");
    }
}

#[test]
fn a_database_that_cannot_be_used_is_named_with_what_to_do() {
    let world = World::bare(Engine::Sqlite);
    let path = world.folder.path().join("text");
    std::fs::write(&path, "this is not a database, and never was one; it is a text of some length").unwrap();
    let no_database = format!("sqlite:{}", path.display());
    for (url, args, code, reason) in [
        ("mysql://x", vec!["jobs"], 2, "must begin with `postgres://` or be `sqlite:`"),
        ("sqlite:", vec!["jobs"], 2, "must begin with"),
        ("sqlite:missing/nothing.db", vec!["jobs"], 2, "there is no database at missing/nothing.db"),
        (no_database.as_str(), vec!["migrate"], 2, "not a database"),
        ("postgres://nobody@127.0.0.1:1/x", vec!["jobs"], 1, "the database cannot be reached"),
    ] {
        let said = world.vodmill(&args).env("VODMILL_DATABASE_URL", url).ends_with(code);
        assert!(said.contains(reason), "{url} → {said}");
    }
    let unmigrated = World::bare(Engine::Postgres);
    let said = unmigrated.vodmill(&["worker"]).ends_with(1);
    assert!(said.contains("run `vodmill migrate`"), "{said}");
}

#[test]
fn a_password_is_never_shown() {
    let world = World::bare(Engine::Sqlite);

    let said = world
        .vodmill(&["jobs", "--help"])
        .env("VODMILL_DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/x")
        .ends_with(0);
    let failed = world
        .vodmill(&["jobs"])
        .env("VODMILL_DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/x")
        .env("VODMILL_LOG", "trace")
        .ends_with(1);

    assert!(!said.contains("hunter2") && !failed.contains("hunter2"), "{said}{failed}");
}

#[test]
fn a_settings_file_with_a_mistake_is_refused() {
    let world = World::bare(Engine::Sqlite);
    world.write("vodmill.toml", "worker_heartbeat_intervall = 3\n");

    let said = world.vodmill(&["jobs"]).ends_with(2);

    assert!(
        said.contains("vodmill.toml") && said.contains("unknown field `worker_heartbeat_intervall`"),
        "{said}"
    );
}

#[test]
fn an_encoder_that_nobody_knows_is_refused() {
    let world = World::bare(Engine::Sqlite);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--encoders", "libx264,h264_nvec"];

    let said = world.vodmill(&serve).ends_with(2);

    assert!(said.contains("no `h264_nvec`") && said.contains("h264_nvenc"), "{said}");
}

/// Runs a shell script in a mount namespace of its own, where it may mount what it likes.
fn in_own_mounts(world: &World, script: &str) -> String {
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-euc", script])
        .env("VODMILL", env!("CARGO_BIN_EXE_vodmill"))
        .env("SPEC", world.write("spec.toml", "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\n"))
        .current_dir(world.folder.path())
        .env_remove("VODMILL_DATABASE_URL")
        .output()
        .expect("unshare (Debian package util-linux) is needed to mount a small disk");
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_full_disk_is_said_to_be_full_and_work_goes_on_after_room_is_made() {
    let world = World::bare(Engine::Sqlite);

    let said = in_own_mounts(
        &world,
        r#"
        mkdir disk && mount -t tmpfs -o size=2m tmpfs disk
        export VODMILL_DATABASE_URL=sqlite:disk/vodmill.db
        $VODMILL migrate
        $VODMILL submit $SPEC
        head -c 4m /dev/zero > disk/ballast 2>/dev/null || true
        for i in $(seq 200); do $VODMILL submit $SPEC > said 2>&1 || { cat said; break; }; done
        rm disk/ballast
        $VODMILL worker --exit-when-idle
        $VODMILL jobs --state completed --json
        $VODMILL doctor
        "#,
    );

    assert!(said.contains("the disk that holds the database is full"), "{said}");
    assert!(said.contains("all is well"), "{said}");
}

#[test]
fn a_read_only_database_is_said_to_be_read_only() {
    let world = World::bare(Engine::Sqlite);

    let said = in_own_mounts(
        &world,
        r#"
        mkdir disk
        export VODMILL_DATABASE_URL=sqlite:disk/vodmill.db
        $VODMILL submit $SPEC
        mount --bind disk disk && mount -o remount,bind,ro disk
        $VODMILL submit $SPEC && exit 1
        $VODMILL worker --exit-when-idle && exit 1
        true
        "#,
    );

    assert!(said.contains("cannot be written"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
