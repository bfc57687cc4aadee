-- Tokens, mandates, orders: what people say enters only through these functions, which check the token themselves.
-- Error codes: RM010 token, RM011 authority, RM012 state. The message is shown as it is; its last sentence is the next step.

-- Claims take this lock shared, orders and supersession take it exclusively: a claim that waited for it takes its
-- snapshot afterwards and so sees the order (I4). Transaction-scoped, so that transaction poolers work.
CREATE FUNCTION boundary_lock() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 7236847123345001::bigint $$;

-- Shared until the caller's commit: a revocation waits for what a token is saying, so nothing that it says commits later.
CREATE FUNCTION token_behind(p_secret text) RETURNS tokens
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT t FROM tokens t WHERE t.secret_hash = sha256(convert_to(p_secret, 'UTF8')) FOR SHARE
$$;

-- Why a token speaks for nobody now, or NULL.
CREATE FUNCTION token_refusal(t tokens) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE WHEN t.id IS NULL THEN 'token_unknown'
                WHEN t.revoked_at IS NOT NULL THEN 'token_revoked'
                WHEN t.expires_at <= clock() THEN 'token_expired' END
$$;

CREATE FUNCTION token_of(p_secret text) RETURNS tokens
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
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

CREATE FUNCTION whoami(p_secret text) RETURNS TABLE (token_id text, person text, natural_person text, role text, expires_at timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT t.id, t.person, t.natural_person, t.role, t.expires_at FROM token_of(p_secret) t
$$;

-- The natural person behind an identity, the same for all its tokens: as said, or as known from an earlier token, or of
-- the identity's own name. An identity never changes hands, since what it once said would then be somebody else's word.
CREATE FUNCTION natural_person_of(p_person text, p_said text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE known text := (SELECT t.natural_person FROM tokens t WHERE t.person = p_person LIMIT 1);
BEGIN
    IF known <> p_said THEN
        RAISE EXCEPTION '% is an identity of % and stays one. Give the new token another name for its person.', p_person, known
            USING ERRCODE = 'RM012';
    END IF;
    RETURN coalesce(known, p_said, p_person);
END $$;

-- The first token of an empty database needs no other one; every later one is minted by an administrator.
CREATE FUNCTION mint_token(p_minter text, p_id text, p_secret_hash bytea, p_person text, p_role text, p_seconds double precision,
                           p_natural_person text)
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
        INSERT INTO tokens (id, person, natural_person, role, secret_hash, minted_by, expires_at)
        VALUES (p_id, p_person, natural_person_of(p_person, p_natural_person), p_role, p_secret_hash, 'bootstrap', expiry);
        RETURN expiry;
    END IF;
    minter := token_of(p_minter);
    IF minter.role <> 'administrator' THEN
        RAISE EXCEPTION '% is %, and only an administrator mints tokens. Ask one.', minter.person, minter.role USING ERRCODE = 'RM011';
    END IF;
    INSERT INTO tokens (id, person, natural_person, role, secret_hash, minted_by, expires_at)
    VALUES (p_id, p_person, natural_person_of(p_person, p_natural_person), p_role, p_secret_hash, minter.person, expiry);
    RETURN expiry;
END $$;

-- What the token granted and nobody has begun to send is void, and asked again. Returns how many actions that are.
CREATE FUNCTION revoke_token(p_secret text, p_id text) RETURNS bigint
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
    -- Waits here for what the token is saying, so that the moment below is later than all of it.
    PERFORM FROM tokens WHERE id = p_id FOR UPDATE;
    UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no token %. See `remit token list`.', p_id USING ERRCODE = 'RM012';
    END IF;
    RETURN void_grants_of(p_id);
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
BEGIN
    RETURN place_order((token_of(p_secret)).person, 'stop', p_scope, p_value, p_reason);
END $$;

-- A freeze is a fact of the whole installation, so it takes a role that answers for more than one mandate.
CREATE FUNCTION freeze(p_secret text, p_scope text, p_value text, p_reason text) RETURNS orders
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret);
BEGIN
    IF actor.role NOT IN ('administrator', 'finance_lead') THEN
        RAISE EXCEPTION '% is %, and only a finance lead or an administrator freezes, so nothing was frozen. Ask one, or use `remit stop`, which is open to everyone with a token.',
            actor.person, actor.role USING ERRCODE = 'RM011';
    END IF;
    RETURN place_order(actor.person, 'freeze', p_scope, p_value, p_reason);
END $$;

CREATE FUNCTION place_order(p_person text, p_kind text, p_scope text, p_value text, p_reason text) RETURNS orders
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE placed orders;
BEGIN
    PERFORM check_order_scope(p_scope, p_value, CASE p_kind WHEN 'freeze' THEN 'frozen' ELSE 'stopped' END);
    PERFORM pg_advisory_xact_lock(boundary_lock());
    SELECT * INTO placed FROM orders
    WHERE kind = p_kind AND scope = p_scope AND value = coalesce(p_value, '') AND lifted_at IS NULL;
    IF NOT FOUND THEN
        INSERT INTO orders (kind, scope, value, reason, issued_by, company_time)
        VALUES (p_kind, p_scope, coalesce(p_value, ''), p_reason, p_person, clock()) RETURNING * INTO placed;
    END IF;
    RETURN placed;
END $$;

-- A misspelled name would stop nothing and look like a stop. Tools and effects live in the catalogue, which whoever
-- calls this has checked.
CREATE FUNCTION check_order_scope(p_scope text, p_value text, p_done text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF p_scope IS NULL OR p_scope NOT IN ('all', 'mandate', 'run', 'agent', 'version', 'tool', 'effect', 'subject') THEN
        RAISE EXCEPTION 'An order is over all, or over a mandate, run, agent, version, tool, effect or subject, so nothing was %. Choose one of these.', p_done
            USING ERRCODE = 'RM012';
    ELSIF (p_scope = 'all') <> (coalesce(p_value, '') = '') THEN
        RAISE EXCEPTION 'An order over all names nothing, and any other one names what it is over, so nothing was %. Give both.', p_done USING ERRCODE = 'RM012';
    ELSIF NOT (CASE p_scope
        WHEN 'run' THEN EXISTS (SELECT FROM runs WHERE id = p_value)
        WHEN 'mandate' THEN EXISTS (SELECT FROM mandates WHERE p_value IN (purpose, hash))
        WHEN 'agent' THEN EXISTS (SELECT FROM mandates WHERE agent = p_value)
        WHEN 'version' THEN EXISTS (SELECT FROM runs WHERE agent_version = p_value)
                         OR EXISTS (SELECT FROM operations WHERE agent_version = p_value)
        WHEN 'subject' THEN EXISTS (SELECT FROM mandate_subjects WHERE subject = p_value)
                         OR EXISTS (SELECT FROM operations WHERE subject = p_value)
        ELSE true END)
    THEN
        RAISE EXCEPTION 'There is no % % here, so nothing was %. See `remit runs`, or stop all.', p_scope, p_value, p_done USING ERRCODE = 'RM012';
    END IF;
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
    PERFORM accept_restore(standing);
    cancelled := cancel_stopped();
    UPDATE orders SET lifted_at = clock_timestamp(), lifted_by = actor.person WHERE id = p_id;
    order_id := p_id;
    RETURN NEXT;
END $$;

-- Whether an order with this scope is over an operation, or (without tool, effect and subject) over a whole run.
CREATE FUNCTION covers(s orders, p_run text, p_purpose text, p_mandate text, p_agent text, p_version text,
                       p_tool text, p_effect text, p_subject text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE s.scope
        WHEN 'all' THEN true WHEN 'run' THEN s.value = p_run WHEN 'mandate' THEN s.value IN (p_purpose, p_mandate)
        WHEN 'agent' THEN s.value = p_agent WHEN 'version' THEN s.value = p_version WHEN 'tool' THEN s.value = p_tool
        WHEN 'effect' THEN s.value = p_effect WHEN 'subject' THEN s.value = p_subject END, false)
$$;

-- The order that bars an operation, a stop (or a restore, which is one) before a freeze: the first closes what waits, the
-- second only keeps it.
CREATE FUNCTION order_over(o operations) RETURNS orders
LANGUAGE sql STABLE AS $$
    SELECT s FROM remit.orders s
    WHERE s.lifted_at IS NULL
      AND remit.covers(s, o.run_id, o.purpose, o.mandate_hash, o.agent, o.agent_version, o.tool, o.effect, o.subject)
    ORDER BY s.kind DESC, s.id LIMIT 1
$$;

-- The stop that ends a whole run. One over a tool, an effect or a subject leaves the run its other work, and a freeze
-- ends nothing.
CREATE FUNCTION stop_of_run(r runs) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT s.id FROM remit.orders s
    WHERE s.lifted_at IS NULL AND s.kind <> 'freeze'
      AND remit.covers(s, r.id, r.purpose, r.mandate_hash, r.agent, r.agent_version, NULL, NULL, NULL)
    ORDER BY s.id LIMIT 1
$$;

-- Waiting operations under a stop are closed; those sent are followed by the sweep. In order of id and waiting for
-- locks: what were skipped here would start by itself once the order is lifted.
CREATE FUNCTION cancel_stopped() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE closed_now bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM orders WHERE lifted_at IS NULL AND kind <> 'freeze') THEN
        RETURN 0;
    END IF;
    UPDATE operations o SET state = 'CLOSED', closed = 'cancelled', version = version + 1, closed_detail = 'stopped by order ' || s.order_id
    FROM (SELECT p.id, s.id AS order_id FROM operations p CROSS JOIN LATERAL order_over(p) s
          WHERE p.state = 'PENDING' AND s.kind <> 'freeze' ORDER BY p.id FOR UPDATE OF p) s
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
           status = CASE WHEN EXISTS (SELECT FROM approval_items i WHERE i.approval_id = a.id AND i.decision IN ('granted', 'rejected'))
                         THEN 'DECIDED' ELSE 'CANCELLED' END
    WHERE a.status = 'OPEN' AND NOT EXISTS (
        SELECT FROM approval_items i JOIN operations o ON o.id = i.operation_id
        WHERE i.approval_id = a.id AND i.decision IS NULL AND o.state = 'PENDING')
$$;
