-- The claim: the one place where an operation may become a send. Called in autocommit, so that a suspended client
-- never holds the boundary lock; each statement below takes its snapshot after the lock was obtained (I4).

-- p_contracts: by tool {attempts, budget_ms, timeout_ms, retention_ms}. Answers for every operation of the run that
-- nobody else has locked: an attempt, or in `refused` why there is none. What no later try would change is a person's
-- matter from here on.
CREATE FUNCTION claim(p_run text, p_token bigint, p_worker text, p_ids bigint[], p_read_at timestamptz,
                      p_send_seconds double precision, p_contracts jsonb)
RETURNS TABLE (operation_id bigint, refused text, attempt_id bigint, number integer, wire_key text, send_within double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
DECLARE o operations; terms jsonb; last_moment timestamptz; ready bigint[] := '{}'; moments timestamptz[] := '{}'; moment timestamptz;
        probed text[] := '{}';
BEGIN
    moment := begin_claim(p_run, p_token, p_worker, p_ids);
    FOR o IN SELECT * FROM operations WHERE id = ANY (p_ids) AND run_id = p_run ORDER BY id FOR UPDATE SKIP LOCKED LOOP
        operation_id := o.id;
        terms := p_contracts -> o.tool;
        last_moment := send_limit(o, p_send_seconds, terms);
        refused := coalesce(obstacle(o), lower(o.state));
        refused := CASE
            WHEN refused <> 'ready' THEN refused
            WHEN terms IS NULL THEN 'no_contract'
            -- A snapshot older than this is no basis: a busy worker re-reads its batch in well under a second.
            WHEN p_read_at IS NULL OR p_read_at < clock_timestamp() - interval '20 seconds' THEN 'snapshot_old'
            WHEN budget_spent(o, terms) THEN 'budget'
            WHEN o.receivers[1] = ANY (probed) THEN 'receiver'
            WHEN last_moment <= clock_timestamp() THEN 'too_late'
            ELSE reserve(o, moment) END;
        IF refused IN ('budget', 'no_contract') THEN
            PERFORM open_case(o, refused, CASE refused WHEN 'budget' THEN 'tried as often, or for as long, as its contract allows'
                                                       ELSE 'its tool is in no catalogue any more' END);
        END IF;
        IF refused IS NULL THEN
            ready := ready || o.id;
            moments := moments || last_moment;
            -- At a closed door one operation of the batch may be the probe; the others wait for what it meets.
            probed := probed || CASE WHEN door_closed(o.receivers[1]) THEN o.receivers[1:1] ELSE '{}' END;
        ELSE
            RETURN NEXT;
        END IF;
    END LOOP;
    PERFORM wake_waiting(ARRAY(SELECT DISTINCT r.bucket FROM reservations r WHERE r.operation_id = ANY (ready)), cardinality(ready));
    RETURN QUERY
    SELECT b.operation_id, NULL, b.attempt_id, b.number, b.wire_key, extract(epoch FROM b.send_by - clock_timestamp())::double precision
    FROM begin_attempts(p_token, p_worker, ready, moments, p_contracts) b;
END $$;

-- Returns the company's time of this claim: all its shares are of the windows that hold this moment.
CREATE FUNCTION begin_claim(p_run text, p_token bigint, p_worker text, p_ids bigint[]) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE moment timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(boundary_lock());
    -- With one snapshot for the whole transaction, a claim that waited for a stop would not see it.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'A claim needs READ COMMITTED. Take default_transaction_isolation out of the role''s settings.' USING ERRCODE = 'RM002';
    END IF;
    -- The attempt has to survive a crash of the server whatever the role's default: only it tells that something may be sent.
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM check_lease(p_run, p_token);
    PERFORM check_worker(p_worker);
    -- Before any obstacle is read: a server that this ledger does not know makes an order that these claims meet.
    PERFORM notice_other_server();
    moment := clock();
    PERFORM lock_limits(p_run, p_ids, moment);
    RETURN moment;
END $$;

-- The same over attempts and revisions of one generation.
CREATE FUNCTION wire_key(p_installation text, p_key text, p_generation integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT p_installation || ':' || p_key || '#' || p_generation $$;

-- The attempts of one claim, in one statement; the first one binds the approval to its action.
CREATE FUNCTION begin_attempts(p_token bigint, p_worker text, p_ids bigint[], p_moments timestamptz[], p_contracts jsonb)
RETURNS TABLE (operation_id bigint, attempt_id bigint, number integer, wire_key text, send_by timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH taken AS (
        UPDATE operations o SET state = 'SENDING', attempts = o.attempts + 1, resend = false, version = o.version + 1, checks = 0,
               due_at = c.moment + make_interval(secs => (p_contracts -> o.tool ->> 'timeout_ms')::double precision / 1000)
        FROM unnest(p_ids, p_moments) c (id, moment) WHERE o.id = c.id RETURNING o.*, c.moment
    ), bound AS (
        UPDATE approval_items i SET bound_at = clock_timestamp() FROM taken t
        WHERE i.operation_id = t.id AND i.action_hash = t.action_hash AND i.decision = 'granted' AND i.bound_at IS NULL)
    INSERT INTO attempts AS a (operation_id, number, wire_key, worker, run_token, agent_version, company_time, send_by, timeout)
    SELECT t.id, t.attempts, wire_key(i.id, t.key, t.generation), p_worker, p_token, t.agent_version,
           clock_timestamp() + i.clock_offset, t.moment, t.due_at - t.moment
    FROM taken t, installation i ORDER BY t.id
    RETURNING a.operation_id, a.id, a.number, a.wire_key, a.send_by
$$;

-- Tries that reached the receiver's judgement are counted; what was claimed and not begun, or met a closed door
-- (credential, receiver down), burns no customer's budget. A person's replay gives it once more.
CREATE FUNCTION budget_spent(o operations, p_terms jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT count(*) >= (p_terms ->> 'attempts')::integer
        OR coalesce(min(a.claimed_at) < clock_timestamp() - make_interval(secs => (p_terms ->> 'budget_ms')::double precision / 1000), false)
    FROM remit.attempts a
    WHERE a.operation_id = o.id AND coalesce(a.seen, '') NOT IN ('not_begun', 'credential', 'receiver_down')
      AND a.claimed_at > coalesce((SELECT max(c.released_at) FROM remit.cases c WHERE c.operation_id = o.id AND c.code = 'budget'), '-infinity')
$$;

-- The last moment at which a send may begin: window, approval, mandate, and the receiver's memory of the key.
CREATE FUNCTION send_limit(o operations, p_send_seconds double precision, p_terms jsonb) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT least(
        clock_timestamp() + make_interval(secs => p_send_seconds),
        (SELECT m.valid_until FROM remit.mandates m WHERE m.hash = o.mandate_hash) - i.clock_offset,
        CASE WHEN o.verdict = 'needs_approval' THEN remit.granted_until(o.id, o.action_hash) - i.clock_offset END,
        (SELECT min(a.company_time) - i.clock_offset
                + make_interval(secs => (p_terms ->> 'retention_ms')::double precision / 1000)
                - make_interval(secs => (p_terms ->> 'timeout_ms')::double precision / 1000)
         FROM remit.attempts a WHERE a.operation_id = o.id AND o.state = 'UNKNOWN' AND NOT a.no_effect))
    FROM remit.installation i
$$;

-- Before each group: which of these attempts may still begin. Orders, mandate, approval, lease, the receiver's door, and
-- whether somebody wants it back, read afresh.
CREATE FUNCTION may_send(p_run text, p_token bigint, p_attempts bigint[]) RETURNS SETOF bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT a.id FROM attempts a JOIN operations o ON o.id = a.operation_id JOIN workers w ON w.id = a.worker
    WHERE a.id = ANY (p_attempts) AND o.state = 'SENDING' AND a.number = o.attempts AND a.run_token = p_token
      AND a.ended_at IS NULL AND a.send_by > clock_timestamp() AND w.dead_at IS NULL AND NOT o.keep_back
      AND (o.verdict IS DISTINCT FROM 'needs_approval' OR granted_until(o.id, o.action_hash) > clock())
      AND (order_over(o)).id IS NULL AND mandate_live(o.mandate_hash)
      AND NOT door_shut(o.receivers[1:1])
      AND EXISTS (SELECT FROM leases l WHERE l.run_id = p_run AND l.token = p_token AND l.lease_until > clock_timestamp())
$$;
