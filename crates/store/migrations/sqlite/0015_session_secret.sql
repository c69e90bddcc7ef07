-- A session is bound to the admin's secret, and people see where it was opened. What an older program opens has none of
-- this: it is not open to a newer one, and its browser signs in again.
ALTER TABLE session ADD COLUMN binding TEXT;
ALTER TABLE session ADD COLUMN secret_mark TEXT;
ALTER TABLE session ADD COLUMN created_at BIGINT;
ALTER TABLE session ADD COLUMN client TEXT;
ALTER TABLE session ADD COLUMN user_agent TEXT;
