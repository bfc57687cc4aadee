package remit.boundary

# METADATA
# title: A proposal of more actions than the mandate or the policy leaves to an agent needs a person
ask[i] contains {"code": "ask_above_count", "detail": $"{planned[step[i].effect].count} of {step[i].effect}"} if {
	some i, _ in input.evaluations
	not within_count(i)
}

# METADATA
# title: A proposal of more money than the mandate or the policy leaves to an agent needs a person
ask[i] contains {"code": "ask_above_amount", "detail": $"{amounts_text(planned[step[i].effect].amounts)} of {step[i].effect}"} if {
	some i, _ in input.evaluations
	not within_amount(i)
}

within_count(i) if {
	most_or_more(mandate_count(i), planned[step[i].effect].count)
	most_or_more(policy_bounds(i).count, planned[step[i].effect].count)
}

within_amount(i) if {
	every currency, amount in planned[step[i].effect].amounts {
		most_or_more(mandate_amount(i, currency), amount)
		most_or_more(policy_amount(i, currency), amount)
	}
}

# No threshold is null; any other value is compared as a number.
most_or_more(null, _)

most_or_more(most, planned_value) if {
	whole(most)
	planned_value <= most
}
