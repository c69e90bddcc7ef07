-- Programs that know a schema from `oldest` on work with this one too: in a rolling upgrade, or when one of them restarts.
-- A version that is not here needs a program that knows it.
CREATE TABLE schema_compatible (
    version BIGINT PRIMARY KEY,
    oldest  BIGINT NOT NULL CHECK (oldest <= version)
);
