//! A database for one test: a file in a folder of its own, or on PostgreSQL a schema or a whole database.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection};
use std::path::PathBuf;
use std::str::FromStr;
use store::{Location, Options, Store};
use tempfile::TempDir;

pub struct Database {
    pub location: Location,
    home: Home,
}

enum Home {
    Folder { _removed_when_dropped: TempDir },
    Schema { name: String },
    Database { name: String },
}

impl Database {
    pub fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("vodmill.db"));
        Database { location, home: Home::Folder { _removed_when_dropped: folder } }
    }

    /// A schema of its own in the server's database: seven times cheaper than a database.
    pub async fn schema() -> Self {
        let name = unused_name();
        on_server(&format!("CREATE SCHEMA {name}")).await;
        let options = PgConnectOptions::from_str(&server()).unwrap().options([("search_path", &name)]);
        let location = Location::Postgres(Box::new(options));
        Store::migrate(&location, Options::default()).await.unwrap();
        Database { location, home: Home::Schema { name } }
    }

    /// For what touches all of a database: its settings, its statistics, its notifications.
    pub async fn whole() -> Self {
        let database = Database::empty().await;
        Store::migrate(&database.location, Options::default()).await.unwrap();
        database
    }

    /// A database without any table.
    pub async fn empty() -> Self {
        let name = unused_name();
        on_server(&format!("CREATE DATABASE {name}")).await;
        Database { location: at(&server(), &name), home: Home::Database { name } }
    }

    /// The same database, reached through PgBouncer in transaction mode.
    pub fn through_pooler(&self) -> Location {
        match &self.home {
            Home::Database { name } => at(&setting("VODMILL_TEST_PGBOUNCER_URL"), name),
            Home::Schema { .. } | Home::Folder { .. } => panic!("a pooler leads to whole databases"),
        }
    }

    pub fn file(&self) -> PathBuf {
        match &self.location {
            Location::Sqlite(path) => path.clone(),
            Location::Postgres(_) => panic!("a database on a server is no file"),
        }
    }

    /// A connection that the store knows nothing of.
    pub async fn connect(&self) -> PgConnection {
        match &self.location {
            Location::Postgres(options) => PgConnection::connect_with(options).await.unwrap(),
            Location::Sqlite(_) => panic!("nobody connects to a file"),
        }
    }

    pub async fn remove(self) {
        match self.home {
            Home::Folder { .. } => {}
            Home::Schema { name } => on_server(&format!("DROP SCHEMA {name} CASCADE")).await,
            Home::Database { name } => on_server(&format!("DROP DATABASE {name} WITH (FORCE)")).await,
        }
    }
}

async fn on_server(sql: &str) {
    let mut connection = PgConnection::connect(&server()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

fn at(url: &str, name: &str) -> Location {
    let options = PgConnectOptions::from_str(url).unwrap().database(name);
    Location::Postgres(Box::new(options))
}

fn unused_name() -> String {
    format!("vodmill_{}", uuid::Uuid::new_v4().simple())
}

fn server() -> String {
    setting("VODMILL_TEST_POSTGRES_URL")
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run `make test`, or `scripts/with-services cargo test -p vodmill-store`; \
             what the store promises is tested on both engines, always"
        )
    })
}
