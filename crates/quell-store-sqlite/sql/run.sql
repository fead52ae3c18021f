-- A finished run; rows.rs reads these columns by position.
SELECT id, lane_id, number, state, lo, hi, count, bytes, first_at, last_at, fired_by, claims, refunds, retries, token, worker,
       claimed_at, heartbeat_at, finished_at, error, flags, interrupts, revision, priority, max_events, max_bytes, extra
FROM run
