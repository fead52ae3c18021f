-- The columns of run.sql, then what the handler reported.
SELECT id, lane_id, number, state, lo, hi, count, bytes, first_at, last_at, fired_by, claims, refunds, retries, token, worker,
       claimed_at, heartbeat_at, finished_at, error, flags, interrupts, revision, priority, max_events, max_bytes, extra,
       result, usage
FROM run WHERE lane_id = ?1 AND number > ?2 ORDER BY number LIMIT ?3
