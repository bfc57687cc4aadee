package remit.boundary_test

budgets(decision) := {$"{most.name} {most.count} {most.amount_minor}" | some most in decision.obligations.auto_budget}

test_limits_in_another_currency_are_not_compared_and_those_without_are if {
	limits := [
		{"scope": "effect", "window": "day", "count": 7, "amount_minor": null, "currency": null},
		{"scope": "effect", "window": "day", "count": null, "amount_minor": 70, "currency": "EUR"},
		{"scope": "purpose", "window": "ever", "count": null, "amount_minor": 50000, "currency": "USD"},
	]
	decision := decided([])[0] with data.remit.settings.effects["credit.issue"].volume as limits
	names := [most.name | some most in decision.obligations.volume]
	names == [
		"mandate:credit.issue/purpose/ever/USD",
		"policy:credit.issue/effect/day",
		"policy:credit.issue/purpose/ever/USD",
		"per_subject:credit.issue/subject/ever/USD",
	]
}

test_no_threshold_is_no_budget if {
	decision := decided(without_thresholds)[0] with data.remit.settings.effects["credit.issue"].auto_budget as []
	budgets(decision) == {"bounds:credit.issue/purpose/ever/USD 200 50000"}
}

test_a_threshold_of_count_alone_is_a_budget_of_count if {
	decision := decided(replaced(at_ask_money, null))[0]
	"ask_above:credit.issue/purpose/ever 10 null" in budgets(decision)
}

test_a_threshold_of_money_alone_is_a_budget_of_money if {
	decision := decided(replaced("/context/mandate/ask_above/count", null))[0]
	"ask_above:credit.issue/purpose/ever/USD null 10000" in budgets(decision)
}

test_what_follows_and_moves_no_money_has_only_the_budgets_of_the_policy if {
	budgets(decided([])[2]) == {
		"bounds:email.send/purpose/ever 200 null",
		"auto_budget:email.send/effect/day 1000 null",
	}
}

test_an_autonomous_effect_that_follows_has_no_budget if budgets(decided([])[1]) == set()
