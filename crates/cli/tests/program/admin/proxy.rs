//! What stands between a command and a server: a line that is cut, a page for people.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Passes on to a server, and cuts the first connection over which more than `most` bytes were sent.
pub struct Line {
    pub url: String,
    cuts: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
}

impl Line {
    pub fn to(server: &str, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Line {
            url: format!("http://{}", listener.local_addr().unwrap()),
            cuts: Arc::default(),
            sent: Arc::default(),
        };
        let (server, cuts, sent) =
            (server.trim_start_matches("http://").to_owned(), line.cuts.clone(), line.sent.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // While the server is away, whoever calls is hung up on.
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (cuts, sent) = (cuts.clone(), sent.clone());
                std::thread::spawn(move || carry(&client, &server, most, &cuts, &sent));
            }
        });
        line
    }

    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

fn carry(client: &TcpStream, server: &TcpStream, most: usize, cuts: &AtomicUsize, sent: &AtomicUsize) {
    let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let (mut client, mut server, mut block, mut mine) = (client, server, [0; 16 << 10], 0);
    while let Ok(read @ 1..) = client.read(&mut block) {
        mine += read;
        sent.fetch_add(read, Ordering::SeqCst);
        if server.write_all(&block[..read]).is_err() {
            break;
        }
        if mine > most && cuts.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// Answers everything with this; its address.
pub fn stranger(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4096];
            let _ = client.read(&mut asked);
            let _ = client.write_all(answer.as_bytes());
        }
    });
    url
}
