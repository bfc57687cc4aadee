-- Plans, proposals and operations enter here, each at most once, whatever node is executed again.

CREATE FUNCTION store_plan(p_run text, p_token bigint, p_number integer, p_hash text, p_calls jsonb, p_content text,
                           p_tokens integer, p_agent_version text) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE stored plans;
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO plans (run_id, number, hash, calls, content, tokens, movement, agent_version)
    VALUES (p_run, p_number, p_hash, p_calls, p_content, p_tokens, movement(p_run), p_agent_version)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE runs SET tokens_used = tokens_used + p_tokens WHERE id = p_run;
    END IF;
    SELECT * INTO stored FROM plans WHERE run_id = p_run AND number = p_number;
    RETURN stored;
END $$;

-- Every change of an operation raises its version, and looking alone does not: this sum stands still exactly when
-- nothing moves.
CREATE FUNCTION movement(p_run text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(o.version), 0)::bigint FROM remit.operations o WHERE o.run_id = p_run
$$;

CREATE FUNCTION store_results(p_run text, p_token bigint, p_number integer, p_results jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE plans SET results = p_results WHERE run_id = p_run AND number = p_number;
END $$;

CREATE FUNCTION store_cohort(p_run text, p_token bigint, p_handle text, p_tool text, p_arguments jsonb, p_subjects text[], p_sample jsonb)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO cohorts (run_id, handle, tool, arguments, subjects, sample)
    VALUES (p_run, p_handle, p_tool, p_arguments, p_subjects, p_sample) ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION store_statements(p_run text, p_token bigint, p_plan integer, p_rows jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO statements (run_id, plan, number, text, step, count)
    SELECT p_run, p_plan, n, s ->> 'text', s ->> 'step', (s ->> 'count')::integer
    FROM jsonb_array_elements(p_rows) WITH ORDINALITY rows (s, n) ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION store_proposals(p_run text, p_token bigint, p_rows jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE stored bigint;
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO proposals (run_id, plan, call, subject, tool, step, intent, amount_minor, currency, outcome, code)
    SELECT p_run, r.plan, r.call, r.subject, r.tool, r.step, r.intent, r.amount_minor, r.currency, r.outcome, r.code
    FROM jsonb_to_recordset(p_rows) r (plan integer, call integer, subject text, tool text, step text, intent jsonb,
                                       amount_minor bigint, currency text, outcome text, code text)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    RETURN stored;
END $$;

-- Where a key stands: its live or else its latest revision, for the rule that decides what a proposal for it becomes.
CREATE FUNCTION key_standing(p_keys text[])
RETURNS TABLE (key text, id bigint, revision integer, state text, closed text, intent_hash text, run_id text, plan integer, ever_rejected boolean,
               tool text, stuck boolean)
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT ON (o.key) o.key, o.id, o.revision, o.state, o.closed, o.intent_hash, o.run_id, o.plan,
           EXISTS (SELECT FROM remit.operations r WHERE r.key = o.key AND r.closed = 'rejected'), o.tool, remit.stuck(o)
    FROM remit.operations o WHERE o.key = ANY (p_keys) ORDER BY o.key, o.state = 'CLOSED', o.revision DESC
$$;

-- Whether its receiver was tried in vain, or its door is closed, and not one byte for this key was ever written: then
-- nothing speaks against the tool that its contract falls back to.
CREATE FUNCTION stuck(o operations) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT o.state = 'PENDING'
       AND (remit.door_closed(o.receivers[1]) OR EXISTS (
            SELECT FROM remit.attempts a WHERE a.operation_id = o.id AND a.seen = 'not_written'))
       AND NOT EXISTS (SELECT FROM remit.operations k JOIN remit.attempts a ON a.operation_id = k.id
                       WHERE k.key = o.key AND coalesce(a.seen, '') NOT IN ('not_begun', 'not_written'))
$$;

-- Makes room for revisions of the tool that is fallen back to. A case that only said how often it was tried has its answer.
CREATE FUNCTION fall_back(p_run text, p_token bigint, p_ids bigint[], p_detail text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE given_up bigint[];
BEGIN
    PERFORM lock_pending(p_run, p_token, p_ids);
    SELECT coalesce(array_agg(o.id), '{}') INTO given_up FROM operations o
    WHERE o.id = ANY (p_ids) AND o.run_id = p_run AND stuck(o);
    UPDATE cases SET closed_at = clock_timestamp(), closed_by = 'fallback', resolution = p_detail
    WHERE operation_id = ANY (given_up) AND closed_at IS NULL AND code = 'budget';
    RETURN close_pending(p_run, p_token, given_up, 'superseded', p_detail);
END $$;

-- Whether a request of another tool may still act under this key: only an answer proves that it never will, since what
-- is merely absent so far could land beside its successor, and another tool brings no common wire key.
CREATE FUNCTION other_tool_may_act(p_key text, p_tool text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM operations o JOIN attempts a ON a.operation_id = o.id
        WHERE o.key = p_key AND o.tool <> p_tool AND coalesce(a.seen, '') NOT IN
              ('not_begun', 'not_written', 'rate_limited', 'credential', 'refused', 'precondition'))
$$;

-- The rows of a proposal as the ledger takes them: purpose, mandate and agent are the run's, and what another tool may
-- still do under the key is a denial. So is what a person rejected in this run: its key is closed to the agent.
CREATE FUNCTION proposed_rows(p_run text, p_rows jsonb) RETURNS SETOF operations
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE r operations; run runs;
BEGIN
    SELECT * INTO run FROM runs WHERE id = p_run;
    FOR r IN SELECT * FROM jsonb_populate_recordset(NULL::operations, p_rows) ORDER BY key LOOP
        r.run_id := p_run; r.purpose := run.purpose; r.mandate_hash := run.mandate_hash; r.agent := run.agent;
        IF other_tool_may_act(r.key, r.tool) THEN
            r.verdict := 'deny';
            r.reasons := '[{"code": "other_tool_may_act", "detail": "a request of another tool may still arrive under this key"}]';
            r.closed_detail := 'other_tool_may_act';
        ELSIF EXISTS (SELECT FROM operations o WHERE o.key = r.key AND o.run_id = p_run AND o.closed = 'rejected') THEN
            r.verdict := 'deny';
            r.reasons := '[{"code": "rejected_by_a_person", "detail": "a person said no in this run, and an agent does not ask twice"}]';
            r.closed_detail := 'rejected_by_a_person';
        END IF;
        r.state := CASE r.verdict WHEN 'deny' THEN 'CLOSED' ELSE 'PENDING' END;
        r.closed := CASE r.verdict WHEN 'deny' THEN 'denied' END;
        RETURN NEXT r;
    END LOOP;
END $$;

-- Operations, their verdicts and gates in one transaction; a key that somebody else took meanwhile is left alone.
CREATE FUNCTION propose(p_run text, p_token bigint, p_rows jsonb) RETURNS TABLE (key text, operation_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM check_lease(p_run, p_token);
    RETURN QUERY
    WITH rows AS MATERIALIZED (
        SELECT * FROM proposed_rows(p_run, p_rows) r
        WHERE NOT EXISTS (SELECT FROM operations l WHERE l.key = r.key AND l.state <> 'CLOSED')
    ), added AS (
        INSERT INTO operations AS o (
            key, revision, generation, purpose, step, subject, effect, tool, tool_version, run_id, plan, mandate_hash, agent,
            agent_version, intent, intent_hash, request, relied_on, action_hash, snapshot, requires, amount_minor, currency, receivers,
            reversibility, consequence, verdict, reasons, obligations, policy_engine, policy_revision, decision_id,
            state, closed, closed_detail)
        SELECT r.key, coalesce((SELECT max(p.revision) FROM operations p WHERE p.key = r.key), 0) + 1,
               coalesce((SELECT max(p.generation) FROM operations p WHERE p.key = r.key), 1),
               r.purpose, r.step, r.subject, r.effect, r.tool, r.tool_version, r.run_id, r.plan, r.mandate_hash, r.agent,
               r.agent_version, r.intent, r.intent_hash, r.request, r.relied_on, r.action_hash, r.snapshot, r.requires,
               r.amount_minor, r.currency, r.receivers, r.reversibility, r.consequence, r.verdict, r.reasons, r.obligations,
               r.policy_engine, r.policy_revision, r.decision_id, r.state, r.closed,
               CASE r.state WHEN 'CLOSED' THEN r.closed_detail END
        FROM rows r
        ON CONFLICT DO NOTHING
        RETURNING o.key, o.id, o.verdict
    ), gated AS (
        INSERT INTO gates (operation_id, kind, until, detail)
        SELECT a.id, 'policy', clock_timestamp(), coalesce(r.closed_detail, '') FROM added a JOIN rows r ON r.key = a.key
        WHERE a.verdict IS NULL ON CONFLICT DO NOTHING
    )
    SELECT a.key, a.id FROM added a;
    PERFORM keep_questions(p_run, p_rows);
END $$;

CREATE FUNCTION resolve_proposals(p_run text, p_token bigint, p_rows jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE proposals p SET outcome = r.outcome, code = r.code, operation_id = r.operation_id
    FROM jsonb_to_recordset(p_rows) r (plan integer, call integer, subject text, outcome text, code text, operation_id bigint)
    WHERE p.run_id = p_run AND p.plan = r.plan AND p.call = r.call AND p.subject = r.subject AND p.outcome IS NULL;
END $$;

-- Everything that changes several operations locks them in order of id, so that no two such calls wait for each other.
CREATE FUNCTION lock_pending(p_run text, p_token bigint, p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    PERFORM FROM operations WHERE id = ANY (p_ids) AND run_id = p_run AND state = 'PENDING' ORDER BY id FOR UPDATE;
END $$;

-- A verdict given later (policy had no answer, or its revision changed). A deny closes; what was granted stays granted
-- where the action's hash is the same, which it is, since a revision never changes, and where it is enough by now.
CREATE FUNCTION judge(p_run text, p_token bigint, p_rows jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM lock_pending(p_run, p_token, ARRAY(SELECT r.id FROM jsonb_to_recordset(p_rows) r (id bigint)));
    UPDATE operations o SET verdict = r.verdict, reasons = r.reasons, obligations = r.obligations, policy_engine = r.policy_engine,
           policy_revision = r.policy_revision, decision_id = r.decision_id, version = o.version + 1,
           state = CASE WHEN r.verdict = 'deny' THEN 'CLOSED' ELSE o.state END,
           closed = CASE WHEN r.verdict = 'deny' THEN 'denied' END,
           closed_detail = CASE WHEN r.verdict = 'deny' THEN r.closed_detail END
    FROM jsonb_to_recordset(p_rows) r (id bigint, verdict text, reasons jsonb, obligations jsonb, policy_engine text,
                                       policy_revision text, decision_id text, closed_detail text)
    WHERE o.id = r.id AND o.run_id = p_run AND o.state = 'PENDING';
    DELETE FROM gates g USING jsonb_to_recordset(p_rows) r (id bigint), operations o
    WHERE o.id = r.id AND o.run_id = p_run AND g.operation_id = o.id AND o.verdict IS NOT NULL
      -- Which limits hold is part of the verdict: the next claim compares with those.
      AND g.kind IN ('policy', 'limit');
    PERFORM keep_questions(p_run, p_rows);
    PERFORM fit_approvals(ARRAY(SELECT r.id FROM jsonb_to_recordset(p_rows) r (id bigint)));
    PERFORM cancel_empty_approvals();
END $$;

CREATE FUNCTION close_pending(p_run text, p_token bigint, p_ids bigint[], p_closed text, p_detail text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE closed_now bigint;
BEGIN
    PERFORM lock_pending(p_run, p_token, p_ids);
    UPDATE operations SET state = 'CLOSED', closed = p_closed, closed_detail = p_detail, version = version + 1
    WHERE id = ANY (p_ids) AND run_id = p_run AND state = 'PENDING';
    GET DIAGNOSTICS closed_now = ROW_COUNT;
    PERFORM cancel_empty_approvals();
    RETURN closed_now;
END $$;

-- What was closed because its premises changed is open again as a proposal, whoever closed it (the graph before a claim,
-- a 412 at the receiver) and whether or not that process still lives. Not more than p_most times for one key in a run.
CREATE FUNCTION reopen_stale(p_run text, p_token bigint, p_most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE reopened bigint;
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE proposals p SET outcome = NULL, code = NULL, operation_id = NULL
    FROM operations o
    WHERE o.id = p.operation_id AND p.run_id = p_run AND o.run_id = p_run AND o.closed = 'stale'
      AND NOT EXISTS (SELECT FROM operations l WHERE l.key = o.key AND l.revision > o.revision)
      AND (SELECT count(*) FROM operations s WHERE s.key = o.key AND s.run_id = p_run AND s.closed = 'stale') < p_most;
    GET DIAGNOSTICS reopened = ROW_COUNT;
    RETURN reopened;
END $$;

-- No answer from policy: the gate stays, with when to ask again. Counted apart from denials.
CREATE FUNCTION policy_silent(p_run text, p_token bigint, p_ids bigint[], p_detail text, p_seconds double precision) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM lock_pending(p_run, p_token, p_ids);
    UPDATE operations SET verdict = NULL, version = version + 1
    WHERE id = ANY (p_ids) AND run_id = p_run AND state = 'PENDING' AND verdict IS NOT NULL;
    INSERT INTO gates AS g (operation_id, kind, until, detail)
    SELECT o.id, 'policy', clock_timestamp() + make_interval(secs => p_seconds), p_detail
    FROM operations o WHERE o.id = ANY (p_ids) AND o.run_id = p_run AND o.state = 'PENDING'
    ON CONFLICT (operation_id, kind) DO UPDATE SET until = excluded.until, detail = excluded.detail;
END $$;

-- What has to be read before these are sent gave no answer, and closed no door that keeps them back: tried again after a while.
CREATE FUNCTION put_off(p_run text, p_token bigint, p_ids bigint[], p_detail text, p_seconds double precision) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO gates AS g (operation_id, kind, until, detail)
    SELECT o.id, 'backoff', clock_timestamp() + make_interval(secs => p_seconds), p_detail
    FROM operations o WHERE o.id = ANY (p_ids) AND o.run_id = p_run AND o.state IN ('PENDING', 'UNKNOWN') AND NOT door_shut(o.receivers)
    ON CONFLICT (operation_id, kind) DO UPDATE SET until = excluded.until, detail = excluded.detail;
END $$;

-- A person said "carry on now": pauses that only time would end are ended. Limits, holds and approvals are not.
CREATE FUNCTION clear_gates(p_run text, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE gates g SET until = clock_timestamp() FROM operations o
    WHERE o.id = g.operation_id AND o.run_id = p_run AND g.kind IN ('policy', 'backoff') AND g.until > clock_timestamp();
    PERFORM probe_now();
END $$;
