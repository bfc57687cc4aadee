-- Every statement that Remit's processes run, by name. All tables are read; every change is a function call.

-- name: installation
SELECT id, tenant, environment, zone, clock_offset, created_at, remit.clock() AS company_now, clock_timestamp() AS now FROM remit.installation

-- name: now
SELECT clock_timestamp() AS now

-- name: company_now
SELECT remit.clock() AS now

-- name: advance_clock
SELECT remit.advance_clock(%(seconds)s) AS now

-- name: claim
SELECT * FROM remit.claim(%(run)s, %(token)s, %(worker)s, %(ids)s, %(read_at)s, %(send_seconds)s, %(terms)s)

-- name: may_send
SELECT remit.may_send(%(run)s, %(token)s, %(attempts)s) AS id

-- name: record
SELECT * FROM remit.record(%(receipts)s)

-- name: unsend
SELECT remit.unsend(%(attempts)s)

-- name: due
SELECT * FROM remit.due(%(run)s, %(limit)s)

-- name: settle
SELECT remit.settle(%(results)s) AS moved

-- name: doors
SELECT name, closed, failures, detail FROM remit.receivers

-- name: knock
SELECT remit.knock(%(receiver)s) AS passed

-- name: note_answer
SELECT * FROM remit.note_answer(%(receiver)s, %(met)s, %(detail)s)

-- name: receivers
SELECT r.name, r.closed, r.failures, r.detail, r.since, r.probing, r.probe_at, clock_timestamp() AS now, (
           SELECT count(*) FROM remit.operations o WHERE r.closed IS NOT NULL AND (
               (o.state IN ('UNKNOWN', 'ACCEPTED') AND o.receivers[1] = r.name)
               OR (o.state = 'PENDING' AND r.name = ANY (o.receivers)))) AS waiting
FROM remit.receivers r ORDER BY r.name

-- name: register_worker
SELECT remit.register_worker(%(id)s, %(host)s, %(pid)s, %(lock_path)s)

-- name: worker_dead
SELECT remit.worker_dead(%(id)s)

-- name: live_workers
SELECT id, host, lock_path FROM remit.workers WHERE dead_at IS NULL AND id <> %(me)s

-- name: swept
SELECT remit.swept(%(worker)s)

-- name: last_sweep
SELECT max(seen_at) AS seen_at, clock_timestamp() AS now FROM remit.workers WHERE sweeps > 0

-- name: stuck
SELECT count(*) AS count, extract(epoch FROM clock_timestamp() - min(least(o.due_at, o.changed_at)))::double precision AS seconds
FROM remit.operations o
WHERE o.state IN ('SENDING', 'UNKNOWN', 'ACCEPTED')
  AND (o.due_at < clock_timestamp() - make_interval(secs => %(seconds)s)
       OR (o.state = 'UNKNOWN' AND o.changed_at < clock_timestamp() - make_interval(secs => %(seconds)s)))
  AND NOT EXISTS (SELECT FROM remit.cases c WHERE c.operation_id = o.id AND c.closed_at IS NULL)

-- name: tidy
SELECT remit.tidy() AS changed

-- name: ready_runs
SELECT remit.ready_runs() AS id

-- name: run_ready
SELECT remit.run_ready(%(run)s) AS ready

-- name: start_run
SELECT * FROM remit.start_run(%(secret)s, %(run)s, %(mandate)s, %(agent_version)s, %(fingerprint)s)

-- name: acquire_lease
SELECT remit.acquire_lease(%(run)s, %(worker)s, %(seconds)s) AS token

-- name: heartbeat
SELECT remit.heartbeat(%(run)s, %(token)s, %(seconds)s) AS held

-- name: release_run
SELECT remit.release_run(%(run)s, %(token)s, %(status)s, %(reason)s, %(waits)s)

-- name: carry_version
SELECT remit.carry_version(%(run)s, %(token)s, %(version)s)

-- name: new_thread
SELECT remit.new_thread(%(run)s, %(token)s, %(state)s, %(why)s, %(fingerprint)s) AS number

-- name: run
SELECT r.*, m.document, m.grantor, m.grantor_role, m.granted_at, m.superseded_at, m.revoked_at, l.token, l.worker, l.lease_until,
       l.lease_until > clock_timestamp() AS held, remit.mandate_live(r.mandate_hash) AS mandate_live,
       remit.stop_of_run(r) AS order_id
FROM remit.runs r JOIN remit.mandates m ON m.hash = r.mandate_hash JOIN remit.leases l ON l.run_id = r.id WHERE r.id = %(run)s

-- name: limits_waited_for
SELECT o.run_id, w.bucket, u.name, count(*) AS count, nullif(u.ends, 'infinity') AS turns
FROM remit.limit_waits w JOIN remit.operations o ON o.id = w.operation_id JOIN remit.limit_usage u ON u.bucket = w.bucket
WHERE u.ends > remit.clock() GROUP BY 1, 2, 3, 5 ORDER BY 1, 3

-- name: runs
SELECT r.id, r.purpose, r.mandate_hash, r.owner, r.agent, r.agent_version, r.status, r.reason, r.waits, r.created_at, r.ended_at,
       l.worker, l.lease_until > clock_timestamp() AS held, remit.stop_of_run(r) AS order_id
FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id
WHERE %(all)s OR r.ended_at IS NULL OR r.ended_at > clock_timestamp() - interval '7 days'
ORDER BY r.created_at DESC LIMIT %(limit)s

-- name: runs_of_purpose
SELECT r.id, r.purpose, r.mandate_hash, r.owner, r.agent, r.agent_version, r.status, r.reason, r.waits, r.created_at, r.ended_at,
       l.worker, l.lease_until > clock_timestamp() AS held, remit.stop_of_run(r) AS order_id
FROM remit.runs r JOIN remit.leases l ON l.run_id = r.id WHERE r.purpose = %(purpose)s ORDER BY r.created_at DESC

-- name: threads
SELECT * FROM remit.threads WHERE run_id = %(run)s ORDER BY number

-- name: store_plan
SELECT * FROM remit.store_plan(%(run)s, %(token)s, %(number)s, %(hash)s, %(calls)s, %(content)s, %(tokens)s, %(agent_version)s)

-- name: store_results
SELECT remit.store_results(%(run)s, %(token)s, %(number)s, %(results)s)

-- name: plan
SELECT * FROM remit.plans WHERE run_id = %(run)s AND number = %(number)s

-- name: reads_before
SELECT count(*) FROM remit.plans p, jsonb_array_elements(p.calls) c
WHERE p.run_id = %(run)s AND p.number < %(number)s AND c ->> 'name' = ANY (%(tools)s)

-- name: plans
SELECT * FROM remit.plans WHERE run_id = %(run)s ORDER BY number

-- name: movement
SELECT remit.movement(%(run)s) AS movement

-- name: store_cohort
SELECT remit.store_cohort(%(run)s, %(token)s, %(handle)s, %(tool)s, %(arguments)s, %(subjects)s, %(sample)s)

-- name: cohort
SELECT handle, subjects, sample FROM remit.cohorts WHERE run_id = %(run)s AND handle = %(handle)s

-- name: store_statements
SELECT remit.store_statements(%(run)s, %(token)s, %(plan)s, %(rows)s)

-- name: statements
SELECT run_id, plan, number, text, step, count, at FROM remit.statements WHERE run_id = ANY (%(runs)s) ORDER BY at, plan, number

-- name: store_proposals
SELECT remit.store_proposals(%(run)s, %(token)s, %(rows)s) AS stored

-- name: open_proposals
SELECT plan, call, subject, tool, step, intent, amount_minor, currency FROM remit.proposals
WHERE run_id = %(run)s AND outcome IS NULL ORDER BY plan, array_position(%(steps)s::text[], step), call, subject LIMIT %(limit)s

-- name: open_keys
SELECT DISTINCT r.purpose || '/' || p.step || '/' || p.subject || '/1' AS key FROM remit.proposals p JOIN remit.runs r ON r.id = p.run_id
WHERE p.run_id = %(run)s AND p.outcome IS NULL AND r.purpose || '/' || p.step || '/' || p.subject || '/1' = ANY (%(keys)s)

-- name: resolve_proposals
SELECT remit.resolve_proposals(%(run)s, %(token)s, %(rows)s)

-- name: proposal_totals
SELECT step, currency, count(*) AS count, least(coalesce(sum(amount_minor), 0), 1e15)::bigint AS amount FROM (
    SELECT p.step, p.subject, p.currency, p.amount_minor FROM remit.proposals p JOIN remit.runs r ON r.id = p.run_id
    WHERE p.run_id = %(run)s AND p.outcome IS NULL AND p.step IS NOT NULL AND NOT EXISTS (
        SELECT FROM remit.operations o WHERE o.key = r.purpose || '/' || p.step || '/' || p.subject || '/1' AND o.state <> 'CLOSED')
    UNION
    SELECT step, subject, currency, amount_minor FROM remit.operations WHERE run_id = %(run)s AND state = 'PENDING') proposed
GROUP BY 1, 2

-- name: question_totals
SELECT 'effect' AS part, effect AS name, currency, count(*) AS count, least(coalesce(sum(amount_minor), 0), 1e15)::bigint AS amount
FROM remit.operations WHERE purpose = %(purpose)s AND state IN ('SENDING', 'UNKNOWN', 'ACCEPTED', 'SETTLED') GROUP BY 2, 3
UNION ALL
SELECT 'given', effect || ' ' || subject, currency, count(*), least(coalesce(sum(amount_minor), 0), 1e15)::bigint FROM remit.operations
WHERE purpose = %(purpose)s AND subject = ANY (%(subjects)s) AND state IN ('SENDING', 'UNKNOWN', 'ACCEPTED', 'SETTLED') GROUP BY 2, 3
UNION ALL
SELECT 'used', name, currency, count, least(amount_minor, 1000000000000000) FROM remit.limits_in_use(%(purpose)s, %(effects)s)

-- name: proposal_outcomes
SELECT p.call, p.tool, p.step, coalesce(p.outcome, 'open') AS outcome, p.code, o.verdict, o.state, o.closed, count(*) AS count,
       min(p.subject) AS example, (array_agg(o.reasons) FILTER (WHERE o.verdict = 'deny'))[1] AS reasons
FROM remit.proposals p LEFT JOIN remit.operations o ON o.id = p.operation_id
WHERE p.run_id = %(run)s AND p.plan = %(plan)s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 4

-- name: overlapping_mandates
SELECT m.purpose, m.hash, e.effect, count(*) AS subjects FROM remit.mandate_subjects s JOIN remit.mandates m ON m.hash = s.mandate_hash
CROSS JOIN LATERAL (SELECT DISTINCT t ->> 'effect' AS effect FROM jsonb_array_elements(m.document -> 'steps') t) e
WHERE s.subject = ANY (%(subjects)s) AND e.effect = ANY (%(effects)s) AND m.purpose <> %(purpose)s
  AND m.superseded_at IS NULL AND m.revoked_at IS NULL AND m.valid_until > remit.clock() GROUP BY 1, 2, 3 ORDER BY 1, 3

-- name: key_standing
SELECT * FROM remit.key_standing(%(keys)s)

-- name: facts_of_keys
SELECT DISTINCT ON (key) key, shown_fact AS fact, state <> 'CLOSED' AS live FROM remit.standing
WHERE key = ANY (%(keys)s) ORDER BY key, state = 'CLOSED', revision DESC

-- name: in_cohort
SELECT subject FROM remit.mandate_subjects WHERE mandate_hash = %(mandate)s AND subject = ANY (%(subjects)s)

-- name: propose
SELECT * FROM remit.propose(%(run)s, %(token)s, %(rows)s)

-- name: judge
SELECT remit.judge(%(run)s, %(token)s, %(rows)s)

-- name: reopen_stale
SELECT remit.reopen_stale(%(run)s, %(token)s, %(most)s) AS reopened

-- name: policy_silent
SELECT remit.policy_silent(%(run)s, %(token)s, %(ids)s, %(detail)s, %(seconds)s)

-- name: fall_back
SELECT remit.fall_back(%(run)s, %(token)s, %(ids)s, %(detail)s) AS given_up

-- name: put_off
SELECT remit.put_off(%(run)s, %(token)s, %(ids)s, %(detail)s, %(seconds)s)

-- name: close_pending
SELECT remit.close_pending(%(run)s, %(token)s, %(ids)s, %(closed)s, %(detail)s) AS closed

-- name: clear_gates
SELECT remit.clear_gates(%(run)s, %(token)s)

-- name: ask_approvals
SELECT remit.ask_approvals(%(run)s, %(token)s, %(new_id)s) AS id

-- name: start_holds
SELECT remit.start_holds(%(run)s) AS started

-- name: sendable
SELECT s.id, s.key, s.revision, s.step, s.subject, s.effect, s.tool, s.state, s.intent, s.request, s.relied_on, s.policy_revision, s.plan
FROM remit.operations s WHERE s.run_id = %(run)s AND s.id > %(after)s AND s.state IN ('PENDING', 'UNKNOWN') AND remit.obstacle(s) = 'ready'
ORDER BY s.id LIMIT %(limit)s

-- name: unjudged
SELECT s.id, s.key, s.revision, s.step, s.subject, s.effect, s.tool, s.state, s.intent, s.request, s.relied_on, s.policy_revision, s.plan
FROM remit.operations s WHERE s.run_id = %(run)s AND s.id > %(after)s AND s.state = 'PENDING'
  AND (s.verdict IS NULL OR s.policy_revision IS DISTINCT FROM %(revision)s) ORDER BY s.id LIMIT %(limit)s

-- name: question_rows
SELECT id, key, step, subject, effect, tool, tool_version, amount_minor, currency, reversibility, consequence, snapshot, intent, requires
FROM remit.operations WHERE id = ANY (%(ids)s) ORDER BY id

-- name: obstacles
SELECT obstacle, s.run_id = %(run)s AS own, count(*) AS count, min(hold_until) AS hold_until, min(due_at) AS due_at
FROM remit.standing s JOIN remit.concerns c ON c.operation_id = s.id AND c.run_id = %(run)s
WHERE state NOT IN ('SETTLED', 'CLOSED') GROUP BY 1, 2 ORDER BY 1

-- name: gate_details
SELECT g.kind, g.detail, count(*) AS count, min(g.until) AS until, min(u.ends) AS turns
FROM remit.gates g JOIN remit.operations o ON o.id = g.operation_id LEFT JOIN remit.limit_waits w ON (w.operation_id, w.kind) = (g.operation_id, g.kind)
LEFT JOIN remit.limit_usage u ON u.bucket = w.bucket AND u.ends < 'infinity'
WHERE o.run_id = %(run)s AND o.state = 'PENDING' AND (g.until > clock_timestamp() OR (g.kind = 'policy' AND o.verdict IS NULL)) GROUP BY 1, 2 ORDER BY 1

-- name: step_facts
SELECT m.step, coalesce(o.shown_fact, 'NOT_SENT') AS fact, o.state, o.closed, count(*) AS count FROM
    (SELECT s.subject, t.step FROM remit.mandate_subjects s CROSS JOIN unnest(%(steps)s::text[]) AS t (step) WHERE s.mandate_hash = %(mandate)s) m
LEFT JOIN LATERAL (
    SELECT shown_fact, state, closed FROM remit.standing x
    WHERE x.key = %(purpose)s || '/' || m.step || '/' || m.subject || '/1' ORDER BY x.state = 'CLOSED', x.revision DESC LIMIT 1) o ON true
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2

-- name: denials
SELECT intent_hash, step, count(*) AS count, (array_agg(reasons ORDER BY id DESC))[1] AS reasons FROM remit.operations
WHERE run_id = %(run)s AND closed IN ('denied', 'rejected') GROUP BY 1, 2, subject HAVING count(*) > 1 LIMIT 1

-- name: whoami
SELECT * FROM remit.whoami(%(secret)s)

-- name: may_see
SELECT seen FROM remit.may_see(%(secret)s, %(kind)s, %(names)s, %(named)s) AS seen

-- name: mint_token
SELECT remit.mint_token(%(minter)s, %(id)s, %(hash)s, %(person)s, %(role)s, %(seconds)s, %(natural_person)s) AS expires_at

-- name: revoke_token
SELECT remit.revoke_token(%(secret)s, %(id)s) AS voided

-- name: tokens
SELECT id, person, natural_person, role, minted_by, created_at, expires_at, revoked_at, expires_at <= remit.clock() AS expired FROM remit.tokens ORDER BY created_at

-- name: grant_mandate
SELECT * FROM remit.grant_mandate(%(secret)s, %(hash)s, %(document)s, %(subjects)s)

-- name: revoke_mandate
SELECT remit.revoke_mandate(%(secret)s, %(hash)s) AS revoked_at

-- name: mandates
SELECT m.*, remit.mandate_live(m.hash) AS live, (SELECT count(*) FROM remit.mandate_subjects s WHERE s.mandate_hash = m.hash) AS subjects
FROM remit.mandates m WHERE %(which)s::text IS NULL OR m.hash = %(which)s OR m.purpose = %(which)s ORDER BY m.granted_at DESC

-- name: mandate_subjects
SELECT subject FROM remit.mandate_subjects WHERE mandate_hash = %(mandate)s ORDER BY subject

-- name: decide
SELECT * FROM remit.decide(%(secret)s, %(approval)s, %(set_hash)s, %(decision)s, %(only)s, %(rationale)s)

-- name: unapprove
SELECT * FROM remit.unapprove(%(secret)s, %(approval)s, %(only)s, %(rationale)s)

-- name: edit
SELECT remit.edit(%(secret)s, %(operation)s, %(version)s, %(intent)s, %(rationale)s) AS outcome

-- name: approvals
SELECT a.*, r.purpose, r.agent, r.owner, m.grantor, a.decide_by <= remit.clock() AS late,
       count(i.*) AS actions, count(i.*) FILTER (WHERE i.decision IS NULL AND o.state = 'PENDING') AS undecided
FROM remit.approvals a JOIN remit.runs r ON r.id = a.run_id JOIN remit.mandates m ON m.hash = a.mandate_hash
JOIN remit.approval_items i ON i.approval_id = a.id JOIN remit.operations o ON o.id = i.operation_id
WHERE (%(which)s::text IS NULL AND a.status = 'OPEN') OR a.id = %(which)s
GROUP BY a.id, r.purpose, r.agent, r.owner, m.grantor ORDER BY a.asked_at

-- name: approval_groups
SELECT o.step, o.effect, o.tool, o.amount_minor, o.currency, o.reversibility, o.consequence, count(*) AS count,
       coalesce(sum(o.amount_minor), 0)::bigint AS total, (array_agg(o.reasons))[1] AS reasons, min(o.subject) AS first, max(o.subject) AS last
FROM remit.approval_items i JOIN remit.operations o ON o.id = i.operation_id WHERE i.approval_id = %(approval)s
GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY count(*)

-- name: approval_items
SELECT i.*, o.key, o.revision, o.version, o.step, o.subject, o.effect, o.tool, o.tool_version, o.mandate_hash, o.intent, o.request, o.relied_on,
       o.state, o.closed, o.reasons, e.person AS edited_by, (
           SELECT v.voided_why FROM remit.approval_items v JOIN remit.approvals x ON x.id = v.approval_id
           WHERE v.operation_id = o.id AND v.approval_id <> i.approval_id AND v.decision = 'voided' ORDER BY x.asked_at DESC LIMIT 1) AS void_before
FROM remit.approval_items i JOIN remit.operations o ON o.id = i.operation_id
LEFT JOIN remit.operations p ON p.key = o.key AND p.revision = o.revision - 1 LEFT JOIN remit.edits e ON e.operation_id = p.id
WHERE i.approval_id = %(approval)s ORDER BY o.step, o.subject

-- name: asked_before
SELECT i.operation_id, b.id, b.revision, b.tool, b.tool_version, b.mandate_hash, b.intent, b.request, b.relied_on, b.closed
FROM remit.approval_items i JOIN remit.operations o ON o.id = i.operation_id CROSS JOIN LATERAL (
    SELECT p.* FROM remit.operations p WHERE p.key = o.key AND p.revision < o.revision
      AND EXISTS (SELECT FROM remit.approval_items x WHERE x.operation_id = p.id) ORDER BY p.revision DESC LIMIT 1) b
WHERE i.approval_id = %(approval)s

-- name: left_out
SELECT s.step, s.closed, s.obstacle, CASE WHEN s.closed = 'denied' THEN s.closed_detail END AS detail, remit.asked_about(s.id, s.action_hash) AS asked,
       count(*) AS count, min(s.subject) AS first
FROM remit.standing s WHERE s.run_id = (SELECT a.run_id FROM remit.approvals a WHERE a.id = %(approval)s)
  AND NOT EXISTS (SELECT FROM remit.approval_items i WHERE i.approval_id = %(approval)s AND i.operation_id = s.id)
  AND NOT EXISTS (SELECT FROM remit.operations l WHERE l.key = s.key AND l.revision > s.revision)
GROUP BY 1, 2, 3, 4, 5 ORDER BY 6, 1

-- name: stop
SELECT * FROM remit.stop(%(secret)s, %(scope)s, %(value)s, %(reason)s)

-- name: lift
SELECT * FROM remit.lift(%(secret)s, %(id)s)

-- name: restored
SELECT * FROM remit.restored(%(secret)s, %(reason)s)

-- name: watch_restore
SELECT * FROM remit.watch_restore(%(journal)s, %(at)s)

-- name: standing_restore
SELECT o.id, r.noticed_at, clock_timestamp() AS now, i.created_at AS since,
       ARRAY(SELECT m.purpose FROM remit.mandates m GROUP BY 1 ORDER BY 1) AS purposes, ARRAY(SELECT remit.unverified(o.id)) AS unverified
FROM remit.installation i, remit.orders o JOIN remit.restores r ON r.order_id = o.id WHERE o.kind = 'restore' AND o.lifted_at IS NULL

-- name: verify_restored
SELECT * FROM remit.verify_restored(%(secret)s, %(order)s, %(purposes)s, %(began)s, %(bound)s, %(rows)s)

-- name: lost_effects
SELECT f.key, f.purpose, f.effect, f.source, f.as_of, f.records FROM remit.lost_effects f
WHERE f.purpose = %(purpose)s AND f.adopted_by IS NULL ORDER BY f.key

-- name: orders
SELECT o.* FROM remit.orders o WHERE lifted_at IS NULL OR %(all)s ORDER BY id

-- name: holds
SELECT s.id, s.key, s.step, s.subject, s.effect, s.run_id, s.intent, s.hold_until, (obligations ->> 'hold_seconds')::integer AS hold_seconds, obstacle,
       coalesce(obligations -> 'release_by', '[]') AS release_by, CASE WHEN s.hold_until IS NULL THEN c.leaves END AS not_before, remit.clock() AS now
FROM remit.standing s LEFT JOIN LATERAL (
    SELECT h.leaves FROM remit.hold_changes h WHERE h.operation_id = s.id AND h.outcome = 'rescheduled' ORDER BY h.id DESC LIMIT 1) c ON true
WHERE state = 'PENDING' AND (obligations ->> 'hold_seconds')::integer > 0 AND obstacle IN ('hold', 'ready', 'requirement') ORDER BY s.hold_until NULLS LAST, s.id

-- name: cancel_holds
SELECT * FROM remit.cancel_holds(%(secret)s, %(ids)s)

-- name: release_holds
SELECT * FROM remit.release_holds(%(secret)s, %(ids)s)

-- name: reschedule_holds
SELECT * FROM remit.reschedule_holds(%(secret)s, %(ids)s, %(to)s, %(by)s)

-- name: hold_changes
SELECT verb, outcome, detail, planned, leaves, person, token_id, at FROM remit.hold_changes WHERE operation_id = %(id)s ORDER BY id

-- name: barred
SELECT w.key, (SELECT replace(s.kind, 'restore', 'stop') FROM remit.orders s WHERE s.lifted_at IS NULL
                AND remit.covers(s, r.id, r.purpose, r.mandate_hash, r.agent, r.agent_version, w.tool, w.effect, w.subject)
               ORDER BY s.kind DESC LIMIT 1) AS kind
FROM remit.runs r, unnest(%(keys)s::text[], %(tools)s::text[], %(effects)s::text[], %(subjects)s::text[]) w (key, tool, effect, subject)
WHERE r.id = %(run)s

-- name: done_within
SELECT o.purpose, o.mandate_hash, count(*) AS done FROM remit.orders s JOIN remit.operations o
  ON remit.covers(s, o.run_id, o.purpose, o.mandate_hash, o.agent, o.agent_version, o.tool, o.effect, o.subject)
WHERE s.id = %(order)s AND o.state = 'SETTLED' AND o.purpose IN (
    SELECT r.purpose FROM remit.runs r WHERE r.ended_at IS NULL OR r.ended_at > clock_timestamp() - interval '1 day')
GROUP BY 1, 2 ORDER BY 1, 2

-- name: in_motion
SELECT o.shown_fact AS fact, o.obstacle, o.step, count(*) AS count, coalesce(sum(o.amount_minor), 0)::bigint AS amount, o.currency
FROM remit.orders s JOIN remit.standing o
  ON remit.covers(s, o.run_id, o.purpose, o.mandate_hash, o.agent, o.agent_version, o.tool, o.effect, o.subject)
WHERE s.id = %(order)s AND o.state NOT IN ('SETTLED', 'CLOSED') GROUP BY 1, 2, 3, 6 ORDER BY 1, 2

-- name: followed
SELECT count(*) AS count FROM remit.standing
WHERE state IN ('SENDING', 'UNKNOWN', 'ACCEPTED') AND obstacle <> 'case' AND (%(run)s::text IS NULL OR run_id = %(run)s)

-- name: freeze
SELECT * FROM remit.freeze(%(secret)s, %(scope)s, %(value)s, %(reason)s)

-- name: cancel_stopped
SELECT remit.cancel_stopped() AS cancelled

-- name: operations_of_purpose
SELECT s.id, s.key, s.revision, s.step, s.subject, s.effect, s.tool, s.state, s.closed, s.closed_detail, s.shown_fact AS fact, s.obstacle, s.intent,
       s.amount_minor, s.currency, s.run_id, s.agent_version, s.verdict, s.reasons, s.attempts, s.changed_at, s.hold_until,
       EXISTS (SELECT FROM remit.attempts a WHERE a.operation_id = s.id AND a.seen = 'accepted') AS receipt_accepted,
       e.source, e.sight, e.as_of, e.recorded_at, e.records
FROM remit.standing s LEFT JOIN LATERAL (SELECT * FROM remit.evidence v WHERE v.operation_id = s.id ORDER BY v.id DESC LIMIT 1) e ON true
WHERE s.purpose = %(purpose)s AND (%(subject)s::text IS NULL OR s.subject = %(subject)s) ORDER BY s.subject, s.step, s.revision

-- name: purposes_of_subject
SELECT DISTINCT purpose FROM remit.operations WHERE subject = %(subject)s ORDER BY purpose

-- name: operation
SELECT s.* FROM remit.standing s
WHERE s.key = %(which)s OR s.id = CASE WHEN %(which)s::text ~ '^[0-9]{1,18}$' THEN %(which)s::bigint END ORDER BY revision

-- name: attempts
SELECT * FROM remit.attempts WHERE operation_id = %(id)s ORDER BY number

-- name: evidence
SELECT * FROM remit.evidence WHERE operation_id = %(id)s ORDER BY id

-- name: gates
SELECT g.*, u.ends AS turns
FROM remit.gates g LEFT JOIN remit.limit_waits w ON (w.operation_id, w.kind) = (g.operation_id, g.kind)
LEFT JOIN remit.limit_usage u ON u.bucket = w.bucket AND u.ends < 'infinity' WHERE g.operation_id = %(id)s ORDER BY kind

-- name: operation_approvals
SELECT a.id, a.status, a.roles, a.asked_at, a.decide_by, i.decision, i.decided_at, i.execute_by, i.bound_at, i.voided_why,
       v.person, v.role, v.rationale, v.at, v.taken_back_at
FROM remit.approval_items i JOIN remit.approvals a ON a.id = i.approval_id
LEFT JOIN remit.votes v ON v.approval_id = i.approval_id AND v.operation_id = i.operation_id WHERE i.operation_id = %(id)s ORDER BY a.asked_at, v.at

-- name: journal
SELECT id, at, kind, run_id, operation_id, data FROM remit.journal
WHERE (%(operation)s::bigint IS NOT NULL AND operation_id = %(operation)s) OR (%(operation)s::bigint IS NULL AND run_id = %(run)s) ORDER BY id LIMIT %(limit)s

-- name: limits
SELECT u.name, u.effect, nullif(u.purpose, '') AS purpose, nullif(u.subject, '') AS subject, u.window_name AS "window",
       nullif(u.starts, '-infinity') AS starts, nullif(u.ends, 'infinity') AS ends, u.automatic, u.currency,
       u.count, u.amount_minor, u.most_count, u.most_amount_minor,
       coalesce(k.count, 0) AS unknown_count, coalesce(k.amount_minor, 0) AS unknown_amount_minor,
       (SELECT count(*) FROM remit.limit_waits w WHERE w.bucket = u.bucket) AS waiting
FROM remit.limit_usage u LEFT JOIN (
    SELECT r.bucket, count(*) AS count, sum(r.amount_minor)::bigint AS amount_minor
    FROM remit.standing s JOIN remit.reservations r ON r.operation_id = s.id
    WHERE s.state IN ('SENDING', 'UNKNOWN', 'ACCEPTED') AND s.shown_fact = 'UNKNOWN' GROUP BY 1) k ON k.bucket = u.bucket
WHERE (%(every)s OR u.ends > remit.clock()) AND (%(which)s::text IS NULL OR %(which)s IN (u.purpose, u.effect, u.subject))
ORDER BY u.effect, u.purpose, u.subject, u.automatic, u.name, u.starts DESC LIMIT %(limit)s

-- name: cases
SELECT c.*, o.key, o.step, o.subject, o.state, o.fact FROM remit.cases c LEFT JOIN remit.operations o ON o.id = c.operation_id
WHERE c.closed_at IS NULL AND (%(run)s::text IS NULL OR c.run_id = %(run)s
   OR EXISTS (SELECT FROM remit.concerns x WHERE x.operation_id = c.operation_id AND x.run_id = %(run)s)) ORDER BY c.id

-- name: open_proposal_count
SELECT count(*) AS count FROM remit.proposals WHERE run_id = %(run)s AND outcome IS NULL

-- name: conflicts
SELECT p.run_id, p.plan, p.subject, p.step, p.tool, p.code, p.operation_id, o.key FROM remit.proposals p
JOIN remit.operations o ON o.id = p.operation_id
WHERE p.outcome = 'conflict' AND o.purpose = %(purpose)s AND (%(subject)s::text IS NULL OR p.subject = %(subject)s) ORDER BY 1, 2, 3

-- name: operation_conflicts
SELECT run_id, plan, call, tool, intent, code FROM remit.proposals WHERE outcome = 'conflict' AND operation_id = %(id)s ORDER BY run_id, plan, call

-- name: receive_event
SELECT remit.receive_event(%(receiver)s, %(id)s, %(type)s, %(reference)s, %(at)s) AS outcome

-- name: count_refused_events
SELECT remit.count_refused_events(%(rows)s)

-- name: refused_events
SELECT receiver, code, count, last_at FROM remit.refused_events ORDER BY receiver, code

-- name: unmatched_events
SELECT e.receiver, e.id, e.type, e.reference, e.at, e.received_at, o.key, o.state, o.closed
FROM remit.events e LEFT JOIN remit.operations o ON o.id = e.operation_id
WHERE e.operation_id IS NULL OR (NOT e.due AND (o.state = 'PENDING' OR (o.state = 'CLOSED' AND o.closed <> 'withdrawn')))
ORDER BY e.received_at DESC, e.receiver, e.id LIMIT %(limit)s

-- name: met_already
SELECT p.outcome, p.code, count(DISTINCT (p.step, p.subject)) AS count, array_agg(DISTINCT o.run_id ORDER BY o.run_id) AS runs
FROM remit.proposals p JOIN remit.operations o ON o.id = p.operation_id
WHERE p.run_id = %(run)s AND p.outcome IN ('done', 'same', 'conflict') AND (p.outcome = 'conflict' OR o.run_id <> p.run_id)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: keep_context
SELECT remit.keep_context(%(run)s, %(token)s, %(hash)s, %(document)s)

-- name: count_silence
SELECT remit.count_silence(%(run)s, %(token)s, %(code)s, %(detail)s, %(actions)s)

-- name: silences
SELECT s.run_id, s.code, s.detail, s.times, s.actions, s.first_at, s.last_at FROM remit.silences s
WHERE %(run)s::text IS NULL OR s.run_id = %(run)s ORDER BY s.last_at DESC, s.run_id, s.code

-- name: verdict_counts
SELECT coalesce(o.verdict, 'no_answer') AS verdict,
       CASE o.verdict WHEN 'deny' THEN coalesce(o.reasons -> 0 ->> 'code', '') WHEN 'allow' THEN '' WHEN 'needs_approval' THEN ''
            ELSE coalesce(g.detail, '') END AS code, count(*) AS count
FROM remit.operations o LEFT JOIN remit.gates g ON g.operation_id = o.id AND g.kind = 'policy'
WHERE (%(run)s::text IS NULL OR o.run_id = %(run)s) AND (o.verdict IS NOT NULL OR o.state = 'PENDING') GROUP BY 1, 2 ORDER BY 1, 2

-- name: question
SELECT q.decision_id, q.context_hash, q.evaluation, q.at, c.document AS context, m.document AS mandate
FROM remit.questions q JOIN remit.contexts c ON c.hash = q.context_hash
JOIN remit.operations o ON o.id = q.operation_id JOIN remit.mandates m ON m.hash = c.document -> 'context' ->> 'mandate_hash'
WHERE q.operation_id = %(id)s AND q.decision_id = o.decision_id

-- name: take_notices
SELECT * FROM remit.take_notices(%(limit)s, %(seconds)s)

-- name: notices_told
SELECT remit.notices_told(%(ids)s)

-- name: notices_failed
SELECT remit.notices_failed(%(ids)s, %(error)s)

-- name: notices
SELECT id, kind, about, run_id, data, at, due_at, tries, told_at, error,
       told_at IS NULL AND at <= clock_timestamp() - remit.longest_told() AS given_up
FROM remit.notices WHERE %(all)s OR told_at IS NULL ORDER BY at DESC, id LIMIT %(limit)s

-- name: untold
SELECT count(*) AS count, min(at) AS since, (array_agg(error ORDER BY due_at DESC))[1] AS error
FROM remit.notices WHERE told_at IS NULL AND tries > 0 AND error IS NOT NULL

-- name: forget
SELECT * FROM remit.forget(%(secret)s, %(days)s)

-- name: store_probe
SELECT * FROM remit.store_probe(%(secret)s, %(operation)s, %(shown)s, %(evidence)s)

-- name: probes
SELECT DISTINCT ON (tool, tool_version) *, at > remit.clock() - make_interval(days => %(days)s) AS fresh
FROM remit.probes ORDER BY tool, tool_version, id DESC

-- name: case_list
SELECT c.*, r.purpose, r.agent, coalesce(o.agent_version, r.agent_version) AS agent_version, o.key, o.step, o.subject, o.effect, o.tool, o.state,
       o.closed, o.shown_fact AS fact, o.attempts
FROM remit.cases c JOIN remit.runs r ON r.id = c.run_id LEFT JOIN remit.standing o ON o.id = c.operation_id
WHERE (c.closed_at IS NULL OR %(all)s) AND (%(case)s::bigint IS NULL OR c.id = %(case)s) ORDER BY c.closed_at IS NOT NULL, c.id LIMIT %(limit)s

-- name: case_counts
SELECT part, name, open, this_hour, day_before, rising FROM remit.case_counts ORDER BY part, open DESC, name

-- name: case_acts
SELECT verb, outcome, detail, fact, evidence, rationale, eval, no_eval, person, role, token_id, at FROM remit.case_acts WHERE case_id = %(case)s ORDER BY id

-- name: undone_by
SELECT u.id, u.key, u.revision, u.tool, u.state, u.closed, u.closed_detail, u.fact FROM remit.operations o, remit.undone_by(o) u
WHERE o.id = %(id)s AND u.id <> o.id

-- name: subject_steps
SELECT s.id, s.key, s.revision, s.step, s.effect, s.tool, s.state, s.closed, s.shown_fact AS fact, s.obstacle FROM remit.standing s
WHERE s.subject = %(subject)s AND s.purpose = %(purpose)s AND s.id <> %(id)s ORDER BY s.id

-- name: case_threads
SELECT t.thread_id, t.number, t.state, t.why, (SELECT max(c.checkpoint_id) FROM remit.checkpoints c WHERE c.thread_id = t.thread_id) AS checkpoint
FROM remit.threads t WHERE t.run_id = %(run)s ORDER BY t.number

-- name: look_of
SELECT * FROM remit.look_of(%(operation)s)

-- name: foresee_replay
SELECT (f).way, (f).why FROM (SELECT remit.foresee_replay(%(case)s, %(look)s) AS f) foreseen

-- name: resolve_case
SELECT * FROM remit.resolve_case(%(secret)s, %(case)s, %(fact)s, %(evidence)s, %(rationale)s, %(look)s)

-- name: replay_case
SELECT * FROM remit.replay_case(%(secret)s, %(case)s, %(rationale)s, %(look)s)

-- name: close_case
SELECT * FROM remit.close_case(%(secret)s, %(case)s, %(rationale)s, %(eval)s, %(no_eval)s, %(leave)s, %(look)s)
