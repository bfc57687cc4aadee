package remit.boundary_test

at_currency := "/evaluations/0/action/properties/currency"

at_ask_money := "/context/mandate/ask_above/money"

test_unlike_currencies_are_never_compared if {
	every patches in [
		replaced(at_currency, "EUR"),
		replaced(at_currency, null),
		replaced("/context/mandate/steps/0/exactly/currency", "EUR"),
		replaced("/context/mandate/limits/0/money/currency", "EUR"),
		replaced(concat("/", [at_ask_money, "currency"]), "EUR"),
		added("/context/proposal/credit/amounts/EUR", 1),
		added("/context/totals/credit.issue", {"count": 1, "amounts": {"EUR": 1}}),
	] {
		decision := decided(patches)[0]
		decision.verdict == "deny"
		"currency_not_exact" in codes(decision)
	}
}

test_a_right_amount_beside_another_currency_says_so if {
	decision := decided(added("/context/proposal/credit/amounts/EUR", 1))[0]
	details := {reason.detail | some reason in decision.reasons}
	details == {"another currency is proposed or under way beside it"}
}

test_a_currency_that_policy_does_not_list_is_denied if {
	decision := decided([])[0] with data.remit.settings.currencies as {"EUR": 2}
	codes(decision) == {"currency_not_exact"}
}

test_a_mandate_may_name_no_threshold_of_money if {
	decided(replaced(at_ask_money, null))[0].verdict == "allow"
}

test_no_currency_where_no_money_moves if {
	codes(decided(replaced("/evaluations/1/action/properties/currency", "USD"))[1]) == {"currency_not_exact"}
}
