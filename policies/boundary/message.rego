package remit.boundary

# METADATA
# title: Only the template that the step names
deny[i] contains {"code": "template_not_delegated", "detail": $"{action.action.properties.template}"} if {
	some i, action in input.evaluations
	not template_delegated(action.action.properties, i)
}

# METADATA
# title: Only a template that promises, by its receiver's own word, what the step may promise
deny[i] contains {"code": "promise_not_delegated", "detail": $"{action.action.properties.promise}"} if {
	some i, action in input.evaluations
	not promise_delegated(action.action.properties, i)
}

template_delegated(properties, i) if {
	properties.template == step[i].template
	message_value(properties.template, i)
}

promise_delegated(properties, i) if {
	properties.promise == step[i].promise
	message_value(properties.promise, i)
}

# Equal is not enough: null equals null, and a message without template or promise says nobody knows what.
message_value(value, i) if {
	effect[i].message == true
	is_string(value)
}

message_value(null, i) if effect[i].message == false
