package remit.boundary_test

budget := "auto_budget:credit.issue/effect/day/USD"

with_used(count, amounts) := added(concat("/", ["/context/used", replace(budget, "/", "~1")]), {
	"count": count,
	"amounts": amounts,
})

test_what_an_automatic_budget_has_left_asks_nobody if {
	decided(with_used(390, {"USD": 90000}))[0].verdict == "allow"
}

test_more_than_an_automatic_budget_has_left_asks if {
	every patches in [with_used(391, {}), with_used(0, {"USD": 90001})] {
		decision := decided(patches)[0]
		decision.verdict == "needs_approval"
		decision.reasons == [{"code": "auto_budget", "detail": budget}]
	}
}

test_other_limits_that_are_used_up_ask_nobody if {
	decided(added("/context/used/another", {"count": 5000, "amounts": {}}))[0].verdict == "allow"
}

at_given := "/evaluations/0/resource/properties/given"

test_one_subject_gets_no_more_than_the_policy_lets_it_have if {
	every given in [{"count": 3, "amounts": {}}, {"count": 1, "amounts": {"USD": 19001}}] {
		denied("subject_limit", replaced(at_given, given))
	}
	decided(replaced(at_given, {"count": 2, "amounts": {"USD": 19000}}))[0].verdict == "allow"
}

test_a_subject_may_be_limited_where_no_money_moves if {
	limits := [{"count": 1, "amount_minor": null, "currency": null}]
	decision := decided(replaced("/evaluations/1/resource/properties/given/count", 1))[1] with data.remit.settings.effects["account.annotate"].per_subject as limits
	codes(decision) == {"subject_limit"}
}

test_a_proposal_split_over_steps_is_compared_as_one if {
	second := object.union(mandate.steps[0], {"name": "more"})
	patches := array.concat(
		added("/context/mandate/steps/-", second),
		added("/context/proposal/more", {"count": 1, "amounts": {"USD": 1}}),
	)
	decision := decided(patches)[0]
	decision.verdict == "needs_approval"
	codes(decision) == {"ask_above_count", "ask_above_amount"}
}
