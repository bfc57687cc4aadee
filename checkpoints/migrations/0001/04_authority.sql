-- Tokens, mandates, orders: what people say enters only through these functions, which check the token themselves.
-- Error codes: RM010 token, RM011 authority, RM012 state. The message is shown as it is; its last sentence is the next step.

-- Claims take this lock shared, orders and supersession take it exclusively: a claim that waited for it takes its
-- snapshot afterwards and so sees the order (I4). Transaction-scoped, so that transaction poolers work.
CREATE FUNCTION boundary_lock() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7236847123345001::bigint $$;

CREATE FUNCTION token_behind(p_secret text) RETURNS tokens
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT t FROM tokens t WHERE t.secret_hash = sha256(convert_to(p_secret, 'UTF8'))
$$;

-- Why a token speaks for nobody now, or NULL.
CREATE FUNCTION token_refusal(t tokens) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN t.id IS NULL THEN 'token_unknown'
                WHEN t.revoked_at IS NOT NULL THEN 'token_revoked'
                WHEN t.expires_at <= clock() THEN 'token_expired' END
$$;

CREATE FUNCTION token_of(p_secret text) RETURNS tokens
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE t tokens := token_behind(p_secret);
BEGIN
    CASE coalesce(token_refusal(t), 'good')
        WHEN 'token_unknown' THEN
            RAISE EXCEPTION 'This token is not known here. Give the file of a token that `remit token list` shows.' USING ERRCODE = 'RM010';
        WHEN 'token_revoked' THEN
            RAISE EXCEPTION 'The token % was revoked. Ask an administrator for a new one.', t.id USING ERRCODE = 'RM010';
        WHEN 'token_expired' THEN
            RAISE EXCEPTION 'The token % expired at %. Ask an administrator for a new one.', t.id, t.expires_at USING ERRCODE = 'RM010';
        ELSE
            RETURN t;
    END CASE;
END $$;

CREATE FUNCTION whoami(p_secret text) RETURNS TABLE (token_id text, person text, role text, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT t.id, t.person, t.role, t.expires_at FROM token_of(p_secret) t
$$;

-- The first token of an empty database needs no other one; every later one is minted by an administrator.
CREATE FUNCTION mint_token(p_minter text, p_id text, p_secret_hash bytea, p_person text, p_role text, p_seconds double precision)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE minter tokens; expiry timestamptz := clock() + make_interval(secs => p_seconds);
BEGIN
    PERFORM pg_advisory_xact_lock(boundary_lock());
    IF p_minter IS NULL THEN
        IF EXISTS (SELECT FROM tokens) THEN
            RAISE EXCEPTION 'There are tokens already, so a new one needs an administrator''s. Pass it with --token FILE.'
                USING ERRCODE = 'RM010';
        ELSIF p_role <> 'administrator' THEN
            RAISE EXCEPTION 'The first token is an administrator''s. Mint that one first.' USING ERRCODE = 'RM011';
        END IF;
        INSERT INTO tokens (id, person, role, secret_hash, minted_by, expires_at)
        VALUES (p_id, p_person, p_role, p_secret_hash, 'bootstrap', expiry);
        RETURN expiry;
    END IF;
    minter := token_of(p_minter);
    IF minter.role <> 'administrator' THEN
        RAISE EXCEPTION '% is %, and only an administrator mints tokens. Ask one.', minter.person, minter.role USING ERRCODE = 'RM011';
    END IF;
    INSERT INTO tokens (id, person, role, secret_hash, minted_by, expires_at)
    VALUES (p_id, p_person, p_role, p_secret_hash, minter.person, expiry);
    RETURN expiry;
END $$;

CREATE FUNCTION revoke_token(p_secret text, p_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret);
BEGIN
    IF actor.role <> 'administrator' AND actor.id <> p_id THEN
        RAISE EXCEPTION 'Only an administrator revokes another token than the own one. Ask one.' USING ERRCODE = 'RM011';
    END IF;
    IF EXISTS (SELECT FROM tokens WHERE id = p_id AND role = 'administrator')
       AND NOT EXISTS (SELECT FROM tokens WHERE id <> p_id AND role = 'administrator' AND revoked_at IS NULL AND expires_at > clock()) THEN
        RAISE EXCEPTION 'This is the last administrator''s token: without it nobody could mint another. Mint one first.' USING ERRCODE = 'RM012';
    END IF;
    UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no token %. See `remit token list`.', p_id USING ERRCODE = 'RM012';
    END IF;
END $$;

-- Grants a mandate, freezes its cohort, supersedes the purpose's live one and closes what that had not sent.
CREATE FUNCTION grant_mandate(p_secret text, p_hash text, p_document jsonb, p_subjects text[])
RETURNS TABLE (outcome text, superseded text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); old mandates; known mandates;
BEGIN
    PERFORM pg_advisory_xact_lock(boundary_lock());
    SELECT * INTO known FROM mandates WHERE hash = p_hash;
    IF FOUND THEN
        outcome := CASE WHEN known.revoked_at IS NOT NULL THEN 'revoked'
                        WHEN known.superseded_at IS NOT NULL THEN 'superseded' ELSE 'already granted' END;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT * INTO old FROM mandates WHERE purpose = p_document ->> 'purpose' AND superseded_at IS NULL AND revoked_at IS NULL;
    IF FOUND THEN
        UPDATE mandates SET superseded_at = clock_timestamp() WHERE hash = old.hash;
    END IF;
    INSERT INTO mandates (hash, purpose, document, agent, valid_from, valid_until, grantor, grantor_role, token_id)
    VALUES (p_hash, p_document ->> 'purpose', p_document, p_document ->> 'agent',
            to_timestamp((p_document ->> 'valid_from')::bigint), to_timestamp((p_document ->> 'valid_until')::bigint),
            actor.person, actor.role, actor.id);
    INSERT INTO mandate_subjects SELECT DISTINCT p_hash, s FROM unnest(p_subjects) s;
    IF old.hash IS NOT NULL THEN
        UPDATE mandates SET superseded_by = p_hash WHERE hash = old.hash;
        PERFORM close_dead_mandates();
    END IF;
    outcome := 'granted';
    superseded := old.hash;
    RETURN NEXT;
END $$;

CREATE FUNCTION revoke_mandate(p_secret text, p_hash text) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); granted mandates;
BEGIN
    PERFORM pg_advisory_xact_lock(boundary_lock());
    SELECT * INTO granted FROM mandates WHERE hash = p_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no mandate %. See `remit mandate show`.', p_hash USING ERRCODE = 'RM012';
    ELSIF actor.person <> granted.grantor AND actor.role NOT IN ('administrator', 'finance_lead') THEN
        RAISE EXCEPTION 'Only its grantor %, a finance lead or an administrator revokes this mandate. `remit stop mandate` is open to everyone with a token.',
            granted.grantor USING ERRCODE = 'RM011';
    END IF;
    UPDATE mandates SET revoked_at = clock_timestamp(), revoked_by = actor.person WHERE hash = p_hash AND revoked_at IS NULL;
    RETURN (SELECT m.revoked_at FROM mandates m WHERE m.hash = p_hash);
END $$;

-- Anybody with a live token may stop; only the own stop, or any with a lead's or administrator's role, is lifted.
CREATE FUNCTION stop(p_secret text, p_scope text, p_value text, p_reason text) RETURNS orders
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); placed orders;
BEGIN
    IF p_scope IS NULL OR p_scope NOT IN ('all', 'mandate', 'run') THEN
        RAISE EXCEPTION 'A stop is for all, a mandate or a run, so nothing was stopped. Choose one of these.' USING ERRCODE = 'RM012';
    ELSIF (p_scope = 'run' AND NOT EXISTS (SELECT FROM runs WHERE id = p_value))
       OR (p_scope = 'mandate' AND NOT EXISTS (SELECT FROM mandates WHERE p_value IN (purpose, hash))) THEN
        RAISE EXCEPTION 'There is no % %, so nothing was stopped. See `remit runs`, or stop all.', p_scope, p_value USING ERRCODE = 'RM012';
    END IF;
    p_value := CASE p_scope WHEN 'all' THEN '' ELSE p_value END;
    PERFORM pg_advisory_xact_lock(boundary_lock());
    SELECT * INTO placed FROM orders
    WHERE kind = 'stop' AND scope = p_scope AND value = p_value AND lifted_at IS NULL;
    IF NOT FOUND THEN
        INSERT INTO orders (kind, scope, value, reason, issued_by, company_time)
        VALUES ('stop', p_scope, p_value, p_reason, actor.person, clock()) RETURNING * INTO placed;
    END IF;
    RETURN placed;
END $$;

-- What an order kept from being sent is closed before the order goes, so that nothing starts by itself afterwards.
CREATE FUNCTION lift(p_secret text, p_id bigint) RETURNS TABLE (order_id bigint, cancelled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret); standing orders;
BEGIN
    PERFORM pg_advisory_xact_lock(boundary_lock());
    SELECT * INTO standing FROM orders WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no order %. See `remit runs`.', p_id USING ERRCODE = 'RM012';
    ELSIF standing.lifted_at IS NOT NULL THEN
        RAISE EXCEPTION 'Order % was lifted by % already. Nothing was changed.', p_id, standing.lifted_by USING ERRCODE = 'RM012';
    ELSIF actor.person <> standing.issued_by AND actor.role NOT IN ('administrator', 'finance_lead') THEN
        RAISE EXCEPTION 'Only %, a finance lead or an administrator lifts this order. Ask one of them.', standing.issued_by
            USING ERRCODE = 'RM011';
    END IF;
    cancelled := cancel_stopped();
    UPDATE orders SET lifted_at = clock_timestamp(), lifted_by = actor.person WHERE id = p_id;
    order_id := p_id;
    RETURN NEXT;
END $$;

CREATE FUNCTION order_over(p_run text, p_purpose text, p_mandate text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT id FROM remit.orders
    WHERE lifted_at IS NULL
      AND (scope = 'all' OR (scope = 'run' AND value = p_run) OR (scope = 'mandate' AND value IN (p_purpose, p_mandate)))
    ORDER BY id LIMIT 1
$$;

-- Waiting operations under a standing order are closed; those sent are followed by the sweep. In order of id and waiting
-- for locks: what were skipped here would start by itself once the order is lifted.
CREATE FUNCTION cancel_stopped() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE closed_now bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM orders WHERE lifted_at IS NULL) THEN
        RETURN 0;
    END IF;
    UPDATE operations o SET state = 'CLOSED', closed = 'cancelled', version = version + 1, closed_detail = 'stopped by order ' || s.order_id
    FROM (SELECT id, order_over(run_id, purpose, mandate_hash) AS order_id FROM operations
          WHERE state = 'PENDING' AND order_over(run_id, purpose, mandate_hash) IS NOT NULL ORDER BY id FOR UPDATE) s
    WHERE o.id = s.id AND o.state = 'PENDING';
    GET DIAGNOSTICS closed_now = ROW_COUNT;
    PERFORM cancel_empty_approvals();
    RETURN closed_now;
END $$;

-- What waits under a mandate that can never be in force again waits for nothing. One that begins later is left alone.
CREATE FUNCTION close_dead_mandates() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE closed_now bigint;
BEGIN
    UPDATE operations o SET state = 'CLOSED', version = version + 1, closed = d.closed, closed_detail = d.detail
    FROM (SELECT p.id, CASE WHEN m.superseded_at IS NOT NULL THEN 'superseded' WHEN m.revoked_at IS NOT NULL THEN 'cancelled'
                            ELSE 'expired' END AS closed,
                 CASE WHEN m.superseded_at IS NOT NULL THEN 'a corrected mandate was granted'
                      WHEN m.revoked_at IS NOT NULL THEN 'its mandate was revoked' ELSE 'its mandate is over' END AS detail
          FROM operations p JOIN mandates m ON m.hash = p.mandate_hash
          WHERE p.state = 'PENDING' AND (m.superseded_at IS NOT NULL OR m.revoked_at IS NOT NULL OR m.valid_until <= clock())
          ORDER BY p.id FOR UPDATE OF p) d
    WHERE o.id = d.id AND o.state = 'PENDING';
    GET DIAGNOSTICS closed_now = ROW_COUNT;
    PERFORM cancel_empty_approvals();
    RETURN closed_now;
END $$;

-- An approval whose every undecided action is closed asks nobody anything.
CREATE FUNCTION cancel_empty_approvals() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE approvals a SET closed_at = clock_timestamp(),
           status = CASE WHEN EXISTS (SELECT FROM approval_items i WHERE i.approval_id = a.id AND i.decision IS NOT NULL)
                         THEN 'DECIDED' ELSE 'CANCELLED' END
    WHERE a.status = 'OPEN' AND NOT EXISTS (
        SELECT FROM approval_items i JOIN operations o ON o.id = i.operation_id
        WHERE i.approval_id = a.id AND i.decision IS NULL AND o.state = 'PENDING')
$$;
