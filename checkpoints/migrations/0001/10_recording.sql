-- Receipts and evidence. A receipt moves only the attempt it belongs to; evidence moves only the version it judged.

CREATE TYPE receipt AS (
    attempt_id bigint, seen text, response jsonb, "to" text, closed text, detail text, gate text, gate_seconds double precision,
    "case" text, no_effect boolean);

CREATE TYPE settlement AS (
    operation_id bigint, version integer, attempt integer, sight text, source text, as_of text, complete boolean,
    read_began_at timestamptz, records jsonb, "to" text, closed text, detail text, resend boolean, "case" text,
    next_seconds double precision);

-- One that was replayed and comes back is a gate again.
CREATE FUNCTION open_case(o operations, p_code text, p_detail text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO cases (operation_id, run_id, code, detail) VALUES (o.id, o.run_id, p_code, coalesce(p_detail, ''))
    ON CONFLICT (operation_id, code) WHERE closed_at IS NULL AND operation_id IS NOT NULL
    DO UPDATE SET released_at = NULL, detail = excluded.detail WHERE cases.released_at IS NOT NULL
$$;

-- One step of the transition table, with what follows from it for doubt and the next look. Who calls it for PENDING or
-- CLOSED releases the reservation afterwards. What is proved not to have been sent, and was wanted back, waits no more.
CREATE FUNCTION apply(o operations, p_to text, p_closed text, p_detail text, p_resend boolean, p_next interval) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE operations SET state = p_to, closed = CASE WHEN p_to = 'CLOSED' THEN p_closed END,
           closed_detail = CASE WHEN p_to = 'CLOSED' THEN p_detail END,
           doubt = (p_to = 'UNKNOWN'), resend = p_resend AND p_to = 'UNKNOWN',
           generation = generation + CASE WHEN (p_to = 'CLOSED' AND p_closed IN ('refused', 'withdrawn'))
                                               OR (p_to = 'PENDING' AND key_answered(o)) THEN 1 ELSE 0 END,
           checks = CASE WHEN p_to = o.state THEN checks + 1 ELSE 0 END,
           due_at = clock_timestamp() + p_next, version = version + 1
    WHERE id = o.id;
    UPDATE operations SET state = 'CLOSED', closed = 'cancelled', version = version + 1,
           closed_detail = 'kept back while it was with a sender; nothing of it was sent'
    WHERE id = o.id AND state = 'PENDING' AND keep_back
$$;

-- Whether the receiver's last word under the current wire key is a failure that it stored. With the absence that makes a
-- row PENDING this raises the generation; absence alone never does, since what sits in a queue would land beside its
-- successor, while what lands under an answered key gets that answer.
CREATE FUNCTION key_answered(o operations) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT EXISTS (SELECT FROM attempts a, installation i WHERE a.operation_id = o.id AND a.seen = 'stored_failure'
                   AND a.wire_key = wire_key(i.id, o.key, o.generation))
$$;

-- p_receipts: an array of `receipt`. Operations are locked in order of id, their buckets afterwards.
CREATE FUNCTION record(p_receipts jsonb) RETURNS TABLE (operation_id bigint, state text, late boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
DECLARE r receipt; o operations; a attempts; free bigint[] := '{}';
BEGIN
    FOR r IN SELECT x.* FROM jsonb_populate_recordset(NULL::receipt, p_receipts) x JOIN attempts t ON t.id = x.attempt_id
             ORDER BY t.operation_id LOOP
        SELECT op.* INTO o FROM attempts t JOIN operations op ON op.id = t.operation_id WHERE t.id = r.attempt_id FOR UPDATE OF op;
        SELECT * INTO a FROM attempts WHERE id = r.attempt_id;
        late := NOT receipt_counts(o, a);
        IF a.ended_at IS NULL THEN
            UPDATE attempts SET seen = r.seen, response = r.response, ended_at = clock_timestamp(), late = record.late,
                   no_effect = r.no_effect WHERE id = a.id;
            IF late THEN
                PERFORM note_late_receipt(o, r);
            ELSE
                free := free || take_receipt(o, r);
            END IF;
        END IF;
        operation_id := o.id;
        state := (SELECT op.state FROM operations op WHERE op.id = o.id);
        RETURN NEXT;
    END LOOP;
    PERFORM release_reservations(free);
END $$;

-- Only the attempt in flight, and only under the lease that it was claimed with.
CREATE FUNCTION receipt_counts(o operations, a attempts) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT o.state = 'SENDING' AND a.number = o.attempts AND a.ended_at IS NULL
       AND EXISTS (SELECT FROM leases l WHERE l.run_id = o.run_id AND l.token = a.run_token)
$$;

-- Returns the operation where its reservation is to be released. A later attempt's answer never hides an earlier
-- attempt's unknown outcome.
CREATE FUNCTION take_receipt(o operations, r receipt) RETURNS bigint[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE target text := CASE WHEN o.doubt AND r."to" IN ('PENDING', 'CLOSED') THEN 'UNKNOWN' ELSE r."to" END;
BEGIN
    PERFORM apply(o, target, r.closed, r.detail, false, interval '0');
    IF r.gate IS NOT NULL THEN
        INSERT INTO gates (operation_id, kind, until, detail)
        VALUES (o.id, r.gate, clock_timestamp() + make_interval(secs => coalesce(r.gate_seconds, 0)), coalesce(r.detail, ''))
        ON CONFLICT (operation_id, kind) DO UPDATE SET until = excluded.until, detail = excluded.detail;
    END IF;
    IF r."case" IS NOT NULL THEN
        PERFORM open_case(o, r."case", r.detail);
    END IF;
    RETURN CASE WHEN target IN ('PENDING', 'CLOSED') THEN ARRAY[o.id] ELSE '{}' END;
END $$;

-- Kept as evidence, it moves nothing. It has the outcome looked up again, and where the effect had been given up as
-- absent, it is a person's matter.
CREATE FUNCTION note_late_receipt(o operations, r receipt) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    UPDATE operations SET due_at = clock_timestamp(), version = version + 1 WHERE id = o.id AND state IN ('UNKNOWN', 'ACCEPTED');
    IF r.seen = 'accepted' AND o.state IN ('PENDING', 'CLOSED') THEN
        PERFORM open_case(o, 'late_receipt', 'a sender that had been given up reports an acceptance');
    END IF;
END $$;

-- Claimed, but never begun: back to where it was. Only attempts that nobody ended count.
CREATE FUNCTION unsend(p_attempts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT FROM record((SELECT coalesce(jsonb_agg(jsonb_build_object('attempt_id', id, 'seen', 'not_begun', 'to', 'PENDING', 'no_effect', true)), '[]')
                        FROM unnest(p_attempts) id))
$$;

-- Sends whose sender is dead, whose receipt came late, or that nobody reported after the last moment: UNKNOWN from now on.
CREATE FUNCTION lose_senders() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE o operations; lost bigint := 0;
BEGIN
    FOR o IN SELECT op.* FROM operations op
             JOIN attempts a ON a.operation_id = op.id AND a.number = op.attempts JOIN workers w ON w.id = a.worker
             WHERE op.state = 'SENDING'
               AND (w.dead_at IS NOT NULL OR a.ended_at IS NOT NULL OR a.send_by + a.timeout < clock_timestamp())
             ORDER BY op.id FOR UPDATE OF op SKIP LOCKED LOOP
        PERFORM apply(o, 'UNKNOWN', NULL, NULL, false, interval '0');
        lost := lost + 1;
    END LOOP;
    RETURN lost;
END $$;

-- What the attempts of one operation say that may have had an effect.
CREATE FUNCTION sent_so_far(p_operation bigint)
RETURNS TABLE (last_send timestamptz, senders_ended boolean, first_sent timestamptz, accepted boolean)
LANGUAGE sql STABLE AS $$
    SELECT max(coalesce(a.ended_at, w.dead_at, a.send_by + a.timeout)), bool_and(a.ended_at IS NOT NULL OR w.dead_at IS NOT NULL),
           min(a.company_time), bool_or(a.seen = 'accepted')
    FROM remit.attempts a JOIN remit.workers w ON w.id = a.worker WHERE a.operation_id = p_operation AND NOT a.no_effect
$$;

-- Operations to look at now, with all that the recovery table asks about their attempts. Pushed on, so that two
-- sweeps share the work; a sweep that dies loses nothing but these few seconds. Attempts that are proved to be without
-- effect do not count, and what was seen once at the system of record counts like a receipt. At a closed door nobody is
-- asked until a probe is due.
CREATE FUNCTION due(p_run text, p_limit integer)
RETURNS TABLE (operation_id bigint, version integer, key text, revision integer, tool text, subject text, intent jsonb, state text,
               attempt integer, checks integer, resend boolean, last_send timestamptz, senders_ended boolean, first_sent timestamptz,
               receipt_accepted boolean, key_answered boolean, now timestamptz, company_now timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH picked AS (
        SELECT o.id FROM operations o
        WHERE o.state IN ('UNKNOWN', 'ACCEPTED') AND o.due_at <= clock_timestamp()
          AND NOT o.receivers[1] = ANY ((SELECT shut_doors())::text[]) AND (p_run IS NULL OR EXISTS (
                  SELECT FROM concerns c WHERE c.operation_id = o.id AND c.run_id = p_run))
        ORDER BY o.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), pushed AS (
        UPDATE operations o SET due_at = clock_timestamp() + interval '5 seconds'
        FROM picked WHERE o.id = picked.id RETURNING o.*, key_answered(o) AS answered
    )
    SELECT p.id, p.version, p.key, p.revision, p.tool, p.subject, p.intent, p.state, p.attempts, p.checks, p.resend,
           s.last_send, coalesce(s.senders_ended, true), s.first_sent,
           coalesce(s.accepted, false) OR EXISTS (SELECT FROM evidence e WHERE e.operation_id = p.id
                                                  AND e.sight IN ('pending', 'effective', 'different', 'multiple')),
           p.answered, clock_timestamp(), clock()
    FROM pushed p CROSS JOIN LATERAL sent_so_far(p.id) s
$$;

-- p_results: an array of `settlement`. `to` null: nothing new, look again later. Returns how many moved.
CREATE FUNCTION settle(p_results jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE r settlement; o operations; moved bigint := 0; free bigint[] := '{}';
BEGIN
    FOR r IN SELECT * FROM jsonb_populate_recordset(NULL::settlement, p_results) ORDER BY 1 LOOP
        SELECT * INTO o FROM operations WHERE id = r.operation_id FOR UPDATE;
        PERFORM keep_evidence(o, r);
        IF o.version <> r.version THEN
            PERFORM note_late_sight(o, r);
        ELSIF settle_one(o, r) THEN
            moved := moved + 1;
            free := free || CASE WHEN r."to" IN ('PENDING', 'CLOSED') THEN ARRAY[o.id] ELSE '{}' END;
        END IF;
    END LOOP;
    PERFORM release_reservations(free);
    RETURN moved;
END $$;

-- One row for each thing seen, not for each look.
CREATE FUNCTION keep_evidence(o operations, r settlement) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO evidence (operation_id, attempt, version, sight, source, as_of, complete, read_began_at, records)
    SELECT o.id, r.attempt, r.version, r.sight, r.source, r.as_of, r.complete, r.read_began_at, r.records
    WHERE coalesce(r."to", o.state) <> o.state
       OR (r.sight, r.records) IS DISTINCT FROM (SELECT (e.sight, e.records) FROM evidence e WHERE e.operation_id = o.id
                                                 AND e.attempt = r.attempt ORDER BY e.id DESC LIMIT 1)
$$;

CREATE FUNCTION settle_one(o operations, r settlement) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE moves boolean := coalesce(r."to", o.state) <> o.state OR coalesce(r.resend, false) <> o.resend;
BEGIN
    IF moves THEN
        UPDATE attempts SET no_effect = true WHERE operation_id = o.id AND r."to" IN ('PENDING', 'CLOSED');
        PERFORM apply(o, coalesce(r."to", o.state), r.closed, r.detail, coalesce(r.resend, false), pause_after(r));
        PERFORM close_doubts(o, r);
    ELSE
        UPDATE operations SET checks = checks + 1, due_at = clock_timestamp() + pause_after(r) WHERE id = o.id;
    END IF;
    IF r."case" IS NOT NULL THEN
        PERFORM open_case(o, r."case", r.detail);
    END IF;
    RETURN moves;
END $$;

-- Cases that asked nothing but "what happened?" are answered by the evidence that shows it; every other case is a person's.
CREATE FUNCTION close_doubts(o operations, r settlement) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE cases SET closed_at = clock_timestamp(), closed_by = 'evidence', resolution = r.source || ' shows it now: ' || r.sight
    WHERE operation_id = o.id AND closed_at IS NULL AND r."to" IN ('ACCEPTED', 'SETTLED', 'CLOSED')
      AND code IN ('accepted_then_absent', 'unverifiable', 'sender_alive', 'absence_proves_nothing', 'budget')
$$;

-- What was judged has moved on meanwhile, so this moves nothing; but an effect of what counts as not sent is a person's matter.
CREATE FUNCTION note_late_sight(o operations, r settlement) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF o.state IN ('PENDING', 'CLOSED') AND r.sight IN ('pending', 'effective', 'different', 'multiple') THEN
        PERFORM open_case(o, 'seen_after_absent', 'the system of record shows an effect of what had been proved absent');
    END IF;
END $$;

CREATE FUNCTION swept(p_worker text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE workers SET seen_at = clock_timestamp(), sweeps = sweeps + 1 WHERE id = p_worker
$$;
