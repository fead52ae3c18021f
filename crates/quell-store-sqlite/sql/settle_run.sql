INSERT INTO run (id, lane_id, number, state, lo, hi, count, bytes, first_at, last_at, fired_by, claims, refunds, retries,
                 token, worker, claimed_at, heartbeat_at, finished_at, error, result, usage,
                 flags, interrupts, revision, priority, max_events, max_bytes, extra)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
        ?23, ?24, ?25, ?26, ?27, ?28, ?29)
