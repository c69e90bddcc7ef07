//! All outputs of an execution in one tar.gz (document 001, §4), unpacked so that it can do no harm.

use crate::app::App;
use crate::auth::Holder;
use crate::body::Json;
use crate::data::is_tame;
use crate::problem::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use files::Step;
use flate2::read::GzDecoder;
use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use tar::{Archive, Entry, EntryType};
use tokio_util::io::{StreamReader, SyncIoBridge};
use wire::http::Output;

const MOST_FILES: usize = 100_000;

pub fn routes() -> Router<App> {
    Router::new().route("/api/worker/outputs", post(unpack))
}

/// Bring all outputs of an execution as one archive
///
/// Answers with the manifest of what was unpacked: what `complete` is to name.
#[utoipa::path(post, path = "/api/worker/outputs", tag = "worker", security(("worker" = [])), params(("X-Vodmill-Proof" = String, Header, description = "Of the execution, as `claim` gave it: `TASK.FENCE.TOKEN`")),
    request_body(content = Vec<u8>, content_type = "application/gzip"),
    responses((status = 201, body = Vec<Output>), (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn unpack(
    Holder { proof }: Holder,
    State(app): State<App>,
    content: Body,
) -> Result<(StatusCode, Json<Vec<Output>>)> {
    let incoming = app.data.incoming(proof.execution());
    let stream = content.into_data_stream().map_err(std::io::Error::other);
    let reader = SyncIoBridge::new(StreamReader::new(stream));
    let limit = app.options.max_output_bytes;
    let unpacked = tokio::task::spawn_blocking({
        let incoming = incoming.clone();
        move || extract(reader, &incoming, limit)
    });
    let unpacked = unpacked.await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())));
    if unpacked.is_err() {
        // Half an archive is none.
        let _ = files::remove(&incoming);
    }
    let outputs = unpacked?;
    if let Some(bucket) = app.data.bucket() {
        let kept = |output: &Output| {
            let name = format!("parts/{}/{}", proof.execution(), output.path);
            (incoming.join(&output.path), name, None)
        };
        Step::SendArchive.across(bucket.send_all(outputs.iter().map(kept).collect(), None)).await?;
        let _ = files::remove(&incoming);
    }
    Ok((StatusCode::CREATED, Json(outputs)))
}

/// Only plain files under tame names, each once, and no more of them and of their bytes than allowed: however small the
/// archive was.
fn extract(archive: impl Read, to: &Path, limit: u64) -> Result<Vec<Output>> {
    let mut archive = Archive::new(GzDecoder::new(archive));
    let (mut outputs, mut names, mut left) = (Vec::<Output>::new(), HashSet::new(), limit);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default();
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        match entry.header().entry_type() {
            EntryType::Directory => continue,
            EntryType::Regular => {}
            kind => return Err(refused(format!("{path} is a {kind:?}; only plain files are taken"))),
        }
        if !is_tame(&path) {
            return Err(refused(format!("`{path}` leads out of the execution's place, or is no plain name")));
        }
        if outputs.len() >= MOST_FILES || entry.size() > left {
            return Err(Error::TooLarge("the archive unpacks to more than the server takes".into()));
        }
        if !names.insert(path.clone()) {
            return Err(refused(format!("{path} comes twice")));
        }
        let output = write(&mut entry, path, to)?;
        left -= output.bytes;
        outputs.push(output);
    }
    Ok(outputs)
}

fn write(entry: &mut Entry<'_, impl Read>, path: String, to: &Path) -> Result<Output> {
    let disk = |error: std::io::Error| Error::disk("unpacking the archive", &error);
    let place = to.join(&path);
    std::fs::create_dir_all(place.parent().unwrap_or(to)).map_err(disk)?;
    // It may be there from a time when the server died before it could answer.
    let mut file = File::create(&place).map_err(disk)?;
    let (mut digest, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        let read = entry.read(&mut block).map_err(broken)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        digest.update(&block[..read]);
        file.write_all(&block[..read]).map_err(disk)?;
    }
    Ok(Output { path, bytes, sha256: hex::encode(digest.finalize()) })
}

fn refused(what: String) -> Error {
    Error::unprocessable("bad_archive", what)
}

fn broken(error: std::io::Error) -> Error {
    refused(format!("the archive cannot be read to its end: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

    fn archive(fill: impl Fn(&mut Builder<GzEncoder<Vec<u8>>>)) -> Vec<u8> {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        fill(&mut builder);
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn entry(builder: &mut Builder<GzEncoder<Vec<u8>>>, kind: EntryType, name: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if kind == EntryType::Symlink || kind == EntryType::Link {
            header.set_link_name("/etc/passwd").unwrap();
        }
        // The builder itself would refuse what we must be able to refuse.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    #[test]
    fn plain_files_are_unpacked_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let good = archive(|builder| {
            entry(builder, EntryType::Directory, "720p/", b"");
            entry(builder, EntryType::Regular, "./720p/seg.m4s", b"media");
        });

        let outputs = extract(&good[..], folder.path(), 100).unwrap();

        assert_eq!((outputs[0].path.as_str(), outputs[0].bytes), ("720p/seg.m4s", 5));
        assert_eq!(std::fs::read(folder.path().join("720p/seg.m4s")).unwrap(), b"media");
    }

    #[test]
    fn tricks_are_refused() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("execution");
        let regular = EntryType::Regular;
        for (what, kind, name) in [
            ("traversal", regular, "../evil"),
            ("an absolute path", regular, "/tmp/evil"),
            ("a hidden file", regular, ".bashrc"),
            ("a symbolic link", EntryType::Symlink, "link"),
            ("a hard link", EntryType::Link, "link"),
            ("a device", EntryType::Char, "null"),
            ("a pipe", EntryType::Fifo, "pipe"),
        ] {
            let bad = archive(|builder| entry(builder, kind, name, b""));

            assert!(extract(&bad[..], &folder, 100).is_err(), "{what}");
        }
        let twice = archive(|builder| (0..2).for_each(|_| entry(builder, regular, "a", b"x")));
        assert!(extract(&twice[..], &folder, 100).is_err());
        let bomb = archive(|builder| entry(builder, regular, "zeros", &vec![0; 1 << 20]));
        assert!(bomb.len() < 10_000);
        assert!(matches!(extract(&bomb[..], &folder, 1000), Err(Error::TooLarge(_))));
        let cut = archive(|builder| entry(builder, regular, "cut", &[7; 4096]));
        assert!(extract(&cut[..cut.len() / 2], &folder, 1 << 20).is_err());
        assert!(!outside.path().join("evil").exists() && !Path::new("/tmp/evil").exists());
    }
}
