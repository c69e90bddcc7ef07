//! What a command in a cage cannot do. Each test runs as this user and, where this user is root, as one without rights too;
//! each with network namespaces, and without.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use worker::process::{Command, Door, Error, Guard, Limits, Reach};
use worker::sandbox::{self, Sandbox};

use super::scene::{Scene, run, runtime, stat};

const NOBODY: u32 = 65534;

/// A copy of this program that every user may run.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Makes the copy, in a folder that is to be kept. No other thread may start anything meanwhile: a file that a child holds
/// open to write cannot be run.
pub fn copy_program() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy("/proc/self/exe", &program).unwrap();
    PROGRAM.set(program).unwrap();
    folder
}

/// What is taken away of the kernel.
const NAMESPACES: &str = "namespaces";
const ALL_PARTS: &str = "namespaces,landlock";

/// A folder to work in, a file that is given and one that is not, as one user on one kernel.
struct Prison {
    scene: Scene,
    guard: Guard,
    program: PathBuf,
    lacks: Option<&'static str>,
    is_root: bool,
}

impl Prison {
    fn of_each_user() -> Vec<Prison> {
        [Prison::lacking(None), Prison::lacking(Some(NAMESPACES))].into_iter().flatten().collect()
    }

    /// Of each user, on a kernel that lacks these parts: this one, and if that is root, one without privileges as well. Where
    /// it is not, the attempts are those of a user without privileges; only what root itself could do is not tried.
    fn lacking(parts: Option<&'static str>) -> Vec<Prison> {
        let users = [None].into_iter().chain(is_root().then_some(Some(NOBODY)));
        users.map(|user| Prison::new(user).on_kernel_lacking(parts)).collect()
    }

    fn on_kernel_lacking(mut self, parts: Option<&'static str>) -> Prison {
        if let Some(parts) = parts {
            let guard = std::mem::replace(&mut self.guard.program, self.program.clone());
            let words = ["role", "lacking", parts].map(Into::into);
            let rest = std::mem::take(&mut self.guard.args);
            self.guard.args = words.into_iter().chain([guard.into()]).chain(rest).collect();
        }
        self.lacks = parts;
        self
    }

    fn new(user: Option<u32>) -> Prison {
        let scene = Scene::new();
        let program = PROGRAM.get().unwrap().clone();
        std::fs::create_dir(scene.file("work")).unwrap();
        std::fs::write(scene.file("given"), "given").unwrap();
        std::fs::write(scene.file("secret"), "secret").unwrap();
        let mut guard = required();
        if let Some(user) = user {
            std::fs::set_permissions(scene.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            for name in ["", "work", "given", "secret"] {
                chown(scene.path().join(name), Some(user), Some(user)).unwrap();
            }
            let [uid, gid] = ["uid", "gid"].map(|id| format!("--re{id}={user}").into());
            guard.program = "setpriv".into();
            guard.args =
                vec![uid, gid, "--clear-groups".into(), "--".into(), program.clone().into(), "guard".into()];
        }
        Prison { scene, guard, program, lacks: None, is_root: user.is_none() && is_root() }
    }

    fn work(&self) -> PathBuf {
        self.scene.file("work")
    }

    fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new(argv.iter().copied(), self.work());
        command.guard = self.guard.clone();
        command.reach = Some(Reach::reading(self.scene.file("given")).and_writing(self.work()));
        command
    }

    /// What came of attempts, each a word and what it is about: `null`, or the error.
    fn attempts(&self, attempts: &[(&str, &str)]) -> Vec<(String, Value)> {
        self.attempts_of(|_| {}, attempts)
    }

    fn attempts_of(
        &self,
        change: impl FnOnce(&mut Command),
        attempts: &[(&str, &str)],
    ) -> Vec<(String, Value)> {
        let mut argv = vec![self.program.to_str().unwrap(), "role", "attempt"];
        argv.extend(attempts.iter().flat_map(|(what, whom)| [*what, *whom]));
        let mut command = self.command(&argv);
        change(&mut command);
        let exit = run(&command).unwrap();
        let told: Vec<Value> = serde_json::from_slice(&exit.stdout).unwrap_or_else(|error| {
            panic!("{error}: {} {} {}", exit.status, exit.stdout_tail, exit.stderr_tail)
        });
        attempts.iter().map(|(what, whom)| format!("{what} {whom}")).zip(told).collect()
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn required() -> Guard {
    Guard { sandbox: Sandbox::Require, ..Guard::default() }
}

#[track_caller]
fn assert_all_succeed(told: &[(String, Value)]) {
    let failed: Vec<_> = told.iter().filter(|(_, error)| !error.is_null()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[track_caller]
fn assert_all_fail(told: &[(String, Value)]) {
    let done: Vec<_> = told.iter().filter(|(_, error)| error.is_null()).collect();
    assert!(done.is_empty(), "{done:?}");
}

pub fn a_caged_command_opens_what_it_was_given_and_nothing_else() {
    for prison in Prison::of_each_user() {
        let path = |name: &str| prison.scene.file(name).to_str().unwrap().to_owned();
        let (given, secret, made, beside) = (path("given"), path("secret"), path("work/made"), path("made"));
        let link = path("work/link");

        let can = prison.attempts(&[("read", &given), ("write", &made), ("read", "/proc/self/status")]);
        let cannot = prison.attempts(&[
            ("read", &secret),
            ("write", &given),
            ("write", &secret),
            ("write", &beside),
            ("chmod", &given),
            ("chmod", &secret),
            ("link", &link),
            ("read", "/etc/passwd"),
            ("read", "/etc/hostname"),
            ("list", "/"),
            ("list", "/tmp"),
            ("list", "/root"),
            ("write", "/tmp/vodmill-was-here"),
            ("write", "/dev/shm/vodmill-was-here"),
        ]);

        assert_all_succeed(&can);
        assert_all_fail(&cannot);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    }
}

pub fn a_caged_command_starts_signals_and_inspects_nobody() {
    for prison in Prison::of_each_user() {
        // As another command of the same worker, it belongs to the same user.
        let mut victim = prison.command(&["sleep", "1000"]);
        victim.reach = None;
        let stop = tokio_util::sync::CancellationToken::new();
        let progress = worker::process::Progress::default();
        let (pids, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let of_victim = stop.clone();
            let (victim, progress) = (&victim, &progress);
            scope.spawn(move || {
                let _ = super::scene::run_with(victim, progress, of_victim);
                pids.send(()).unwrap();
            });
            let mut sleeper = None;
            super::scene::wait_until("the victim sleeps", || {
                sleeper = child_named(&prison.work(), "sleep");
                sleeper.is_some()
            });
            let sleeper = sleeper.unwrap();
            let (worker, guard) = (std::process::id().to_string(), stat(sleeper).unwrap().1.to_string());
            let sleeper_text = sleeper.to_string();

            let mut attempts = vec![("fork", ""), ("run", "/bin/true"), ("signal-all", "")];
            for pid in [&sleeper_text, &worker, &guard] {
                attempts.extend(
                    ["signal", "queue-signal", "limit", "trace", "peek", "environment", "hold"]
                        .map(|what| (what, pid.as_str())),
                );
            }
            let cannot = prison.attempts(&attempts);
            let can = prison.attempts(&[("thread", ""), ("signal-self", "")]);

            assert_all_fail(&cannot);
            assert_all_succeed(&can);
            assert!(stat(sleeper).is_some_and(|(state, _)| state == 'S'), "it sleeps on");
            stop.cancel();
        });
        ended.recv().unwrap();
    }
}

/// The process of this name that works in this folder.
fn child_named(folder: &Path, name: &str) -> Option<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| {
        let works_there = std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
        works_there
            && std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

pub fn a_caged_command_reaches_its_source_and_nothing_else_of_the_network() {
    for prison in Prison::of_each_user() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let (door, other) = (relay.local_addr().unwrap(), elsewhere.local_addr().unwrap());
        // Both would answer whoever reaches them.
        for listener in [&relay, &elsewhere] {
            let outside = listener.try_clone().unwrap();
            std::thread::spawn(move || answer(&outside));
        }
        let opened = Door::new(door.port(), |inside| {
            std::thread::spawn(move || answer(&inside));
        });
        let through = |command: &mut Command| command.reach = Some(Reach::through(opened.clone()));
        let (door, other) = (door.to_string(), other.to_string());
        let local = prison.scene.file("socket");
        let _local = std::os::unix::net::UnixListener::bind(&local).unwrap();
        let log = prison.scene.file("log");
        let _log = std::os::unix::net::UnixDatagram::bind(&log).unwrap();
        for socket in [&local, &log] {
            std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let [local, log] = [local, log].map(|path| path.to_str().unwrap().to_owned());

        let can = prison.attempts_of(through, &[("fetch", &door), ("stream-pair", "")]);
        let cannot = prison.attempts_of(
            through,
            &[
                ("fetch", &other),
                ("datagram", ""),
                ("local-socket", &local),
                ("log", &log),
                ("netlink", ""),
                ("raw-socket", ""),
                ("listen", "0"),
            ],
        );
        let without = prison.attempts(&[("fetch", &door), ("fetch", &other), ("listen", "0"), ("log", &log)]);

        assert_all_succeed(&can);
        assert_all_fail(&cannot);
        assert_all_fail(&without);
    }
}

fn answer(listener: &TcpListener) {
    for mut connection in listener.incoming().flatten() {
        let _ = connection.write_all(b"the source");
    }
}

pub fn a_command_sees_no_secrets_of_its_worker() {
    for (name, value) in
        [("AWS_SECRET_ACCESS_KEY", "s3"), ("PGPASSWORD", "pg"), ("VODMILL_ADMIN_SECRET", "top")]
    {
        // SAFETY: other tests of this process read the environment only through `std`, which locks it.
        unsafe { std::env::set_var(name, value) };
    }
    for prison in Prison::of_each_user() {
        let caged = run(&prison.command(&["env"])).unwrap().stdout_tail;
        let mut outside = prison.command(&["env"]);
        outside.reach = None;
        let outside = run(&outside).unwrap().stdout_tail;

        for secret in ["AWS_", "PGPASSWORD", "VODMILL_"] {
            assert!(!caged.contains(secret) && !outside.contains(secret), "{caged}\n{outside}");
        }
        assert!(caged.contains("PATH=") && !caged.contains("HOME="), "{caged}");
        assert!(caged.contains(&format!("TMPDIR={}", prison.work().display())), "{caged}");
    }
}

pub fn what_a_command_writes_is_limited_over_all_its_files() {
    for prison in Prison::of_each_user() {
        let mut command =
            prison.command(&["sh", "-c", "for n in 1 2 3 4; do head -c 600000 /dev/zero > $n; done"]);
        command.reach = None;
        let limits =
            |bytes| Limits { folder_bytes: Some(bytes), file_bytes: Some(bytes), ..Limits::default() };

        command.limits = limits(1_000_000);
        let refused = run(&command).unwrap_err();
        command.limits = limits(3_000_000);
        let allowed = run(&command);

        assert!(matches!(refused, Error::WroteTooMuch { limit: 1_000_000, .. }), "{refused}");
        assert!(allowed.unwrap().status.is_success());
    }
}

pub fn a_caged_command_hides_no_file_and_no_memory_from_its_limits() {
    for prison in Prison::of_each_user() {
        let path = |name: &str| prison.work().join(name).to_str().unwrap().to_owned();
        for name in ["a", "b", "c"] {
            std::fs::write(path(name), "there").unwrap();
        }
        let (new, folder, work) = (path("new"), path("folder"), path(""));

        let can =
            prison.attempts(&[("write", &path("made")), ("read-some", "/dev/zero"), ("private-memory", "")]);
        let cannot = prison.attempts(&[
            ("reserve", &new),
            ("reserve-secretly", &new),
            ("nameless-file", &work),
            ("remove", &path("a")),
            ("rename", &path("b")),
            ("second-name", &path("c")),
            ("folder", &folder),
            ("shared-memory", ""),
            ("shared-zeroes", ""),
            ("growing-stack", ""),
            ("nameless-memory", ""),
        ]);

        assert_all_succeed(&can);
        assert_all_fail(&cannot);
    }
}

pub fn room_that_no_length_tells_and_folders_that_cannot_be_read_count_too() {
    for prison in Prison::of_each_user() {
        let write = |script: &str| {
            let mut command = prison.command(&["sh", "-c", script]);
            command.reach = None;
            command.limits = Limits { folder_bytes: Some(1_000_000), ..Limits::default() };
            run(&command)
        };

        let reserved = write(": > reserved; fallocate --keep-size --length 2000000 reserved");
        std::fs::remove_file(prison.work().join("reserved")).unwrap();
        let hidden = write("mkdir hidden && echo > hidden/file && chmod 0300 hidden");
        std::fs::set_permissions(prison.work().join("hidden"), std::fs::Permissions::from_mode(0o700))
            .unwrap();

        assert!(matches!(reserved, Err(Error::WroteTooMuch { .. })), "{reserved:?}");
        // Root reads every folder.
        assert!(prison.is_root || matches!(hidden, Err(Error::WroteTooMuch { .. })), "{hidden:?}");
    }
}

pub fn where_a_cage_is_required_a_script_does_not_start() {
    for prison in Prison::of_each_user() {
        let script = prison.work().join("script");
        std::fs::write(&script, "#!/bin/sh\nexec env true\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = prison.command(&[script.to_str().unwrap()]);

        let refused = run(&command).unwrap_err().to_string();
        command.guard.sandbox = Sandbox::BestEffort;
        let ran = run(&command).unwrap();

        assert!(
            refused.contains("the sandbox is required") && refused.contains("it is a script"),
            "{refused}"
        );
        assert!(ran.status.is_success(), "{}", ran.stderr_tail);
    }
}

pub fn a_guard_tells_what_of_the_cage_works_here() {
    for prison in Prison::of_each_user() {
        let examined = runtime().block_on(sandbox::examine(&prison.guard)).unwrap();

        let missing: Vec<_> = examined.missing().collect();
        assert!(missing.is_empty(), "{missing:?}");
        let names: Vec<_> = examined.items.iter().map(|item| item.name.as_str()).collect();
        for name in ["files", "processes", "signals", "inspection", "network", "privileges", "memory"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let relay = examined.items.iter().find(|item| item.name == "network of remote workers").unwrap();
        let how = if prison.lacks.is_some() {
            "Landlock: one TCP port"
        } else {
            "a network namespace"
        };
        assert!(relay.detail.starts_with(how), "{}", relay.detail);
    }
}

pub fn where_landlock_is_missing_too_a_required_cage_does_not_close_and_the_rest_holds() {
    for mut prison in Prison::lacking(Some(ALL_PARTS)) {
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let (door, elsewhere) =
            (Door::new(relay.local_addr().unwrap().port(), |_| {}), relay.local_addr().unwrap().to_string());
        std::thread::spawn(move || answer(&relay));
        let mut command = prison.command(&["true"]);
        let refused = run(&command).unwrap_err().to_string();
        command.reach = Some(Reach::through(door));
        let refused_with_source = run(&command).unwrap_err().to_string();
        let examined = runtime().block_on(sandbox::examine(&prison.guard)).unwrap();
        let missing: Vec<_> = examined.missing().map(|item| item.name.as_str()).collect();

        prison.guard.sandbox = Sandbox::BestEffort;
        let worker = std::process::id().to_string();
        let given = prison.scene.file("given").to_str().unwrap().to_owned();
        let can = prison.attempts(&[("read", "/etc/hostname"), ("thread", "")]);
        let cannot = prison.attempts(&[
            ("fork", ""),
            ("run", "/bin/true"),
            ("signal", &worker),
            ("trace", &worker),
            ("chmod", &given),
            // As on a kernel whose Landlock does not see to it.
            ("truncate", &given),
            ("empty", &given),
            ("empty-without-mode", &given),
            ("empty-newly", &given),
            ("fetch", &elsewhere),
            ("datagram", ""),
        ]);

        assert!(refused.contains("the sandbox is required"), "{refused}");
        assert!(refused.ends_with("files (Landlock)"), "{refused}");
        assert!(refused_with_source.ends_with("files (Landlock), network"), "{refused_with_source}");
        assert_eq!(missing, ["files", "network of remote workers"]);
        assert_all_succeed(&can);
        assert_all_fail(&cannot);
        assert_eq!(std::fs::read_to_string(&given).unwrap(), "given");
    }
}
