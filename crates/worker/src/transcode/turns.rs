//! Turns at something of which few are done at a time: those who wait are served in rotation, so one that asks for much waits
//! for itself.

use rules::WorkerId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    /// A queue for each worker that waits; the first is served next, and then goes to the end.
    waiting: VecDeque<(WorkerId, VecDeque<oneshot::Sender<Turn>>)>,
}

/// Passed on when dropped.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

impl Turns {
    pub fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Turns(Mutex::new(State { free: at_once, waiting: VecDeque::new() })))
    }

    /// Waits for this worker's turn.
    pub async fn take(self: &Arc<Self>, worker: WorkerId) -> Turn {
        loop {
            let turn = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Turn(Some(self.clone()));
                }
                let (to, turn) = oneshot::channel();
                state.queue(worker).push_back(to);
                turn
            };
            // A turn is never dropped while somebody waits for it.
            if let Ok(turn) = turn.await {
                return turn;
            }
        }
    }

    /// Gives a turn to the next that still waits for one.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.next();
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // Whoever waited has gone. This one does not pass itself on, or it would end in here again.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&mut self, worker: WorkerId) -> &mut VecDeque<oneshot::Sender<Turn>> {
        let at = self.waiting.iter().position(|(id, _)| *id == worker).unwrap_or_else(|| {
            self.waiting.push_back((worker, VecDeque::new()));
            self.waiting.len() - 1
        });
        &mut self.waiting[at].1
    }

    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let (worker, mut queue) = self.waiting.pop_front()?;
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.waiting.push_back((worker, queue));
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::task::Poll;
    use uuid::Uuid;

    #[tokio::test]
    async fn one_that_asks_for_much_waits_for_itself() {
        let turns = Turns::new(1);
        let (greedy, honest) = (WorkerId(Uuid::new_v4()), WorkerId(Uuid::new_v4()));
        let running = turns.take(greedy).await;
        let mut first = Box::pin(turns.take(greedy));
        let mut second = Box::pin(turns.take(greedy));
        let mut third = Box::pin(turns.take(greedy));
        let mut other = Box::pin(turns.take(honest));
        for waiting in [&mut first, &mut second, &mut third, &mut other] {
            assert!(poll!(waiting).is_pending());
        }

        drop(running);
        let Poll::Ready(turn) = poll!(&mut first) else { panic!("its turn") };
        assert!(poll!(&mut second).is_pending() && poll!(&mut other).is_pending());
        drop(turn);
        assert!(poll!(&mut second).is_pending(), "the other is served in between");
        let Poll::Ready(turn) = poll!(&mut other) else { panic!("its turn") };
        // One that has gone is passed over.
        drop(second);
        drop(turn);
        let Poll::Ready(turn) = poll!(&mut third) else { panic!("its turn") };
        drop(turn);
        turns.take(honest).await;
    }

    #[tokio::test]
    async fn a_turn_that_came_too_late_goes_to_the_next() {
        let turns = Turns::new(1);
        let worker = WorkerId(Uuid::new_v4());
        let running = turns.take(worker).await;
        let mut gone = Box::pin(turns.take(worker));
        let mut waiting = Box::pin(turns.take(worker));
        assert!(poll!(&mut gone).is_pending() && poll!(&mut waiting).is_pending());

        drop(running);
        drop(gone);

        assert!(poll!(&mut waiting).is_ready());
    }
}
