//! A database for one test: a file in a folder of its own, or on PostgreSQL a schema or a whole database.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use store::migrate::Migration;
use store::{Location, Options, Step, Store};
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

/// Schemas that were used and are empty again: to empty one is much cheaper than to make one.
static EMPTY: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// As if it had just been migrated. Triggers are switched off, or the audit could not be emptied.
const EMPTY_ALL: &str = "
DO $$ DECLARE name TEXT; is_used BOOLEAN; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
          AND relname NOT IN ('schema_version', 'history', 'timeline', 'setting')
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', name) INTO is_used;
        IF is_used THEN
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
    UPDATE history SET dropped_before = 0;
    DELETE FROM timeline WHERE number > 1;
    DELETE FROM setting WHERE setting.name <> 'instance';
    PERFORM setval(oid::regclass, 1, FALSE) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S';
END $$";

/// As the store makes it before the first migration.
const VERSIONS: &str = "
CREATE TABLE schema_version (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL);
";

/// Partitions and versions that a test has added are none of the next one's.
const IS_AS_MIGRATED: &str = "
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relispartition
        AND relkind = 'r') = 3
   AND (SELECT max(version) FROM schema_version) < 999";

impl Database {
    pub fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("vodmill.db"));
        Database { location, home: Home::Folder { _removed_when_dropped: folder } }
    }

    /// A schema of its own in the server's database: seven times cheaper than a database.
    pub async fn schema() -> Self {
        let empty = EMPTY.lock().unwrap().pop();
        let is_new = empty.is_none();
        let name = empty.unwrap_or_else(unused_name);
        let options = PgConnectOptions::from_str(&server()).unwrap().options([("search_path", &name)]);
        let location = Location::Postgres(Box::new(options));
        if is_new {
            on_server(&format!("CREATE SCHEMA {name}")).await;
            Store::migrate(&location, Options::default()).await.unwrap();
        }
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

    /// One that was made by an earlier version, with `rows` in it, and migrated since.
    pub async fn of_version(is_postgres: bool, known: &[Migration], rows: &str) -> Self {
        let database = if is_postgres { Database::empty().await } else { Database::on_sqlite() };
        let engine = if is_postgres { "postgres" } else { "sqlite" };
        let mut sql = VERSIONS.to_owned();
        for (version, Migration { name, .. }) in (1..).zip(known) {
            let file = format!("{}/migrations/{engine}/{name}.sql", env!("CARGO_MANIFEST_DIR"));
            sql += &std::fs::read_to_string(file).unwrap();
            sql += &format!("INSERT INTO schema_version VALUES ({version}, '{name}', 0);\n");
        }
        database.run(sql + rows).await;
        Store::migrate(&database.location, Options::default()).await.unwrap();
        database
    }

    /// Runs statements where there is no store yet.
    async fn run(&self, sql: String) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match &self.location {
            Location::Postgres(_) => drop(sql.execute(&mut self.connect().await).await.unwrap()),
            Location::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
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

    pub async fn remove(self, store: Store) {
        match self.home {
            Home::Folder { .. } => {}
            Home::Schema { name } if empty(&store).await => EMPTY.lock().unwrap().push(name),
            Home::Schema { name } => on_server(&format!("DROP SCHEMA {name} CASCADE")).await,
            Home::Database { name } => on_server(&format!("DROP DATABASE {name} WITH (FORCE)")).await,
        }
    }
}

/// Whether the schema can be used again, and is empty.
async fn empty(store: &Store) -> bool {
    let mut tx = store.db().write(Step::Manage).await.unwrap();
    let (is_as_migrated,): (bool,) = tx.query(IS_AS_MIGRATED).one().await.unwrap();
    if is_as_migrated {
        tx.query(EMPTY_ALL).execute().await.unwrap();
        tx.commit().await.unwrap();
    }
    is_as_migrated
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
