-- Which runs have something to do. Level-triggered: computed from the ledger as it is, so no wake-up is lost.

CREATE FUNCTION run_ready(p_run text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    WITH mine AS (
        SELECT o.id, o.action_hash, o.mandate_hash, remit.obstacle(o) AS obstacle, o.hold_until, o.run_id = p_run AS own, EXISTS (
                   SELECT FROM remit.gates g WHERE g.operation_id = o.id AND g.kind = 'policy' AND g.until > clock_timestamp()) AS silent
        FROM remit.concerns c JOIN remit.operations o ON o.id = c.operation_id
        WHERE c.run_id = p_run AND o.state NOT IN ('SETTLED', 'CLOSED'))
    SELECT (coalesce(bool_or(own AND (obstacle IN ('ready', 'stop', 'mandate') OR (obstacle = 'hold' AND hold_until IS NULL)
                            OR (obstacle = 'policy' AND NOT silent)
                            -- A grant was taken back or is not enough any more, or there is room for another request.
                            OR (obstacle = 'approval' AND NOT remit.asked_about(id, action_hash) AND remit.may_ask(mandate_hash)))), false)
        OR NOT EXISTS (SELECT FROM mine WHERE obstacle NOT IN ('requirement_lost', 'case', 'limit'))
        -- What was planned and not read or judged yet: a receiver or policy gave no answer.
        OR (remit.unread(p_run) AND NOT EXISTS (
            SELECT FROM remit.runs r WHERE r.id = p_run AND r.waits ? 'receiver' AND cardinality(remit.shut_doors()) > 0))
        -- Its worker died or let go in the middle of it, so nobody said what it waits for.
        OR EXISTS (SELECT FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id
                   WHERE r.id = p_run AND r.status = 'RUNNING' AND l.token > 0 AND remit.lease_free(l)))
        AND NOT EXISTS (SELECT FROM remit.runs r WHERE r.id = p_run AND remit.asked_lately(r))
    FROM mine
$$;

CREATE FUNCTION unread(p_run text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM remit.proposals p WHERE p.run_id = p_run AND p.outcome IS NULL)
        OR EXISTS (SELECT FROM remit.plans p WHERE p.run_id = p_run AND p.results IS NULL)
$$;

-- Whom nobody answered is not asked in a tight loop; a person's `remit resume` asks at once.
CREATE FUNCTION asked_lately(r runs) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT r.waits ?| ARRAY['model', 'receiver', 'policy']
       AND EXISTS (SELECT FROM remit.leases l WHERE l.run_id = r.id AND l.heartbeat_at > clock_timestamp() - interval '5 seconds')
$$;

-- Paused runs whose waits are satisfied, and runs whose worker died or let go in the middle of them. One that nobody has
-- taken yet belongs to whoever started it.
CREATE FUNCTION ready_runs() RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT r.id FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id
    WHERE r.ended_at IS NULL AND remit.lease_free(l)
      AND CASE r.status WHEN 'RUNNING' THEN l.token > 0 ELSE remit.run_ready(r.id) END
    ORDER BY r.created_at
$$;

-- What time alone brings about, in one call: expiries, cancellations under an order, ends of mandates and runs, lost
-- senders, and who is to be told of an approval that is about to expire. One sweep at a time is enough; another one has it done for it.
CREATE FUNCTION tidy() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(boundary_lock() + 1) THEN
        RETURN 0;
    END IF;
    RETURN lose_senders() + tell_expiring() + expire_approvals() + cancel_stopped() + close_dead_mandates() + close_orphans();
END $$;
