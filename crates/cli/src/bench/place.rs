//! A database of the benchmark's own, made for it and removed after it. The user's is never opened.

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::path::PathBuf;
use store::Location;
use tempfile::TempDir;

pub struct Place {
    pub location: Location,
    kept: Kept,
}

enum Kept {
    /// A database on the user's server.
    Postgres { server: Box<PgConnectOptions>, name: String },
    /// Removed with its folder.
    Sqlite(TempDir),
}

impl Place {
    /// A new database beside the one at `url`: on the same server, or on the same disk. Without a `url`, a file
    /// in the folder for temporary files.
    pub async fn make(url: Option<&str>) -> anyhow::Result<Self> {
        match url.map(str::parse).transpose()? {
            Some(Location::Postgres(server)) => Self::on_server(server).await,
            Some(Location::Sqlite(path)) => Self::in_folder(path.parent().map(PathBuf::from)),
            None => Self::in_folder(Some(std::env::temp_dir())),
        }
    }

    async fn on_server(server: Box<PgConnectOptions>) -> anyhow::Result<Self> {
        let name = format!("vodmill_bench_{:08x}", rand::random::<u32>());
        let location = Location::Postgres(Box::new((*server).clone().database(&name)));
        tell(&server, format!("CREATE DATABASE {name}"))
            .await
            .context("cannot make a database for the benchmark; its user needs the right to (CREATEDB)")?;
        Ok(Place { location, kept: Kept::Postgres { server, name } })
    }

    fn in_folder(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| ".".into());
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = TempDir::with_prefix_in("vodmill-bench-", &folder)
            .with_context(|| format!("cannot make a folder in {}", folder.display()))?;
        let location = Location::Sqlite(folder.path().join("bench.db"));
        Ok(Place { location, kept: Kept::Sqlite(folder) })
    }

    /// Where the raw limits of SQLite are measured: beside the database, not in it.
    pub fn raw_file(&self) -> Option<PathBuf> {
        match &self.kept {
            Kept::Postgres { .. } => None,
            Kept::Sqlite(folder) => Some(folder.path().join("raw.db")),
        }
    }

    pub async fn remove(self) -> anyhow::Result<()> {
        match self.kept {
            Kept::Postgres { server, name } => tell(&server, format!("DROP DATABASE {name} WITH (FORCE)"))
                .await
                .with_context(|| format!("cannot remove the database {name}; please drop it")),
            Kept::Sqlite(folder) => folder.close().context("cannot remove the benchmark's folder"),
        }
    }
}

pub async fn tell(server: &PgConnectOptions, statement: String) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect_with(server).await?;
    connection.execute(AssertSqlSafe(statement)).await?;
    Ok(connection.close().await?)
}
