INSERT INTO event (lane_id, seq, id, fingerprint, received_at, headers, payload, mark, was_seq, priority, source)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
