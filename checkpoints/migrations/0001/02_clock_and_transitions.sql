-- Company time, and the one table of transitions (DESIGN section 6). No other way from state to state.

CREATE FUNCTION clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() + clock_offset FROM remit.installation $$;

-- Only a sandbox has a second clock; it never goes back, so retention and visibility can only be passed later.
CREATE FUNCTION advance_clock(p_seconds double precision) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF p_seconds IS NULL OR p_seconds < 0 THEN
        RAISE EXCEPTION 'The clock does not go back. Give seconds to move it on by.' USING ERRCODE = 'RM002';
    END IF;
    UPDATE installation SET clock_offset = clock_offset + make_interval(secs => p_seconds) WHERE environment = 'sandbox';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Only a sandbox database has a clock that moves. Nothing was changed.' USING ERRCODE = 'RM002';
    END IF;
    -- Windows of limits are company time, and gates end by real time.
    UPDATE gates SET until = until - make_interval(secs => p_seconds) WHERE kind = 'limit' AND until < '9999-12-31T00:00:00Z';
    RETURN clock();
END $$;

CREATE TABLE transitions (
    from_state text NOT NULL,
    to_state text NOT NULL,
    closed text NOT NULL DEFAULT '',
    PRIMARY KEY (from_state, to_state, closed)
);
INSERT INTO transitions VALUES
    ('PENDING', 'SENDING', ''),
    ('PENDING', 'CLOSED', 'denied'), ('PENDING', 'CLOSED', 'rejected'), ('PENDING', 'CLOSED', 'expired'),
    ('PENDING', 'CLOSED', 'stale'), ('PENDING', 'CLOSED', 'cancelled'), ('PENDING', 'CLOSED', 'superseded'),
    ('SENDING', 'SETTLED', ''), ('SENDING', 'ACCEPTED', ''), ('SENDING', 'UNKNOWN', ''), ('SENDING', 'PENDING', ''),
    ('SENDING', 'CLOSED', 'refused'), ('SENDING', 'CLOSED', 'stale'),
    ('UNKNOWN', 'SENDING', ''), ('UNKNOWN', 'ACCEPTED', ''), ('UNKNOWN', 'SETTLED', ''), ('UNKNOWN', 'PENDING', ''),
    ('UNKNOWN', 'CLOSED', 'refused'), ('UNKNOWN', 'CLOSED', 'withdrawn'), ('UNKNOWN', 'CLOSED', 'by_person'),
    ('ACCEPTED', 'SETTLED', ''), ('ACCEPTED', 'UNKNOWN', ''), ('ACCEPTED', 'CLOSED', 'withdrawn'),
    ('ACCEPTED', 'CLOSED', 'refused');

-- When and how often to look is no change of an operation: it leaves version, journal and progress alone.
CREATE FUNCTION only_looked_at(p_new operations, p_old operations) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    p_old.due_at := p_new.due_at;
    p_old.checks := p_new.checks;
    p_old.fact := p_new.fact; -- generated, so not there yet before the update
    RETURN p_new IS NOT DISTINCT FROM p_old;
END $$;

-- Exactly what would be sent, for whom, under which mandate; fixed when it is proposed.
CREATE FUNCTION same_action(a operations, b operations) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (a.key, a.revision, a.purpose, a.step, a.subject, a.effect, a.tool, a.tool_version, a.receivers, a.run_id, a.mandate_hash, a.agent,
            a.intent, a.intent_hash, a.request, a.relied_on, a.action_hash, a.requires, a.amount_minor, a.currency)
           IS NOT DISTINCT FROM
           (b.key, b.revision, b.purpose, b.step, b.subject, b.effect, b.tool, b.tool_version, b.receivers, b.run_id, b.mandate_hash, b.agent,
            b.intent, b.intent_hash, b.request, b.relied_on, b.action_hash, b.requires, b.amount_minor, b.currency);
END $$;

CREATE FUNCTION check_transition() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version = OLD.version AND remit.only_looked_at(NEW, OLD) THEN
        RETURN NEW;
    ELSIF NEW.version <> OLD.version + 1 THEN
        RAISE EXCEPTION 'operation % was changed without its version', OLD.id USING ERRCODE = 'RM001';
    ELSIF NOT remit.same_action(NEW, OLD) THEN
        RAISE EXCEPTION 'operation %: what would be sent is fixed by its revision', OLD.id USING ERRCODE = 'RM001';
    ELSIF NEW.state <> OLD.state AND NOT EXISTS (
        SELECT FROM remit.transitions t
        WHERE t.from_state = OLD.state AND t.to_state = NEW.state AND t.closed = coalesce(NEW.closed, ''))
    THEN
        RAISE EXCEPTION 'operation %: no way from % to % %', OLD.id, OLD.state, NEW.state, coalesce(NEW.closed, '')
            USING ERRCODE = 'RM001';
    ELSIF NEW.state IN ('PENDING', 'CLOSED') AND NEW.doubt THEN
        RAISE EXCEPTION 'operation %: an earlier attempt is not proved to be without effect', OLD.id USING ERRCODE = 'RM001';
    ELSIF OLD.state IN ('SETTLED', 'CLOSED') THEN
        RAISE EXCEPTION 'operation %: % is final', OLD.id, OLD.state USING ERRCODE = 'RM001';
    END IF;
    NEW.changed_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER operations_transition BEFORE UPDATE ON operations FOR EACH ROW EXECUTE FUNCTION check_transition();

CREATE FUNCTION refuse_start() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an operation begins PENDING, or CLOSED by a denial' USING ERRCODE = 'RM001';
END $$;
CREATE TRIGGER operations_start BEFORE INSERT ON operations FOR EACH ROW
    WHEN (NEW.version <> 1 OR NEW.attempts <> 0 OR NEW.doubt OR NEW.resend OR NEW.keep_back
          OR (NEW.state <> 'PENDING' AND NEW.closed IS DISTINCT FROM 'denied'))
    EXECUTE FUNCTION refuse_start();
