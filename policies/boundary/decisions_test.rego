package remit.boundary_test

test_actions_in_order_are_allowed_with_a_reason if {
	decisions := decided([])
	[decision.id | some decision in decisions] == ["credit", "annotate", "notify"]
	every decision in decisions {
		decision.verdict == "allow"
		codes(decision) == {"matrix_allow"}
	}
}

test_deny_outranks_needs_approval if {
	decision := decided(array.concat(
		replaced("/context/proposal/credit/count", 11),
		replaced("/evaluations/0/resource/properties/in_cohort", false),
	))[0]
	decision.verdict == "deny"
	codes(decision) == {"not_in_cohort"}
}

test_needs_approval_outranks_allow if {
	decided(replaced("/context/proposal/credit/count", 11))[0].verdict == "needs_approval"
}

test_a_question_without_actions_has_no_decisions if decided(removed("/evaluations")) == []

test_an_action_without_id_gets_no_decision if {
	[decision.id | some decision in decided(removed("/evaluations/0/id"))] == ["annotate", "notify"]
}

test_a_cell_with_another_verdict_is_no_allow if {
	decision := decided([])[0] with data.remit.settings.matrix.compensable.medium.verdict as "maybe"
	decision.verdict == "needs_approval"
}

test_an_action_without_a_cell_gets_no_decision if {
	decisions := decided([]) with data.remit.settings.matrix as {}
	decisions == []
}

test_without_data_nothing_is_judged if {
	decisions := decided([]) with data.remit.settings as null
	decisions == []
}
