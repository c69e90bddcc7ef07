//! Which files are a database's: those at one place, which all of its servers use.

use crate::Store;
use crate::db::{Step, again};
use crate::error::{Error, Result};

const FIND: &str = "SELECT value FROM setting WHERE name = $1";

const TAKE: &str = "INSERT INTO setting (name, value) VALUES ('storage', $1) ON CONFLICT (name) DO NOTHING";

const MOVE: &str = "
INSERT INTO setting (name, value) VALUES ('storage', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const MOVE_ENDPOINT: &str = "
INSERT INTO setting (name, value) VALUES ('storage_endpoint', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const OPEN_JOBS: &str = "SELECT count(*) FROM job WHERE outcome IS NULL";

const SOURCES: &str = "SELECT id, source FROM video WHERE source IS NOT NULL ORDER BY id";

const SET_SOURCE: &str = "UPDATE video SET source = $1 WHERE id = $2";

/// A stage of a failed job may run again.
const PAYLOADS: &str =
    "UPDATE stage SET payload = replace(payload, $1, $2) WHERE payload LIKE '%' || $1 || '%'";

impl Store {
    /// Which database this is, as its data folder says too.
    pub async fn instance(&self) -> Result<String> {
        self.setting("instance").await?.ok_or(Error::NotFound("instance"))
    }

    /// Where the files of this database are; none if no server has said so yet.
    pub async fn storage(&self) -> Result<Option<String>> {
        self.setting("storage").await
    }

    /// Says where the files are, if nobody has yet; where they are then.
    pub async fn take_storage(&self, place: &str) -> Result<String> {
        if let Some(taken) = self.storage().await? {
            return Ok(taken);
        }
        again(|| async {
            let mut tx = self.db.write(Step::TakeStorage).await?;
            tx.query(TAKE).bind(place).execute().await?;
            let (taken,): (String,) = tx.query(FIND).bind("storage").one().await?;
            tx.commit().await?;
            Ok(taken)
        })
        .await
    }

    /// A person has moved all files to `to`: a folder's path, or the URL of a bucket, which the service at `endpoint` has. Rows that name a file by its path name
    /// it at the new place. No job may be open, because its stages were told the old one.
    pub async fn move_storage(&self, to: &str, endpoint: &str) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::MoveStorage).await?;
            let (open,): (i64,) = tx.query(OPEN_JOBS).one().await?;
            if open > 0 {
                let what = format!("{open} jobs are open; let them end or cancel them before the files move");
                return Err(Error::Invalid(what));
            }
            let from: Option<(String,)> = tx.query(FIND).bind("storage").optional().await?;
            if let Some((from,)) = from.filter(|(from,)| from != to) {
                let sources: Vec<(i64, String)> = tx.query(SOURCES).all().await?;
                for (video, source) in sources {
                    if let Some(moved) = moved(&source, &from, to) {
                        tx.query(SET_SOURCE).bind(moved).bind(video).execute().await?;
                    }
                }
                if from.starts_with('/') && to.starts_with('/') {
                    let quoted = |place: &str| format!("\"{place}/");
                    tx.query(PAYLOADS).bind(quoted(&from)).bind(quoted(to)).execute().await?;
                }
            }
            tx.query(MOVE).bind(to).execute().await?;
            tx.query(MOVE_ENDPOINT).bind(endpoint).execute().await?;
            tx.commit().await
        })
        .await
    }
}

/// What a source is called at the new place: a path below a folder, a name in a bucket. None for one that is not moved.
fn moved(source: &str, from: &str, to: &str) -> Option<String> {
    let name = match from.starts_with('/') {
        true => source.strip_prefix(from)?.strip_prefix('/')?,
        false if source.starts_with('/') => return None,
        false => source,
    };
    Some(if to.starts_with('/') { format!("{to}/{name}") } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_at_its_new_place_and_one_from_elsewhere_keeps_its_name() {
        let (old, new, bucket) = ("/old", "/new/data", "s3://b/p");
        for (source, from, to, named) in [
            ("/old/sources/1.mp4", old, new, Some("/new/data/sources/1.mp4")),
            ("/old/sources/1.mp4", old, bucket, Some("sources/1.mp4")),
            ("sources/1.mp4", bucket, new, Some("/new/data/sources/1.mp4")),
            ("sources/1.mp4", bucket, "s3://c", Some("sources/1.mp4")),
            ("/older/1.mp4", old, new, None),
            ("/home/me/1.mp4", bucket, new, None),
        ] {
            assert_eq!(moved(source, from, to).as_deref(), named, "{source}: {from} to {to}");
        }
    }
}
