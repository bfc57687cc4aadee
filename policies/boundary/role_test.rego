package remit.boundary_test

test_no_further_than_the_grantors_role if {
	every patches in [
		replaced("/subject/chain/0/role", "administrator"),
		replaced("/subject/chain/0/role", "unheard_of"),
		replaced("/subject/chain/0/part", "owner"),
		added("/subject/chain/-", {"part": "grantor", "role": "administrator"}),
		replaced("/context/mandate/limits/0/count", 101),
		replaced("/context/mandate/limits/0/money/amount_minor", 100001),
	] {
		denied("beyond_role_ceiling", patches)
	}
}

test_no_more_each_than_the_grantors_role if {
	patches := array.concat(
		replaced("/evaluations/0/action/properties/amount_minor", 2001),
		replaced("/context/mandate/steps/0/exactly/amount_minor", 2001),
	)
	denied("beyond_role_ceiling", patches)
}

test_exactly_the_ceiling_is_within_it if {
	patches := array.concat(
		replaced("/evaluations/0/action/properties/amount_minor", 2000),
		replaced("/context/mandate/steps/0/exactly/amount_minor", 2000),
	)
	decided(patches)[0].verdict == "allow"
}

test_a_limit_without_its_total_is_beyond_every_ceiling if {
	"beyond_role_ceiling" in codes(decided(replaced("/context/mandate/limits/0/money", null))[0])
}
