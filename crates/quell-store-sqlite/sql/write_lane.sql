-- Everything that can change in a lane: written by a claim, a settle that leaves work, and an operator's hand.
UPDATE lane
SET due_at = ?2, lease_at = ?3, priority = ?4, head_seq = ?5, updated_at = ?6, paused_at = ?7, paused_by = ?8,
    blocked_at = ?9, blocked_run = ?10, queued = ?11, o_number = ?12, o_lo = ?13, o_count = ?14, o_bytes = ?15,
    o_policy = ?16, o_wait = ?17, o_max_wait = ?18, o_max_events = ?19, o_max_bytes = ?20, o_first_at = ?21,
    o_latest_at = ?22, o_closed_by = ?23, o_closed_at = ?24, o_priority = ?25, o_step = ?26, r_number = ?27,
    r_state = ?28, r_lo = ?29, r_hi = ?30, r_count = ?31, r_bytes = ?32, r_first_at = ?33, r_last_at = ?34,
    r_fired_by = ?35, r_claims = ?36, r_refunds = ?37, r_retries = ?38, r_releases = ?39, r_max_attempts = ?40,
    r_token = ?41, r_worker = ?42, r_claimed_at = ?43, r_heartbeat_at = ?44, r_lease_until = ?45, r_due_at =
    ?46, r_error = ?47, r_flags = ?48, r_interrupts = ?49, r_revision = ?50, r_priority = ?51, r_max_events =
    ?52, r_max_bytes = ?53, r_max_interrupts = ?54, r_claim_id = ?55, r_extra = ?56, r_head = ?57
WHERE id = ?1
