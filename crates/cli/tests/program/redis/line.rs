//! A line to a server that can be made slow, or cut so that nobody notices at once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Clone)]
pub struct Line(Arc<(Mutex<State>, Condvar)>, String);

#[derive(Clone, Copy, PartialEq)]
pub enum State {
    Good,
    /// Every piece takes longer than anybody waits for it.
    Slow,
    /// Nothing passes, and nobody is told.
    Cut,
}

const SLOW: Duration = Duration::from_millis(2500);

impl Line {
    pub fn to(port: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (line, server) =
            (Line(Arc::new((Mutex::new(State::Good), Condvar::new())), url), port.to_owned());
        let accepting = line.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(format!("127.0.0.1:{server}")) else { continue };
                accepting.join(client.try_clone().unwrap(), server.try_clone().unwrap());
                accepting.join(server, client);
            }
        });
        line
    }

    pub fn url(&self) -> &str {
        &self.1
    }

    pub fn set(&self, state: State) {
        *self.0.0.lock().unwrap() = state;
        self.0.1.notify_all();
    }

    fn join(&self, mut from: TcpStream, mut to: TcpStream) {
        let line = self.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                line.pass();
                if to.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    /// Waits as long as the line makes one wait.
    fn pass(&self) {
        let (state, changed) = &*self.0;
        let state = changed.wait_while(state.lock().unwrap(), |state| *state == State::Cut).unwrap();
        if *state == State::Slow {
            drop(changed.wait_timeout_while(state, SLOW, |state| *state == State::Slow).unwrap());
        }
    }
}
