//! A worker's right to work on a task, for a while.

use crate::{Millis, Token, WorkerId};

/// Owner, expiry, token — and the progress that earns an extension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    pub worker: WorkerId,
    pub token: Token,
    /// By the database's clock; no worker's clock matters.
    pub expires_at: Millis,
    /// What the work itself has reported: a count that only grows while the encoder moves.
    pub progress: i64,
    /// When `progress` last grew.
    pub progressed_at: Millis,
    /// Its execution has left more durable progress than those before it.
    pub has_kept: bool,
    pub terms: Terms,
}

/// What a lease is granted on; fixed for its execution, except the length, which each renewal names anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long a claim or a renewal lasts.
    pub length: Millis,
    /// How long the work may stand still before renewals are refused. None: progress is not asked for.
    pub stall: Option<Millis>,
    /// When the work must have ended, whatever its progress.
    pub deadline: Option<Millis>,
}

/// Why a lease is not extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    Stalled,
    Overdue,
}

impl Lease {
    pub fn grant(worker: WorkerId, token: Token, terms: Terms, now: Millis) -> Self {
        let expires_at = capped(now + terms.length, terms.deadline);
        Lease { worker, token, expires_at, progress: 0, progressed_at: now, has_kept: false, terms }
    }

    pub fn is_live(&self, now: Millis) -> bool {
        now < self.expires_at
    }

    /// Extends the lease for work that has got as far as `progress`. Work that stands still for longer than
    /// its `stall` earns nothing, however lively its worker's heartbeat.
    pub fn renew(&self, progress: i64, length: Millis, now: Millis) -> Result<Lease, Ended> {
        let moved = progress > self.progress;
        let progressed_at = if moved { now } else { self.progressed_at };
        if self.terms.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Ended::Overdue);
        }
        let stalls_at = self.terms.stall.map(|stall| progressed_at + stall);
        if stalls_at.is_some_and(|at| at <= now) {
            return Err(Ended::Stalled);
        }
        let expires_at = capped(capped(now + length, stalls_at), self.terms.deadline);
        Ok(Lease {
            expires_at: expires_at.max(self.expires_at),
            progress: progress.max(self.progress),
            progressed_at,
            terms: Terms { length, ..self.terms },
            ..self.clone()
        })
    }
}

fn capped(at: Millis, limit: Option<Millis>) -> Millis {
    limit.map_or(at, |limit| at.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Millis = Millis(60);

    fn lease(stall: Option<i64>, deadline: Option<i64>) -> Lease {
        let terms = Terms { length: LENGTH, stall: stall.map(Millis), deadline: deadline.map(Millis) };
        Lease::grant(WorkerId(uuid::Uuid::nil()), Token(1), terms, Millis(0))
    }

    #[test]
    fn a_lease_without_stall_is_renewed_by_asking() {
        let renewed = lease(None, None).renew(0, LENGTH, Millis(50)).unwrap();

        assert_eq!(renewed.expires_at, Millis(110));
    }

    #[test]
    fn work_that_stands_still_renews_only_up_to_its_stall() {
        let lease = lease(Some(80), None);

        let renewed = lease.renew(0, LENGTH, Millis(50)).unwrap();
        assert_eq!(renewed.expires_at, Millis(80), "no longer than the work may stand still");
        assert_eq!(renewed.renew(0, LENGTH, Millis(80)), Err(Ended::Stalled));
        assert_eq!(renewed.renew(1, LENGTH, Millis(80)).unwrap().expires_at, Millis(140));
    }

    #[test]
    fn progress_never_goes_back() {
        let renewed = lease(Some(80), None).renew(5, LENGTH, Millis(10)).unwrap();

        let late = renewed.renew(3, LENGTH, Millis(20)).unwrap();

        assert_eq!((late.progress, late.progressed_at), (5, Millis(10)));
    }

    #[test]
    fn nothing_extends_a_lease_past_its_deadline() {
        let renewed = lease(None, Some(70)).renew(9, LENGTH, Millis(50)).unwrap();

        assert_eq!(renewed.expires_at, Millis(70));
        assert_eq!(renewed.renew(10, LENGTH, Millis(70)), Err(Ended::Overdue));
    }
}
