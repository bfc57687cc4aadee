package remit.boundary

# METADATA
# title: A context with a value of another type than it must have denies every action
deny[i] contains {"code": "malformed", "detail": "A value of the context has the wrong type."} if {
	some i, _ in input.evaluations
	not context_typed
}

# METADATA
# title: An action whose whole proposal is not counted cannot be compared with a threshold
deny[i] contains {"code": "malformed", "detail": "The proposal does not count this step."} if {
	some i, action in input.evaluations
	not proposed(action)
}

context_typed if {
	whole(input.context.now)
	is_boolean(input.context.revoked)
	is_string(input.subject.id)
	is_array(input.subject.chain)
	totals_typed(input.context.totals)
	totals_typed(input.context.proposal)
	totals_typed(input.context.used)
}

proposed(action) if input.context.proposal[action.action.properties.step].count > 0

totals_typed(totals) if {
	is_object(totals)
	every sum in totals {
		total_typed(sum)
	}
}

total_typed(sum) if {
	whole(sum.count)
	is_object(sum.amounts)
	every amount in sum.amounts {
		whole(amount)
	}
}
