-- The whole state of a lane; rows.rs reads these columns by position.
SELECT id, queue_id, key, due_at, lease_at, head_seq, updated_at, paused_at, paused_by,
       o_number, o_lo, o_count, o_bytes, o_policy, o_wait, o_max_wait, o_max_events, o_max_bytes,
       o_first_at, o_latest_at, o_closed_by, o_closed_at,
       r_number, r_state, r_lo, r_hi, r_count, r_bytes, r_first_at, r_last_at, r_fired_by,
       r_claims, r_refunds, r_retries, r_releases, r_max_attempts, r_token, r_worker,
       r_claimed_at, r_heartbeat_at, r_lease_until, r_due_at, r_error,
       priority, blocked_at, blocked_run, queued, o_priority, o_step,
       r_flags, r_interrupts, r_revision, r_priority, r_max_events, r_max_bytes, r_max_interrupts, r_claim_id, r_extra, r_head,
       source, o_source
FROM lane
