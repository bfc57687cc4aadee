package remit.boundary

# METADATA
# title: A whole proposal with what is already completed, in flight or unknown of its effect, by step
planned[wanted.name] := {"count": proposal.count + given.count, "amounts": amounts} if {
	some wanted in input.context.mandate.steps
	proposal := input.context.proposal[wanted.name]
	given := total(wanted.effect)
	currencies := object.keys(proposal.amounts) | object.keys(given.amounts)
	amounts := {currency: amount |
		some currency in currencies
		amount := object.get(proposal.amounts, currency, 0) + object.get(given.amounts, currency, 0)
	}
}

# A step that moves no money and comes after others is not asked about again: it can only follow what was asked about.
follows(i) if {
	effect[i].money == false
	count(step[i].after) > 0
}

mandate_count(i) := null if {
	follows(i)
} else := input.context.mandate.ask_above.count

mandate_amount(i, currency) := null if {
	input.context.mandate.ask_above.money == null
} else := input.context.mandate.ask_above.money.amount_minor if {
	input.context.mandate.ask_above.money.currency == currency
	step[i]
}

policy_bounds(i) := effect[i].bounds if {
	effect[i].bounds != null
} else := {"count": null, "amounts": null}

policy_amount(i, currency) := null if {
	policy_bounds(i).amounts == null
} else := policy_bounds(i).amounts[currency]
