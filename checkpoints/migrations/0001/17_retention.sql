-- What may be forgotten: LangGraph's rows that no resume will read, dead workers without attempts, events whose business
-- is over. Never an operation, attempt, evidence, approval or journal entry: a later key is judged by them.

-- By an administrator. Returns what was removed; the journal says who did it.
CREATE FUNCTION forget(p_secret text, p_days integer) RETURNS TABLE (what text, removed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
DECLARE actor tokens := token_of(p_secret); cut timestamptz := clock_timestamp() - make_interval(days => p_days);
BEGIN
    IF actor.role <> 'administrator' THEN
        RAISE EXCEPTION '% is %, and only an administrator lets things be forgotten. Ask one.', actor.person, actor.role USING ERRCODE = 'RM011';
    ELSIF p_days IS NULL OR p_days < 1 THEN
        RAISE EXCEPTION 'The last day is always kept, so nothing was removed. Give --older-than DAYS of at least 1.' USING ERRCODE = 'RM012';
    END IF;
    RETURN QUERY SELECT 'checkpoints', forget_ended_threads(cut) + forget_superseded_checkpoints(cut);
    RETURN QUERY SELECT 'workers', forget_workers(cut);
    RETURN QUERY SELECT 'events', forget_events(cut);
    INSERT INTO journal (kind, data) VALUES ('forgotten', jsonb_build_object('by', actor.person, 'older_than_days', p_days));
END $$;

CREATE FUNCTION forget_ended_threads(p_cut timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE ended text[] := ARRAY(SELECT t.thread_id FROM threads t JOIN runs r ON r.id = t.run_id WHERE r.ended_at < p_cut); gone bigint;
BEGIN
    DELETE FROM checkpoint_writes WHERE thread_id = ANY (ended);
    DELETE FROM checkpoint_blobs WHERE thread_id = ANY (ended);
    DELETE FROM checkpoints WHERE thread_id = ANY (ended);
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- Of a run that goes on, the newest checkpoint of each thread stays with all that it refers to. Only where nobody holds the
-- run, and nobody can take it meanwhile: a runner writes the values of a checkpoint before the checkpoint.
CREATE FUNCTION forget_superseded_checkpoints(p_cut timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE idle text[]; gone bigint;
BEGIN
    WITH held AS (SELECT l.* FROM leases l JOIN runs r ON r.id = l.run_id WHERE r.ended_at IS NULL FOR UPDATE OF l SKIP LOCKED)
    SELECT coalesce(array_agg(t.thread_id), '{}') INTO idle
    FROM held h JOIN threads t ON t.run_id = h.run_id WHERE h.lease_until <= clock_timestamp();
    DELETE FROM checkpoints c
    WHERE c.thread_id = ANY (idle) AND (c.checkpoint ->> 'ts')::timestamptz < p_cut
      AND EXISTS (SELECT FROM checkpoints n WHERE n.thread_id = c.thread_id AND n.checkpoint_ns = c.checkpoint_ns
                  AND n.checkpoint_id > c.checkpoint_id);
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM checkpoint_writes w
    WHERE w.thread_id = ANY (idle) AND NOT EXISTS (
        SELECT FROM checkpoints c WHERE (c.thread_id, c.checkpoint_ns, c.checkpoint_id) = (w.thread_id, w.checkpoint_ns, w.checkpoint_id));
    DELETE FROM checkpoint_blobs b
    WHERE b.thread_id = ANY (idle) AND NOT EXISTS (
        SELECT FROM checkpoints c WHERE c.thread_id = b.thread_id AND c.checkpoint_ns = b.checkpoint_ns
        AND c.checkpoint -> 'channel_versions' ->> b.channel = b.version);
    RETURN gone;
END $$;

-- One that made an attempt, or held a run last, is part of its evidence.
CREATE FUNCTION forget_workers(p_cut timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE gone bigint;
BEGIN
    DELETE FROM workers w
    WHERE w.dead_at < p_cut AND NOT EXISTS (SELECT FROM attempts a WHERE a.worker = w.id)
      AND NOT EXISTS (SELECT FROM leases l WHERE l.worker = w.id);
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- An event only wakes, so one that is taken a second time does nothing; those of business that goes on are kept all the same.
CREATE FUNCTION forget_events(p_cut timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE gone bigint; numbers bigint;
BEGIN
    DELETE FROM events e
    WHERE e.received_at < p_cut
      AND NOT EXISTS (SELECT FROM operations o WHERE o.id = e.operation_id AND o.state NOT IN ('SETTLED', 'CLOSED'));
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM refused_events WHERE last_at < p_cut;
    GET DIAGNOSTICS numbers = ROW_COUNT;
    RETURN gone + numbers;
END $$;

GRANT EXECUTE ON FUNCTION forget TO remit_app;
