package remit.boundary_test

at_proposal := "/context/proposal/credit"

test_more_actions_than_the_mandate_leaves_ask if {
	asked("ask_above_count", replaced(concat("/", [at_proposal, "count"]), 11))
}

test_what_is_in_flight_counts_too if {
	asked("ask_above_count", added("/context/totals/credit.issue", {"count": 1, "amounts": {}}))
}

test_more_money_than_the_mandate_leaves_asks if {
	asked("ask_above_amount", replaced(concat("/", [at_proposal, "amounts/USD"]), 10001))
}

test_money_in_flight_counts_too if {
	asked("ask_above_amount", added("/context/totals/credit.issue", {"count": 0, "amounts": {"USD": 1}}))
}

test_steps_that_follow_and_move_no_money_are_not_asked_about_again if {
	decisions := decided(replaced(concat("/", [at_proposal, "count"]), 24))
	[decision.verdict | some decision in decisions] == ["needs_approval", "allow", "allow"]
}

test_a_first_step_without_money_is_asked_about if {
	decision := decided(replaced("/context/mandate/steps/1/after", []))[1]
	codes(decision) == {"ask_above_count"}
}

test_money_is_asked_about_wherever_it_stands if {
	patches := array.concat(
		replaced("/context/mandate/steps/0/after", ["annotate"]),
		replaced("/evaluations/0/resource/properties/requires", [{"step": "annotate", "fact": "COMPLETED", "live": false}]),
	)
	asked("ask_above_count", array.concat(patches, replaced(concat("/", [at_proposal, "count"]), 11)))
}

without_thresholds := array.concat(
	replaced("/context/mandate/ask_above/count", null),
	replaced("/context/mandate/ask_above/money", null),
)

test_no_threshold_of_the_mandate_leaves_those_of_the_policy if {
	count_200 := replaced(concat("/", [at_proposal, "count"]), 200)
	count_201 := replaced(concat("/", [at_proposal, "count"]), 201)
	decided(array.concat(without_thresholds, count_200))[0].verdict == "allow"
	asked("ask_above_count", array.concat(without_thresholds, count_201))
}

test_policy_bounds_money_of_a_bounded_effect if {
	patches := array.concat(without_thresholds, replaced(concat("/", [at_proposal, "amounts/USD"]), 50001))
	asked("ask_above_amount", patches)
}

test_policy_bounds_steps_that_follow_too if {
	decision := decided(replaced("/context/proposal/notify/count", 201))[2]
	codes(decision) == {"ask_above_count"}
}

test_an_autonomous_effect_has_no_bounds_of_the_policy if {
	decided(replaced("/context/proposal/annotate/count", 5000))[1].verdict == "allow"
}

test_money_without_bounds_of_the_policy_is_bounded_by_the_mandate_alone if {
	large := replaced(concat("/", [at_proposal, "amounts/USD"]), 50001)
	decision := decided(array.concat(without_thresholds, large))[0] with data.remit.settings.effects["credit.issue"].bounds as null
	decision.verdict == "allow"
}
