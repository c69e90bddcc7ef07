//! A guard as seen by the process that must reap it: signalled only while its number is its own.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

/// The guard's process id, which is its group's too, for as long as it cannot have been given to another
/// process.
#[derive(Clone)]
pub(super) struct Leader(Arc<(Mutex<Option<i32>>, Condvar)>);

impl Leader {
    pub fn of(child: &Child) -> Self {
        Self(Arc::new((Mutex::new(Some(child.id().cast_signed())), Condvar::new())))
    }

    fn pid(&self) -> MutexGuard<'_, Option<i32>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals the guard alone. `false` when it is gone.
    pub fn signal(&self, signal: i32) -> bool {
        let pid = self.pid();
        // SAFETY: takes no pointers.
        pid.is_some_and(|pid| unsafe { libc::kill(pid, signal) } == 0)
    }

    /// Kills the whole group unless the guard is gone within `patience`. A guard that works is always faster;
    /// one that is stuck or was stopped again is not.
    pub fn kill_after(&self, patience: Duration) {
        let leader = self.clone();
        let watchdog = std::thread::Builder::new().name("guard-watchdog".into()).spawn(move || {
            let (_, gone) = &*leader.0;
            let waited = gone.wait_timeout_while(leader.pid(), patience, |pid| pid.is_some());
            if let Some(pid) = *waited.unwrap_or_else(PoisonError::into_inner).0 {
                warn!(process.pid = pid, "guard {pid} does not end; killing its process group");
                kill_group(pid);
            }
        });
        if let Err(error) = watchdog {
            warn!("cannot watch a guard end: {error}");
        }
    }

    /// Waits for the guard to die. Kills what is left of its group while the dead guard still holds the
    /// group's number, in case it was killed before it could, and only then reaps it.
    pub fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = child.id().cast_signed();
        let dead = wait_until_dead(pid);
        let mut leader = self.pid();
        if dead.is_ok() {
            kill_group(pid);
        }
        let status = child.wait();
        *leader = None;
        self.0.1.notify_all();
        status
    }
}

fn kill_group(leader: i32) {
    // SAFETY: takes no pointers.
    unsafe { libc::killpg(leader, libc::SIGKILL) };
}

fn wait_until_dead(pid: i32) -> io::Result<()> {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is a valid place for the result, which is not looked at.
        if unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), info.as_mut_ptr(), flags) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
