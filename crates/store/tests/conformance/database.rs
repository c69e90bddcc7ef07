//! A database for one test: a file in a folder of its own, or a copy of a migrated template on PostgreSQL.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection};
use std::path::PathBuf;
use std::str::FromStr;
use store::{Location, Options, Store};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub struct Database {
    pub location: Location,
    home: Home,
}

enum Home {
    Folder(TempDir),
    Server { name: String },
}

/// Migrated once for each run of the tests; copying it is cheaper than migrating again.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

impl Database {
    pub fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("vodmill.db"));
        Database { location, home: Home::Folder(folder) }
    }

    pub async fn on_postgres() -> Self {
        let template = TEMPLATE.get_or_init(migrated).await;
        let name = unused_name();
        on_server(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        Database { location: at(&server(), &name), home: Home::Server { name } }
    }

    /// A database without any table.
    pub async fn empty_on_postgres() -> Self {
        let name = unused_name();
        on_server(&format!("CREATE DATABASE {name}")).await;
        Database { location: at(&server(), &name), home: Home::Server { name } }
    }

    /// The same database, reached through PgBouncer in transaction mode.
    pub fn through_pooler(&self) -> Location {
        match &self.home {
            Home::Server { name } => at(&setting("VODMILL_TEST_PGBOUNCER_URL"), name),
            Home::Folder(_) => panic!("nothing pools connections to a file"),
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
        if let Home::Server { name } = self.home {
            on_server(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}

async fn migrated() -> String {
    let name = unused_name();
    on_server(&format!("CREATE DATABASE {name}")).await;
    Store::migrate(&at(&server(), &name), Options::default()).await.unwrap();
    name
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
