package remit.boundary

# METADATA
# title: An action with a value of another type than it must have
deny[i] contains {"code": "malformed", "detail": "A value of the action has the wrong type."} if {
	some i, action in input.evaluations
	not action_typed(action)
}

# METADATA
# title: A subject, its snapshot or its requirements with a value of another type than it must have
deny[i] contains {"code": "malformed", "detail": "A value of the subject has the wrong type."} if {
	some i, action in input.evaluations
	not resource_typed(action)
}

action_typed(action) if {
	is_string(action.id)
	is_string(action.action.name)
	properties := action.action.properties
	is_string(properties.step)
	properties.reversibility in data.remit.settings.rows
	properties.consequence in data.remit.settings.columns
	texts(properties.fields)
	minor_or_null(properties.amount_minor)
	text_or_null(properties.currency)
	text_or_null(properties.template)
	text_or_null(properties.promise)
}

resource_typed(action) if {
	properties := action.resource.properties
	is_boolean(properties.in_cohort)
	is_boolean(properties.rejected_before)
	text_or_null(properties.barred)
	is_boolean(properties.snapshot.exists)
	whole(object.get(properties.snapshot, "others", 0))
	total_typed(properties.given)
	is_array(properties.requires)
	every required in properties.requires {
		is_string(required.step)
		is_string(required.fact)
		is_boolean(required.live)
	}
}
