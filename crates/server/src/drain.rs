//! An answer that comes before the whole request was read, such as "too large", reaches only a client that may finish
//! sending: otherwise the connection is cut under its hands, and it never learns why.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// More than this, or longer, is not listened to for politeness' sake.
const MOST: usize = 256 << 20;
const LONGEST: Duration = Duration::from_secs(20);

pub async fn politely(request: Request, next: Next) -> Response {
    next.run(request.map(|body| Body::new(Drained(Some(body))))).await
}

/// A body whose rest is read and thrown away when nobody wants it any more.
struct Drained(Option<Body>);

impl http_body::Body for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(|body| body.size_hint()).unwrap_or_default()
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(LONGEST, rest(body)));
        }
    }
}

async fn rest(body: Body) {
    let (mut stream, mut read) = (body.into_data_stream(), 0);
    while let Some(Ok(block)) = stream.next().await {
        read += block.len();
        if read > MOST {
            return;
        }
    }
}
