//! A place elsewhere that files are fetched from, not all of it in good order.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Elsewhere {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Elsewhere {
    /// Has one file, at several addresses.
    pub fn with(file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = Elsewhere { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let asked = here.asked.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // Whoever hangs up is nobody's concern.
                let _ = answer(caller, &file, &asked);
            }
        });
        here
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The ranges that were asked for at an address, empty for all of it.
    pub fn asked(&self, path: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter_map(|it| it.strip_prefix(path)?.strip_prefix(' ')).map(str::to_owned).collect()
    }
}

fn answer(mut caller: TcpStream, file: &[u8], asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(caller.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let headers: HashMap<String, String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.into())))
        .collect();
    let range = headers.get("range").cloned().unwrap_or_default();
    let times = {
        let mut asked = asked.lock().unwrap();
        asked.push(format!("{path} {range}"));
        asked.iter().filter(|it| it.starts_with(&format!("{path} "))).count()
    };
    let from = range.strip_prefix("bytes=").and_then(|it| it.strip_suffix('-')?.parse().ok()).unwrap_or(0);
    let third = file.len() / 3 + 1;
    match path.as_str() {
        // A third at a time, and the connection ends.
        "/cut.mp4" => send(caller, &file[from..], from, file.len(), third, "ETag: \"v1\"\r\n"),
        // A sixth of it, and then hardly anything, until somebody asks for the fifth time.
        "/slow.mp4" => {
            let most = if times < 5 { file.len() / 6 } else { file.len() };
            let version = "ETag: \"v1\"\r\n";
            send(caller.try_clone()?, &file[from..], from, file.len(), most, version)?;
            for byte in &file[(from + most).min(file.len())..] {
                std::thread::sleep(std::time::Duration::from_millis(50));
                caller.write_all(&[*byte])?;
            }
            Ok(())
        }
        // Cannot say whether it is still the same file; whole at the second time.
        "/unversioned.mp4" => {
            send(caller, file, 0, file.len(), if times == 1 { third } else { file.len() }, "")
        }
        "/moved.mp4" => head(caller, "302 Found", "Location: /cut.mp4\r\nContent-Length: 0\r\n"),
        "/round" => head(caller, "302 Found", "Location: /round\r\nContent-Length: 0\r\n"),
        "/page" => {
            head(caller, "200 OK", "Content-Type: text/html; charset=utf-8\r\nContent-Length: 9999\r\n")
        }
        "/huge.mp4" => head(caller, "200 OK", "Content-Length: 99999999999\r\n"),
        "/empty.mp4" => head(caller, "200 OK", "Content-Length: 0\r\n"),
        _ => head(caller, "404 Not Found", "Content-Length: 0\r\n"),
    }
}

fn send(
    mut to: TcpStream,
    rest: &[u8],
    from: usize,
    whole: usize,
    most: usize,
    more: &str,
) -> std::io::Result<()> {
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    let range = format!("Content-Range: bytes {from}-{}/{whole}\r\n", whole - 1);
    let range = if from > 0 { range.as_str() } else { "" };
    let length = rest.len();
    write!(
        to,
        "HTTP/1.1 {status}\r\nContent-Type: video/mp4\r\nContent-Length: {length}\r\n{range}{more}\r\n"
    )?;
    to.write_all(&rest[..most.min(length)])
}

fn head(mut to: TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n")
}
