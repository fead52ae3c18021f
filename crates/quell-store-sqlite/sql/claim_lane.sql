-- The claim writes both runs of the lane: the open one may have been cut.
UPDATE lane
SET due_at = ?2, lease_at = ?3, updated_at = ?4,
    o_number = ?5, o_lo = ?6, o_count = ?7, o_bytes = ?8, o_policy = ?9, o_wait = ?10, o_max_wait = ?11,
    o_max_events = ?12, o_max_bytes = ?13, o_first_at = ?14, o_latest_at = ?15, o_closed_by = ?16, o_closed_at = ?17,
    r_number = ?18, r_state = ?19, r_lo = ?20, r_hi = ?21, r_count = ?22, r_bytes = ?23, r_first_at = ?24,
    r_last_at = ?25, r_fired_by = ?26, r_claims = ?27, r_refunds = ?28, r_retries = ?29, r_releases = ?30,
    r_max_attempts = ?31, r_token = ?32, r_worker = ?33, r_claimed_at = ?34, r_heartbeat_at = ?35,
    r_lease_until = ?36, r_due_at = ?37, r_error = ?38
WHERE id = ?1
