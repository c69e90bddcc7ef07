//! A line to Redis that can be struck: what a bench does to it is nothing to others who use the same Redis. Only to be full
//! is done to Redis itself.

use crate::settings::Usage;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// Connections are closed, and new ones too.
    Stopped,
    /// Everything takes [`SLOWNESS`] longer, each way.
    Slow,
    /// Connections stay, and nothing passes.
    CutOff,
    /// It answers, and refuses what would take memory.
    Full,
}

const SLOWNESS: Duration = Duration::from_millis(200);

impl Blow {
    pub const ALL: [Blow; 4] = [Blow::Stopped, Blow::Slow, Blow::CutOff, Blow::Full];

    pub fn key(self) -> &'static str {
        match self {
            Blow::Stopped => "stopped",
            Blow::Slow => "slow",
            Blow::CutOff => "cut_off",
            Blow::Full => "full",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Blow::Stopped => "Redis stopped",
            Blow::Slow => "Redis slow",
            Blow::CutOff => "Redis cut off",
            Blow::Full => "Redis full",
        }
    }
}

pub struct Line {
    url: String,
    address: String,
    blow: watch::Sender<Option<Blow>>,
    /// Until dropped.
    _carriers: JoinSet<()>,
}

impl Line {
    /// In good order at first.
    pub async fn to(redis: &str) -> anyhow::Result<Self> {
        let (before, address, after) = parts(redis)?;
        let (far, listener) = (address.to_owned(), TcpListener::bind("127.0.0.1:0").await?);
        let url = format!("{before}{}{after}", listener.local_addr()?);
        let (blow, seen) = watch::channel(None);
        let mut carriers = JoinSet::new();
        carriers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(carry(near, far.clone(), seen.clone()));
            }
        });
        Ok(Line { url, address: address.to_owned(), blow, _carriers: carriers })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn strike(&self, blow: Blow) -> anyhow::Result<()> {
        if blow == Blow::Full {
            tell(&self.address, "maxmemory-policy noeviction").await?;
            tell(&self.address, "maxmemory 1").await?;
        }
        self.blow.send_replace(Some(blow));
        Ok(())
    }

    /// In good order again.
    pub async fn heal(&self) -> anyhow::Result<()> {
        if *self.blow.borrow() == Some(Blow::Full) {
            tell(&self.address, "maxmemory 0").await?;
        }
        self.blow.send_replace(None);
        Ok(())
    }
}

/// Changes a setting of a Redis that asks for no password.
async fn tell(address: &str, setting: &str) -> anyhow::Result<()> {
    let mut redis = BufReader::new(TcpStream::connect(address).await?);
    redis.write_all(format!("CONFIG SET {setting}\r\n").as_bytes()).await?;
    let mut answer = String::new();
    redis.read_line(&mut answer).await?;
    anyhow::ensure!(answer.starts_with("+OK"), "CONFIG SET {setting}: {}", answer.trim());
    Ok(())
}

/// `redis://user:password@host:port/0` as what is before the address, the address, and what is after it.
fn parts(redis: &str) -> Result<(&str, &str, &str), Usage> {
    let plain = || {
        Usage("the faults are measured through a line to --redis-url, which must be redis://HOST:PORT".into())
    };
    let rest = redis.strip_prefix("redis://").ok_or_else(plain)?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let address = authority.rsplit('@').next().unwrap_or_default();
    if !address.contains(':') {
        return Err(plain());
    }
    let begin = redis.len() - rest.len() + authority.len() - address.len();
    Ok((&redis[..begin], address, &redis[begin + address.len()..]))
}

async fn carry(near: TcpStream, address: String, mut blow: watch::Receiver<Option<Blow>>) {
    if *blow.borrow() == Some(Blow::Stopped) {
        return;
    }
    let Ok(far) = TcpStream::connect(address).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        _ = pour(near_in, far_out, blow.clone()) => {}
        _ = pour(far_in, near_out, blow.clone()) => {}
        _ = blow.wait_for(|blow| *blow == Some(Blow::Stopped)) => {}
    }
}

async fn pour(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut blow: watch::Receiver<Option<Blow>>,
) -> std::io::Result<()> {
    let mut block = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut block).await?;
        if read == 0 {
            return Ok(());
        }
        let struck = *blow.borrow_and_update();
        match struck {
            Some(Blow::Slow) => tokio::time::sleep(SLOWNESS).await,
            Some(Blow::CutOff) => {
                let _ = blow.wait_for(|blow| *blow != Some(Blow::CutOff)).await;
            }
            Some(Blow::Stopped | Blow::Full) | None => {}
        }
        to.write_all(&block[..read]).await?;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_url() {
        let found = parts("redis://ann:secret@host:6379/2?protocol=resp3").unwrap();

        assert_eq!(found, ("redis://ann:secret@", "host:6379", "/2?protocol=resp3"));
        assert_eq!(parts("redis://127.0.0.1:6379").unwrap(), ("redis://", "127.0.0.1:6379", ""));
        assert!(parts("rediss://host:6379").is_err() && parts("redis://host").is_err());
    }
}
