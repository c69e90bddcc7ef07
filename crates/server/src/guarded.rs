//! A connection's bytes, with deadlines: for the head of a request, for idling, and for a client that reads too slowly.
//!
//! The deadline for a head is fixed when its first byte arrives, so a client that sends one byte now and then gains nothing.
//! While a request is answered there is no deadline for reading here: its body has one of its own. One that reads one byte
//! now and then gains nothing, either: within its deadline it takes all there is to send, or as much as [`LEAST_RATE`] is.

use crate::connections::Visitor;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a client takes of an answer on average while there is something to send, in bytes a second.
pub const LEAST_RATE: u64 = 1024;

#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For a whole head, and for idling before it.
    pub head: Duration,
    /// For idling, of a client that has authenticated, or a proxy.
    pub idle: Duration,
    /// For a client to take what it is sent, or so much of it that it keeps [`LEAST_RATE`].
    pub write: Duration,
}

impl Deadlines {
    fn least_bytes(&self) -> u64 {
        (LEAST_RATE as f64 * self.write.as_secs_f64()).ceil() as u64
    }
}

/// What a connection is at. Shared by its bytes and its requests.
pub struct Progress {
    deadlines: Deadlines,
    phase: Mutex<Phase>,
    /// Whose connection this is; none of a proxy.
    visitor: Option<Arc<Visitor>>,
}

enum Phase {
    /// For the next head; some of it has come, or nothing.
    Waiting { until: Instant, has_begun: bool },
    /// A request is being answered.
    Answering,
}

impl Progress {
    pub fn new(deadlines: Deadlines, visitor: Option<Arc<Visitor>>) -> Arc<Self> {
        let phase = Phase::Waiting { until: Instant::now() + deadlines.head, has_begun: false };
        Arc::new(Progress { deadlines, phase: Mutex::new(phase), visitor })
    }

    /// The head of a request has come.
    pub fn answer(&self) {
        *self.phase() = Phase::Answering;
    }

    fn wait(&self, may_idle: bool) {
        let patience = if may_idle { self.deadlines.idle } else { self.deadlines.head };
        *self.phase() = Phase::Waiting { until: Instant::now() + patience, has_begun: false };
    }

    fn read(&self) {
        if let Phase::Waiting { until, has_begun } = &mut *self.phase()
            && !*has_begun
        {
            *until = Instant::now() + self.deadlines.head;
            *has_begun = true;
        }
    }

    /// The rest of an answer is still on its way to the client.
    fn written(&self) {
        if let Phase::Waiting { until, has_begun: false } = &mut *self.phase() {
            *until = (*until).max(Instant::now() + self.deadlines.head);
        }
    }

    /// Nothing is on its way to the client.
    fn flushed(&self) {
        let phase = self.phase();
        if let (Phase::Waiting { .. }, Some(visitor)) = (&*phase, &self.visitor) {
            visitor.wait();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Waiting { until, .. } => Some(until),
            Phase::Answering => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that fails when a deadline has passed.
pub struct Guarded<S> {
    stream: S,
    progress: Arc<Progress>,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Blocked>,
}

/// The client has not taken all that there is to send.
struct Blocked {
    until: Pin<Box<Sleep>>,
    /// Since then.
    taken: u64,
}

impl<S> Guarded<S> {
    pub fn new(stream: S, progress: Arc<Progress>) -> Self {
        Guarded { stream, progress, reading: None, writing: None }
    }

    fn poll_read_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(deadline) = self.progress.deadline() else {
            self.reading = None;
            return Poll::Pending;
        };
        let sleep = self.reading.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).map(|()| io::Error::new(io::ErrorKind::TimedOut, "no request came in time"))
    }

    /// What writing came to; fails when the client has taken too little for too long.
    fn guard_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let deadlines = self.progress.deadlines;
        if let Poll::Ready(result) = &written {
            let bytes = result.as_ref().map_or(0, |bytes| *bytes as u64);
            self.writing = self.writing.take().and_then(|blocked| blocked.after(bytes, &deadlines));
            self.progress.written();
            return written;
        }
        let blocked = self.writing.get_or_insert_with(|| Blocked {
            until: Box::pin(tokio::time::sleep(deadlines.write)),
            taken: 0,
        });
        ready!(blocked.until.as_mut().poll(cx));
        let what = "the client takes too little of what it is sent";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)))
    }
}

impl Blocked {
    /// None if the client has kept up so far.
    fn after(mut self, bytes: u64, deadlines: &Deadlines) -> Option<Self> {
        self.taken += bytes;
        (self.taken < deadlines.least_bytes()).then_some(self)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Looked at first: bytes that keep coming must not put it off.
        if let Poll::Ready(late) = self.poll_read_deadline(cx) {
            return Poll::Ready(Err(late));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.progress.read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.guard_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.writing = None;
            self.progress.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of an answer, and something that lives until it has been sent or given up.
pub struct Kept<G> {
    body: axum::body::Body,
    _guard: G,
}

impl<G> Kept<G> {
    pub fn new(body: axum::body::Body, guard: G) -> Self {
        Kept { body, _guard: guard }
    }
}

impl<G: Unpin> Body for Kept<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Notes when dropped that the request has been answered, and the next one is waited for.
pub struct Answered {
    pub progress: Arc<Progress>,
    pub may_idle: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.progress.wait((self.may_idle)());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// What comes of an answer of a megabyte to a client that takes so much of it every ten seconds.
    async fn answer_to(bytes: usize) -> io::Result<()> {
        const SECONDS: fn(u64) -> Duration = Duration::from_secs;
        let deadlines = Deadlines { head: SECONDS(15), idle: SECONDS(120), write: SECONDS(60) };
        let (near, mut far) = duplex(4096);
        let mut stream = Guarded::new(near, Progress::new(deadlines, None));
        let reading = async {
            let mut block = vec![0; bytes];
            loop {
                tokio::time::sleep(SECONDS(10)).await;
                far.read_exact(&mut block).await.unwrap();
            }
        };
        let writing = async {
            stream.write_all(&[0; 1 << 20]).await?;
            stream.flush().await
        };
        tokio::select! {
            () = reading => Ok(()),
            written = writing => written,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_byte_now_and_then_is_given_up() {
        let begun = Instant::now();

        assert_eq!(answer_to(1).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        assert!(begun.elapsed() <= Duration::from_secs(61), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_little_but_steadily_gets_everything() {
        let begun = Instant::now();

        // Twice the least rate.
        answer_to(20 << 10).await.unwrap();

        assert!(begun.elapsed() > Duration::from_secs(400), "{:?}", begun.elapsed());
    }
}
