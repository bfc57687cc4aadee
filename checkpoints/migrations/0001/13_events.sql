-- Events from receivers are wake-ups and never evidence: one makes the operation that it is about due, so that the sweep
-- asks the system of record. What an event says moves no state, however often, however late and in whatever order it comes.

CREATE TABLE events (
    receiver text NOT NULL,
    id text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    type text NOT NULL,
    reference text,
    at timestamptz NOT NULL,
    -- NULL: the ledger knows of nothing under this reference, so it may be somebody else's effect.
    operation_id bigint REFERENCES operations,
    due boolean NOT NULL,
    PRIMARY KEY (receiver, id)
);
CREATE INDEX events_operation ON events (operation_id, received_at) WHERE operation_id IS NOT NULL;
CREATE INDEX events_unmatched ON events (received_at) WHERE operation_id IS NULL;
CREATE TRIGGER events_journal_insert AFTER INSERT ON events REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- What was not let in leaves a number and nothing else: whoever is not known decides nothing about what is stored here.
CREATE TABLE refused_events (
    receiver text NOT NULL,
    code text NOT NULL,
    count bigint NOT NULL,
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (receiver, code)
);

-- The operation that a reference of this installation stands for: its key's live revision, or else the latest.
CREATE FUNCTION operation_behind(p_reference text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT o.id FROM operations o JOIN installation i ON starts_with(p_reference, i.id || ':')
    WHERE o.key = substr(p_reference, length(i.id) + 2) ORDER BY o.state = 'CLOSED', o.revision DESC LIMIT 1
$$;

-- Stored once: 'stored', or 'known' for one that was here before, which does nothing. Durable when this returns, since
-- the sender forgets what was answered.
CREATE FUNCTION receive_event(p_receiver text, p_id text, p_type text, p_reference text, p_at timestamptz) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE o operations; awaited boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    IF EXISTS (SELECT FROM events WHERE receiver = p_receiver AND id = p_id) THEN
        RETURN 'known';
    END IF;
    -- Before the event: a settlement that is being written now either sees the event, or is over when this makes it due.
    SELECT * INTO o FROM operations WHERE id = operation_behind(p_reference) FOR UPDATE;
    awaited := coalesce(o.state IN ('UNKNOWN', 'ACCEPTED'), false);
    INSERT INTO events (receiver, id, type, reference, at, operation_id, due)
    VALUES (p_receiver, p_id, p_type, p_reference, p_at, o.id, awaited) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'known';
    END IF;
    UPDATE operations SET due_at = clock_timestamp() WHERE id = o.id AND awaited;
    RETURN 'stored';
END $$;

-- A look that began before an event came may have missed what the event was about: then the next look is at once.
CREATE FUNCTION pause_after(r settlement) RETURNS interval
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM events e WHERE e.operation_id = r.operation_id AND e.due AND e.received_at >= r.read_began_at)
                THEN interval '0' ELSE make_interval(secs => r.next_seconds) END
$$;

-- p_rows: an array of {receiver, code, count}.
CREATE FUNCTION count_refused_events(p_rows jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO refused_events AS r (receiver, code, count)
    SELECT n.receiver, n.code, n.count FROM jsonb_to_recordset(p_rows) n (receiver text, code text, count bigint)
    ORDER BY 1, 2
    ON CONFLICT (receiver, code) DO UPDATE SET count = r.count + excluded.count, last_at = excluded.last_at
$$;

GRANT SELECT ON events, refused_events TO remit_app;
GRANT EXECUTE ON FUNCTION receive_event, count_refused_events TO remit_app;
