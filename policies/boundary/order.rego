package remit.boundary

# METADATA
# title: A step only where each step that it comes after is completed or can still complete
deny[i] contains {"code": "order_of_steps", "detail": $"It comes after {step[i].after}."} if {
	some i, action in input.evaluations
	not in_order(action, i)
}

in_order(action, i) if {
	every earlier in step[i].after {
		some required in action.resource.properties.requires
		required.step == earlier
		under_way(required)
	}
}

under_way(required) if required.fact == "COMPLETED"

under_way(required) if required.live == true
