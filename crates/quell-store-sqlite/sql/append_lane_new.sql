-- A key is seen for the first time (or again after its lane was forgotten).
INSERT INTO lane (id, queue_id, key, due_at, priority, source, head_seq, updated_at, o_number, o_lo, o_count, o_bytes,
                  o_policy, o_wait, o_max_wait, o_max_events, o_max_bytes, o_first_at, o_latest_at, o_closed_by,
                  o_closed_at, o_priority, o_step, o_source)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)
