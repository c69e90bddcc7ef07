//! The schema: the same on both engines, migrated once, and refused where the program does not fit.

use crate::database::Database;
use crate::shop::{new_job, simple};
use crate::world::World;
use sqlx::postgres::PgConnection;
use store::migrate::MIGRATIONS;
use store::{Error, Options, Store};

on_both_engines![
    migrating_a_current_database_changes_nothing,
    a_database_that_is_newer_than_the_program_is_refused,
    a_newer_database_that_says_it_fits_is_used,
    migrations_are_recorded_by_name,
];

on_a_whole_database![
    an_empty_server_is_not_migrated_by_opening_it,
    many_that_migrate_at_once_take_turns,
    both_engines_have_the_same_tables_and_columns,
    a_database_that_nobody_may_write_says_so,
];

on_sqlite_alone![a_file_is_made_and_migrated_by_opening_it, many_that_open_a_new_file_at_once_take_turns];

async fn migrating_a_current_database_changes_nothing(world: &World) {
    let job = world.submit(simple()).await;

    let applied = Store::migrate(&world.database.location, world.options()).await.unwrap();

    assert!(applied.is_empty());
    assert_eq!(world.store.job(job).await.unwrap().tasks, 1);
}

async fn a_database_that_is_newer_than_the_program_is_refused(world: &World) {
    let sql = "INSERT INTO schema_version (version, name, applied_at) VALUES (999, 'from the future', 0)";
    world.execute(sql).await.unwrap();
    let at = &world.database.location;

    let opened = Store::open(at, world.options()).await.err().unwrap();
    let existing = Store::open_existing(at, world.options()).await.err().unwrap();
    let migrated = Store::migrate(at, world.options()).await.unwrap_err();

    for refused in [opened, existing, migrated] {
        assert!(matches!(refused, Error::Newer { found: 999, .. }), "{refused}");
    }
}

/// The old program of a rolling upgrade, started once more.
async fn a_newer_database_that_says_it_fits_is_used(world: &World) {
    let fits = "INSERT INTO schema_compatible (version, oldest) SELECT 999, max(version) FROM schema_version";
    world.execute(fits).await.unwrap();
    let sql = "INSERT INTO schema_version (version, name, applied_at) VALUES (999, 'from the future', 0)";
    world.execute(sql).await.unwrap();
    let at = &world.database.location;

    let opened = Store::open(at, world.options()).await.unwrap();

    opened.submit(&new_job(simple())).await.unwrap();
    assert!(Store::migrate(at, world.options()).await.unwrap().is_empty());
    world.execute("UPDATE schema_compatible SET oldest = oldest + 1").await.unwrap();
    assert!(matches!(Store::open(at, world.options()).await, Err(Error::Newer { found: 999, .. })));
}

async fn migrations_are_recorded_by_name(world: &World) {
    let recorded: Vec<(i64, String)> =
        world.rows("SELECT version, name FROM schema_version ORDER BY version").await;

    let known: Vec<_> = (1..).zip(MIGRATIONS).map(|(version, one)| (version, one.name.to_owned())).collect();
    assert_eq!(recorded, known);
    let folders = ["postgres", "sqlite"].map(|engine| {
        let folder = format!("{}/migrations/{engine}", env!("CARGO_MANIFEST_DIR"));
        let name =
            |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    });
    let files: Vec<String> = MIGRATIONS.iter().map(|one| format!("{}.sql", one.name)).collect();
    assert_eq!(folders, [files.clone(), files]);
}

async fn an_empty_server_is_not_migrated_by_opening_it(world: &World) {
    let empty = Database::empty().await;

    let opened = Store::open(&empty.location, world.options()).await.err().unwrap();
    assert!(matches!(opened, Error::Older { found: 0, .. }), "{opened}");
    assert!(opened.to_string().contains("run `vodmill migrate`"));
    let existing = Store::open_existing(&empty.location, world.options()).await.err().unwrap();
    assert!(matches!(existing, Error::Older { found: 0, .. }), "{existing}");

    let applied = Store::migrate(&empty.location, world.options()).await.unwrap();
    assert_eq!(applied, MIGRATIONS.iter().map(|one| one.name).collect::<Vec<_>>());
    let store = Store::open(&empty.location, world.options()).await.unwrap();
    store.submit(&new_job(simple())).await.unwrap();
    empty.remove(store).await;
}

async fn many_that_migrate_at_once_take_turns(world: &World) {
    let empty = Database::empty().await;
    let migrations = (0..6).map(|_| {
        let (at, options) = (empty.location.clone(), world.options());
        tokio::spawn(async move { Store::migrate(&at, options).await.unwrap().len() })
    });

    let mut applied = 0;
    for migration in migrations.collect::<Vec<_>>() {
        applied += migration.await.unwrap();
    }

    assert_eq!(applied, MIGRATIONS.len());
    let store = Store::open(&empty.location, world.options()).await.unwrap();
    empty.remove(store).await;
}

async fn many_that_open_a_new_file_at_once_take_turns(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    let at = store::Location::Sqlite(folder.path().join("deep/in/a/folder/new.db"));
    let stores = (0..8).map(|_| {
        let (at, options) = (at.clone(), world.options());
        tokio::spawn(async move {
            let store = Store::open(&at, options).await.unwrap();
            store.submit(&new_job(simple())).await.unwrap();
        })
    });

    for store in stores.collect::<Vec<_>>() {
        store.await.unwrap();
    }

    let store = Store::open_existing(&at, world.options()).await.unwrap();
    assert_eq!(store.jobs(&Default::default()).await.unwrap().len(), 8);
}

async fn a_file_is_made_and_migrated_by_opening_it(world: &World) {
    let path = world.database.file().with_file_name("new.db");
    let at = store::Location::Sqlite(path.clone());
    let missing = Store::open_existing(&at, Options::default()).await.err().unwrap();
    assert_eq!(missing.to_string(), format!("there is no database at {}", path.display()));
    assert!(!path.exists());

    Store::open(&at, Options::default()).await.unwrap();

    assert!(Store::open_existing(&at, Options::default()).await.is_ok());
}

/// A column as both engines describe it: its table, its place and its name; whether it may be NULL, and is a key.
type Column = (String, i64, String, bool, bool);

const OF_POSTGRES: &str = "
SELECT c.relname::TEXT AS table_name, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum) - 1 AS position,
       a.attname::TEXT AS name, NOT a.attnotnull AS is_nullable, coalesce(a.attnum = ANY (k.conkey), FALSE) AS is_key
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 2";

const OF_SQLITE: &str = r#"
SELECT t.name AS table_name, c.cid AS position, c.name AS name, c."notnull" = 0 AND c.pk = 0 AS is_nullable,
       c.pk > 0 AS is_key
FROM pragma_table_list t, pragma_table_info(t.name) c
WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
ORDER BY 1, 2"#;

async fn both_engines_have_the_same_tables_and_columns(world: &World) {
    let file = Database::on_sqlite();
    let sqlite = Store::open(&file.location, Options::default()).await.unwrap();
    let mut read = sqlite.db().read().await.unwrap();

    let of_postgres: Vec<Column> = world.rows(OF_POSTGRES).await;
    let of_sqlite: Vec<Column> = read.query(OF_SQLITE).all().await.unwrap();

    let tables = of_postgres.iter().map(|(table, ..)| table).collect::<std::collections::BTreeSet<_>>();
    assert!(tables.len() >= 18, "{tables:?}");
    assert_eq!(of_postgres.len(), of_sqlite.len());
    for (mut of_postgres, of_sqlite) in of_postgres.into_iter().zip(of_sqlite) {
        // The growing tables have a key on SQLite alone: there it is the row's own number.
        if store::history::TABLES.contains(&of_postgres.0.as_str()) {
            of_postgres.4 = of_sqlite.4;
        }
        assert_eq!(of_postgres, of_sqlite);
    }
}

async fn a_database_that_nobody_may_write_says_so(world: &World) {
    let mut by_hand: PgConnection = world.database.connect().await;
    let read_only = "
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$";
    sqlx::raw_sql(read_only).execute(&mut by_hand).await.unwrap();
    let standby = world.elsewhere().await;

    let refused = standby.submit(&new_job(simple())).await.unwrap_err();

    assert!(matches!(refused, Error::Standby(_)) && refused.is_unavailable(), "{refused:?}");
    assert!(standby.jobs(&Default::default()).await.unwrap().is_empty(), "reading goes on");
}
