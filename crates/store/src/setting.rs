//! What a person decided once, for all servers of a database.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;

const FIND: &str = "SELECT value FROM setting WHERE name = $1";
const SET_ONCE: &str = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

impl Store {
    pub async fn setting(&self, name: &str) -> Result<Option<String>> {
        let found: Option<(String,)> = self.db.read().await?.query(FIND).bind(name).optional().await?;
        Ok(found.map(|(value,)| value))
    }

    /// Sets what nobody has set yet; whether it was so. Of two servers that start at once, one is the first.
    pub async fn set_once(&self, name: &str, value: &str) -> Result<bool> {
        again(|| async {
            let mut tx = self.db.write(Step::Decide).await?;
            let set = tx.query(SET_ONCE).bind(name).bind(value).execute().await?;
            tx.commit().await?;
            Ok(set > 0)
        })
        .await
    }
}
