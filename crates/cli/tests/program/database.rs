//! PostgreSQL in trouble of its own: a standby takes over, a disk is full, a connection falls silent.

mod failover;
mod full_disk;
mod silence;
