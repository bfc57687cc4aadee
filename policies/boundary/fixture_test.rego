# The question that all tests start from: one credit, one annotation and one message for one customer, all in order.
package remit.boundary_test

mandate := {
	"agent": "credit-agent",
	"valid_from": 100,
	"valid_until": 200,
	"steps": [
		object.union(bare_step, {
			"name": "credit",
			"effect": "credit.issue",
			"exactly": {"amount_minor": 1000, "currency": "USD"},
		}),
		object.union(bare_step, {
			"name": "annotate",
			"effect": "account.annotate",
			"fields": ["notes"],
			"after": ["credit"],
		}),
		object.union(bare_step, {
			"name": "notify",
			"effect": "email.send",
			"template": "one_time_credit",
			"promise": "one_time_credit",
			"after": ["credit"],
		}),
	],
	"never": ["subscription.change", "field:renewal_date"],
	"ask_above": {"count": 10, "money": {"amount_minor": 10000, "currency": "USD"}},
	"limits": [
		{"effect": "credit.issue", "count": 30, "money": {"amount_minor": 30000, "currency": "USD"}},
		{"effect": "account.annotate", "count": 60, "money": null},
		{"effect": "email.send", "count": 30, "money": null},
	],
}

bare_step := {"exactly": null, "announces": null, "fields": [], "template": null, "promise": null, "after": []}

bare_action := {"fields": [], "amount_minor": null, "currency": null, "template": null, "promise": null}

credit := action(
	"credit", "credit.issue", "compensable",
	{"amount_minor": 1000, "currency": "USD", "consequence": "medium"},
	[],
)

annotate := action(
	"annotate", "account.annotate", "reversible", {"fields": ["notes"], "consequence": "low"},
	[{"step": "credit", "fact": "COMPLETED", "live": false}],
)

notify := action(
	"notify", "email.send", "irreversible",
	{"template": "one_time_credit", "promise": "one_time_credit", "consequence": "medium"},
	[{"step": "credit", "fact": "NOT_SENT", "live": true}],
)

action(step, effect, reversibility, properties, requires) := {
	"id": step,
	"action": {
		"name": effect,
		"properties": object.union_n([bare_action, {"step": step, "reversibility": reversibility}, properties]),
	},
	"resource": {"id": "customer:c-104", "properties": {
		"in_cohort": true,
		"rejected_before": false,
		"barred": null,
		"snapshot": {"exists": true, "others": 0},
		"requires": requires,
		"given": {"count": 0, "amounts": {}},
	}},
}

question := {
	"subject": {"id": "credit-agent", "chain": [
		{"part": "grantor", "role": "support_manager"},
		{"part": "requester", "role": "administrator"},
	]},
	"context": {
		"now": 150,
		"mandate": mandate,
		"revoked": false,
		"totals": {},
		"used": {},
		"proposal": {
			"credit": {"count": 10, "amounts": {"USD": 10000}},
			"annotate": {"count": 24, "amounts": {}},
			"notify": {"count": 24, "amounts": {}},
		},
	},
	"evaluations": [credit, annotate, notify],
}

# The decisions once these JSON patches are applied to the question.
decided(patches) := decisions if {
	decisions := data.remit.boundary.decisions with input as json.patch(question, patches)
}

replaced(path, value) := [{"op": "replace", "path": path, "value": value}]

added(path, value) := [{"op": "add", "path": path, "value": value}]

removed(path) := [{"op": "remove", "path": path}]

codes(decision) := {reason.code | some reason in decision.reasons}

# True where the first action, and by `code` alone, has the verdict that the code belongs to.
denied(code, patches) if {
	decision := decided(patches)[0]
	decision.verdict == "deny"
	codes(decision) == {code}
}

asked(code, patches) if {
	decision := decided(patches)[0]
	decision.verdict == "needs_approval"
	codes(decision) == {code}
}
