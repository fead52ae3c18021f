-- The same when the lane becomes due earlier than its index entry says, its priority rises, or its next batch asks another source.
UPDATE lane
SET head_seq = ?2, updated_at = ?3, r_flags = ?4, o_number = ?5, o_lo = ?6, o_count = ?7, o_bytes = ?8, o_policy
    = ?9, o_wait = ?10, o_max_wait = ?11, o_max_events = ?12, o_max_bytes = ?13, o_first_at = ?14, o_latest_at =
    ?15, o_closed_by = ?16, o_closed_at = ?17, o_priority = ?18, o_step = ?19, o_source = ?20, due_at = ?21,
    priority = ?22, source = ?23
WHERE id = ?1
