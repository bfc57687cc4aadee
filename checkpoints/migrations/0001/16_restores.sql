-- A ledger that was restored from a backup does not know what was done since. It is a standing stop, which a person lifts
-- after the systems of record were asked; what they show and the ledger lost is never sent a second time.

-- Why a restore order was placed, and what was on record when it was.
CREATE TABLE restores (
    order_id bigint PRIMARY KEY REFERENCES orders,
    how text NOT NULL CHECK (how IN ('other_server', 'forgotten_journal', 'by_hand')),
    -- The newest entry of the journal when it was noticed: what is newer elsewhere is of the time that was lost.
    ledger_ended_at timestamptz,
    noticed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One complete reading of the systems of record for one purpose under one order.
CREATE TABLE restore_checks (
    order_id bigint NOT NULL REFERENCES restores,
    purpose text NOT NULL,
    person text NOT NULL,
    read_began_at timestamptz NOT NULL,
    found bigint NOT NULL,
    lost bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (order_id, purpose, at)
);

-- Effects under this installation's reference that the ledger lost. Whoever proposes such a key finds it sent already.
CREATE TABLE lost_effects (
    key text PRIMARY KEY,
    purpose text NOT NULL,
    effect text NOT NULL,
    source text NOT NULL,
    as_of text NOT NULL,
    records jsonb NOT NULL,
    order_id bigint NOT NULL REFERENCES restores,
    found_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    adopted_by bigint REFERENCES operations
);
CREATE INDEX lost_effects_purpose ON lost_effects (purpose);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['restores', 'restore_checks', 'lost_effects'] LOOP
        EXECUTE format('CREATE TRIGGER %1$I_journal_insert AFTER INSERT ON %1$I REFERENCING NEW TABLE AS new_rows '
                       'FOR EACH STATEMENT EXECUTE FUNCTION remit.journal_rows()', name);
        EXECUTE format('CREATE TRIGGER %1$I_journal_update AFTER UPDATE ON %1$I REFERENCING NEW TABLE AS new_rows '
                       'FOR EACH STATEMENT EXECUTE FUNCTION remit.journal_rows()', name);
    END LOOP;
END $$;

-- The server as it is now. The timeline is that of the log that is being written: a promotion changes it at once, the
-- control file only with the next checkpoint.
CREATE FUNCTION server_identity() RETURNS TABLE (system_identifier text, timeline text)
LANGUAGE sql VOLATILE AS $$
    SELECT c.system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system() c
$$;

CREATE FUNCTION place_restore(p_how text, p_person text, p_reason text) RETURNS orders
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE placed orders;
BEGIN
    INSERT INTO orders (kind, scope, reason, issued_by, company_time)
    VALUES ('restore', 'all', p_reason, p_person, clock()) ON CONFLICT DO NOTHING RETURNING * INTO placed;
    IF FOUND THEN
        INSERT INTO restores (order_id, how, ledger_ended_at)
        VALUES (placed.id, p_how, (SELECT at FROM journal WHERE kind <> 'orders.added' ORDER BY id DESC LIMIT 1));
        RETURN placed;
    END IF;
    RETURN (SELECT o FROM orders o WHERE o.kind = 'restore' AND o.lifted_at IS NULL);
END $$;

-- Constant work, for every claim. It needs no exclusive lock: each claim compares for itself, whoever places the order.
CREATE FUNCTION notice_other_server() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM installation i JOIN server_identity() s USING (system_identifier, timeline))
       AND NOT EXISTS (SELECT FROM orders WHERE kind = 'restore' AND lifted_at IS NULL) THEN
        PERFORM place_restore('other_server', 'database',
                              'this is not the server that the ledger was written on, so it may be an older backup');
    END IF;
END $$;

-- What a process calls when it begins, and from time to time: `p_journal`, `p_at` are the newest entry of the journal that its
-- home has ever seen, NULL for a new home. A ledger without that entry is an older copy of itself. Returns the newest now.
CREATE FUNCTION watch_restore(p_journal bigint, p_at timestamptz) RETURNS TABLE (journal bigint, at timestamptz, order_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM notice_other_server();
    IF p_journal IS NOT NULL AND NOT EXISTS (SELECT FROM journal j WHERE j.id = p_journal AND j.at = p_at)
       AND NOT EXISTS (SELECT FROM restores r WHERE p_at BETWEEN r.ledger_ended_at AND r.noticed_at) THEN
        PERFORM pg_advisory_xact_lock(boundary_lock());
        PERFORM place_restore('forgotten_journal', 'database',
                              'the ledger has forgotten what this home saw in it at ' || to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
                              || ', so it is an older backup');
    END IF;
    RETURN QUERY SELECT j.id, j.at, (SELECT o.id FROM orders o WHERE o.kind = 'restore' AND o.lifted_at IS NULL)
                 FROM journal j ORDER BY j.id DESC LIMIT 1;
END $$;

-- Somebody knows that this is a backup, and nothing else could tell.
CREATE FUNCTION restored(p_secret text, p_reason text) RETURNS orders
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret);
BEGIN
    PERFORM pg_advisory_xact_lock(boundary_lock());
    RETURN place_restore('by_hand', actor.person, coalesce(nullif(p_reason, ''), 'restored from a backup'));
END $$;

-- Proposals hold it shared, a verification alone: whichever is second sees what the first one wrote.
CREATE FUNCTION lost_lock() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7236847123345016::bigint $$;

-- What was read at the systems of record: p_rows are all effects under this installation's reference, an array of {key,
-- purpose, effect, source, as_of, records}. Those that the ledger does not know are kept, and what it was about to send under
-- their keys is looked up instead. p_purposes are the purposes that the reading was complete for, p_bound the seconds from the
-- last possible send to visible. Returns what was new.
CREATE FUNCTION verify_restored(p_secret text, p_order bigint, p_purposes text[], p_began timestamptz, p_bound double precision, p_rows jsonb)
RETURNS TABLE (key text, purpose text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
#variable_conflict use_column
DECLARE actor tokens := token_of(p_secret); noticed timestamptz := (SELECT r.noticed_at FROM restores r WHERE r.order_id = p_order);
BEGIN
    IF p_began IS NULL OR p_began < noticed + make_interval(secs => p_bound) THEN
        RAISE EXCEPTION 'What was sent just before the restore may not show yet. Verify again in a while: `remit db verify`.' USING ERRCODE = 'RM012';
    END IF;
    PERFORM pg_advisory_xact_lock(lost_lock());
    PERFORM FROM operations o WHERE o.key IN (SELECT r ->> 'key' FROM jsonb_array_elements(p_rows) r) AND o.state = 'PENDING'
    ORDER BY o.id FOR UPDATE;
    RETURN QUERY
    INSERT INTO lost_effects (key, purpose, effect, source, as_of, records, order_id)
    SELECT r.key, r.purpose, r.effect, r.source, r.as_of, r.records, p_order
    FROM jsonb_to_recordset(p_rows) r (key text, purpose text, effect text, source text, as_of text, records jsonb)
    WHERE NOT EXISTS (SELECT FROM operations o WHERE o.key = r.key AND o.state IN ('SENDING', 'UNKNOWN', 'ACCEPTED', 'SETTLED'))
    ON CONFLICT DO NOTHING RETURNING lost_effects.key, lost_effects.purpose;
    PERFORM adopt(o) FROM operations o JOIN lost_effects f ON f.key = o.key
    WHERE o.state = 'PENDING' AND f.adopted_by IS NULL;
    PERFORM cancel_empty_approvals();
    INSERT INTO restore_checks (order_id, purpose, person, read_began_at, found, lost)
    SELECT p_order, p, actor.person, p_began,
           (SELECT count(*) FROM jsonb_array_elements(p_rows) r WHERE r ->> 'purpose' = p),
           (SELECT count(*) FROM lost_effects f WHERE f.purpose = p AND f.order_id = p_order)
    FROM unnest(p_purposes) p;
END $$;

-- A waiting operation whose effect is there becomes one whose outcome is looked up. Its attempt stands for the one that was
-- lost: so old that no receiver's memory of a key is relied on, and seen, so that absence later is a person's matter.
CREATE FUNCTION adopt(o operations) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE f lost_effects; sender text;
BEGIN
    UPDATE lost_effects SET adopted_by = o.id WHERE key = o.key RETURNING * INTO f;
    sender := 'lost-' || f.order_id;
    INSERT INTO workers (id, host, pid, lock_path, dead_at) VALUES (sender, '', 0, '', clock_timestamp()) ON CONFLICT DO NOTHING;
    UPDATE operations SET state = 'SENDING', attempts = attempts + 1, version = version + 1 WHERE id = o.id;
    PERFORM count_lost(o);
    INSERT INTO attempts (operation_id, number, wire_key, worker, run_token, agent_version, company_time, send_by, timeout, seen, ended_at)
    SELECT o.id, o.attempts + 1, wire_key(i.id, o.key, o.generation), sender, 0, o.agent_version, 'epoch', r.noticed_at,
           interval '0', 'lost', r.noticed_at
    FROM installation i, restores r WHERE r.order_id = f.order_id;
    UPDATE operations SET state = 'UNKNOWN', doubt = true, due_at = clock_timestamp(), version = version + 1 WHERE id = o.id;
    INSERT INTO evidence (operation_id, attempt, version, sight, source, as_of, complete, read_began_at, records)
    VALUES (o.id, o.attempts + 1, o.version + 2, 'effective', f.source, f.as_of, true, f.found_at, f.records);
END $$;

-- It takes its share of every limit, also where that is more than there is: the effect is there.
CREATE FUNCTION count_lost(o operations) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE moment timestamptz := clock();
BEGIN
    PERFORM lock_limits(o.run_id, ARRAY[o.id], moment);
    WITH taken AS (
        INSERT INTO reservations (operation_id, bucket, amount_minor)
        SELECT o.id, s.bucket, coalesce(o.amount_minor, 0) FROM shares_of(o, moment) s ON CONFLICT DO NOTHING RETURNING bucket, amount_minor)
    UPDATE limit_usage u SET count = u.count + 1, amount_minor = u.amount_minor + t.amount_minor FROM taken t WHERE u.bucket = t.bucket;
END $$;

CREATE FUNCTION adopt_proposed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lost_lock());
    PERFORM adopt(o) FROM new_rows n JOIN lost_effects f ON f.key = n.key AND f.adopted_by IS NULL JOIN operations o ON o.id = n.id
    WHERE o.state = 'PENDING';
    RETURN NULL;
END $$;
-- Named to come after the journal's own trigger, so that the journal tells it in order.
CREATE TRIGGER operations_lost_effect AFTER INSERT ON operations REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION adopt_proposed();

-- Which purposes nobody has verified under this order yet.
CREATE FUNCTION unverified(p_order bigint) RETURNS SETOF text
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT m.purpose FROM remit.mandates m
    WHERE NOT EXISTS (SELECT FROM remit.restore_checks c WHERE c.order_id = p_order AND c.purpose = m.purpose) ORDER BY 1
$$;

-- For `lift`: a restore goes only after every purpose was verified, and the server is the ledger's own from then on.
CREATE FUNCTION accept_restore(p_order orders) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE missing text := (SELECT string_agg(u, ', ') FROM unverified(p_order.id) u);
BEGIN
    IF p_order.kind <> 'restore' THEN
        RETURN;
    ELSIF missing IS NOT NULL OR NOT EXISTS (SELECT FROM restore_checks WHERE order_id = p_order.id) THEN
        RAISE EXCEPTION 'The systems of record were not asked yet what this ledger lost (%). Run `remit db verify`, then lift it.',
            coalesce(missing, 'no purpose is known') USING ERRCODE = 'RM012';
    END IF;
    UPDATE installation i SET system_identifier = s.system_identifier, timeline = s.timeline FROM server_identity() s;
END $$;

GRANT SELECT ON restores, restore_checks, lost_effects TO remit_app;
GRANT EXECUTE ON FUNCTION unverified, watch_restore, restored, verify_restored TO remit_app;
