INSERT INTO audit (id, at, queue_id, lane_id, run, change, from_state, to_state, attempt, token, worker, prior_worker,
                   upto_seq, next_at, actor, other_run, verdict)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
