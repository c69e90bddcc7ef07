//! A lock with one holder at a time: for work that would be wasted if two did it, never for what must not happen twice.
//!
//! The holder is known by a random token, so that nobody releases or renews what is another's. It is renewed at every third
//! of its time; a holder that could not renew it in time, or finds another in its place, is told ([`Held::lost`]). Each
//! acquisition has a *fence*, a number that grows: who is told of work by two holders knows which is the later.

use crate::{Error, Redis};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Takes the lock if it is free; its fence, or 0. The clock is the fence's floor: it grows though Redis was emptied.
const ACQUIRE: &str = "
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local fence = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[2], string.format('%.0f', fence))
return fence";

const RENEW: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RELEASE: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

#[derive(Clone)]
pub struct Lock {
    redis: Redis,
    key: String,
    fence_key: String,
    ttl: Duration,
}

impl Lock {
    /// Held for `ttl` beyond its holder's last word.
    pub fn new(redis: &Redis, name: &str, ttl: Duration) -> Self {
        let names = redis.names();
        Lock { key: names.lock(name), fence_key: names.fence(name), redis: redis.clone(), ttl }
    }

    /// Takes the lock; none if another holds it.
    pub async fn try_acquire(&self) -> Result<Option<Held>, Error> {
        let token = format!("{}-{:016x}", self.redis.id(), rand::random::<u64>());
        // Counted from before the question: it ends here before it ends there.
        let asked = Instant::now();
        let mut acquire = redis::cmd("EVAL");
        acquire.arg(ACQUIRE).arg(2).arg(&self.key).arg(&self.fence_key);
        let fence: u64 = self.redis.ask(acquire.arg(&token).arg(self.ttl_ms())).await?;
        Ok((fence > 0).then(|| Held::new(self.clone(), token, fence, asked + self.ttl)))
    }

    async fn renew(&self, token: &str) -> Result<bool, Error> {
        let mut renew = redis::cmd("EVAL");
        renew.arg(RENEW).arg(1).arg(&self.key).arg(token).arg(self.ttl_ms());
        self.redis.ask(&renew).await
    }

    async fn release(&self, token: &str) -> Result<bool, Error> {
        let mut release = redis::cmd("EVAL");
        release.arg(RELEASE).arg(1).arg(&self.key).arg(token);
        self.redis.ask(&release).await
    }

    fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A lock that was taken. Dropped without [`Held::release`], it ends with its time.
pub struct Held {
    lock: Lock,
    token: Arc<str>,
    fence: u64,
    /// When it ends if nothing more is heard; in the past once it is lost.
    until: watch::Receiver<Instant>,
    keeper: JoinHandle<()>,
}

impl Held {
    fn new(lock: Lock, token: String, fence: u64, until: Instant) -> Self {
        let token: Arc<str> = token.into();
        let (sender, until) = watch::channel(until);
        let keeper = tokio::spawn(keep(lock.clone(), token.clone(), sender));
        Held { lock, token, fence, until, keeper }
    }

    /// Grows from holder to holder.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// True only while nobody else can have it. A process that was stopped learns here that it slept too long.
    pub fn is_held(&self) -> bool {
        Instant::now() < *self.until.borrow()
    }

    /// Returns when it is lost.
    pub async fn lost(&mut self) {
        while self.is_held() {
            let until = *self.until.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => {}
                _ = self.until.changed() => {}
            }
        }
    }

    /// Gives it back; whether it was still held.
    pub async fn release(self) -> Result<bool, Error> {
        self.keeper.abort();
        self.lock.release(&self.token).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Renews it until it is lost.
async fn keep(lock: Lock, token: Arc<str>, until: watch::Sender<Instant>) {
    loop {
        sleep(lock.ttl / 3).await;
        let asked = Instant::now();
        match lock.renew(&token).await {
            Ok(true) => until.send_modify(|until| *until = asked + lock.ttl),
            Ok(false) => until.send_modify(|until| *until = asked),
            // Nobody else may have it before its time is over.
            Err(error) => tracing::debug!("cannot renew {}: {error}", lock.key),
        }
        if *until.borrow() <= Instant::now() {
            return;
        }
    }
}
