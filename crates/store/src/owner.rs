//! Whose work it is: a number for each name, so that rows stay narrow. Never removed.

use crate::db::Tx;
use crate::error::Result;

const FIND: &str = "SELECT id FROM owner WHERE name = $1";
const MAKE: &str = "INSERT INTO owner (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";

pub(crate) async fn find_or_make(tx: &mut Tx, name: &str) -> Result<i64> {
    if let Some((id,)) = tx.query(FIND).bind(name).optional().await? {
        return Ok(id);
    }
    tx.query(MAKE).bind(name).execute().await?;
    Ok(tx.query(FIND).bind(name).one::<(i64,)>().await?.0)
}
