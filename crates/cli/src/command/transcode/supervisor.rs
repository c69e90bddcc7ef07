//! The parent of `vodmill transcode`: it starts the command a second time, waits, and starts it again when that process
//! dies of its work.
//!
//! A process that is killed cannot say by whom. Seen from its parent there is a difference. Work that takes its process
//! with it (an encoder library that crashes, a chunk that needs more memory than there is) leaves the parent alive: that
//! death is an attempt at everything the process was doing ([`rules::task::Death::Unexplained`]), and the next process
//! goes on, until the task ends as a failure. A person who ends the command, by any signal, ends the parent, and the
//! kernel ends the child with it. Nobody is left to count that, so the next run finds work that was given back and may
//! be ended and started any number of times.
//!
//! If a person kills only the child with SIGKILL, that is no attempt either. Crashes do not send SIGKILL. The kernel does when
//! memory runs out, but it counts those kills ([`oom_kills`]); if the count is unchanged, the command ends as if interrupted.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// How the child knows its parent, and how many processes died before it.
const SUPERVISED: &str = "VODMILL_SUPERVISED";

/// What a person, a terminal or a system that shuts down sends.
const ORDERS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Somebody who kills all processes of this name kills the parent within this time.
const GRACE: Duration = Duration::from_millis(300);

/// Processes that may die without any task to hold it against.
const MOST_UNEXPLAINED: u32 = 3;

/// What a supervised process knows of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supervised {
    /// How many processes of this command have died.
    pub deaths: u32,
}

impl Supervised {
    /// None for a process that a person has started. To be asked before any thread is started.
    pub fn here() -> Option<Self> {
        let told = std::env::var(SUPERVISED).ok()?;
        let (parent, deaths) = told.split_once(' ')?;
        let is_ours = parent.parse() == Ok(std::os::unix::process::parent_id());
        is_ours.then_some(Supervised { deaths: deaths.parse().ok()? })
    }

    /// Whether to give up: processes die, and no task of theirs can be blamed.
    pub fn is_hopeless(self, released: usize) -> bool {
        released == 0 && self.deaths >= MOST_UNEXPLAINED
    }
}

/// Runs this program's command in a child until it ends by itself. To be called before any thread is started.
pub fn supervise() -> io::Result<ExitCode> {
    let program = std::env::current_exe()?;
    let orders = Orders::block()?;
    for deaths in 0.. {
        let before = oom_kills();
        let mut child = start(&program, &orders, deaths)?;
        let status = wait(&mut child, &orders)?;
        match status.signal() {
            None => return Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))),
            Some(order) if ORDERS.contains(&order) => {
                return Ok(ExitCode::from(u8::try_from(128 + order).unwrap_or(1)));
            }
            Some(libc::SIGKILL) if before.is_some() && oom_kills() == before => {
                eprintln!("vodmill: the working process was killed; run the same command again to go on");
                return Ok(ExitCode::from(128 + libc::SIGKILL as u8));
            }
            Some(signal) => {
                std::thread::sleep(GRACE);
                eprintln!("vodmill: the working process died of signal {signal}; starting it again");
            }
        }
    }
    Ok(ExitCode::FAILURE)
}

/// How many processes of this control group the kernel has killed because memory ran out. Where the group does not say, those of
/// the whole machine; none where that does not say either.
fn oom_kills() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut counters = groups.lines().filter_map(events_of).chain([PathBuf::from("/proc/vmstat")]);
    counters.find_map(|file| {
        let counts = std::fs::read_to_string(file).ok()?;
        counts.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    })
}

/// Where a control group's kills are counted, from its line `ID:CONTROLLERS:PATH`.
fn events_of(line: &str) -> Option<PathBuf> {
    let (_, group) = line.split_once(':')?;
    let (controllers, path) = group.split_once(':')?;
    let path = path.trim_start_matches('/');
    match controllers {
        "" => Some(Path::new("/sys/fs/cgroup").join(path).join("memory.events.local")),
        "memory" => Some(Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control")),
        _ => None,
    }
}

fn start(program: &Path, orders: &Orders, deaths: u32) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    command.env(SUPERVISED, format!("{} {deaths}", std::process::id()));
    let (parent, open) = (std::process::id(), orders.before);
    // SAFETY: between fork and exec only functions that are async-signal-safe are called.
    unsafe {
        command.pre_exec(move || {
            // The kernel kills the child when its parent dies, however that dies.
            #[cfg(target_os = "linux")]
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if std::os::unix::process::parent_id() != parent {
                libc::_exit(1);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const open, std::ptr::null_mut());
            Ok(())
        });
    }
    command.spawn()
}

/// Passes on what the parent is told to do, until the child has ended.
fn wait(child: &mut Child, orders: &Orders) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(order) = orders.next() {
            // SAFETY: sends a signal to a child that was not reaped; touches no memory.
            unsafe { libc::kill(child.id() as i32, order) };
        }
    }
}

/// The signals that the parent waits for.
struct Orders {
    awaited: libc::sigset_t,
    before: libc::sigset_t,
}

impl Orders {
    fn block() -> io::Result<Self> {
        let mut awaited = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are initialised by the functions they are given to before they are read.
        unsafe {
            libc::sigemptyset(awaited.as_mut_ptr());
            for signal in ORDERS.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(awaited.as_mut_ptr(), signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, awaited.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Orders { awaited: awaited.assume_init(), before: before.assume_init() })
        }
    }

    /// Waits for the next signal. What a terminal sends, it sends to the child as well: only what a process sent is
    /// returned.
    #[cfg(target_os = "linux")]
    fn next(&self) -> Option<libc::c_int> {
        let mut told = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the set is initialised; on success the kernel has written `told`.
        let signal = unsafe { libc::sigwaitinfo(&raw const self.awaited, told.as_mut_ptr()) };
        if !ORDERS.contains(&signal) {
            return None;
        }
        // SAFETY: a signal was returned, so `told` is written.
        let code = unsafe { told.assume_init() }.si_code;
        (code != libc::SI_KERNEL).then_some(signal)
    }

    #[cfg(not(target_os = "linux"))]
    fn next(&self) -> Option<libc::c_int> {
        let mut signal = 0;
        // SAFETY: the set is initialised, and `signal` is written.
        let failed = unsafe { libc::sigwait(&raw const self.awaited, &raw mut signal) };
        (failed == 0 && ORDERS.contains(&signal)).then_some(signal)
    }
}
