-- Delay windows: keep back, send now, move. Each is one atomic step against the claim: whoever has the row first wins,
-- and the other is told what really happened (F50). Every try is kept, with whose word it was.

-- `outcome`: kept_back | released | rescheduled; being_sent | sent | not_known | closed (too late, as it stands);
-- no_window | stop | mandate | not_begun | past | beyond_mandate | beyond_approval | in_the_chain | wrong_role (refused).
-- `leaves` is company time: when it may leave from now on, or the moment that stands against what was wanted; `planned`
-- is when it was to leave until then. `detail` 'earliest': its window has not begun, and ends no earlier than that.
CREATE TABLE hold_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL REFERENCES operations,
    run_id text NOT NULL REFERENCES runs,
    verb text NOT NULL CHECK (verb IN ('cancel', 'release', 'reschedule')),
    outcome text NOT NULL,
    detail text,
    planned timestamptz,
    leaves timestamptz,
    person text NOT NULL,
    token_id text NOT NULL REFERENCES tokens,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX hold_changes_operation ON hold_changes (operation_id, id);
CREATE TRIGGER hold_changes_journal_insert AFTER INSERT ON hold_changes REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- What a person asked for while the window had not begun, or NULL.
CREATE FUNCTION not_before(p_operation bigint) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT leaves FROM hold_changes WHERE operation_id = p_operation AND outcome = 'rescheduled' ORDER BY id DESC LIMIT 1
$$;

CREATE TYPE hold_decision AS (outcome text, leaves timestamptz, detail text);

-- Where it stands when it does not wait any more, or NULL. "Being sent" only while its sender may still report.
CREATE FUNCTION too_late(o operations) RETURNS hold_decision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN o.state = 'CLOSED' THEN ROW('closed', NULL, o.closed || coalesce(': ' || o.closed_detail, ''))::hold_decision
        WHEN s.shown_fact = 'UNKNOWN' THEN ROW('not_known', NULL, NULL)::hold_decision
        WHEN o.state = 'SENDING' THEN ROW('being_sent', NULL, NULL)::hold_decision
        WHEN o.state <> 'PENDING' THEN ROW('sent', NULL, lower(o.state))::hold_decision END
    FROM standing s WHERE s.id = o.id
$$;

-- Why nobody may change when it leaves, or NULL.
CREATE FUNCTION window_refusal(o operations) RETURNS hold_decision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN coalesce((o.obligations ->> 'hold_seconds')::integer, 0) = 0 THEN ROW('no_window', NULL, NULL)::hold_decision
        -- A stop closes what waits; a freeze keeps it, and its window as well.
        WHEN (order_over(o)).kind <> 'freeze' THEN ROW('stop', NULL, (order_over(o)).id::text)::hold_decision
        WHEN NOT mandate_live(o.mandate_hash) THEN ROW('mandate', NULL, NULL)::hold_decision END
$$;

-- Why this person may not have it leave earlier than it would, or NULL: whom policy's data names, outside the chain.
CREATE FUNCTION release_refusal(o operations, p_token tokens) RETURNS hold_decision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN in_chain_of(o.run_id, o.mandate_hash, ARRAY[o.id], p_token.natural_person) THEN ROW('in_the_chain', NULL, NULL)::hold_decision
        WHEN NOT coalesce(o.obligations -> 'release_by', '[]') ? p_token.role
            THEN ROW('wrong_role', NULL, (SELECT string_agg(role, ' or ') FROM jsonb_array_elements_text(o.obligations -> 'release_by') role))::hold_decision
    END
$$;

-- The moment from which it could not be sent any more, when `p_leaves` is not before it. An approval that is not given
-- yet will allow at least as much time as one given now.
CREATE FUNCTION reach_refusal(o operations, p_leaves timestamptz) RETURNS hold_decision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN p_leaves >= m.valid_until THEN ROW('beyond_mandate', m.valid_until, NULL)::hold_decision
        WHEN o.verdict = 'needs_approval' AND p_leaves >= g.moment THEN ROW('beyond_approval', g.moment, NULL)::hold_decision END
    FROM mandates m, LATERAL (SELECT coalesce(granted_until(o.id, o.action_hash),
        clock() + make_interval(secs => (o.obligations ->> 'execute_within')::double precision)) AS moment) g
    WHERE m.hash = o.mandate_hash
$$;

-- Later always, earlier only for whom policy names; never into the past, and never beyond what may still be sent.
CREATE FUNCTION decide_move(o operations, p_token tokens, p_to timestamptz, p_by interval) RETURNS hold_decision
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE
    standing_at timestamptz := coalesce(o.hold_until, not_before(o.id));
    base timestamptz := CASE WHEN p_by > '0' THEN greatest(standing_at, clock()) ELSE standing_at END;
    target timestamptz := CASE WHEN standing_at IS NULL THEN p_to ELSE coalesce(p_to, base + p_by) END;
    refusal hold_decision;
BEGIN
    IF target IS NULL THEN
        RETURN ROW('not_begun', NULL, NULL)::hold_decision;
    ELSIF target <= clock() THEN
        RETURN ROW('past', target, NULL)::hold_decision;
    END IF;
    refusal := reach_refusal(o, target);
    IF refusal.outcome IS NULL AND target < standing_at THEN
        refusal := release_refusal(o, p_token);
    END IF;
    IF refusal.outcome IS NOT NULL THEN
        RETURN refusal;
    END IF;
    RETURN ROW('rescheduled', target, CASE WHEN o.hold_until IS NULL THEN 'earliest' END)::hold_decision;
END $$;

CREATE FUNCTION decide_hold(o operations, p_token tokens, p_verb text, p_to timestamptz, p_by interval) RETURNS hold_decision
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE refusal hold_decision := too_late(o);
BEGIN
    IF refusal.outcome IS NOT NULL THEN
        RETURN refusal;
    ELSIF p_verb = 'cancel' THEN
        RETURN ROW('kept_back', NULL, NULL)::hold_decision;
    END IF;
    refusal := window_refusal(o);
    IF refusal.outcome IS NOT NULL THEN
        RETURN refusal;
    ELSIF p_verb = 'reschedule' THEN
        RETURN decide_move(o, p_token, p_to, p_by);
    END IF;
    refusal := release_refusal(o, p_token);
    IF refusal.outcome IS NOT NULL THEN
        RETURN refusal;
    END IF;
    RETURN ROW('released', clock(), nullif(nullif(obstacle(o), 'hold'), 'ready'))::hold_decision;
END $$;

-- One step for all three. The rows are locked first, so that the later statement sees what a claim that was first has
-- committed, and a claim that comes second passes them by.
CREATE FUNCTION change_holds(p_token tokens, p_ids bigint[], p_verb text, p_to timestamptz, p_by interval) RETURNS SETOF hold_changes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM FROM operations WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT o.id, o.run_id, o.keep_back, o.hold_until, d.outcome, d.leaves, d.detail
        FROM operations o, LATERAL decide_hold(o, p_token, p_verb, p_to, p_by) d WHERE o.id = ANY (p_ids)
    ), changed AS (
        UPDATE operations o SET version = version + 1,
               state = CASE a.outcome WHEN 'kept_back' THEN 'CLOSED' ELSE o.state END,
               closed = CASE a.outcome WHEN 'kept_back' THEN 'cancelled' END,
               closed_detail = CASE a.outcome WHEN 'kept_back' THEN 'kept back by ' || p_token.person END,
               keep_back = o.keep_back OR a.outcome IN ('being_sent', 'not_known'),
               hold_until = CASE WHEN a.outcome = 'released' OR (a.outcome = 'rescheduled' AND o.hold_until IS NOT NULL)
                                 THEN a.leaves ELSE o.hold_until END
        FROM asked a
        WHERE o.id = a.id AND (a.outcome IN ('kept_back', 'released', 'rescheduled')
                               OR (p_verb = 'cancel' AND a.outcome IN ('being_sent', 'not_known') AND NOT a.keep_back))
    )
    INSERT INTO hold_changes (operation_id, run_id, verb, outcome, detail, planned, leaves, person, token_id)
    SELECT a.id, a.run_id, p_verb, a.outcome, a.detail, a.hold_until, a.leaves, p_token.person, p_token.id FROM asked a ORDER BY a.id
    RETURNING *;
END $$;

-- Keeps waiting operations back for good. What is with a sender already is told so, followed, and never sent again; where
-- it proves not to have been sent, it is closed. Anybody with a token may.
CREATE FUNCTION cancel_holds(p_secret text, p_ids bigint[]) RETURNS SETOF hold_changes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM change_holds(token_of(p_secret), p_ids, 'cancel', NULL, NULL);
    PERFORM cancel_empty_approvals();
END $$;

CREATE FUNCTION release_holds(p_secret text, p_ids bigint[]) RETURNS SETOF hold_changes
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT * FROM change_holds(token_of(p_secret), p_ids, 'release', NULL, NULL)
$$;

-- Either `p_to`, a moment of company time, or `p_by`, seconds from when it would leave.
CREATE FUNCTION reschedule_holds(p_secret text, p_ids bigint[], p_to timestamptz, p_by double precision) RETURNS SETOF hold_changes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF (p_to IS NULL) = (p_by IS NULL) THEN
        RAISE EXCEPTION 'A window is moved either to a moment or by a time, so nothing was moved. Give one of --to and --by.'
            USING ERRCODE = 'RM012';
    END IF;
    RETURN QUERY SELECT * FROM change_holds(token_of(p_secret), p_ids, 'reschedule', p_to, make_interval(secs => p_by));
END $$;

GRANT SELECT ON hold_changes TO remit_app;
GRANT EXECUTE ON FUNCTION cancel_holds, release_holds, reschedule_holds TO remit_app;
