-- The first event of a lane lies in the row of the lane, if it is small and has nothing unusual: no mark, no headers, no source. So a lane
-- that gets one event, as most jobs do, has no row in a second table with entries in two more indexes. All other events are rows of
-- event_row. Whoever reads asks quell.event, which shows both; and whoever writes to it, too: programs of older versions that are
-- still at work, and everything that is rare. Then these triggers know where an event lies. An event that is changed is no
-- longer like those that lie with their lane, so it moves.

-- In the order in which transactions come to them, and both at once: whoever is between the two is waited for.
LOCK TABLE quell.lane, quell.event IN ACCESS EXCLUSIVE MODE;
ALTER TABLE quell.event RENAME TO event_row;

-- Behind everything that changes under load: the server does not log again what stays the same at the end of a row.
ALTER TABLE quell.lane
  ADD COLUMN first_seq      bigint,
  ADD COLUMN first_at       bigint,
  ADD COLUMN first_priority smallint,
  ADD COLUMN first_id       text COLLATE "C",
  ADD COLUMN first_print    bytea,
  ADD COLUMN first_payload  text;

-- Without a condition on either of the two: only then the server takes conditions and joins from outside into both, and goes by
-- their indexes. With one it would read all lanes for each look.
CREATE VIEW quell.event AS
  SELECT * FROM (
    SELECT lane_id, seq, received_at, mark, was_seq, priority, id, print, headers, payload, source FROM quell.event_row
    UNION ALL
    SELECT id, first_seq, first_at, NULL::bigint, NULL::bigint, first_priority, first_id, first_print, NULL::text, first_payload,
           NULL::bigint
    FROM quell.lane) AS both_places
  WHERE seq IS NOT NULL;

CREATE FUNCTION quell.event_comes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO quell.event_row (lane_id, seq, received_at, mark, was_seq, priority, id, print, headers, payload, source)
  VALUES (NEW.lane_id, NEW.seq, NEW.received_at, NEW.mark, NEW.was_seq, NEW.priority, NEW.id, NEW.print, NEW.headers, NEW.payload,
          NEW.source);
  RETURN NEW;
END
$$;

CREATE FUNCTION quell.event_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM quell.event_row WHERE lane_id = OLD.lane_id AND seq = OLD.seq;
  IF NOT FOUND THEN
    UPDATE quell.lane SET first_seq = NULL, first_at = NULL, first_priority = NULL, first_id = NULL, first_print = NULL,
      first_payload = NULL
    WHERE id = OLD.lane_id AND first_seq = OLD.seq;
    IF NOT FOUND THEN RETURN NULL; END IF;
  END IF;
  RETURN OLD;
END
$$;

CREATE FUNCTION quell.event_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE quell.event_row SET received_at = NEW.received_at, mark = NEW.mark, was_seq = NEW.was_seq, priority = NEW.priority,
    id = NEW.id, print = NEW.print, headers = NEW.headers, payload = NEW.payload, source = NEW.source
  WHERE lane_id = OLD.lane_id AND seq = OLD.seq;
  IF NOT FOUND THEN
    DELETE FROM quell.event WHERE lane_id = OLD.lane_id AND seq = OLD.seq;
    IF NOT FOUND THEN RETURN NULL; END IF;
    INSERT INTO quell.event VALUES (NEW.*);
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER event_comes INSTEAD OF INSERT ON quell.event FOR EACH ROW EXECUTE FUNCTION quell.event_comes();
CREATE TRIGGER event_goes INSTEAD OF DELETE ON quell.event FOR EACH ROW EXECUTE FUNCTION quell.event_goes();
CREATE TRIGGER event_changes INSTEAD OF UPDATE ON quell.event FOR EACH ROW EXECUTE FUNCTION quell.event_changes();
