-- One door per receiver, shared by all workers and runs of this database. While it is closed nothing is sent there and
-- nothing is looked up there, except one call at a time after a pause that doubles. Real time: these are pauses of machines.

-- `closed` says why, NULL is open. `failures` counts in a row; whoever gets an answer of any kind sets it back.
CREATE TABLE receivers (
    name text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_]{0,40}$'),
    closed text CHECK (closed IN ('silent', 'gone', 'credential')),
    failures integer NOT NULL DEFAULT 0,
    detail text NOT NULL DEFAULT '',
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    pause interval,
    probe_at timestamptz,
    probing boolean NOT NULL DEFAULT false,
    CHECK ((closed IS NULL) = (probe_at IS NULL)),
    CHECK (closed IS NOT NULL OR NOT probing)
);

-- Five in a row: a restarting instance or one lost answer closes nothing, and one group of eight that nobody answers
-- closes the door before the second group begins.
CREATE FUNCTION closing_failures() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 5 $$;

-- The first pause. Two seconds bring back an instance that restarts; a credential is put right by a person, and one that
-- is shown too often may be locked.
CREATE FUNCTION first_pause(p_answer text) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_answer WHEN 'credential' THEN interval '20 seconds' ELSE interval '2 seconds' END
$$;

-- Five minutes at most: whoever repairs a receiver sees it carried on without pressing anything.
CREATE FUNCTION longest_pause() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '5 minutes' $$;

-- Longer than any call may take: a prober that is not heard of by then is dead, and the next one is let through.
CREATE FUNCTION probe_seconds() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '30 seconds' $$;

-- Whether one of these receivers lets nobody through now. False again once a probe is due, so that somebody comes.
CREATE FUNCTION door_shut(p_receivers text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM remit.receivers r
                   WHERE r.name = ANY (p_receivers) AND r.closed IS NOT NULL AND r.probe_at > clock_timestamp())
$$;

CREATE FUNCTION shut_doors() RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(r.name), '{}') FROM remit.receivers r WHERE r.closed IS NOT NULL AND r.probe_at > clock_timestamp()
$$;

CREATE FUNCTION door_closed(p_receiver text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM remit.receivers r WHERE r.name = p_receiver AND r.closed IS NOT NULL)
$$;

-- Half-open: of all who ask, exactly one gets true, and then nobody until its answer is noted or it must be dead.
CREATE FUNCTION knock(p_receiver text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    UPDATE receivers SET probing = true, probe_at = clock_timestamp() + probe_seconds()
    WHERE name = p_receiver AND closed IS NOT NULL AND probe_at <= clock_timestamp();
    RETURN FOUND;
END $$;

-- A door that closes again within five minutes goes on with the pause that it had: reads that answer between writes that
-- do not would otherwise open it for another volley each time.
CREATE FUNCTION next_pause(d receivers, p_answer text) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN d.pause IS NULL OR (d.closed IS NULL AND d.since < clock_timestamp() - remit.longest_pause())
                THEN remit.first_pause(p_answer)
                ELSE least(greatest(d.pause * 2, remit.first_pause(p_answer)), remit.longest_pause()) END
$$;

-- What one call met: 'answered', 'silent' (timeout, broken off, 5xx, no JSON), 'gone' (nobody listens there) or
-- 'credential'. The last two close at once: they tell of every other call, too.
CREATE FUNCTION note_answer(p_receiver text, p_answer text, p_detail text) RETURNS receivers
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE d receivers;
BEGIN
    IF p_answer NOT IN ('answered', 'silent', 'gone', 'credential') THEN
        RAISE EXCEPTION 'No call meets %. Correct the caller.', p_answer USING ERRCODE = 'RM001';
    END IF;
    INSERT INTO receivers (name) VALUES (p_receiver) ON CONFLICT DO NOTHING;
    SELECT * INTO d FROM receivers WHERE name = p_receiver FOR UPDATE;
    IF p_answer = 'answered' THEN
        RETURN open_door(d);
    ELSIF d.probing OR (d.closed IS NULL AND (p_answer <> 'silent' OR d.failures + 1 >= closing_failures())) THEN
        RETURN close_door(d, p_answer, p_detail);
    END IF;
    -- Closed already, and this call had begun before: it is no probe, so it lengthens nothing.
    UPDATE receivers SET failures = failures + 1 WHERE name = d.name RETURNING * INTO d;
    RETURN d;
END $$;

CREATE FUNCTION open_door(d receivers) RETURNS receivers
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF d.closed IS NULL AND d.failures = 0 THEN
        RETURN d;
    ELSIF d.closed IS NOT NULL THEN
        INSERT INTO journal (kind, data) VALUES ('receiver.opened', jsonb_build_object('receiver', d.name, 'failures', d.failures));
    END IF;
    UPDATE receivers SET failures = 0, closed = NULL, probe_at = NULL, probing = false, detail = '',
           since = CASE WHEN closed IS NULL THEN since ELSE clock_timestamp() END
    WHERE name = d.name RETURNING * INTO d;
    RETURN d;
END $$;

CREATE FUNCTION close_door(d receivers, p_answer text, p_detail text) RETURNS receivers
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE next interval := next_pause(d, p_answer);
BEGIN
    UPDATE receivers SET failures = failures + 1, closed = p_answer, detail = left(p_detail, 300), probing = false, pause = next,
           -- Jitter, so that the doors of several receivers behind one fault are not tried in step.
           probe_at = clock_timestamp() + next * (1 + random() / 2),
           since = CASE WHEN closed IS NULL THEN clock_timestamp() ELSE since END
    WHERE name = d.name RETURNING * INTO d;
    INSERT INTO journal (kind, data)
    VALUES ('receiver.closed', jsonb_build_object('receiver', d.name, 'reason', p_answer, 'detail', d.detail,
                                                  'failures', d.failures, 'probe_at', d.probe_at));
    RETURN d;
END $$;

-- A person's word: the next call is the probe, without waiting for the end of the pause.
CREATE FUNCTION probe_now() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE receivers SET probe_at = clock_timestamp() WHERE closed IS NOT NULL AND NOT probing
$$;

GRANT SELECT ON receivers TO remit_app;
GRANT EXECUTE ON FUNCTION door_shut, shut_doors, door_closed, knock, note_answer TO remit_app;
