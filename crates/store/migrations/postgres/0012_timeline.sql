-- Where a backup was restored, another history goes on from there: a timeline. Numbers are given again after a restore; the
-- name of a timeline is not, and is part of the ids that others keep outside.
CREATE TABLE timeline (
    number   BIGINT PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    began_at BIGINT NOT NULL,
    -- The audit's rows up to this one are of the timelines before.
    after_id BIGINT NOT NULL,
    reason   TEXT NOT NULL
);
INSERT INTO timeline (number, name, began_at, after_id, reason)
VALUES (1, left(replace(gen_random_uuid()::TEXT, '-', ''), 8), (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT, 0,
        'the first');

-- Points of the history, each with a random value. A server keeps the latest it knows in its data folder too. If the database
-- does not have it any more, the database went back in time.
CREATE TABLE mark (
    number   BIGINT PRIMARY KEY,
    value    BIGINT NOT NULL,
    audit_id BIGINT NOT NULL,
    made_at  BIGINT NOT NULL
);

-- Which database this is: its data folder says the same.
INSERT INTO setting (name, value) VALUES ('instance', replace(gen_random_uuid()::TEXT, '-', ''));
