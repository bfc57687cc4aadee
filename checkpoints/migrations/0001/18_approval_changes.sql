-- What becomes of an approval after it was asked or granted: it is taken back, outgrown, edited, or goes to others; and
-- the chain, in which nobody approves. A grant that does not stand any more is void, and its action is asked about anew.

-- A person's own version of an action that waited for approval. The action is closed and judged anew as another one.
CREATE TABLE edits (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL UNIQUE REFERENCES operations,
    run_id text NOT NULL REFERENCES runs,
    key text NOT NULL,
    person text NOT NULL,
    natural_person text NOT NULL,
    token_id text NOT NULL REFERENCES tokens,
    intent jsonb NOT NULL,
    rationale text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX edits_key ON edits (key);
CREATE TRIGGER edits_journal_insert AFTER INSERT ON edits REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- Who stands in the chain of an approval, as natural persons: grantor, owner, requester, agent and whoever edited one of its
-- actions; everybody who has a token from one of them, through however many hands; and everybody from whom they have
-- their own. Nobody of these decides, at any amount.
CREATE FUNCTION in_chain_of(p_run text, p_mandate text, p_operations bigint[], p_natural_person text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH RECURSIVE named AS (
        SELECT unnest(ARRAY[m.grantor, r.owner, r.requester, r.agent]) AS person
        FROM runs r, mandates m WHERE r.id = p_run AND m.hash = p_mandate
        UNION
        SELECT e.person FROM operations o JOIN edits e ON e.key = o.key WHERE o.id = ANY (p_operations)
    ), core AS (
        SELECT person AS natural_person FROM named
        UNION
        SELECT t.natural_person FROM named n JOIN tokens t ON t.person = n.person
    ), made AS (
        SELECT natural_person FROM core
        UNION
        SELECT t.natural_person FROM made m JOIN tokens b ON b.natural_person = m.natural_person JOIN tokens t ON t.minted_by = b.person
    ), makers AS (
        SELECT natural_person FROM core
        UNION
        SELECT b.natural_person FROM makers m JOIN tokens t ON t.natural_person = m.natural_person JOIN tokens b ON b.person = t.minted_by
    )
    SELECT p_natural_person IN (SELECT natural_person FROM made UNION SELECT natural_person FROM makers)
$$;

CREATE FUNCTION in_chain(p_approval text, p_natural_person text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT in_chain_of(a.run_id, a.mandate_hash, ARRAY(SELECT i.operation_id FROM approval_items i WHERE i.approval_id = a.id), p_natural_person)
    FROM approvals a WHERE a.id = p_approval
$$;

-- Nobody decided in time, and policy names others: they are asked about what is still undecided, once.
CREATE FUNCTION escalate(a approvals) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE left_over bigint[] := chosen_actions(a.id, NULL); seconds double precision := a.on_expiry ->> 'decide_within';
BEGIN
    UPDATE approvals SET status = 'ESCALATED', closed_at = clock_timestamp() WHERE id = a.id;
    INSERT INTO approvals (id, run_id, mandate_hash, set_hash, roles, quorum, quorum_of, terms, escalated_from, decide_by, remind_at, execute_within)
    SELECT a.id || 'x', a.run_id, a.mandate_hash, set_hash(array_agg(o.action_hash)),
           ARRAY(SELECT jsonb_array_elements_text(a.on_expiry -> 'approvers')), greatest((a.on_expiry ->> 'quorum')::integer, 1), '{}',
           a.terms, a.id, clock() + make_interval(secs => seconds), clock() + make_interval(secs => seconds * 0.9), a.execute_within
    FROM operations o WHERE o.id = ANY (left_over);
    INSERT INTO approval_items (approval_id, operation_id, action_hash)
    SELECT a.id || 'x', o.id, o.action_hash FROM operations o WHERE o.id = ANY (left_over);
END $$;

-- Takes these voices back where nothing is sent yet, and voids what they had granted. The callers hold the operations.
CREATE FUNCTION void_votes(p_votes bigint[], p_why text) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE done bigint[];
BEGIN
    WITH gone AS (
        UPDATE votes v SET taken_back_at = clock_timestamp(), taken_back_why = p_why FROM operations o
        WHERE v.id = ANY (p_votes) AND o.id = v.operation_id AND o.state = 'PENDING' AND v.taken_back_at IS NULL
        RETURNING v.approval_id, v.operation_id
    ), voided AS (
        UPDATE approval_items i SET decision = 'voided', voided_why = p_why FROM gone g
        WHERE i.approval_id = g.approval_id AND i.operation_id = g.operation_id AND i.decision = 'granted')
    SELECT coalesce(array_agg(DISTINCT g.operation_id), '{}') INTO done FROM gone g;
    PERFORM cancel_empty_approvals();
    RETURN done;
END $$;

-- A person takes the own grant back. Whoever is first, this or a claim, has the row, and the other is told the truth.
CREATE FUNCTION unapprove(p_secret text, p_approval text, p_only bigint[], p_rationale text)
RETURNS TABLE (operation_id bigint, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); own bigint[]; done bigint[];
BEGIN
    PERFORM FROM operations WHERE id IN (SELECT i.operation_id FROM approval_items i WHERE i.approval_id = p_approval)
    ORDER BY id FOR UPDATE;
    PERFORM FROM approvals WHERE id = p_approval FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no such approval. See `remit inbox`.' USING ERRCODE = 'RM012';
    END IF;
    own := ARRAY(SELECT v.id FROM votes v WHERE v.approval_id = p_approval AND v.natural_person = actor.natural_person
                 AND v.decision = 'granted' AND v.taken_back_at IS NULL AND (p_only IS NULL OR v.operation_id = ANY (p_only)));
    IF cardinality(own) = 0 THEN
        RAISE EXCEPTION 'There is no grant of % here that could be taken back. See `remit inbox %`.', actor.person, p_approval
            USING ERRCODE = 'RM012';
    END IF;
    done := void_votes(own, 'taken back by ' || actor.person || coalesce(': ' || nullif(p_rationale, ''), ''));
    RETURN QUERY SELECT o.id, CASE WHEN o.id = ANY (done) THEN 'taken back' ELSE 'too late: ' || lower(o.state) END
                 FROM operations o JOIN votes v ON v.operation_id = o.id WHERE v.id = ANY (own) ORDER BY o.id;
END $$;

-- What a revoked token granted and nobody has begun to send. Its rejections stay, since what is closed is final.
CREATE FUNCTION void_grants_of(p_token text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE given bigint[];
BEGIN
    PERFORM FROM operations WHERE state = 'PENDING' AND id IN (
        SELECT v.operation_id FROM votes v WHERE v.token_id = p_token AND v.decision = 'granted' AND v.taken_back_at IS NULL)
    ORDER BY id FOR UPDATE;
    given := ARRAY(SELECT v.id FROM votes v WHERE v.token_id = p_token AND v.decision = 'granted' AND v.taken_back_at IS NULL);
    RETURN cardinality(void_votes(given, 'the token ' || p_token || ' was revoked'));
END $$;

-- A newer verdict asks other people, or for less time: the stricter of then and now holds. Grants that are not enough by
-- now are void, and requests to people who are not the right ones any more as well; both are asked anew.
CREATE FUNCTION fit_approvals(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    UPDATE approval_items i SET decision = 'voided', voided_why = 'policy asks others, or more of them, by now'
    FROM approvals a, operations o
    WHERE a.id = i.approval_id AND o.id = i.operation_id AND o.id = ANY (p_ids) AND o.state = 'PENDING'
      AND o.verdict = 'needs_approval' AND i.action_hash = o.action_hash AND a.terms <> terms(o.obligations)
      AND ((i.decision IS NULL AND a.status = 'OPEN') OR (i.decision = 'granted' AND NOT quorum_met(
            i, ARRAY(SELECT jsonb_array_elements_text(o.obligations -> 'approvers')), (o.obligations ->> 'quorum')::integer,
            coalesce(o.obligations -> 'quorum_of', '{}'))));
    UPDATE approval_items i SET execute_by = least(i.execute_by, i.execute_by - a.execute_within
                                + make_interval(secs => (o.obligations ->> 'execute_within')::double precision))
    FROM approvals a, operations o
    WHERE a.id = i.approval_id AND o.id = i.operation_id AND o.id = ANY (p_ids) AND o.state = 'PENDING'
      AND o.verdict = 'needs_approval' AND i.action_hash = o.action_hash AND i.decision = 'granted'
      AND a.execute_within > make_interval(secs => (o.obligations ->> 'execute_within')::double precision);
END $$;

-- Why this person may not put this intent in an operation's place, or NULL. What may differ are the values of the fields
-- that the mandate's step names, and nothing else, whatever the asking process believes.
CREATE FUNCTION refusal_to_edit(actor tokens, o operations, p_intent jsonb) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE varying jsonb := (SELECT s -> 'fields' FROM mandates m, jsonb_array_elements(m.document -> 'steps') s
                          WHERE m.hash = o.mandate_hash AND s ->> 'name' = o.step);
BEGIN
    RETURN CASE
        WHEN o.id IS NULL THEN 'no_such_operation'
        WHEN o.state <> 'PENDING' OR NOT EXISTS (
            SELECT FROM approval_items i JOIN approvals a ON a.id = i.approval_id
            WHERE i.operation_id = o.id AND i.decision IS NULL AND a.status = 'OPEN' AND a.decide_by > clock()) THEN 'not_asked'
        WHEN actor.role = 'administrator' OR NOT EXISTS (
            SELECT FROM approval_items i JOIN approvals a ON a.id = i.approval_id
            WHERE i.operation_id = o.id AND a.status = 'OPEN' AND actor.role = ANY (a.roles)) THEN 'wrong_role'
        WHEN p_intent IS NULL OR p_intent - 'fields' <> o.intent - 'fields'
             OR jsonb_typeof(p_intent -> 'fields') IS DISTINCT FROM jsonb_typeof(o.intent -> 'fields')
             OR EXISTS (SELECT FROM jsonb_object_keys(coalesce(p_intent -> 'fields', '{}')) f WHERE NOT coalesce(varying ? f, false))
            THEN 'not_editable'
        WHEN p_intent = o.intent THEN 'same'
    END;
END $$;

-- The action is closed, and the person's version of it is an open proposal of the same run: policy judges it afresh,
-- over a fresh snapshot, and who edited stands in the chain of whatever is asked about it. Returns 'edited' or a code.
CREATE FUNCTION edit(p_secret text, p_operation bigint, p_version integer, p_intent jsonb, p_rationale text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); o operations; refused text;
BEGIN
    SELECT * INTO o FROM operations WHERE id = p_operation FOR UPDATE;
    refused := CASE WHEN o.version <> p_version THEN 'changed_meanwhile' ELSE refusal_to_edit(actor, o, p_intent) END;
    IF refused IS NOT NULL THEN
        RETURN refused;
    END IF;
    INSERT INTO edits (operation_id, run_id, key, person, natural_person, token_id, intent, rationale)
    VALUES (o.id, o.run_id, o.key, actor.person, actor.natural_person, actor.id, p_intent, coalesce(p_rationale, ''));
    UPDATE operations SET state = 'CLOSED', closed = 'superseded', version = version + 1, closed_detail = 'edited by ' || actor.person
    WHERE id = o.id;
    UPDATE proposals SET intent = p_intent, outcome = NULL, code = NULL, operation_id = NULL
    WHERE run_id = o.run_id AND operation_id = o.id AND outcome = 'operation';
    PERFORM cancel_empty_approvals();
    RETURN 'edited';
END $$;

GRANT SELECT ON edits TO remit_app;
GRANT EXECUTE ON FUNCTION unapprove, edit, asked_about, may_ask, most_open_approvals TO remit_app;
