//! A line to a server on which an answer is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

pub struct Line {
    port: u16,
}

impl Line {
    /// The server has got the first request, and done what it asks for, when the line is cut.
    pub async fn that_loses_the_first_answer(to: &str) -> Self {
        let far = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_lost = Arc::new(AtomicBool::new(false));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&far).await.unwrap();
                tokio::spawn(carry(near, far, is_lost.clone()));
            }
        });
        Line { port }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, is_lost: Arc<AtomicBool>) {
    if is_lost.swap(true, Ordering::SeqCst) {
        let _ = copy_bidirectional(&mut near, &mut far).await;
        return;
    }
    let (mut asking, _answering) = near.split();
    let (mut answers, mut asked) = far.split();
    tokio::select! {
        _ = tokio::io::copy(&mut asking, &mut asked) => {}
        _ = answers.read_u8() => {}
    }
}
