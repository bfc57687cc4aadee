package remit.boundary

# METADATA
# title: More than an automatic budget has left in its window needs a person
ask[i] contains {"code": "auto_budget", "detail": concat(", ", used_up(i))} if {
	some i, _ in input.evaluations
	not within_budgets(i)
}

# METADATA
# title: No subject gets more than the policy lets one have under one purpose
deny[i] contains {"code": "subject_limit", "detail": $"{action.resource.id}"} if {
	some i, action in input.evaluations
	effect[i]
	not within_subject_limits(i, action)
}

within_budgets(i) if {
	every most in policy_budgets(i) {
		within_budget(i, most)
	}
}

# The whole proposal of the effect is compared, so that all its like actions ask or none does.
within_budget(i, most) if {
	used := object.get(input.context.used, most.name, {"count": 0, "amounts": {}})
	wanted := proposed_of(step[i].effect)
	most_or_more(most.count, used.count + wanted.count)
	most_or_more(most.amount_minor, amount_of(used, most.currency) + amount_of(wanted, most.currency))
}

within_subject_limits(i, action) if {
	given := action.resource.properties.given
	every most in comparable(i, effect[i].per_subject) {
		most_or_more(most.count, given.count + 1)
		most_or_more(most.amount_minor, amount_of(given, most.currency) + money_of(action))
	}
}

used_up(i) := [most.name | some most in policy_budgets(i); not within_budget(i, most)]

money_of(action) := 0 if {
	action.action.properties.amount_minor == null
} else := action.action.properties.amount_minor
