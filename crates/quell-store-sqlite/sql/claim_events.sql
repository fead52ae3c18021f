-- The events of a run: the unmarked ones of its range, or those marked with its number.
SELECT seq, id, received_at, headers, payload, was_seq, source FROM event
WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 AND mark IS ?4 ORDER BY seq
