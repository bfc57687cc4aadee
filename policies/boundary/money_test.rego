package remit.boundary_test

at_amount := "/evaluations/0/action/properties/amount_minor"

test_exactly_the_amount_of_the_step if {
	every amount in [999, 1001, 0, null] {
		"amount_not_exact" in codes(decided(replaced(at_amount, amount))[0])
	}
}

test_money_without_a_fixed_amount_is_denied if {
	"amount_not_exact" in codes(decided(replaced("/context/mandate/steps/0/exactly", null))[0])
}

test_an_equal_amount_that_is_out_of_bounds_is_denied if {
	every amount in [0, 1000000000001] {
		patches := array.concat(
			replaced(at_amount, amount),
			replaced("/context/mandate/steps/0/exactly/amount_minor", amount),
		)
		"amount_not_exact" in codes(decided(patches)[0])
	}
}

test_no_amount_where_no_money_moves if {
	codes(decided(replaced("/evaluations/1/action/properties/amount_minor", 1))[1]) == {"amount_not_exact"}
}
