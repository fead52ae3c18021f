SELECT seq, id, received_at, headers, payload FROM event WHERE lane_id = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq
