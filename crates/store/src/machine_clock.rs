//! The database's time: a clock that can be set, and never goes back all the same.
//!
//! The wall's clock is this machine's for SQLite, and PostgreSQL's own for PostgreSQL. It can be set. The time since this
//! machine started cannot. The database remembers a pair of both (the [`Anchor`]), and its time is the wall's, but at least
//! the remembered time plus [`SLOWEST`] of what has passed since. A clock that is set back therefore slows the database's
//! time down until the wall has caught up: leases still expire, retries still come due, and nothing happens before it was.
//! A clock that is set forward is believed at once; `orchestrator` then gives workers time to renew their leases before it
//! takes any.
//!
//! On SQLite the transactions that write also write the pair down. On PostgreSQL a row that all of them wrote would have
//! them wait for each other: there the orchestrator writes it, about once a second, and every process reads it as often.

use rules::Millis;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Eighths of real time at which the database's goes while it is ahead of the wall.
const SLOWEST: i64 = 7;

/// How often the pair is written, so that the next process knows how far this one was.
const WRITTEN_EVERY: Millis = Millis(1000);

/// A difference between the two clocks that people are told of.
const JUMP: i64 = 5000;

/// What both clocks say at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub wall: i64,
    pub since_boot: i64,
    /// Which start of the machine that counts from.
    pub boot: Arc<str>,
    /// How much earlier the wall may have said so, because its answer takes time.
    pub delay: i64,
}

/// The database's time at a moment after a start of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    time: i64,
    since_boot: i64,
    boot: Arc<str>,
}

/// Shared by all who use one database in a process.
#[derive(Debug, Clone)]
pub(crate) struct MachineClock(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Whose clock on the wall it is, for people.
    whose: &'static str,
    anchor: Option<Anchor>,
    /// The latest time that was given.
    given: i64,
    /// By the time since the machine's start.
    written_at: Option<i64>,
    /// When it was last read what the database remembers, by the time since the machine's start.
    read_at: Option<i64>,
    /// Both clocks at the last look, to notice jumps.
    seen: Option<Seen>,
}

impl MachineClock {
    pub fn new(whose: &'static str) -> Self {
        let (anchor, given, written_at, read_at, seen) = (None, i64::MIN, None, None, None);
        MachineClock(Arc::new(Mutex::new(State { whose, anchor, given, written_at, read_at, seen })))
    }

    /// Whether the database's anchor has not been read yet.
    pub fn is_new(&self) -> bool {
        self.state().anchor.is_none()
    }

    pub fn is_due(&self, seen: &Seen) -> bool {
        let written_at = self.state().written_at;
        written_at.is_none_or(|at| seen.since_boot - at >= WRITTEN_EVERY.0)
    }

    /// Whether what the database remembers is to be read once more. Who is told so reads it, and others need not.
    pub fn is_stale(&self, seen: &Seen) -> bool {
        let mut state = self.state();
        let is_stale = state.read_at.is_some_and(|at| seen.since_boot - at >= WRITTEN_EVERY.0);
        if is_stale {
            state.read_at = Some(seen.since_boot);
        }
        is_stale
    }

    /// Takes note of what the database remembers, which another process may have written.
    pub fn learn(&self, known: Option<Anchor>, seen: &Seen) {
        let mut state = self.state();
        state.read_at = Some(seen.since_boot);
        let time = |anchor: &Anchor| anchor.now(seen);
        state.anchor = [state.anchor.take(), known].into_iter().flatten().max_by_key(time);
    }

    /// The time now.
    pub fn now(&self, seen: &Seen) -> Millis {
        let mut state = self.state();
        let floor = state.anchor.as_ref().map_or(i64::MIN, |anchor| anchor.now(seen));
        let now = seen.wall.max(floor).max(state.given);
        state.tell_of_jumps(seen, now);
        state.given = now;
        state.anchor = Some(Anchor { time: now, since_boot: seen.since_boot, boot: seen.boot.clone() });
        Millis(now)
    }

    /// What the database is to remember.
    pub fn written(&self, seen: &Seen) -> Option<String> {
        let mut state = self.state();
        state.written_at = Some(seen.since_boot);
        state.anchor.as_ref().map(ToString::to_string)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn tell_of_jumps(&mut self, seen: &Seen, now: i64) {
        if let Some(jump) = self.seen.as_ref().and_then(|before| before.jump_to(seen)) {
            let (seconds, whose) = (jump.abs() / 1000, self.whose);
            if jump < 0 {
                tracing::warn!(
                    "{whose} clock was set back by {seconds} s; the database's time is {} s ahead of it and goes on \
                     more slowly until they agree",
                    (now - seen.wall) / 1000
                );
            } else {
                tracing::warn!(
                    "{whose} clock was set forward by {seconds} s; the database's time follows it"
                );
            }
        }
        self.seen = Some(seen.clone());
    }
}

impl Seen {
    /// By how much the wall's clock was set between two looks.
    fn jump_to(&self, later: &Seen) -> Option<i64> {
        let jump = (later.wall - self.wall) - (later.since_boot - self.since_boot);
        (self.boot == later.boot && jump.abs() >= JUMP + self.delay + later.delay).then_some(jump)
    }
}

impl Anchor {
    /// The earliest that it can be, going by this anchor.
    fn now(&self, seen: &Seen) -> i64 {
        let passed = if self.boot == seen.boot {
            (seen.since_boot - self.since_boot).max(0)
        } else {
            0
        };
        self.time + passed * SLOWEST / 8
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.time, self.since_boot, self.boot)
    }
}

impl FromStr for Anchor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or(());
        let (time, since_boot) = (number()?, number()?);
        Ok(Anchor { time, since_boot, boot: words.next().ok_or(())?.into() })
    }
}

/// Looks at both clocks of this machine.
pub(crate) fn look() -> Seen {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let wall = wall.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Seen { wall: wall + failpoint::wall_offset(), since_boot: since_boot(), boot: boot(), delay: 0 }
}

/// What a database on another machine has just answered, which was asked at `asked`.
pub(crate) fn answered(wall: i64, asked: i64) -> Seen {
    let since_boot = since_boot();
    Seen { wall, since_boot, boot: boot(), delay: since_boot - asked }
}

/// Also while the machine sleeps, where the system can say so.
pub(crate) fn since_boot() -> i64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which writes it.
    unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    #[allow(clippy::useless_conversion)]
    let (seconds, nanos) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds * 1000 + nanos / 1_000_000
}

/// Names this start of the machine. Where the system does not, each process counts for itself.
fn boot() -> Arc<str> {
    static BOOT: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map_or_else(|_| uuid::Uuid::new_v4().to_string(), |id| id.trim().to_owned()).into()
    });
    BOOT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn at(wall: i64, since_boot: i64) -> Seen {
        Seen { wall, since_boot, boot: "one".into(), delay: 0 }
    }

    #[test]
    fn it_is_the_walls_clock_as_long_as_that_goes_as_it_should() {
        let clock = MachineClock::new("the machine's");

        assert_eq!(clock.now(&at(DAY, 0)), Millis(DAY));
        assert_eq!(clock.now(&at(DAY + 500, 500)), Millis(DAY + 500));
        assert_eq!(clock.now(&at(3 * DAY, 1000)), Millis(3 * DAY), "set forward");
    }

    #[test]
    fn set_back_it_goes_on_until_the_wall_has_caught_up() {
        let clock = MachineClock::new("the machine's");
        clock.now(&at(2 * DAY, 0));

        assert_eq!(clock.now(&at(DAY, 8000)), Millis(2 * DAY + 7000));
        assert_eq!(clock.now(&at(DAY + 8000, 16_000)), Millis(2 * DAY + 14_000));
        assert_eq!(clock.now(&at(3 * DAY, 16_008)), Millis(3 * DAY));
    }

    #[test]
    fn another_process_and_the_next_start_know_how_far_it_was() {
        let first = MachineClock::new("the machine's");
        first.now(&at(2 * DAY, 1000));
        let written = first.written(&at(2 * DAY, 1000)).unwrap();

        let second = MachineClock::new("the machine's");
        second.learn(written.parse().ok(), &at(DAY, 9000));
        assert_eq!(second.now(&at(DAY, 9000)), Millis(2 * DAY + 7000));

        let restarted = Seen { boot: "two".into(), ..at(DAY, 50) };
        let third = MachineClock::new("the machine's");
        third.learn(written.parse().ok(), &restarted);
        assert_eq!(third.now(&restarted), Millis(2 * DAY));
    }

    #[test]
    fn an_answer_that_comes_late_is_no_jump() {
        let late = Seen { delay: 7000, ..at(DAY, 8000) };

        assert_eq!(at(DAY, 0).jump_to(&late), None);
        assert_eq!(late.jump_to(&at(DAY + 8000, 9000)), None);
        assert_eq!(at(DAY, 0).jump_to(&at(DAY, 8000)), Some(-8000));
    }

    #[test]
    fn what_the_database_remembers_is_read_about_once_a_second_once_it_was_read() {
        let clock = MachineClock::new("PostgreSQL's");
        clock.now(&at(DAY, 0));
        assert!(!clock.is_stale(&at(DAY, 9000)), "there may be nothing to read");

        clock.learn(None, &at(DAY, 9000));

        let stale = [9500, 10_000, 10_000, 11_000].map(|since_boot| clock.is_stale(&at(DAY, since_boot)));
        assert_eq!(stale, [false, true, false, true]);
    }

    #[test]
    fn what_is_no_anchor_is_none() {
        for text in ["", "1", "1 2", "a b c"] {
            assert_eq!(text.parse::<Anchor>(), Err(()), "{text}");
        }
    }
}
