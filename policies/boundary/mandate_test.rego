package remit.boundary_test

test_only_steps_of_the_mandate if {
	every patches in [
		replaced("/context/mandate/steps/0/effect", "subscription.change"),
		replaced("/evaluations/0/action/properties/step", "another"),
		removed("/context/mandate/limits/0"),
	] {
		decision := decided(patches)[0]
		decision.verdict == "deny"
		"not_in_mandate" in codes(decision)
	}
}

test_only_the_named_agent if {
	denied("wrong_agent", replaced("/subject/id", "another"))
}

test_only_while_the_mandate_is_live if {
	details := {"revoked": "It is revoked.", "early": "It is not valid yet.", "late": "It is no longer valid."}
	cases := {
		"revoked": replaced("/context/revoked", true),
		"early": replaced("/context/now", 99),
		"late": replaced("/context/now", 200),
	}
	every name, patches in cases {
		denied("mandate_not_live", patches)
		decided(patches)[0].reasons == [{"code": "mandate_not_live", "detail": details[name]}]
	}
}

test_the_first_and_last_second_are_within_validity if {
	every second in [100, 199] {
		decided(replaced("/context/now", second))[0].verdict == "allow"
	}
}
