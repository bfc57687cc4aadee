-- What keeps an operation from being sent, in one function: claims, pauses, listings and reports all read it.

CREATE FUNCTION obstacle(o operations) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN o.state IN ('SETTLED', 'CLOSED') THEN NULL
        WHEN o.state = 'SENDING' THEN 'sending'
        WHEN EXISTS (SELECT FROM remit.cases c WHERE c.operation_id = o.id AND c.closed_at IS NULL AND c.released_at IS NULL) THEN 'case'
        WHEN o.state = 'ACCEPTED' THEN 'settlement'
        WHEN o.state = 'UNKNOWN' AND (o.keep_back OR NOT o.resend) THEN 'verification'
        -- Where no further send is allowed, what was sent is only looked for.
        WHEN (remit.order_over(o)).id IS NOT NULL
            THEN CASE o.state WHEN 'UNKNOWN' THEN 'verification' ELSE replace((remit.order_over(o)).kind, 'restore', 'stop') END
        WHEN NOT remit.mandate_live(o.mandate_hash) THEN CASE o.state WHEN 'UNKNOWN' THEN 'verification' ELSE 'mandate' END
        WHEN o.verdict IS NULL THEN 'policy'
        WHEN o.verdict = 'needs_approval' AND coalesce(remit.granted_until(o.id, o.action_hash) <= remit.clock(), true)
            THEN CASE o.state WHEN 'UNKNOWN' THEN 'verification' ELSE 'approval' END
        ELSE coalesce(
            remit.requirement_obstacle(o.requires),
            CASE WHEN remit.door_shut(o.receivers) THEN 'receiver' END,
            -- A window turns by itself; a limit of the whole purpose is used up until somebody's share comes back.
            (SELECT CASE WHEN g.kind = 'limit' AND g.until < '9999-12-31T00:00:00Z' THEN 'limit_window' ELSE g.kind END
             FROM remit.gates g WHERE g.operation_id = o.id AND g.until > clock_timestamp() ORDER BY g.kind LIMIT 1),
            CASE WHEN (o.obligations ->> 'hold_seconds')::integer > 0 AND coalesce(o.hold_until > remit.clock(), true)
                 THEN 'hold' ELSE 'ready' END)
    END
$$;

-- NULL when all that must come first is COMPLETED and undisputed: nothing is announced of an effect that is a case (I12).
-- What follows a case waits for the same person as the case does, and keeps nothing else of its run from going on.
CREATE FUNCTION requirement_obstacle(p_requires text[]) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN cardinality(p_requires) > 0 THEN (
        SELECT CASE WHEN bool_or(r.id IS NULL) THEN 'requirement_lost'
                    WHEN bool_or(EXISTS (SELECT FROM remit.cases c WHERE c.operation_id = r.id AND c.closed_at IS NULL)) THEN 'case'
                    WHEN bool_or(r.state <> 'SETTLED') THEN 'requirement' END
        FROM unnest(p_requires) k LEFT JOIN remit.operations r ON r.key = k AND r.state <> 'CLOSED') END
$$;

-- Operations with what stands in their way, and the fact as it is to be shown now: an expired send is not known.
CREATE VIEW standing AS
    SELECT o.*, obstacle(o) AS obstacle,
           CASE WHEN o.state = 'SENDING' AND EXISTS (
                    SELECT FROM attempts a WHERE a.operation_id = o.id AND a.number = o.attempts
                    AND a.send_by + a.timeout < clock_timestamp())
                THEN 'UNKNOWN' ELSE o.fact END AS shown_fact
    FROM operations o;

-- What a run is concerned with: what it proposed, and what it found already proposed by others under the same keys.
CREATE VIEW concerns AS
    SELECT id AS operation_id, run_id FROM operations
    UNION
    SELECT operation_id, run_id FROM proposals WHERE operation_id IS NOT NULL;

-- The window begins when nothing else is in the way, so that "what leaves when" is a time and not a hope. It is never
-- shorter than policy's, and longer where a person wanted it later before it began.
CREATE FUNCTION start_holds(p_run text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE started bigint;
BEGIN
    UPDATE operations o SET hold_until = greatest(
               clock() + make_interval(secs => (obligations ->> 'hold_seconds')::double precision), not_before(o.id)), version = version + 1
    FROM (SELECT p.id FROM operations p
          WHERE p.run_id = p_run AND p.state = 'PENDING' AND p.hold_until IS NULL
            AND (p.obligations ->> 'hold_seconds')::integer > 0 AND obstacle(p) = 'hold' ORDER BY p.id FOR UPDATE) d
    WHERE o.id = d.id AND o.state = 'PENDING';
    GET DIAGNOSTICS started = ROW_COUNT;
    RETURN started;
END $$;
