package remit.boundary

# METADATA
# title: A mandate with a value of another type than it must have denies every action
deny[i] contains {"code": "malformed", "detail": "A value of the mandate has the wrong type."} if {
	some i, _ in input.evaluations
	not mandate_typed
}

mandate_typed if {
	mandate := input.context.mandate
	is_string(mandate.agent)
	whole(mandate.valid_from)
	whole(mandate.valid_until)
	texts(mandate.never)
	whole_or_null(mandate.ask_above.count)
	money_or_null(mandate.ask_above.money)
	is_array(mandate.steps)
	every wanted in mandate.steps {
		step_typed(wanted)
	}
	is_array(mandate.limits)
	every limit in mandate.limits {
		is_string(limit.effect)
		whole(limit.count)
		money_or_null(limit.money)
	}
}

step_typed(wanted) if {
	is_string(wanted.name)
	is_string(wanted.effect)
	money_or_null(wanted.exactly)
	money_or_null(wanted.announces)
	texts(wanted.fields)
	texts(wanted.after)
	text_or_null(wanted.template)
	text_or_null(wanted.promise)
}
