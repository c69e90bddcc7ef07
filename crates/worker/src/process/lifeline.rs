//! The worker's end of the lifeline: lines from the guard, and listeners that come with them.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UnixStream;

use crate::guard::message;

pub(super) struct Lifeline {
    stream: UnixStream,
    /// What has come and was not taken, the first first.
    descriptors: Vec<OwnedFd>,
}

impl Lifeline {
    pub fn new(stream: UnixStream) -> Self {
        Lifeline { stream, descriptors: Vec::new() }
    }

    /// What came with a line that says so.
    pub fn take_listener(&mut self) -> Option<TcpListener> {
        (!self.descriptors.is_empty()).then(|| self.descriptors.remove(0).into())
    }
}

impl AsyncRead for Lifeline {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let Lifeline { stream, descriptors } = self.get_mut();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let read = stream.try_io(Interest::READABLE, || {
                message::receive(stream.as_fd(), buffer.initialize_unfilled(), descriptors)
            });
            match read {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
