-- Asking and deciding. An approval is about one exact set of actions; each action is decided and bound by its hash (I3).

-- The one place where a set's hash is computed: over the sorted action hashes of the set.
CREATE FUNCTION set_hash(p_hashes text[]) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'v1:' || encode(sha256(convert_to(string_agg(h, E'\n' ORDER BY h COLLATE "C"), 'UTF8')), 'hex') FROM unnest(p_hashes) h
$$;

-- How many requests of one mandate may wait for people at once. An approval covers a whole set, so a campaign needs one
-- or two; an agent that asks piece by piece gets no further than this, and the rest waits until these are decided.
CREATE FUNCTION most_open_approvals() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT 10 $$;

CREATE FUNCTION may_ask(p_mandate text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT count(*) < remit.most_open_approvals() FROM remit.approvals WHERE mandate_hash = p_mandate AND status = 'OPEN'
$$;

-- Whether somebody is asked, or has answered, about exactly this action.
CREATE FUNCTION asked_about(p_operation bigint, p_action_hash text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM remit.approval_items i JOIN remit.approvals a ON a.id = i.approval_id
                   WHERE i.operation_id = p_operation AND i.action_hash = p_action_hash
                     AND (i.decision IN ('granted', 'rejected') OR (i.decision IS NULL AND a.status = 'OPEN')))
$$;

-- Whom policy asks, in one form, so that what was asked can be compared with what it would ask now.
CREATE FUNCTION terms(p_obligations jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('approvers', p_obligations -> 'approvers', 'quorum', p_obligations -> 'quorum',
                              'quorum_of', coalesce(p_obligations -> 'quorum_of', '{}'))
$$;

-- Asks once for each group of approvers about everything of the run that needs a person and was not asked yet.
CREATE FUNCTION ask_approvals(p_run text, p_token bigint, p_new_id text) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE asked record; number integer := 0; new_id text;
BEGIN
    PERFORM check_lease(p_run, p_token);
    -- Two runs of one mandate that ask at once would each find room for the last request.
    PERFORM FROM mandates m JOIN runs r ON r.mandate_hash = m.hash WHERE r.id = p_run FOR NO KEY UPDATE OF m;
    FOR asked IN
        SELECT o.mandate_hash, terms(o.obligations) AS terms, nullif(o.obligations -> 'on_expiry', 'null') AS on_expiry,
               (o.obligations ->> 'decide_within')::double precision AS decide_within,
               (o.obligations ->> 'execute_within')::double precision AS execute_within,
               array_agg(o.id ORDER BY o.id) AS ids, array_agg(o.action_hash) AS hashes
        FROM operations o
        WHERE o.run_id = p_run AND o.state = 'PENDING' AND o.verdict = 'needs_approval' AND NOT asked_about(o.id, o.action_hash)
        GROUP BY 1, 2, 3, 4, 5 ORDER BY min(o.id)
    LOOP
        EXIT WHEN NOT may_ask(asked.mandate_hash);
        number := number + 1;
        new_id := p_new_id || CASE WHEN number = 1 THEN '' ELSE number::text END;
        INSERT INTO approvals (id, run_id, mandate_hash, set_hash, roles, quorum, quorum_of, terms, on_expiry, decide_by, remind_at, execute_within)
        VALUES (new_id, p_run, asked.mandate_hash, set_hash(asked.hashes),
                ARRAY(SELECT jsonb_array_elements_text(asked.terms -> 'approvers')), greatest((asked.terms ->> 'quorum')::integer, 1),
                asked.terms -> 'quorum_of', asked.terms, asked.on_expiry,
                clock() + make_interval(secs => asked.decide_within), clock() + make_interval(secs => asked.decide_within * 0.9), make_interval(secs => asked.execute_within));
        INSERT INTO approval_items (approval_id, operation_id, action_hash)
        SELECT new_id, o.id, o.action_hash FROM operations o WHERE o.id = ANY (asked.ids);
        RETURN NEXT new_id;
    END LOOP;
END $$;

-- Why this token may not decide this approval now, or NULL. Codes are stable; the console has a sentence for each.
CREATE FUNCTION refusal_to_decide(p_token tokens, p_approval text, p_set_hash text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE a approvals;
BEGIN
    SELECT * INTO a FROM approvals WHERE id = p_approval;
    RETURN CASE
        WHEN token_refusal(p_token) IS NOT NULL THEN token_refusal(p_token)
        WHEN a.id IS NULL THEN 'no_such_approval'
        WHEN in_chain(p_approval, p_token.natural_person) THEN 'in_the_chain'
        -- Who makes identities would otherwise be any of them.
        WHEN p_token.role = 'administrator' THEN 'administrator'
        WHEN p_token.role <> ALL (a.roles) THEN 'wrong_role'
        WHEN a.status = 'EXPIRED' OR (a.status = 'OPEN' AND a.decide_by <= clock()) THEN 'too_late'
        WHEN a.status = 'ESCALATED' THEN 'escalated'
        WHEN a.status = 'CANCELLED' THEN 'cancelled'
        WHEN a.status = 'DECIDED' THEN 'already_decided'
        WHEN a.set_hash IS DISTINCT FROM p_set_hash THEN 'other_set'
        WHEN a.set_hash IS DISTINCT FROM (
            SELECT set_hash(array_agg(o.action_hash)) FROM approval_items i JOIN operations o ON o.id = i.operation_id
            WHERE i.approval_id = a.id) THEN 'other_set'
    END;
END $$;

-- What a decision would be about: all that is still undecided, or those of it that were named. An array of NULL
-- means that something named is not part of the approval.
CREATE FUNCTION chosen_actions(p_approval text, p_only bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN p_only IS NOT NULL AND NOT p_only <@ array_agg(i.operation_id) THEN ARRAY[NULL::bigint]
                ELSE coalesce(array_agg(i.operation_id) FILTER (WHERE i.decision IS NULL AND o.state = 'PENDING'
                                                                AND (p_only IS NULL OR i.operation_id = ANY (p_only))), '{}') END
    FROM approval_items i JOIN operations o ON o.id = i.operation_id WHERE i.approval_id = p_approval
$$;

-- Decides the whole set, or only the operations named. Returns 'granted' | 'rejected' | 'noted' (the quorum waits for
-- others), or the code of a refusal, which is kept as well. Deciding again what was decided is refused.
CREATE FUNCTION decide(p_secret text, p_approval text, p_set_hash text, p_decision text, p_only bigint[], p_rationale text)
RETURNS TABLE (outcome text, person text, decided bigint, undecided bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens; a approvals; chosen bigint[];
BEGIN
    IF p_decision IS NULL OR p_decision NOT IN ('granted', 'rejected') THEN
        RAISE EXCEPTION 'A decision is granted or rejected. Nothing was decided.' USING ERRCODE = 'RM012';
    END IF;
    -- Until the commit: a revocation waits for this decision and finds it, or this decision finds the revocation.
    PERFORM FROM tokens WHERE id = (token_behind(p_secret)).id FOR SHARE;
    actor := token_behind(p_secret);
    -- Operations before the approval, as everything that closes operations does: two of these cannot wait for each other.
    PERFORM FROM operations WHERE id IN (SELECT i.operation_id FROM approval_items i WHERE i.approval_id = p_approval)
    ORDER BY id FOR UPDATE;
    SELECT * INTO a FROM approvals WHERE id = p_approval FOR UPDATE;
    person := actor.person;
    chosen := chosen_actions(p_approval, p_only);
    outcome := coalesce(refusal_to_decide(actor, p_approval, p_set_hash), CASE
        WHEN array_position(chosen, NULL) IS NOT NULL THEN 'not_in_this_set'
        WHEN cardinality(chosen) = 0 THEN 'already_decided'
        WHEN EXISTS (SELECT FROM votes v WHERE v.approval_id = p_approval AND v.natural_person = actor.natural_person
                     AND v.taken_back_at IS NULL AND v.operation_id = ANY (chosen))
            THEN 'already_voted' END);
    IF outcome IS NULL THEN
        INSERT INTO votes (approval_id, operation_id, person, natural_person, role, token_id, decision, rationale)
        SELECT p_approval, id, actor.person, actor.natural_person, actor.role, actor.id, p_decision, coalesce(p_rationale, '') FROM unnest(chosen) id;
        decided := settle_votes(a, chosen, p_decision);
        outcome := CASE WHEN decided = 0 THEN 'noted' ELSE p_decision END;
    ELSE
        INSERT INTO refused_decisions (approval_id, run_id, person, token_id, code) VALUES (p_approval, a.run_id, actor.person, actor.id, outcome);
        decided := 0;
    END IF;
    undecided := cardinality(chosen_actions(p_approval, NULL));
    RETURN NEXT;
END $$;

-- Whether enough natural persons granted this action, each counted once and in the one role that it spoke in.
CREATE FUNCTION quorum_met(i approval_items, p_roles text[], p_quorum integer, p_quorum_of jsonb) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH voices AS (
        SELECT DISTINCT v.natural_person, v.role FROM votes v
        WHERE v.approval_id = i.approval_id AND v.operation_id = i.operation_id AND v.decision = 'granted' AND v.taken_back_at IS NULL
          AND v.role = ANY (p_roles))
    SELECT (SELECT count(*) FROM voices) >= p_quorum AND NOT EXISTS (
        SELECT FROM jsonb_each_text(p_quorum_of) q WHERE q.value::integer > (SELECT count(*) FROM voices s WHERE s.role = q.key))
$$;

CREATE FUNCTION settle_votes(a approvals, p_chosen bigint[], p_decision text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE settled bigint;
BEGIN
    UPDATE approval_items i SET decision = p_decision, decided_at = clock_timestamp(),
           execute_by = CASE WHEN p_decision = 'granted' THEN clock() + a.execute_within END
    WHERE i.approval_id = a.id AND i.operation_id = ANY (p_chosen)
      AND (p_decision = 'rejected' OR quorum_met(i, a.roles, a.quorum, a.quorum_of));
    GET DIAGNOSTICS settled = ROW_COUNT;
    IF p_decision = 'rejected' THEN
        UPDATE operations SET state = 'CLOSED', closed = 'rejected', version = version + 1, closed_detail = 'rejected by a person'
        WHERE id = ANY (p_chosen) AND state = 'PENDING';
    END IF;
    PERFORM cancel_empty_approvals();
    RETURN settled;
END $$;

-- No answer is never a yes: what nobody decided in time goes to others where policy names them and is closed elsewhere,
-- and so is what was granted but not begun in time.
CREATE FUNCTION expire_approvals() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE late approvals; expired bigint;
BEGIN
    PERFORM FROM operations WHERE id IN (
        SELECT i.operation_id FROM approval_items i JOIN approvals a ON a.id = i.approval_id WHERE a.status = 'OPEN' AND a.decide_by <= clock())
    ORDER BY id FOR UPDATE;
    FOR late IN SELECT * FROM approvals WHERE status = 'OPEN' AND decide_by <= clock() AND on_expiry IS NOT NULL ORDER BY id FOR UPDATE LOOP
        PERFORM escalate(late);
    END LOOP;
    UPDATE approvals SET status = 'EXPIRED', closed_at = clock_timestamp() WHERE status = 'OPEN' AND decide_by <= clock();
    UPDATE operations o SET state = 'CLOSED', closed = 'expired', version = version + 1,
           closed_detail = CASE WHEN i.decision IS NULL THEN 'nobody decided in time' ELSE 'approved, but not begun in time' END
    FROM approval_items i JOIN approvals a ON a.id = i.approval_id
    WHERE i.operation_id = o.id AND i.action_hash = o.action_hash AND o.state = 'PENDING' AND o.verdict = 'needs_approval'
      AND ((i.decision IS NULL AND a.status = 'EXPIRED') OR (i.decision = 'granted' AND i.execute_by <= clock()));
    GET DIAGNOSTICS expired = ROW_COUNT;
    RETURN expired;
END $$;

-- Until when a granted approval of exactly this action may still begin a send; resends reuse it, but not beyond.
CREATE FUNCTION granted_until(p_operation bigint, p_action_hash text) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT max(execute_by) FROM remit.approval_items
    WHERE operation_id = p_operation AND action_hash = p_action_hash AND decision = 'granted'
$$;
