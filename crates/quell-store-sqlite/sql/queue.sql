SELECT id, tenant, name, next_at, max_running, running, accepted, succeeded, dead, discarded, delayed, buffered, in_flight,
       priorities, schedules, governed
FROM queue
