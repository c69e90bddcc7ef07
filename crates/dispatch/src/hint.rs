//! Tasks became READY: one process is told for each hint, not all of them, so that a fleet does not run for one task.
//!
//! A hint is an entry of the stream of its priority, and says how many tasks it stands for. All streams are read with one
//! command that names the most urgent first, by one consumer group; inside a stream the oldest comes first. So priorities
//! 0 to 10 are exact, each is first in, first out, and each hint has one taker.
//!
//! A process takes hints only while somebody in it waits for work. It lets them look into the database, which alone says
//! what there is and who gets it. Then:
//!
//! - they got less than the hint stands for: the rest is a new hint, for others;
//! - they got nothing: the hint was old, or not for them. Everybody is told once ([`crate::bell`]), and it is forgotten;
//! - the process died meanwhile: after a while another claims what was pending with it.
//!
//! What becomes READY in a process is offered to its own workers first, in the same way.

use crate::names::Names;
use crate::{Error, Fallback, Pace, Redis, bell};
use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamAutoClaimReply, StreamId, StreamInfoConsumersReply, StreamReadReply};
use rules::Priority;
use std::time::Duration;
use store::Readied;
use store::wake::{Looks, Topic, Wake};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Hints within this time travel as one.
const GATHER: Duration = Duration::from_millis(1);

/// How long a process's own workers have to begin a look, before others are told; and who took a hint, before it passes
/// it on.
const OWN_LOOK: Duration = Duration::from_millis(100);
const TAKERS_LOOK: Duration = Duration::from_secs(1);

/// After the first look, for the others of the same process.
const OTHER_LOOKS: Duration = Duration::from_millis(5);

/// What becomes READY at once is told to so many processes; each tells as many again.
const SPREAD: u64 = 8;

/// So many hints of one priority are kept. Who needs more of them than that has work to do anyway.
const KEPT: usize = 1000;

/// How long one question waits for hints.
const BLOCK: Duration = Duration::from_secs(1);

/// What a consumer has had for longer without a word, others take; and how often they look for it.
const PENDING: Duration = Duration::from_secs(10);
const CLAIM_EVERY: Duration = Duration::from_secs(5);

/// Consumers that were silent for so long are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The most hints of one priority that are read at once, while they lead to nothing.
const MOST: usize = 256;

/// Tells others of what becomes READY here, until dropped.
pub(crate) async fn send(redis: &Redis, fallback: &Fallback<'_>) {
    let wake = fallback.wake;
    let mut arising = wake.outgoing(Topic::Ready);
    while arising.changed().await.is_ok() {
        sleep(GATHER).await;
        arising.mark_unchanged();
        let mut fresh = wake.take_readied();
        let sent = if fresh.readied.is_empty() {
            // Nothing is new, but somebody may be able to do what is old.
            bell::ring(redis, &[Topic::Ready]).await
        } else {
            if fresh.waiting > 0 {
                let looks = looked(wake.looks(), fresh.looks, OWN_LOOK).await;
                fresh.readied.take(looks.claimed - fresh.looks.claimed);
            }
            add(redis, fresh.readied).await
        };
        fallback.settle(Topic::Ready, &sent);
    }
}

async fn add(redis: &Redis, readied: Readied) -> Result<(), Error> {
    let mut hints = redis::pipe();
    write(&mut hints, redis.names(), readied);
    if hints.is_empty() { Ok(()) } else { redis.tell(&hints).await }
}

fn write(hints: &mut Pipeline, names: &Names, readied: Readied) {
    for (priority, tasks) in readied.iter() {
        let parts = tasks.min(SPREAD);
        for part in 0..parts {
            let share = tasks / parts + u64::from(part < tasks % parts);
            let hint = hints.cmd("XADD").arg(names.ready(priority)).arg("MAXLEN").arg("~").arg(KEPT);
            hint.arg("*").arg("tasks").arg(share).ignore();
        }
    }
}

/// Waits for a look that began after `since`, and for those beside it.
async fn looked(mut looks: watch::Receiver<Looks>, since: Looks, patience: Duration) -> Looks {
    let is_later = looks.wait_for(|now| now.looks > since.looks);
    if matches!(timeout(patience, is_later).await, Ok(Ok(_))) {
        sleep(OTHER_LOOKS).await;
    }
    *looks.borrow()
}

/// Takes hints for those who wait for work here, until dropped.
pub(crate) async fn take(redis: &Redis, wake: &Wake) {
    let mut pace = Pace::new();
    loop {
        let error = match Taker::new(redis, wake).await {
            Ok(mut taker) => {
                let began = Instant::now();
                let error = taker.run().await;
                if began.elapsed() > BLOCK {
                    pace = Pace::new();
                }
                error
            }
            Err(error) => error,
        };
        tracing::debug!("taking no hints, polling meanwhile: {error}");
        pace.wait().await;
    }
}

struct Taker<'a> {
    redis: &'a Redis,
    wake: &'a Wake,
    streams: Vec<(Priority, String)>,
    /// Its own: the server answers a question that waits before it reads the next.
    connection: MultiplexedConnection,
    /// How many hints of each priority are read at once: more, while they lead to nothing.
    count: usize,
    claim_at: Instant,
}

/// Hints that were read and not yet acknowledged.
#[derive(Default)]
struct Taken {
    readied: Readied,
    /// Of which stream, and which entry.
    entries: Vec<(String, String)>,
}

impl Taken {
    fn add(&mut self, priority: Priority, stream: &str, entries: Vec<StreamId>) {
        for entry in entries {
            // Somebody else's entry is worth a look, too.
            self.readied.add(priority, entry.get("tasks").unwrap_or(1));
            self.entries.push((stream.into(), entry.id));
        }
    }
}

impl<'a> Taker<'a> {
    async fn new(redis: &'a Redis, wake: &'a Wake) -> Result<Self, Error> {
        let streams = redis.names().all_ready();
        let connection = redis.connect(2 * BLOCK).await?;
        let mut taker =
            Taker { redis, wake, streams, connection, count: 1, claim_at: Instant::now() + CLAIM_EVERY };
        taker.make_groups().await?;
        Ok(taker)
    }

    /// Until something goes wrong.
    async fn run(&mut self) -> Error {
        loop {
            // The sender lives as long as the store.
            let _ = self.wake.waiting().wait_for(|waiting| *waiting > 0).await;
            let done = async {
                let taken = self.next().await?;
                if taken.entries.is_empty() { Ok(()) } else { self.offer(taken).await }
            };
            match done.await {
                Ok(()) => {}
                // Somebody has emptied Redis.
                Err(Error::NoStreams) => {
                    if let Err(error) = self.make_groups().await {
                        return error;
                    }
                }
                Err(error) => return error,
            }
        }
    }

    async fn make_groups(&mut self) -> Result<(), Error> {
        for (_, stream) in self.streams.clone() {
            let mut make = redis::cmd("XGROUP");
            make.arg("CREATE").arg(&stream).arg(Names::GROUP).arg("0").arg("MKSTREAM");
            match make.query_async::<()>(&mut self.connection).await {
                Err(error) if error.code() != Some("BUSYGROUP") => return Err(self.redis.error(&error)),
                _ => {}
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Taken, Error> {
        if self.claim_at <= Instant::now() {
            self.claim_at = Instant::now() + CLAIM_EVERY.mul_f64(rand::random_range(0.75..1.25));
            let taken = self.claim_pending().await?;
            if !taken.entries.is_empty() {
                return Ok(taken);
            }
        }
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(Names::GROUP).arg(self.redis.id());
        read.arg("COUNT").arg(self.count).arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS");
        let streams: Vec<&str> = self.streams.iter().map(|(_, stream)| stream.as_str()).collect();
        read.arg(&streams).arg(vec![">"; streams.len()]);
        let reply: Option<StreamReadReply> = self.ask(&read).await?;
        let mut taken = Taken::default();
        for key in reply.into_iter().flat_map(|reply| reply.keys) {
            if let Some((priority, stream)) = self.streams.iter().find(|(_, stream)| *stream == key.key) {
                taken.add(*priority, stream, key.ids);
            }
        }
        Ok(taken)
    }

    /// What somebody took and never spoke of again.
    async fn claim_pending(&mut self) -> Result<Taken, Error> {
        let mut taken = Taken::default();
        for (priority, stream) in self.streams.clone() {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim.arg(&stream).arg(Names::GROUP).arg(self.redis.id());
            claim.arg(PENDING.as_millis() as u64).arg("0-0").arg("COUNT").arg(MOST);
            let claimed: StreamAutoClaimReply = self.ask(&claim).await?;
            taken.add(priority, &stream, claimed.claimed);
            self.forget_consumers(&stream).await?;
        }
        Ok(taken)
    }

    /// A consumer that is gone stays on the list until somebody strikes it off.
    async fn forget_consumers(&mut self, stream: &str) -> Result<(), Error> {
        let mut list = redis::cmd("XINFO");
        list.arg("CONSUMERS").arg(stream).arg(Names::GROUP);
        let listed: StreamInfoConsumersReply = self.ask(&list).await?;
        let is_gone = |idle: usize, pending| idle as u128 > FORGOTTEN.as_millis() && pending == 0;
        for gone in listed.consumers.into_iter().filter(|one| is_gone(one.idle, one.pending)) {
            let mut forget = redis::cmd("XGROUP");
            forget.arg("DELCONSUMER").arg(stream).arg(Names::GROUP).arg(gone.name);
            self.ask::<redis::Value>(&forget).await?;
        }
        Ok(())
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, Error> {
        let answer = timeout(2 * BLOCK, command.query_async(&mut self.connection)).await;
        let answer = answer.map_err(|_| self.redis.away("it is too slow"))?;
        answer.map_err(|error| self.redis.error(&error))
    }

    /// Lets those who wait here look, and passes on what they leave.
    async fn offer(&mut self, taken: Taken) -> Result<(), Error> {
        let looks = self.wake.looks();
        let before = *looks.borrow();
        self.wake.hear(Topic::Ready);
        let after = looked(looks, before, TAKERS_LOOK).await;
        let claimed = after.claimed - before.claimed;
        let mut left = taken.readied;
        left.take(claimed);

        let is_useless = claimed == 0 && after.looks > before.looks;
        self.count = if is_useless { (self.count * 4).min(MOST) } else { 1 };
        let mut words = redis::pipe();
        for (stream, entry) in &taken.entries {
            words.cmd("XACK").arg(stream).arg(Names::GROUP).arg(entry).ignore();
            words.cmd("XDEL").arg(stream).arg(entry).ignore();
        }
        if !is_useless {
            write(&mut words, self.redis.names(), left);
        }
        self.redis.tell::<()>(&words).await?;
        if is_useless { bell::ring(self.redis, &[Topic::Ready]).await } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn many_tasks_are_a_few_hints_that_stand_for_all_of_them() {
        let shares = |tasks: u64| -> Vec<u64> {
            let mut hints = redis::pipe();
            write(&mut hints, &Names::new("x:"), Readied::of(Priority::NORMAL, tasks));
            let share = |cmd: &redis::Cmd| match cmd.args_iter().last() {
                Some(redis::Arg::Simple(share)) => std::str::from_utf8(share).unwrap().parse().unwrap(),
                _ => 0,
            };
            hints.cmd_iter().map(share).collect()
        };

        assert_eq!(shares(3), [1, 1, 1]);
        assert_eq!(shares(20), [3, 3, 3, 3, 2, 2, 2, 2]);
        assert!(shares(0).is_empty());
    }
}
