-- The lease index entry stays early; the claim and the sweep push it when it is reached.
UPDATE lane SET r_heartbeat_at = ?2, r_lease_until = ?3, updated_at = ?4 WHERE id = ?1
