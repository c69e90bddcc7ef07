//! What an execution made, brought to the server.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use md5::Md5;
use sha2::{Digest, Sha256};
use wire::Proof;
use wire::http::{DirectOutput, Output};

use super::Client;
use super::direct::{BATCH, Way};
use super::upload::Upload;
use crate::Context;
use crate::handler::{BoxFuture, Failed};
use crate::process::Progress;
use crate::shared::blocking;
use crate::transcode::disk;

/// How many files are under way at a time.
const SIDE_BY_SIDE: usize = 4;

const BUFFER: usize = 256 << 10;

/// Uploads everything below `made` into the execution's own place; its commit will list it. Goes on through any
/// absence of the server, and ends when the server refuses a file or the context is stopped.
pub(crate) async fn keep(
    client: &Client,
    proof: Proof,
    context: &Context,
    made: PathBuf,
) -> Result<(), Failed> {
    context.set_step("upload");
    let found = blocking({
        let (made, progress) = (made.clone(), context.progress.clone());
        move || list(&made, &progress)
    });
    let outputs = found.await.map_err(|error| disk("reading", &made, &error))?;
    let way = Way::new(client, proof);
    let upload = Upload { client, proof, context, folder: &made, way: &way };
    for batch in outputs.chunks(BATCH) {
        // A server that does not answer now is asked again, file by file.
        let places = way.outputs(batch).await.unwrap_or_default();
        let mut sending: Vec<BoxFuture<'_, Result<(), Failed>>> = Vec::new();
        for (at, output) in batch.iter().enumerate() {
            sending.push(Box::pin(upload.send(output, places.get(at).cloned())));
        }
        stream::iter(sending).buffer_unordered(SIDE_BY_SIDE).try_collect::<()>().await?;
    }
    client.remember(proof.execution(), outputs.into_iter().map(|it| it.output).collect());
    Ok(())
}

/// Every file below `folder`, in order of path.
fn list(folder: &Path, progress: &Progress) -> io::Result<Vec<DirectOutput>> {
    let mut outputs = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidFilename)?;
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else {
                outputs.push(describe(&entry.path(), path, progress)?);
            }
        }
    }
    outputs.sort_by(|one, other| one.output.path.cmp(&other.output.path));
    Ok(outputs)
}

fn describe(file: &Path, path: String, progress: &Progress) -> io::Result<DirectOutput> {
    let (mut file, mut hash, mut bytes) = (File::open(file)?, Sha256::new(), 0);
    let mut md5 = Md5::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hash.update(&buffer[..n]);
                md5.update(&buffer[..n]);
                bytes += n as u64;
                progress.beat();
            }
        }
    }
    let output = Output { path, bytes, sha256: hex::encode(hash.finalize()) };
    Ok(DirectOutput { output, md5: hex::encode(md5.finalize()) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_with_its_size_and_hash() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("720p/deep")).unwrap();
        for path in ["poster.jpg", "720p/seg.m4s", "720p/deep/x"] {
            std::fs::write(folder.path().join(path), "abc").unwrap();
        }

        let listed = list(folder.path(), &Progress::default()).unwrap();

        let paths: Vec<_> = listed.iter().map(|it| it.output.path.as_str()).collect();
        assert_eq!(paths, ["720p/deep/x", "720p/seg.m4s", "poster.jpg"]);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(listed.iter().all(|it| it.output.bytes == 3 && it.output.sha256 == abc));
        assert!(listed.iter().all(|it| it.md5 == "900150983cd24fb0d6963f7d28e17f72"));
    }
}
