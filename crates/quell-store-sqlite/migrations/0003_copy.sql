-- A store that is moved elsewhere, and one that is being filled.

ALTER TABLE meta ADD COLUMN sealed TEXT;      -- who wants that nothing changes here any more
ALTER TABLE meta ADD COLUMN copy_place TEXT;  -- how far the copy has come that is being made into this store
