package remit.boundary_test

test_an_effect_without_policy_data_is_unknown if {
	decision := decided(array.concat(
		replaced("/evaluations/0/action/name", "account.close"),
		replaced("/context/mandate/steps/0/effect", "account.close"),
	))[0]
	decision.verdict == "deny"
	"unknown_effect" in codes(decision)
}

test_a_never_listed_effect_is_denied_even_where_a_step_wants_it if {
	denied("never_listed", added("/context/mandate/never/-", "credit.issue"))
}

test_a_never_listed_field_is_denied_even_where_a_step_wants_it if {
	decision := decided(added("/context/mandate/never/-", "field:notes"))[1]
	codes(decision) == {"never_listed"}
}

test_only_fields_of_the_step_and_of_its_effect if {
	foreign_step := replaced("/evaluations/1/action/properties/fields", ["notes", "plan"])
	foreign_effect := array.concat(foreign_step, replaced("/context/mandate/steps/1/fields", ["notes", "plan"]))
	no_field := replaced("/evaluations/1/action/properties/fields", [])
	every patches in [foreign_step, foreign_effect, no_field] {
		decision := decided(patches)[1]
		decision.verdict == "deny"
		codes(decision) == {"field_not_delegated"}
	}
}
