-- An operator's hand: pause, resume or flush move what the lane waits for.
UPDATE lane
SET due_at = ?2, updated_at = ?3, paused_at = ?4, paused_by = ?5, o_closed_by = ?6, o_closed_at = ?7, r_due_at = ?8
WHERE id = ?1
