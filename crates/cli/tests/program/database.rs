//! PostgreSQL in trouble of its own: a disk is full, a connection falls silent.

mod full_disk;
mod silence;
