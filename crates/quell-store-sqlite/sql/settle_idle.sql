-- The run ended and none waits behind it: the lane waits for its next events or for nothing.
UPDATE lane
SET due_at = ?2, lease_at = NULL, updated_at = ?3, priority = ?4, source = ?5, r_number = NULL, r_state = NULL, r_lo = NULL, r_hi
    = NULL, r_count = NULL, r_bytes = NULL, r_first_at = NULL, r_last_at = NULL, r_fired_by = NULL, r_claims =
    NULL, r_refunds = NULL, r_retries = NULL, r_releases = NULL, r_max_attempts = NULL, r_token = NULL, r_worker
    = NULL, r_claimed_at = NULL, r_heartbeat_at = NULL, r_lease_until = NULL, r_due_at = NULL, r_error = NULL,
    r_flags = NULL, r_interrupts = NULL, r_revision = NULL, r_priority = NULL, r_max_events = NULL, r_max_bytes
    = NULL, r_max_interrupts = NULL, r_claim_id = NULL, r_extra = NULL, r_head = NULL
WHERE id = ?1
