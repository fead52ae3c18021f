-- Everything that can change in a lane: written by a claim, a settle that leaves work, and an operator's hand.
UPDATE lane
SET due_at = ?2, lease_at = ?3, priority = ?4, head_seq = ?5, updated_at = ?6, paused_at = ?7, paused_by = ?8,
    blocked_at = ?9, blocked_run = ?10, queued = ?11, source = ?12, o_number = ?13, o_lo = ?14, o_count = ?15,
    o_bytes = ?16, o_policy = ?17, o_wait = ?18, o_max_wait = ?19, o_max_events = ?20, o_max_bytes = ?21,
    o_first_at = ?22, o_latest_at = ?23, o_closed_by = ?24, o_closed_at = ?25, o_priority = ?26, o_step = ?27,
    o_source = ?28, r_number = ?29, r_state = ?30, r_lo = ?31, r_hi = ?32, r_count = ?33, r_bytes = ?34,
    r_first_at = ?35, r_last_at = ?36, r_fired_by = ?37, r_claims = ?38, r_refunds = ?39, r_retries = ?40,
    r_releases = ?41, r_max_attempts = ?42, r_token = ?43, r_worker = ?44, r_claimed_at = ?45,
    r_heartbeat_at = ?46, r_lease_until = ?47, r_due_at = ?48, r_error = ?49, r_flags = ?50,
    r_interrupts = ?51, r_revision = ?52, r_priority = ?53, r_max_events = ?54, r_max_bytes = ?55,
    r_max_interrupts = ?56, r_claim_id = ?57, r_extra = ?58, r_head = ?59
WHERE id = ?1
