-- Why a worker takes nothing new: its machine is short of disk or memory. Programs that do not know the column go on as before.
ALTER TABLE worker ADD COLUMN refusal TEXT;
