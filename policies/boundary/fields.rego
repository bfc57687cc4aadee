package remit.boundary

# METADATA
# title: Policy data knows the effect
deny[i] contains {"code": "unknown_effect", "detail": $"{action.action.name}"} if {
	some i, action in input.evaluations
	not effect[i]
}

# METADATA
# title: Nothing on the mandate's never-list, whatever its steps say
deny[i] contains {"code": "never_listed", "detail": $"{action.action.name}"} if {
	some i, action in input.evaluations
	not off_never_list(action)
}

# METADATA
# title: Only fields that the step names and that belong to its effect
deny[i] contains {"code": "field_not_delegated", "detail": $"{action.action.properties.fields}"} if {
	some i, action in input.evaluations
	not fields_delegated(action, i)
}

off_never_list(action) if {
	not action.action.name in input.context.mandate.never
	every field in action.action.properties.fields {
		not concat(":", ["field", field]) in input.context.mandate.never
	}
}

fields_delegated(action, i) if {
	every field in action.action.properties.fields {
		field in step[i].fields
		field in effect[i].fields
	}
	fields_named(action, i)
}

# An effect that writes fields must say which; a change of none is a change of nobody knows what.
fields_named(_, i) if count(effect[i].fields) == 0

fields_named(action, _) if count(action.action.properties.fields) > 0
