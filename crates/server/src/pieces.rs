//! A resumable upload in a bucket: pieces under `uploads/<id>/`, each named by the byte it begins with.
//!
//! How much has come, their names and sizes say; so any server can go on with it, and nothing is written down anywhere
//! else. The last request joins them into the source.

use crate::ingest::Received;
use crate::problem::{Error, Result};
use bytes::{Bytes, BytesMut};
use files::bucket::{self, Told, Written};
use files::{Bucket, Step};
use futures_util::{Stream, StreamExt, TryStreamExt};
use std::collections::BTreeMap;

/// What a server that is killed loses of an upload, at most.
const PIECE: usize = 16 << 20;

fn folder(id: &str) -> String {
    format!("uploads/{id}")
}

fn name(id: &str, from: u64) -> String {
    format!("uploads/{id}/{from:020}")
}

/// The pieces that follow each other without a gap, by where they begin.
async fn pieces(bucket: &Bucket, id: &str) -> Result<BTreeMap<u64, u64>> {
    let found = bucket.list(&folder(id)).await?;
    let begin = |name: &str| name.rsplit('/').next().and_then(|last| last.parse::<u64>().ok());
    let found: BTreeMap<u64, u64> =
        found.iter().filter_map(|piece| Some((begin(&piece.name)?, piece.bytes))).collect();
    let (mut run, mut at) = (BTreeMap::new(), 0);
    while let Some(bytes) = found.get(&at).filter(|bytes| **bytes > 0) {
        run.insert(at, *bytes);
        at += bytes;
    }
    Ok(run)
}

/// How much has come.
pub async fn offset(bucket: &Bucket, id: &str) -> Result<u64> {
    Ok(pieces(bucket, id).await?.last_key_value().map_or(0, |(from, bytes)| from + bytes))
}

/// Appends what comes; what has come of a connection that breaks is kept.
pub async fn append<E: std::fmt::Display>(
    bucket: &Bucket,
    id: &str,
    from: u64,
    length: u64,
    body: impl Stream<Item = Result<Bytes, E>>,
) -> Result<u64> {
    let (mut at, mut piece, mut broken) = (from, BytesMut::new(), None);
    let mut body = std::pin::pin!(body);
    while let Some(block) = body.next().await {
        match block {
            Ok(block) if at + (piece.len() + block.len()) as u64 > length => {
                broken =
                    Some(Error::TooLarge(format!("more came than the {length} bytes that were declared")));
                break;
            }
            Ok(block) => piece.extend_from_slice(&block),
            Err(error) => {
                broken = Some(Error::Invalid(format!("the connection broke off: {error}")));
                break;
            }
        }
        if piece.len() >= PIECE {
            at = put(bucket, id, at, piece.split().freeze()).await?;
        }
    }
    if !piece.is_empty() {
        at = put(bucket, id, at, piece.freeze()).await?;
    }
    broken.map_or(Ok(at), Err)
}

/// Of two requests that write at the same place, one is refused.
async fn put(bucket: &Bucket, id: &str, at: u64, piece: Bytes) -> Result<u64> {
    let bytes = piece.len() as u64;
    match Step::PutPiece.across(bucket.create(&name(id, at), piece.clone())).await {
        Err(bucket::Error::Taken(taken)) => {
            // Ours, if only the answer to it was lost.
            let found: Vec<Bytes> = bucket.read(&taken, None).await?.stream.try_collect().await?;
            if found.concat() == piece {
                return Ok(at + bytes);
            }
            let what = "another request is writing to this upload; look at its offset and go on then";
            Err(Error::conflict("offset_mismatch", what))
        }
        put => Ok(put.map(|()| at + bytes)?),
    }
}

/// Makes one file of all pieces. Done twice, it comes to the same.
pub async fn join(bucket: &Bucket, id: &str, source: &str) -> Result<Received> {
    let mut writer = bucket.writer(source, Told::default());
    for from in pieces(bucket, id).await?.into_keys() {
        let mut reading = bucket.read(&name(id, from), None).await?;
        while let Some(block) = reading.stream.try_next().await? {
            writer.write(block).await?;
        }
    }
    let Written { bytes, sha256 } = Step::JoinPieces.across(writer.finish()).await?;
    Ok(Received { path: source.into(), bytes, sha256 })
}

pub async fn remove(bucket: &Bucket, id: &str) -> Result<()> {
    Ok(Step::RemovePieces.across(bucket.remove_all(&folder(id))).await?)
}
