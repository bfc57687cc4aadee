-- What people are told, once each, through an outbox: a notice is written in the transaction of what it tells, and posted
-- afterwards by `remit work` or `remit serve`. At least once: whoever is told drops a repeat by its id. Ids and counts only.

CREATE TABLE notices (
    id text PRIMARY KEY DEFAULT 'ntc-' || replace(gen_random_uuid()::text, '-', ''),
    kind text NOT NULL CHECK (kind IN ('approval.wanted', 'approval.expiring', 'run.paused', 'run.ended', 'case.opened', 'receiver.closed')),
    -- Which thing: the same is not told twice under one kind.
    about text NOT NULL,
    run_id text REFERENCES runs,
    data jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries integer NOT NULL DEFAULT 0,
    told_at timestamptz,
    error text,
    UNIQUE (kind, about)
);
CREATE INDEX notices_due ON notices (due_at) WHERE told_at IS NULL;

CREATE FUNCTION tell(p_kind text, p_about text, p_run text, p_data jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO notices (kind, about, run_id, data) VALUES (p_kind, p_about, p_run, p_data) ON CONFLICT DO NOTHING
$$;

-- After the transaction's last statement, when the approval's actions stand beside it.
CREATE FUNCTION tell_approval() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM tell('approval.wanted', NEW.id, NEW.run_id, jsonb_build_object(
        'approval', NEW.id, 'roles', NEW.roles, 'quorum', NEW.quorum, 'decide_by', NEW.decide_by, 'escalated_from', NEW.escalated_from,
        'actions', (SELECT count(*) FROM approval_items i WHERE i.approval_id = NEW.id)));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER approvals_told AFTER INSERT ON approvals DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell_approval();

-- Late enough to be no second copy of the first notice, early enough to act.
CREATE FUNCTION tell_expiring() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE told bigint;
BEGIN
    INSERT INTO notices (kind, about, run_id, data)
    SELECT 'approval.expiring', a.id, a.run_id, jsonb_build_object(
               'approval', a.id, 'roles', a.roles, 'quorum', a.quorum, 'decide_by', a.decide_by,
               'undecided', cardinality(chosen_actions(a.id, NULL)))
    FROM approvals a WHERE a.status = 'OPEN' AND a.remind_at <= clock()
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS told = ROW_COUNT;
    RETURN told;
END $$;

-- A run pauses many times for the same things; told is each set of things once.
CREATE FUNCTION tell_run() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE what jsonb := jsonb_build_object('run', NEW.id, 'purpose', NEW.purpose, 'status', NEW.status, 'waits', NEW.waits);
BEGIN
    IF NEW.ended_at IS NOT NULL THEN
        PERFORM tell('run.ended', NEW.id, NEW.id, what);
    ELSE
        PERFORM tell('run.paused', NEW.id || ':' || coalesce((SELECT string_agg(k, ',' ORDER BY k) FROM jsonb_object_keys(NEW.waits) k), ''),
                     NEW.id, what);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER runs_told AFTER UPDATE OF status ON runs FOR EACH ROW
    WHEN (NEW.status <> OLD.status AND (NEW.ended_at IS NOT NULL OR NEW.status IN ('PAUSED', 'PAUSED_AWAITING_APPROVAL')))
    EXECUTE FUNCTION tell_run();

CREATE FUNCTION tell_case() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM tell('case.opened', NEW.id::text, NEW.run_id,
                 jsonb_build_object('case', NEW.id, 'code', NEW.code, 'run', NEW.run_id, 'operation', NEW.operation_id));
    RETURN NULL;
END $$;
CREATE TRIGGER cases_told AFTER INSERT ON cases FOR EACH ROW EXECUTE FUNCTION tell_case();

-- A receiver that falters opens and closes many times: told is one closing an hour, whichever run met it.
CREATE FUNCTION tell_receiver() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM notices WHERE kind = 'receiver.closed' AND data ->> 'receiver' = NEW.name
                   AND at > clock_timestamp() - interval '1 hour') THEN
        PERFORM tell('receiver.closed', NEW.name || '@' || NEW.since, NULL,
                     jsonb_build_object('receiver', NEW.name, 'why', NEW.closed, 'since', NEW.since));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER receivers_told AFTER UPDATE OF closed ON receivers FOR EACH ROW
    WHEN (OLD.closed IS NULL AND NEW.closed IS NOT NULL) EXECUTE FUNCTION tell_receiver();

-- A week: who sets up a channel today is not told of last year. What is older stays in `remit notices`.
CREATE FUNCTION longest_told() RETURNS interval LANGUAGE sql IMMUTABLE AS $$ SELECT interval '7 days' $$;

-- Notices to post now, oldest first, each to one worker: one that dies leaves them to the next after p_seconds.
CREATE FUNCTION take_notices(p_limit integer, p_seconds double precision)
RETURNS TABLE (id text, kind text, run_id text, at timestamptz, data jsonb, tries integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH picked AS (
        SELECT n.id FROM notices n
        WHERE n.told_at IS NULL AND n.due_at <= clock_timestamp() AND n.at > clock_timestamp() - longest_told()
        ORDER BY n.at LIMIT p_limit FOR UPDATE SKIP LOCKED)
    UPDATE notices n SET due_at = clock_timestamp() + make_interval(secs => p_seconds), tries = n.tries + 1
    FROM picked WHERE n.id = picked.id RETURNING n.id, n.kind, n.run_id, n.at, n.data, n.tries
$$;

CREATE FUNCTION notices_told(p_ids text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE notices SET told_at = clock_timestamp(), error = NULL WHERE id = ANY (p_ids) AND told_at IS NULL
$$;

-- Not told: again after a pause that doubles, from two seconds to ten minutes.
CREATE FUNCTION notices_failed(p_ids text[], p_error text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE notices SET error = p_error, due_at = clock_timestamp() + make_interval(secs => least(600, 2 ^ least(tries, 10)))
    WHERE id = ANY (p_ids) AND told_at IS NULL
$$;

GRANT SELECT ON notices TO remit_app;
GRANT EXECUTE ON FUNCTION take_notices, notices_told, notices_failed, longest_told TO remit_app;
