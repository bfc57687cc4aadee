-- Cases as objects that people work on: who tried what on each, whether a replay is safe, and how one is closed. A case
-- moves no state: what a person establishes goes through the transition table, and what is replayed through a claim.

-- Every try, with whose word it was. `outcome`: resolved | released | proposed | closed, or the code of a refusal, which
-- `detail` explains: what stands against it, or who may.
CREATE TABLE case_acts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    case_id bigint NOT NULL REFERENCES cases,
    operation_id bigint REFERENCES operations,
    run_id text NOT NULL REFERENCES runs,
    verb text NOT NULL CHECK (verb IN ('resolve', 'replay', 'close')),
    outcome text NOT NULL,
    detail text,
    fact text CHECK (fact IN ('completed', 'no_effect')),
    evidence text,
    rationale text NOT NULL,
    eval text,
    no_eval text,
    person text NOT NULL,
    role text NOT NULL,
    token_id text NOT NULL REFERENCES tokens,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX case_acts_case ON case_acts (case_id, id);
CREATE TRIGGER case_acts_journal_insert AFTER INSERT ON case_acts REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- A case with its operation (all NULL for a run's own), both locked in the order of everything that changes operations.
CREATE FUNCTION case_with_operation(p_case bigint, OUT c cases, OUT o operations)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    SELECT * INTO o FROM operations WHERE id = (SELECT operation_id FROM cases WHERE id = p_case) FOR UPDATE;
    SELECT * INTO c FROM cases WHERE id = p_case FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no case %. See `remit cases`.', p_case USING ERRCODE = 'RM012';
    END IF;
END $$;

-- Whom policy asks about such an action; where its verdict asked nobody, a lead answers for it.
CREATE FUNCTION case_roles(o operations) RETURNS text[]
LANGUAGE sql IMMUTABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN jsonb_array_length(o.obligations -> 'approvers') > 0
                THEN ARRAY(SELECT jsonb_array_elements_text(o.obligations -> 'approvers')) ELSE ARRAY['finance_lead'] END
$$;

-- Why this person may not work on this case, or NULL.
CREATE FUNCTION case_refusal(c cases, o operations, p_token tokens) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN c.closed_at IS NOT NULL THEN 'closed_already'
        WHEN in_chain_of(r.id, coalesce(o.mandate_hash, r.mandate_hash), ARRAY[o.id], p_token.natural_person) THEN 'in_the_chain'
        WHEN p_token.role <> ALL (case_roles(o)) THEN 'wrong_role' END
    FROM runs r WHERE r.id = c.run_id
$$;

CREATE FUNCTION need_words(p_what text, p_text text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF coalesce(p_text, '') !~ '[[:alnum:]]' THEN
        RAISE EXCEPTION 'Nothing was changed: % is kept with the case and was not given. Say it in words.', p_what USING ERRCODE = 'RM012';
    END IF;
END $$;

-- One look at the system of record, taken for a case. The first fields are a settlement's; `to` and `resend` are what the
-- recovery table makes of it. `bound_over`: no request of ours can still become visible, as far as the contract bounds
-- that at all. `remembered`: the receiver enforces the key, and knows it still. `known`: the tool is in the catalogue.
CREATE TYPE case_look AS (
    operation_id bigint, version integer, attempt integer, sight text, source text, as_of text, complete boolean,
    read_began_at timestamptz, records jsonb, "to" text, resend boolean, "case" text, absence_counts boolean, bound_over boolean,
    remembered boolean, known boolean);

-- Keeps the look as evidence of the operation as it stands; 'changed_meanwhile' where that is another version by now.
CREATE FUNCTION keep_look(o operations, p_look case_look) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF o.id IS NULL THEN
        RETURN NULL;
    ELSIF (o.id, o.version) IS DISTINCT FROM (p_look.operation_id, p_look.version) THEN
        RETURN 'changed_meanwhile';
    END IF;
    PERFORM keep_evidence(o, jsonb_populate_record(NULL::settlement, to_jsonb(p_look) - '{to,resend,case}'::text[]));
    RETURN NULL;
END $$;

-- What the system of record says: at this look, or where it cannot be read, when it could be read last.
CREATE FUNCTION sight_now(o operations, p_look case_look) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN p_look.sight <> 'unreadable' THEN p_look.sight ELSE (
        SELECT e.sight FROM evidence e WHERE e.operation_id = o.id AND e.sight <> 'unreadable' ORDER BY e.id DESC LIMIT 1) END
$$;

-- Why this outcome cannot be established now, or NULL. Records that can be read outrank what anybody says of them.
CREATE FUNCTION resolve_refusal(o operations, p_fact text, p_look case_look) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN o.id IS NULL THEN 'no_operation'
        WHEN o.state <> 'UNKNOWN' THEN 'not_unknown'
        WHEN p_fact = 'no_effect' AND sight_now(o, p_look) IN ('pending', 'effective', 'different', 'multiple') THEN 'contradicted'
        WHEN p_fact = 'completed' AND (p_look.sight IN ('pending', 'withdrawn') OR (p_look.sight = 'absent' AND p_look.absence_counts))
            THEN 'contradicted'
        -- A request that is still on its way would land beside whatever is sent next.
        WHEN p_fact = 'no_effect' AND NOT p_look.bound_over THEN 'too_early' END
$$;

-- A person establishes an outcome that nothing else can: SETTLED, or CLOSED(by_person). The case stays open until it is
-- closed, and with it the gate before whatever follows.
CREATE FUNCTION resolve_case(p_secret text, p_case bigint, p_fact text, p_evidence text, p_rationale text, p_look jsonb)
RETURNS SETOF case_acts
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); f record; c cases; o operations; look case_look := jsonb_populate_record(NULL::case_look, p_look); refused text;
BEGIN
    PERFORM need_words('the evidence', p_evidence);
    PERFORM need_words('the reason', p_rationale);
    SELECT * INTO f FROM case_with_operation(p_case);
    c := f.c; o := f.o;
    refused := coalesce(case_refusal(c, o, actor), keep_look(o, look), resolve_refusal(o, p_fact, look));
    IF refused IS NULL THEN
        PERFORM establish(o, actor, p_case, p_fact, p_evidence);
    END IF;
    RETURN QUERY INSERT INTO case_acts (case_id, operation_id, run_id, verb, outcome, detail, fact, evidence, rationale, person, role, token_id)
        VALUES (p_case, o.id, c.run_id, 'resolve', coalesce(refused, 'resolved'), refusal_detail(c, o, refused, look), p_fact, p_evidence, p_rationale,
                actor.person, actor.role, actor.id) RETURNING *;
END $$;

CREATE FUNCTION establish(o operations, p_token tokens, p_case bigint, p_fact text, p_evidence text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE said text := p_token.person || ' (' || p_token.role || '), case ' || p_case;
BEGIN
    INSERT INTO evidence (operation_id, attempt, version, sight, source, as_of, complete, read_began_at, records)
    VALUES (o.id, o.attempts, o.version, CASE p_fact WHEN 'completed' THEN 'effective' ELSE 'absent' END, said, '', false, clock_timestamp(),
            jsonb_build_array(jsonb_build_object('evidence', p_evidence)));
    IF p_fact = 'completed' THEN
        PERFORM apply(o, 'SETTLED', NULL, NULL, false, interval '0');
        RETURN;
    END IF;
    UPDATE attempts SET no_effect = true WHERE operation_id = o.id;
    PERFORM apply(o, 'CLOSED', 'by_person', 'no effect, established by ' || said, false, interval '0');
    PERFORM release_reservations(ARRAY[o.id]);
END $$;

-- What stands against it, in words that a person can check.
CREATE FUNCTION refusal_detail(c cases, o operations, p_code text, p_look case_look) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE p_code
        WHEN 'wrong_role' THEN array_to_string(case_roles(o), ' or ')
        WHEN 'contradicted' THEN coalesce(sight_now(o, p_look), 'nothing') || ' in ' || p_look.source || coalesce(', as of ' || nullif(p_look.as_of, ''), '')
        WHEN 'not_unknown' THEN lower(o.state) || coalesce(': ' || o.closed, '')
        WHEN 'not_final' THEN lower(o.state)
        WHEN 'remedy_missing' THEN lower(o.state) || ' in the ledger, ' || coalesce(sight_now(o, p_look), 'nothing') || ' in ' || coalesce(p_look.source, 'no record')
        WHEN 'other_case' THEN (SELECT min(x.id)::text FROM cases x WHERE x.operation_id = o.id AND x.id <> c.id AND x.closed_at IS NULL AND x.released_at IS NULL) END
$$;

-- Every request that may have reached the receiver bore the wire key that the next one would bear.
CREATE FUNCTION one_wire_key(o operations) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM attempts a, installation i WHERE a.operation_id = o.id AND coalesce(a.seen, '') NOT IN ('not_begun', 'not_written')
                       AND a.wire_key <> wire_key(i.id, o.key, o.generation))
$$;

CREATE FUNCTION seen_once(o operations) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT EXISTS (SELECT FROM attempts a WHERE a.operation_id = o.id AND a.seen = 'accepted')
        OR EXISTS (SELECT FROM evidence e WHERE e.operation_id = o.id AND e.sight IN ('pending', 'effective', 'different', 'multiple'))
$$;

CREATE TYPE replay AS (way text, why text);

-- What would happen, from what the ledger holds and the look just taken. Ways: `resend` (the same wire key and bytes),
-- `send` (proved that nothing of it had an effect), `new_revision` (proposed again, with a new verdict, in its run),
-- `new_run` (the same, but its run has ended), `barred`.
CREATE FUNCTION replay_way(c cases, o operations, p_look case_look) RETURNS replay
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN c.closed_at IS NOT NULL THEN ROW('barred', 'closed_already')::replay
        WHEN o.id IS NULL THEN ROW('new_run', 'run_ended')::replay
        WHEN o.state IN ('SETTLED', 'ACCEPTED', 'SENDING') THEN ROW('barred', lower(o.state))::replay
        WHEN EXISTS (SELECT FROM cases x WHERE x.operation_id = o.id AND x.id <> c.id AND x.closed_at IS NULL AND x.released_at IS NULL)
            THEN ROW('barred', 'other_case')::replay
        WHEN o.state = 'CLOSED' THEN closed_way(o, p_look)
        WHEN NOT coalesce(p_look.known, false) THEN ROW('barred', 'no_contract')::replay
        WHEN (order_over(o)).id IS NOT NULL THEN ROW('barred', 'order')::replay
        WHEN NOT mandate_live(o.mandate_hash) THEN ROW('barred', 'mandate')::replay
        WHEN EXISTS (SELECT FROM runs r WHERE r.id = o.run_id AND r.ended_at IS NOT NULL) THEN ROW('barred', 'run_ended')::replay
        WHEN o.keep_back THEN ROW('barred', 'kept_back')::replay
        WHEN o.state = 'PENDING' THEN pending_way(o, p_look)
        ELSE unknown_way(c, o, p_look) END
$$;

-- Nothing can still arrive of what is closed; but what was seen since then is an effect, whatever is proposed beside it.
CREATE FUNCTION closed_way(o operations, p_look case_look) RETURNS replay
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN sight_now(o, p_look) IN ('pending', 'effective', 'different', 'multiple') THEN ROW('barred', 'seen')::replay
        WHEN o.closed <> 'by_person' AND seen_once(o) THEN ROW('barred', 'accepted_once')::replay
        WHEN EXISTS (SELECT FROM operations l WHERE l.key = o.key AND l.revision > o.revision) THEN ROW('barred', 'later_revision')::replay
        WHEN o.closed IN ('rejected', 'denied') THEN ROW('barred', o.closed)::replay
        WHEN EXISTS (SELECT FROM runs r WHERE r.id = o.run_id AND r.ended_at IS NOT NULL) THEN ROW('new_run', 'run_ended')::replay
        WHEN NOT EXISTS (SELECT FROM proposals p WHERE p.operation_id = o.id AND p.run_id = o.run_id AND p.outcome = 'operation')
            THEN ROW('barred', 'no_proposal')::replay
        ELSE ROW('new_revision', 'no_effect')::replay END
$$;

-- PENDING: every attempt was proved to be without effect. What shows all the same is answered by the receiver's memory
-- of the key, or not touched.
CREATE FUNCTION pending_way(o operations, p_look case_look) RETURNS replay
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN sight_now(o, p_look) IN ('different', 'multiple') THEN ROW('barred', 'seen')::replay
        WHEN NOT seen_once(o) AND coalesce(sight_now(o, p_look), 'absent') = 'absent' THEN ROW('send', 'proved_absent')::replay
        WHEN p_look.remembered AND one_wire_key(o) AND p_look.sight IN ('pending', 'effective') THEN ROW('resend', 'key_enforced')::replay
        WHEN p_look.sight IN ('pending', 'effective') THEN ROW('barred', 'seen')::replay
        ELSE ROW('barred', 'accepted_once')::replay END
$$;

-- UNKNOWN: what the recovery table says of this look, and never where the receiver once said accepted.
CREATE FUNCTION unknown_way(c cases, o operations, p_look case_look) RETURNS replay
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN p_look.sight IN ('pending', 'effective', 'different', 'multiple') THEN ROW('barred', 'seen')::replay
        WHEN p_look.sight = 'withdrawn' THEN ROW('barred', 'withdrawn')::replay
        WHEN seen_once(o) THEN ROW('barred', 'accepted_once')::replay
        WHEN c.code = 'key_reused' OR NOT one_wire_key(o) THEN ROW('barred', 'key_reused')::replay
        WHEN p_look."to" = 'PENDING' THEN ROW('send', 'proved_absent')::replay
        WHEN p_look.resend THEN ROW('resend', 'key_enforced')::replay
        WHEN p_look.sight = 'unreadable' THEN ROW('barred', 'unreadable')::replay
        ELSE ROW('barred', coalesce(p_look."case", 'too_early'))::replay END
$$;

-- Without a word of anybody, and without changing anything.
CREATE FUNCTION foresee_replay(p_case bigint, p_look jsonb) RETURNS replay
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT replay_way(c, o, jsonb_populate_record(NULL::case_look, p_look))
    FROM cases c LEFT JOIN operations o ON o.id = c.operation_id WHERE c.id = p_case
$$;

-- Opens this case's gate, so that the ordinary sweep and the run carry the operation on; it sends nothing itself.
CREATE FUNCTION replay_case(p_secret text, p_case bigint, p_rationale text, p_look jsonb) RETURNS SETOF case_acts
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); f record; c cases; o operations; look case_look := jsonb_populate_record(NULL::case_look, p_look);
        came text; found replay;
BEGIN
    PERFORM need_words('the reason', p_rationale);
    SELECT * INTO f FROM case_with_operation(p_case);
    c := f.c; o := f.o;
    came := coalesce(case_refusal(c, o, actor), keep_look(o, look));
    IF came IS NULL THEN
        found := replay_way(c, o, look);
        came := CASE found.way WHEN 'barred' THEN found.why WHEN 'new_run' THEN found.why WHEN 'new_revision' THEN 'proposed' ELSE 'released' END;
    END IF;
    IF came IN ('released', 'proposed') THEN
        UPDATE cases SET released_at = clock_timestamp() WHERE id = p_case;
        UPDATE operations SET due_at = clock_timestamp() WHERE id = o.id AND state = 'UNKNOWN';
        UPDATE proposals SET outcome = NULL, code = NULL, operation_id = NULL
        WHERE came = 'proposed' AND run_id = o.run_id AND operation_id = o.id AND outcome = 'operation';
    END IF;
    RETURN QUERY INSERT INTO case_acts (case_id, operation_id, run_id, verb, outcome, detail, rationale, person, role, token_id)
        VALUES (p_case, o.id, c.run_id, 'replay', came, coalesce(refusal_detail(c, o, came, look), found.way), p_rationale,
                actor.person, actor.role, actor.id) RETURNING *;
END $$;

-- The operations that take this one back, by the reference that they name.
CREATE FUNCTION undone_by(o operations) RETURNS SETOF operations
LANGUAGE sql STABLE AS $$
    SELECT u.* FROM remit.operations u, remit.installation i
    WHERE u.subject = o.subject AND u.intent ->> 'undoes' = coalesce(o.intent ->> 'undoes', i.id || ':' || o.key) ORDER BY u.id
$$;

-- Why a case cannot be closed yet, or NULL. Codes that speak of a wrong effect need it put right: the records agree with
-- the ledger by now, or an undo of it is SETTLED, or a person decides to leave it.
CREATE FUNCTION close_refusal(c cases, o operations, p_leave boolean, p_look case_look) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE
        WHEN o.id IS NULL THEN NULL
        WHEN o.state NOT IN ('SETTLED', 'CLOSED') THEN 'not_final'
        WHEN c.code NOT IN ('different', 'multiple', 'late_receipt', 'seen_after_absent', 'undo_failed') OR p_leave THEN NULL
        WHEN EXISTS (SELECT FROM undone_by(o) u WHERE u.state = 'SETTLED') THEN NULL
        WHEN c.code <> 'undo_failed' AND p_look.sight = ANY (
            CASE o.state WHEN 'SETTLED' THEN ARRAY['effective'] ELSE ARRAY['absent', 'withdrawn'] END) THEN NULL
        ELSE 'remedy_missing' END
$$;

-- Closed is a case when its operation is final, its remedy verified, and an eval that captures it named, or why none is needed.
CREATE FUNCTION close_case(p_secret text, p_case bigint, p_rationale text, p_eval text, p_no_eval text, p_leave boolean, p_look jsonb)
RETURNS SETOF case_acts
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); f record; c cases; o operations; look case_look := jsonb_populate_record(NULL::case_look, p_look); refused text;
BEGIN
    PERFORM need_words('the reason', p_rationale);
    IF (p_eval IS NULL) = (p_no_eval IS NULL) OR coalesce(p_eval, 'a') !~ '^[a-z0-9][a-z0-9_-]{0,80}$' THEN
        RAISE EXCEPTION 'An eval keeps what happened from happening unseen again, so nothing was closed. Name one with --eval NAME, or say with --no-eval why none is needed.'
            USING ERRCODE = 'RM012';
    END IF;
    PERFORM need_words('why no eval is needed', coalesce(p_no_eval, p_eval));
    SELECT * INTO f FROM case_with_operation(p_case);
    c := f.c; o := f.o;
    refused := coalesce(case_refusal(c, o, actor), keep_look(o, look), close_refusal(c, o, p_leave, look));
    IF refused IS NULL THEN
        UPDATE cases SET closed_at = clock_timestamp(), closed_by = actor.person, resolution = p_rationale WHERE id = p_case;
    END IF;
    RETURN QUERY INSERT INTO case_acts (case_id, operation_id, run_id, verb, outcome, detail, rationale, eval, no_eval, person, role, token_id)
        VALUES (p_case, o.id, c.run_id, 'close', coalesce(refused, 'closed'),
                CASE WHEN refused IS NULL AND p_leave THEN 'left as it is' ELSE refusal_detail(c, o, refused, look) END,
                p_rationale, p_eval, p_no_eval, actor.person, actor.role, actor.id) RETURNING *;
END $$;

-- An undo that did not come about leaves what it was to take back: a person's matter, and the others go on (F47). What a
-- person rejected, kept back or replaced is not one, nor is what waited under a stop.
CREATE FUNCTION open_undo_case() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM open_case(NEW, 'undo_failed', 'what it was to take back stands: ' || NEW.closed || coalesce(', ' || NEW.closed_detail, ''));
    RETURN NULL;
END $$;
CREATE TRIGGER operations_undo_failed AFTER INSERT OR UPDATE OF state ON operations FOR EACH ROW
    WHEN (NEW.closed IN ('refused', 'denied', 'expired') AND NEW.intent ? 'undoes') EXECUTE FUNCTION open_undo_case();

-- A run that ended without having done its work, or left a checkpoint that nobody can read, is a case under the name of
-- its end. That a person corrected or revoked its mandate is no accident. Another run of the purpose that completes
-- answers it.
CREATE FUNCTION open_run_case(p_run text, p_code text, p_detail text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO cases (run_id, code, detail) SELECT p_run, p_code, p_detail
    WHERE NOT EXISTS (SELECT FROM cases WHERE run_id = p_run AND code = p_code AND operation_id IS NULL AND closed_at IS NULL)
$$;

CREATE FUNCTION follow_run() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE code text := split_part(NEW.reason, ':', 1);
BEGIN
    IF NEW.status = 'COMPLETED' THEN
        UPDATE cases SET closed_at = clock_timestamp(), closed_by = NEW.id, resolution = 'a run of the purpose has completed'
        WHERE operation_id IS NULL AND closed_at IS NULL AND run_id IN (SELECT id FROM runs WHERE purpose = NEW.purpose);
    ELSIF code NOT IN ('mandate_superseded', 'mandate_revoked') THEN
        PERFORM open_run_case(NEW.id, code, NEW.reason);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER runs_followed AFTER UPDATE OF status ON runs FOR EACH ROW
    WHEN (NEW.status <> OLD.status AND NEW.status IN ('BLOCKED', 'COMPLETED')) EXECUTE FUNCTION follow_run();

CREATE FUNCTION follow_thread() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM open_run_case(NEW.run_id, 'quarantined', 'thread ' || NEW.thread_id || ': ' || NEW.why);
    RETURN NULL;
END $$;
CREATE TRIGGER threads_followed AFTER UPDATE OF state ON threads FOR EACH ROW
    WHEN (NEW.state = 'QUARANTINED' AND OLD.state <> 'QUARANTINED') EXECUTE FUNCTION follow_thread();

-- What a look for one operation has to know, as `due` has it, whatever its state and without pushing anything on.
CREATE FUNCTION look_of(p_operation bigint)
RETURNS TABLE (operation_id bigint, version integer, key text, tool text, subject text, intent jsonb, state text, attempt integer, checks integer,
               resend boolean, last_send timestamptz, senders_ended boolean, first_sent timestamptz, receipt_accepted boolean,
               key_answered boolean, now timestamptz, company_now timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT o.id, o.version, o.key, o.tool, o.subject, o.intent, o.state, o.attempts, o.checks, o.resend, s.last_send,
           coalesce(s.senders_ended, true),
           -- Also of what is closed or pending: how long the receiver remembers counts from the very first request.
           (SELECT min(a.company_time) FROM attempts a WHERE a.operation_id = o.id), seen_once(o), key_answered(o), clock_timestamp(), clock()
    FROM operations o, LATERAL sent_so_far(o.id) s WHERE o.id = p_operation
$$;

-- Cases that are open, and how many were opened in this hour and in the 24 before it, by what they have in common. Fewer
-- than three an hour are no rate; up to twice the mean of the hours before is the usual up and down of a day.
CREATE VIEW case_counts AS
    WITH counted AS (
        SELECT id, operation_id, run_id, code, opened_at, closed_at FROM cases WHERE closed_at IS NULL
        UNION
        SELECT id, operation_id, run_id, code, opened_at, closed_at FROM cases WHERE opened_at > statement_timestamp() - interval '25 hours'
    ), parts AS (
        SELECT d.part, d.name, count(*) FILTER (WHERE c.closed_at IS NULL) AS open,
               count(*) FILTER (WHERE c.opened_at > n.now - interval '1 hour') AS this_hour,
               count(*) FILTER (WHERE c.opened_at > n.now - interval '25 hours' AND c.opened_at <= n.now - interval '1 hour') AS day_before
        FROM counted c JOIN runs r ON r.id = c.run_id LEFT JOIN operations o ON o.id = c.operation_id
        CROSS JOIN (SELECT statement_timestamp() AS now) n
        CROSS JOIN LATERAL (VALUES ('code', c.code), ('tool', o.tool), ('effect', o.effect), ('purpose', r.purpose),
                                   ('agent_version', coalesce(o.agent_version, r.agent_version))) d (part, name)
        WHERE d.name IS NOT NULL GROUP BY 1, 2)
    SELECT p.*, this_hour >= 3 AND this_hour > 2 * day_before / 24.0 AS rising FROM parts p;

GRANT SELECT ON case_acts, case_counts TO remit_app;
GRANT EXECUTE ON FUNCTION resolve_case, replay_case, close_case, foresee_replay, undone_by, look_of TO remit_app;
