package remit.boundary

# METADATA
# title: Every limit that policy compared is also reserved by the ledger, under a name that stays the same
volume(i) := array.concat([mandate_limit(i)], array.concat(policy_limits, subject_limits)) if {
	policy_limits := [limit("policy", i, most) | some most in comparable(i, effect[i].volume)]
	subject_limits := [limit("per_subject", i, object.union(most, {"scope": "subject", "window": "ever"})) |
		some most in comparable(i, effect[i].per_subject)
	]
}

# METADATA
# title: So is what may go out without a person, since two runs at once may not both find the same room
auto_budget(i) := array.concat(thresholds, policy_budgets(i)) if {
	both := [threshold(i, "ask_above", mandate_most(i)), threshold(i, "bounds", policy_most(i))]
	thresholds := [most | some most in both; {most.count, most.amount_minor} != {null}]
}

policy_budgets(i) := [limit("auto_budget", i, most) | some most in comparable(i, effect[i].auto_budget)]

mandate_limit(i) := threshold(i, "mandate", {
	"count": limits[step[i].effect].count,
	"amount_minor": object.get(limits[step[i].effect], ["money", "amount_minor"], null),
	"currency": object.get(limits[step[i].effect], ["money", "currency"], null),
})

mandate_most(i) := {"count": mandate_count(i), "amount_minor": amount, "currency": currency} if {
	effect[i].money == true
	currency := input.context.mandate.ask_above.money.currency
	amount := mandate_amount(i, currency)
} else := {"count": mandate_count(i), "amount_minor": null, "currency": null}

policy_most(i) := {"count": policy_bounds(i).count, "amount_minor": amount, "currency": currency} if {
	effect[i].money == true
	currency := input.evaluations[i].action.properties.currency
	amount := policy_bounds(i).amounts[currency]
} else := {"count": policy_bounds(i).count, "amount_minor": null, "currency": null}

threshold(i, kind, most) := limit(kind, i, object.union(most, {"scope": "purpose", "window": "ever"}))

# A bucket of its own for each currency: unlike currencies are never added up.
limit(kind, i, most) := object.union(most, {"name": concat("/", array.concat(
	[$"{kind}:{step[i].effect}", most.scope, most.window],
	[most.currency | most.currency != null],
))})

comparable(i, list) := [most |
	some most in list
	most.currency in {null, input.evaluations[i].action.properties.currency}
]
