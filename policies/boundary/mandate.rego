package remit.boundary

# METADATA
# title: Only a step of the mandate, with its own effect and a limit
deny[i] contains {"code": "not_in_mandate", "detail": $"{action.action.properties.step}: {action.action.name}"} if {
	some i, action in input.evaluations
	not mandated(i)
}

# METADATA
# title: Only the agent that the mandate names
deny[i] contains {"code": "wrong_agent", "detail": $"The mandate names {input.context.mandate.agent}."} if {
	some i, _ in input.evaluations
	not right_agent
}

# METADATA
# title: Only while the mandate is valid and not revoked
deny[i] contains {"code": "mandate_not_live", "detail": mandate_state} if {
	some i, _ in input.evaluations
	not mandate_live
}

mandated(i) if limits[step[i].effect]

right_agent if input.subject.id == input.context.mandate.agent

mandate_live if {
	input.context.revoked == false
	input.context.now >= input.context.mandate.valid_from
	input.context.now < input.context.mandate.valid_until
}

default mandate_state := "It is no longer valid."

mandate_state := "It is revoked." if {
	input.context.revoked == true
} else := "It is not valid yet." if {
	input.context.now < input.context.mandate.valid_from
}
