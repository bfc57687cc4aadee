-- One runner per run: the lease with its token. A stale token claims nothing and writes no checkpoint.

CREATE FUNCTION register_worker(p_id text, p_host text, p_pid integer, p_lock_path text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO workers (id, host, pid, lock_path) VALUES (p_id, p_host, p_pid, p_lock_path)
$$;

-- The caller has obtained the dead worker's lock file, which the operating system frees only at a process's end.
CREATE FUNCTION worker_dead(p_id text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE workers SET dead_at = clock_timestamp() WHERE id = p_id AND dead_at IS NULL
$$;

CREATE FUNCTION start_run(p_secret text, p_run text, p_mandate text, p_agent_version text, p_fingerprint text) RETURNS runs
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); granted mandates; started runs;
BEGIN
    SELECT * INTO granted FROM mandates WHERE hash = p_mandate;
    -- Whoever starts a run owns it and sees what was done under the purpose, so to know a hash is not enough (F18).
    IF NOT FOUND OR NOT sees_mandate(actor, granted) THEN
        RAISE EXCEPTION 'This mandate is not granted. Grant it first: `remit mandate grant FILE`.' USING ERRCODE = 'RM012';
    ELSIF NOT mandate_live(p_mandate) THEN
        RAISE EXCEPTION 'This mandate is not in force (revoked, superseded or outside its time). See `remit mandate show`.' USING ERRCODE = 'RM012';
    END IF;
    INSERT INTO runs (id, mandate_hash, purpose, owner, requester, agent, agent_version, fingerprint)
    VALUES (p_run, p_mandate, granted.purpose, actor.person, actor.person, granted.agent, p_agent_version, p_fingerprint)
    RETURNING * INTO started;
    INSERT INTO leases (run_id) VALUES (p_run);
    INSERT INTO threads (thread_id, run_id, number) VALUES (p_run || '/1', p_run, 1);
    RETURN started;
END $$;

CREATE FUNCTION mandate_live(p_hash text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM remit.mandates WHERE hash = p_hash AND superseded_at IS NULL AND revoked_at IS NULL
                   AND valid_from <= remit.clock() AND remit.clock() < valid_until)
$$;

-- A worker that was declared dead acts no more: its attempts count as ended, whatever it still believes.
CREATE FUNCTION check_worker(p_worker text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE id = p_worker AND dead_at IS NULL) THEN
        RAISE EXCEPTION 'Worker % is not registered, or was found dead. Start another process.', p_worker USING ERRCODE = 'RM020';
    END IF;
END $$;

CREATE FUNCTION lease_free(l leases) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT l.lease_until <= clock_timestamp()
        OR EXISTS (SELECT FROM remit.workers w WHERE w.id = l.worker AND w.dead_at IS NOT NULL)
$$;

-- Takes the run over when its lease has run out or its holder is dead. NULL: somebody else has it.
CREATE FUNCTION acquire_lease(p_run text, p_worker text, p_seconds double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE new_token bigint;
BEGIN
    PERFORM check_worker(p_worker);
    UPDATE leases l SET token = token + 1, worker = p_worker, heartbeat_at = clock_timestamp(),
           lease_until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE run_id = p_run AND lease_free(l) RETURNING token INTO new_token;
    IF new_token IS NOT NULL THEN
        UPDATE runs SET status = 'RUNNING', reason = '', waits = '{}' WHERE id = p_run AND ended_at IS NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'Run % has ended. Start another with `remit run`.', p_run USING ERRCODE = 'RM012';
        END IF;
        INSERT INTO journal (kind, run_id, data) VALUES ('run.taken', p_run, jsonb_build_object('worker', p_worker, 'token', new_token));
    END IF;
    RETURN new_token;
END $$;

CREATE FUNCTION heartbeat(p_run text, p_token bigint, p_seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    UPDATE leases SET heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE run_id = p_run AND token = p_token AND lease_until > clock_timestamp();
    RETURN FOUND;
END $$;

-- Shared until the caller's commit: a takeover waits for what is being written, so nothing stale is written after it.
CREATE FUNCTION check_lease(p_run text, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM FROM leases WHERE run_id = p_run AND token = p_token AND lease_until > clock_timestamp() FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Another worker took run % over, or this one was away for too long. See `remit runs`.', p_run
            USING ERRCODE = 'RM020';
    END IF;
END $$;

-- The last word of a runner: where the run stands, and nobody holds it any more.
CREATE FUNCTION release_run(p_run text, p_token bigint, p_status text, p_reason text, p_waits jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE ended boolean := p_status IN ('STOPPED', 'COMPLETED', 'INCOMPLETE', 'BLOCKED');
BEGIN
    UPDATE leases SET lease_until = 'epoch', heartbeat_at = clock_timestamp()
    WHERE run_id = p_run AND token = p_token AND lease_until > clock_timestamp();
    IF NOT FOUND THEN
        PERFORM check_lease(p_run, p_token);
    END IF;
    UPDATE runs SET status = p_status, reason = p_reason, waits = p_waits,
           ended_at = CASE WHEN ended THEN clock_timestamp() END
    WHERE id = p_run AND ended_at IS NULL;
    PERFORM close_orphans();
END $$;

-- Who carries a run on does so as the agent that it is: what is planned and proposed from now on names that version.
CREATE FUNCTION carry_version(p_run text, p_token bigint, p_version text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE runs SET agent_version = p_version WHERE id = p_run AND agent_version <> p_version;
END $$;

CREATE FUNCTION new_thread(p_run text, p_token bigint, p_state text, p_why text, p_fingerprint text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE number_now integer;
BEGIN
    PERFORM check_lease(p_run, p_token);
    UPDATE threads SET state = p_state, why = p_why WHERE run_id = p_run AND state = 'LIVE';
    UPDATE runs SET thread = thread + 1, fingerprint = p_fingerprint WHERE id = p_run RETURNING thread INTO number_now;
    INSERT INTO threads (thread_id, run_id, number) VALUES (p_run || '/' || number_now, p_run, number_now);
    RETURN number_now;
END $$;

-- A worker that was taken over cannot put the thread back: the token that comes with each row must be the lease's.
CREATE FUNCTION check_thread(p_thread text, p_token text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM FROM threads t JOIN leases l ON l.run_id = t.run_id
    WHERE t.thread_id = p_thread AND t.state = 'LIVE' AND l.token::text = p_token FOR SHARE OF l;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'A stale runner tried to write thread %. See `remit runs`.', p_thread USING ERRCODE = 'RM020';
    END IF;
END $$;

CREATE FUNCTION refuse_stale_runner() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_thread(NEW.thread_id, NEW.metadata ->> 'run_token');
    RETURN NEW;
END $$;

-- What a node returned is kept beside its checkpoint before the next one is written; it names its runner in a column.
CREATE FUNCTION refuse_stale_writes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_thread(NEW.thread_id, NEW.run_token);
    RETURN NEW;
END $$;

-- What an ended run left waiting is closed, also what only now comes back from a send that was in flight at its end.
CREATE FUNCTION close_orphans() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE closed_now bigint;
BEGIN
    UPDATE operations o SET state = 'CLOSED', closed = 'cancelled', version = version + 1, closed_detail = 'the run ended: ' || d.status
    FROM (SELECT p.id, lower(r.status) AS status FROM operations p JOIN runs r ON r.id = p.run_id
          WHERE p.state = 'PENDING' AND r.ended_at IS NOT NULL ORDER BY p.id FOR UPDATE OF p) d
    WHERE o.id = d.id AND o.state = 'PENDING';
    GET DIAGNOSTICS closed_now = ROW_COUNT;
    PERFORM cancel_empty_approvals();
    RETURN closed_now;
END $$;
