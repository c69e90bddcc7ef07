-- The trace that a job is part of, as W3C writes it (traceparent). Nobody decides anything by it, and programs that do not
-- know the column go on as before.
ALTER TABLE job ADD COLUMN traceparent TEXT;
