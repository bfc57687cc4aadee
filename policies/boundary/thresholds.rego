package remit.boundary

# METADATA
# title: What is proposed of an effect, over all steps that have it, so that no split brings it under a threshold
proposed_of(name) := {"count": sum([one.count | some one in proposals]), "amounts": amounts} if {
	steps := {wanted.name | some wanted in input.context.mandate.steps; wanted.effect == name}
	proposals := [input.context.proposal[wanted] | some wanted in steps]
	amounts := {currency: sum([one.amounts[currency] | some one in proposals]) |
		some proposal in proposals
		some currency, _ in proposal.amounts
	}
}

# METADATA
# title: The same with what is already completed, in flight or unknown of the effect
planned[wanted.effect] := {"count": proposal.count + given.count, "amounts": amounts} if {
	some wanted in input.context.mandate.steps
	proposal := proposed_of(wanted.effect)
	given := total(wanted.effect)
	currencies := object.keys(proposal.amounts) | object.keys(given.amounts)
	amounts := {currency: amount |
		some currency in currencies
		amount := amount_of(proposal, currency) + amount_of(given, currency)
	}
}

amount_of(sums, currency) := object.get(sums.amounts, currency, 0)

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
