package remit.boundary_test

at_message := "/evaluations/2/action/properties"

test_only_the_template_of_the_step if {
	every template in ["one_month_extension", null] {
		decision := decided(replaced(concat("/", [at_message, "template"]), template))[2]
		codes(decision) == {"template_not_delegated"}
	}
}

test_only_the_promise_of_the_step_by_the_receivers_word if {
	every promise in ["one_month_extension", null] {
		decision := decided(replaced(concat("/", [at_message, "promise"]), promise))[2]
		codes(decision) == {"promise_not_delegated"}
	}
}

test_a_message_without_template_or_promise_is_denied_even_where_the_step_has_none if {
	decision := decided(array.concat(
		array.concat(
			replaced("/context/mandate/steps/2/template", null),
			replaced("/context/mandate/steps/2/promise", null),
		),
		array.concat(
			replaced(concat("/", [at_message, "template"]), null),
			replaced(concat("/", [at_message, "promise"]), null),
		),
	))[2]
	codes(decision) == {"template_not_delegated", "promise_not_delegated"}
}

test_what_is_no_message_has_no_template if {
	codes(decided(replaced("/evaluations/0/action/properties/template", "one_time_credit"))[0]) == {"template_not_delegated"}
}
