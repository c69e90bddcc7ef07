//! How long bodies of requests are listened to.
//!
//! An answer that comes before the whole request was read, such as "too large", reaches only a client that may finish
//! sending: otherwise the connection is cut under its hands, and it never learns why. One that falls silent in the middle
//! is given up: it may be gone without a word, and others wait for what its request holds.

use crate::app::App;
use crate::connections::Visitor;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// More than this, or longer, is not listened to for politeness' sake.
const MOST: usize = 256 << 20;
const LONGEST: Duration = Duration::from_secs(20);

/// The same, of a client that has not authenticated.
const MOST_OF_STRANGERS: usize = 4 << 20;
const LONGEST_OF_STRANGERS: Duration = Duration::from_secs(5);

pub async fn politely(State(app): State<App>, request: Request, next: Next) -> Response {
    let patience = app.options.upload_silence;
    let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
    let drained = |body| Body::new(Drained { body: Some(body), patience, silence: None, visitor });
    next.run(request.map(drained)).await
}

/// A body whose rest is read and thrown away when nobody wants it any more.
struct Drained {
    body: Option<Body>,
    patience: Duration,
    /// Runs from when something was waited for in vain.
    silence: Option<Pin<Box<Sleep>>>,
    visitor: Option<Arc<Visitor>>,
}

impl Drained {
    /// Fails when nothing has come for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        silence.as_mut().poll(cx).map(|()| {
            self.body = None;
            Some(Err(axum::Error::new(format!("nothing came for {patience:?}"))))
        })
    }
}

impl http_body::Body for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => self.poll_silence(cx),
            ready => {
                self.silence = None;
                ready
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(|body| body.size_hint()).unwrap_or_default()
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let is_stranger = self.visitor.as_ref().is_some_and(|visitor| !visitor.has_authenticated());
            let (most, longest) = if is_stranger {
                (MOST_OF_STRANGERS, LONGEST_OF_STRANGERS)
            } else {
                (MOST, LONGEST)
            };
            runtime.spawn(tokio::time::timeout(longest, rest(body, most)));
        }
    }
}

async fn rest(body: Body, most: usize) {
    let (mut stream, mut read) = (body.into_data_stream(), 0);
    while let Some(Ok(block)) = stream.next().await {
        read += block.len();
        if read > most {
            return;
        }
    }
}
