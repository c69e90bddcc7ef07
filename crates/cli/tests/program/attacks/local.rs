//! What another user of the machine can see: files, arguments, terminals.

use crate::support::house::{House, SECRET, good, usage};
use crate::support::{Engine, World, until};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// As somebody starts it whose shell makes everything readable for everybody.
fn with_open_umask(mut program: crate::support::Program) -> crate::support::Program {
    // SAFETY: one system call between fork and exec.
    unsafe {
        program.command.pre_exec(|| {
            libc::umask(0);
            Ok(())
        });
    }
    program
}

fn everything_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(everything_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_a_server_started_by_hand_keeps_is_for_its_own_user_alone() {
    let world = World::bare(Engine::Sqlite);
    let home = world.folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let log = world.folder.path().join("serve.log");
    let mut program = world.vodmill(&["serve"]).env("VODMILL_LISTEN", "127.0.0.1:0");
    for name in ["VODMILL_DATABASE_URL", "VODMILL_WORK_FOLDER"] {
        program.command.env_remove(name);
    }
    program.command.current_dir(&home);
    let (_process, address) =
        with_open_umask(program).env("VODMILL_ADMIN_SECRET", SECRET).start_serving(&log);

    let clip = world.folder.path().join("clip.mp4");
    crate::support::sample(&clip, "64x36", 1);
    let client = crate::support::http().build().unwrap();
    let body = std::fs::read(&clip).unwrap();
    let url = |path: &str| format!("http://{address}{path}");
    good(client.post(url("/api/videos")).header("x-admin-secret", SECRET).body(body).send().unwrap());
    until("the video is ready", || {
        let video = client.get(url("/api/videos/1")).header("x-admin-secret", SECRET).send().unwrap();
        let video = good(video);
        assert_ne!(video["state"], "failed", "{}", std::fs::read_to_string(&log).unwrap());
        video["state"] == "ready"
    });
    assert_eq!(client.get(url("/videos/video/master.m3u8")).send().unwrap().status(), 200);

    let kept = everything_below(&home.join("vodmill-data"));
    for name in ["vodmill.db", "vodmill.db-wal", "vodmill.db-shm", "sources", "videos", "work"] {
        assert!(kept.iter().any(|path| path.ends_with(name)), "{name} is missing among {kept:?}");
    }
    for path in kept {
        // What is committed is for reading alone, and the folders around it are closed to others.
        let is_read_only = mode(&path) == 0o444 && path.is_file();
        let is_private = mode(&path) & 0o077 == 0;
        assert!(is_private || is_read_only, "others may use {} ({:o})", path.display(), mode(&path));
    }
}

#[test]
fn what_transcode_keeps_beside_the_stream_is_for_its_own_user_alone() {
    let world = World::bare(Engine::Sqlite);
    let (clip, out) = (world.folder.path().join("clip.mp4"), world.folder.path().join("out"));
    crate::support::sample(&clip, "64x36", 1);

    let args = ["transcode", clip.to_str().unwrap(), "-o", out.to_str().unwrap()];
    with_open_umask(world.vodmill(&args)).succeeds();

    assert_eq!(mode(&out.join(".vodmill")), 0o700);
    assert_ne!(mode(&out.join("master.m3u8")) & 0o044, 0, "the stream is for whom the user wants");
}

#[test]
fn a_secret_among_the_arguments_is_warned_of_and_can_be_in_a_file() {
    let world = World::new(Engine::Sqlite);
    let said = world.vodmill(&["jobs", "--admin-secret", SECRET]).succeeds();
    assert!(said.contains("--admin-secret-file") && said.contains("VODMILL_ADMIN_SECRET"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    let quiet = world.vodmill(&["jobs"]).env("VODMILL_ADMIN_SECRET", SECRET).succeeds();
    assert!(!quiet.contains("arguments"), "{quiet}");
    for (name, value) in [
        ("admin-secret", SECRET),
        ("alert-webhook-secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("alert-webhook-url", "https://hooks.example.org/services/token"),
        ("database-url", "postgres://u:password@127.0.0.1:1/x"),
        ("database-url", "postgres://127.0.0.1:1/x?user=u&password=p"),
        ("metrics-token", "a token of twenty or more"),
        ("redis-url", "rediss://:password@127.0.0.1:1"),
    ] {
        let (flag, both) = (format!("--{name}"), format!("--{name}={value}"));
        let variable = format!("VODMILL_{}", name.replace('-', "_").to_uppercase());
        for args in [vec!["completions", "bash", &flag, value], vec!["completions", "bash", &both]] {
            let said = crate::support::said(&world.vodmill(&args).output());
            assert!(said.contains(&format!("{flag}-file or {variable}")), "{flag}: {said}");
            assert!(!said.contains(value), "{flag}: {said}");
        }
    }
    let said = world.vodmill(&["worker", "--allow-commands", "--key", "a key"]).ends_with(2);
    assert!(said.contains("--key-file or VODMILL_WORKER_KEY") && !said.contains("a key"), "{said}");

    let house = House::new(Engine::Sqlite);
    let file = world.write("secret", &format!("{SECRET}\n"));
    let args = ["jobs", "--server", &house.url(""), "--admin-secret-file", file.to_str().unwrap(), "--json"];
    assert_eq!(world.vodmill(&args).json(), json!([]));
    // Of the server and all that it started.
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&arguments).contains("vodmill");
        assert!(!is_ours || !String::from_utf8_lossy(&arguments).contains(SECRET), "{:?}", entry.path());
    }
}

#[test]
fn what_a_worker_says_cannot_command_a_terminal() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_MAX_RETRY_ATTEMPTS", "1")]);
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\rok\u{202e}gnp.\u{8}\n2 fake line";
    let hand = house.worker("evil", &["sleep"]);
    let hello = json!({ "hostname": evil, "version": env!("CARGO_PKG_VERSION"), "slots": 1,
        "capabilities": ["sleep"], "metadata": { "note": evil } });
    let hello = json!({ "incarnation": hand.incarnation, "phase": "Polling", "running": 0, "hello": hello });
    good(hand.say("heartbeat", hello));
    let stage = json!([{ "name": "only", "sleep_ms": 1 }]);
    let job = house.post("/api/jobs", json!({ "name": evil, "user": evil, "stage": stage }))["id"].clone();
    let task = hand.claim_one();
    let report = json!({ "proof": task["proof"], "progress": 1, "step": evil });
    good(hand.say("progress", json!({ "reports": [report] })));
    let long = format!("{evil}{}", "x".repeat(300 << 10));
    let step = json!({ "kind": evil, "command": evil, "exit_code": 1, "signal": null, "stdout_tail": long,
        "stderr_tail": evil, "duration_ms": 1, "is_success": false, "error": evil });
    let failure = json!({ "proof": task["proof"], "kind": "permanent", "message": long, "usage": usage(),
        "steps": vec![step; 3] });
    good(hand.say("fail", failure));

    let kept = house.get(&format!("/api/jobs/{job}/steps"));
    assert!(kept[0]["stdout_tail"].as_str().unwrap().len() <= 64 << 10, "bounded where it came in");
    assert!(
        !kept.to_string().contains("\\u001b") && !kept.to_string().contains('\u{9b}'),
        "cleaned where it came in"
    );
    let title: String = evil.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let video = house.admin("POST", &format!("/api/videos?slug=evil&title={title}"));
    good(video.body("this is no video").send().unwrap());
    let sign_in = house.anyone("POST", "/api/session").header("user-agent", "\u{9b}31m\u{202e}");
    assert_eq!(sign_in.json(&json!({ "secret": SECRET })).send().unwrap().status(), 204);

    // Its failure is another's to confirm; a job that has ended can be followed to its end.
    good(house.admin("POST", &format!("/api/jobs/{job}/cancel")).send().unwrap());

    let number = job.to_string();
    let commands: [&[&str]; 17] = [
        &["jobs"],
        &["workers"],
        &["videos"],
        &["sessions"],
        &["jobs", "--json"],
        &["workers", "--json"],
        &["videos", "--json"],
        &["sessions", "--json"],
        &["video", "show", "evil"],
        &["job", "show", &number],
        &["job", "logs", &number],
        &["job", "logs", &number, "--follow"],
        &["job", "steps", &number],
        &["job", "audit", &number],
        &["job", "executions", &number],
        &["job", "why", &number],
        &["watch", &number],
    ];
    let server = house.url("");
    for command in commands {
        let by_database = house.world.vodmill(command);
        let by_server = house.world.vodmill(command).arg("--server").arg(&server);
        for program in [by_database, by_server.env("VODMILL_ADMIN_SECRET", SECRET)] {
            let output = program.output();
            for said in [output.stdout, output.stderr] {
                let said = String::from_utf8(said).unwrap();
                shows_all(&format!("{command:?}"), &said);
                // A table has a line for each of its rows.
                let is_table = command.len() == 1;
                assert!(!is_table || !said.lines().any(|line| line.starts_with("2 fake")), "{command:?}");
            }
        }
    }
    let rows: Vec<Value> = house.world.vodmill(&["jobs", "--json"]).json().as_array().unwrap().clone();
    let named = rows.iter().any(|row| row["name"] == evil);
    assert!(named, "JSON says what it was: {rows:?}");
    // What is found wrong names what others have named.
    house.world.execute("UPDATE stage SET name = name || char(27) || '[2J', tasks = tasks + 1");
    for command in [&["doctor"][..], &["doctor", "--json"]] {
        let said = house.world.vodmill(command).ends_with(1);
        assert!(said.contains("[2J"), "{said}");
        shows_all("doctor", &said);
    }
}

/// Nothing in it is hidden.
fn shows_all(what: &str, said: &str) {
    let is_hidden =
        |c: &char| (c.is_control() && !matches!(c, '\n' | '\t')) || ('\u{202a}'..='\u{202e}').contains(c);
    assert_eq!(said.chars().find(is_hidden), None, "{what}: {said:?}");
}

#[test]
fn what_a_worker_says_is_one_visible_line_of_the_log() {
    for format in ["text", "json"] {
        let house = House::with(Engine::Sqlite, &[("VODMILL_LOG", "debug"), ("VODMILL_LOG_FORMAT", format)]);
        let evil = "evil\u{1b}[2J\u{9b}31m\u{202e}\r\n2026-01-01T00:00:00Z  INFO signed in";
        let hand = house.worker(evil, &["sleep"]);
        let stage = json!([{ "name": "only", "sleep_ms": 1 }]);
        house.post("/api/jobs", json!({ "name": evil, "user": evil, "stage": stage }));
        let task = hand.claim_one();
        let body = json!({ "proof": task["proof"], "result": { "execution": evil }, "usage": usage() });
        assert_eq!(hand.say("complete", body).status(), 422);

        let log = || std::fs::read_to_string(house.log()).unwrap();
        until("the result is rejected in the log", || {
            log().lines().any(|line| line.contains("names execution evil"))
        });
        shows_all(format, &log());
        assert!(!log().lines().any(|line| line.starts_with("2026-01-01")), "{}", log());
    }
}
