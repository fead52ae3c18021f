-- Events join a lane whose due index entry is early enough: the entry stays, the claim pushes it when it is reached.
UPDATE lane
SET head_seq = ?2, updated_at = ?3,
    o_number = ?4, o_lo = ?5, o_count = ?6, o_bytes = ?7, o_policy = ?8, o_wait = ?9, o_max_wait = ?10,
    o_max_events = ?11, o_max_bytes = ?12, o_first_at = ?13, o_latest_at = ?14, o_closed_by = ?15, o_closed_at = ?16
WHERE id = ?1
