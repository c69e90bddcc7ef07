//! Follows a guarded command until nothing of it is left.

mod outcome;

use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::capture::Capture;
use super::guarded::Guarded;
use super::{Command, Error, Exit, Measure, Progress};
use crate::guard::message::{Ended, Message};
use crate::guard::tree;

const SECOND: Duration = Duration::from_secs(1);

/// How long further output is awaited after the guard is gone. It ends with the guard, unless somebody that
/// escaped holds it open.
const DRAIN: Duration = Duration::from_secs(1);

/// How often output is read after the guard is gone: enough for what two pipes of the largest size still hold.
/// More comes from somebody that escaped.
const LATE_READS: u32 = 128;

const MOMENT: Duration = Duration::from_millis(50);

const CHUNK: usize = 16 * 1024;

/// Why a command is ended before its time.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Stopped,
    TimedOut(Duration),
    Stalled(Duration),
    OutputTooLarge,
    /// Whoever takes its output needs no more of it.
    Enough,
}

/// What the guard has said so far.
#[derive(Default)]
struct Heard {
    pid: Option<i32>,
    refused: Option<(Option<i32>, String)>,
    ended: Option<Ended>,
}

/// Which streams have not come to their end.
struct Open {
    stdout: bool,
    stderr: bool,
    lifeline: bool,
}

pub(super) struct Watch<'a> {
    command: &'a Command,
    progress: &'a Progress,
    guarded: Guarded,
    open: Open,
    stdout: Capture,
    stderr: Capture,
    heard: Heard,
    /// Or the start, before there was any.
    last_output: Instant,
    /// When it last moved: by any output, or by what it measures.
    last_move: Instant,
    measured: u64,
    late_reads: u32,
    cut: Option<Cut>,
    /// When the guard was reaped, and what became of it.
    gone: Option<(Instant, Option<ExitStatus>)>,
}

impl<'a> Watch<'a> {
    pub fn new(command: &'a Command, progress: &'a Progress, guarded: Guarded) -> Self {
        Self {
            command,
            progress,
            open: Open { stdout: true, stderr: true, lifeline: true },
            stdout: Capture::keeping(command.output_limit),
            stderr: Capture::default(),
            heard: Heard::default(),
            last_output: guarded.since,
            last_move: guarded.since,
            measured: 0,
            late_reads: 0,
            cut: None,
            gone: None,
            guarded,
        }
    }

    pub async fn run(mut self, stop: CancellationToken) -> Result<Exit, Error> {
        self.follow(stop).await;
        self.result()
    }

    async fn follow(&mut self, stop: CancellationToken) {
        let mut second = interval_at(self.guarded.since + SECOND, SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK]);
        while !self.is_over() {
            let (due, quiet_till) = (self.due(), self.quiet_till());
            // In this order: nothing holds up a stop or a timeout, not even a flood of output, and a silence is
            // one only if there is nothing to read, for it may be the worker that was held up.
            tokio::select! {
                biased;
                () = stop.cancelled(), if self.may_be_cut() => self.cut(Cut::Stopped),
                () = until(due), if due.is_some() => self.overdue(),
                _ = second.tick() => self.look(),
                status = &mut self.guarded.gone, if self.gone.is_none() => {
                    self.gone = Some((Instant::now(), status.ok()));
                }
                line = self.guarded.lifeline.next_line(), if self.open.lifeline => {
                    self.hear(line.ok().flatten());
                }
                n = read(&mut self.guarded.stdout, &mut out), if self.open.stdout => {
                    self.take_stdout(&out[..n]);
                }
                n = read(&mut self.guarded.stderr, &mut err), if self.open.stderr => {
                    self.take_stderr(&err[..n]);
                }
                () = silence(quiet_till), if quiet_till.is_some() => self.too_quiet(),
            }
        }
    }

    fn is_over(&self) -> bool {
        let Open { stdout, stderr, lifeline } = self.open;
        self.gone.is_some() && (!(stdout || stderr || lifeline) || self.late_reads > LATE_READS)
    }

    fn may_be_cut(&self) -> bool {
        self.cut.is_none() && self.gone.is_none() && self.heard.ended.is_none()
    }

    fn cut(&mut self, cut: Cut) {
        debug!("ending `{}` early: {cut:?}", self.command.program());
        self.cut = Some(cut);
        self.guarded.end(self.command.grace);
    }

    fn due(&self) -> Option<Instant> {
        let timeout = self.command.timeout.filter(|_| self.may_be_cut())?;
        self.guarded.since.checked_add(timeout)
    }

    fn overdue(&mut self) {
        self.cut(Cut::TimedOut(self.command.timeout.unwrap_or_default()));
    }

    /// Until when silence is nothing special.
    fn quiet_till(&self) -> Option<Instant> {
        match self.gone {
            Some((at, _)) => Some(at.max(self.last_output) + DRAIN),
            None => self.last_move.checked_add(self.command.stall.filter(|_| self.may_be_cut())?),
        }
    }

    fn too_quiet(&mut self) {
        if self.gone.is_some() {
            self.open = Open { stdout: false, stderr: false, lifeline: false };
        } else {
            self.cut(Cut::Stalled(self.command.stall.unwrap_or_default()));
        }
    }

    /// Once a second: where output does not count, being there and not stopped does.
    fn look(&self) {
        if self.command.stall.is_none() && self.heard.pid.is_some_and(tree::is_going) {
            self.progress.beat();
        }
    }

    fn take_stdout(&mut self, bytes: &[u8]) {
        if let Some(sink) = &self.command.sink {
            self.open.stdout = !bytes.is_empty();
            if sink.take(bytes).is_break() && self.may_be_cut() {
                self.cut(Cut::Enough);
            }
            return self.note_output();
        }
        let measured = self.measured;
        let on_line = |line: &[u8]| {
            self.progress.note(line);
            self.progress.note_fraction(line);
            if let Some(measure) = &self.command.measure {
                self.measured = self.measured.max(measure.of(line));
            }
        };
        if bytes.is_empty() {
            self.open.stdout = false;
            return self.stdout.finish(on_line);
        }
        self.stdout.take(bytes, on_line);
        self.note_output();
        if self.measured > measured {
            self.note_move();
        }
        if self.stdout.is_over_limit() && self.may_be_cut() {
            self.cut(Cut::OutputTooLarge);
        }
    }

    fn take_stderr(&mut self, bytes: &[u8]) {
        let on_line = |line: &[u8]| self.progress.note(line);
        if bytes.is_empty() {
            self.open.stderr = false;
            return self.stderr.finish(on_line);
        }
        self.stderr.take(bytes, on_line);
        self.note_output();
    }

    fn note_output(&mut self) {
        self.last_output = Instant::now();
        self.late_reads += u32::from(self.gone.is_some());
        if self.command.measure.is_none() {
            self.note_move();
        }
    }

    fn note_move(&mut self) {
        self.last_move = Instant::now();
        if self.command.stall.is_some() {
            self.progress.beat();
        }
        if let Some(measure) = &self.command.measure {
            self.progress.set_fraction((self.measured as f64 / measure.whole.max(1) as f64).min(1.0));
        }
    }

    fn hear(&mut self, line: Option<String>) {
        let Some(line) = line else {
            self.open.lifeline = false;
            return;
        };
        match serde_json::from_str(&line) {
            Ok(Message::Listening) => {
                let listener = self.guarded.lifeline.get_mut().get_mut().take_listener();
                let door = self.command.reach.as_ref().and_then(|reach| reach.door.as_ref());
                if let (Some(door), Some(listener)) = (door, listener) {
                    door.open(listener);
                }
            }
            Ok(Message::Started { pid }) => {
                self.heard.pid = Some(pid);
                self.last_output = Instant::now();
                self.last_move = self.last_output;
            }
            Ok(Message::NotStarted { errno, reason }) => {
                // The first knows best: what follows says that the process was not started.
                self.heard.refused.get_or_insert((errno, reason));
            }
            Ok(Message::Ended(ended)) => self.heard.ended = Some(ended),
            Err(error) => warn!("a guard said what no guard says: {error}"),
        }
    }
}

impl Measure {
    fn of(&self, line: &[u8]) -> u64 {
        std::str::from_utf8(line).ok().and_then(self.read).unwrap_or(0)
    }
}

/// At once without a time: a disabled branch of `select!` makes its future all the same.
async fn until(time: Option<Instant>) {
    if let Some(time) = time {
        sleep_until(time).await;
    }
}

/// Resolves a moment late. A deadline in the past would be over at once, before the runtime has looked for the
/// output that came while the worker was held up; it looks before it lets a timer run out.
async fn silence(too_long_at: Option<Instant>) {
    until(too_long_at).await;
    sleep(MOMENT).await;
}

/// Zero at the end, and also on an error: a pipe that cannot be read has ended for us.
async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> usize {
    stream.read(buffer).await.unwrap_or(0)
}
