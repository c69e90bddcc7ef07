-- Somebody who signed in on the server's page. Only the token's hash is kept.
CREATE TABLE session (
    token_hash TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
