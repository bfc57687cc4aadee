package remit.boundary_test

malformed(patches) if {
	decision := decided(patches)[0]
	decision.verdict == "deny"
	"malformed" in codes(decision)
}

test_each_value_of_an_action_has_its_type if {
	cases := {
		"name": 1, "properties/step": null, "properties/reversibility": "undoable", "properties/consequence": "none",
		"properties/fields": "notes", "properties/amount_minor": "1000", "properties/currency": 840,
		"properties/template": 1, "properties/promise": true,
	}
	every path, value in cases {
		malformed(replaced(concat("/", ["/evaluations/0/action", path]), value))
	}
}

test_each_value_of_a_subject_has_its_type if {
	cases := {
		"in_cohort": "true", "rejected_before": "no", "snapshot/exists": "yes", "snapshot/others": "0", "requires": {},
		"given": {"count": 0}, "given/count": "0", "given/amounts": {"USD": "1"},
	}
	every path, value in cases {
		malformed(replaced(concat("/", ["/evaluations/0/resource/properties", path]), value))
	}
}

test_each_value_of_the_context_has_its_type if {
	cases := {
		"/context/now": "150", "/context/revoked": "false", "/context/totals": [], "/subject/id": 7, "/context/used": null,
		"/subject/chain": {}, "/context/proposal/credit/count": null, "/context/proposal/credit/amounts/USD": "1",
	}
	every path, value in cases {
		malformed(replaced(path, value))
	}
}

test_each_value_of_the_mandate_has_its_type if {
	cases := {
		"agent": 1, "valid_from": "100", "valid_until": null, "never": "email.send", "ask_above/count": "10",
		"ask_above/money": 100, "steps": {}, "steps/1/fields": [1], "steps/1/after": "credit", "steps/0/exactly": 10,
		"limits": {}, "limits/0/count": null, "limits/0/money": {"amount_minor": 1.5, "currency": "USD"},
	}
	every path, value in cases {
		malformed(replaced(concat("/", ["/context/mandate", path]), value))
	}
}

test_a_step_that_the_proposal_does_not_count_is_malformed if {
	malformed(removed("/context/proposal/credit"))
	malformed(replaced("/context/proposal/credit/count", 0))
}

test_numbers_are_whole_and_bounded if {
	every number in [1.5, -1, 1000000000001, 18446744073709551617] {
		malformed(replaced("/evaluations/0/action/properties/amount_minor", number))
		malformed(replaced("/context/mandate/steps/0/exactly/amount_minor", number))
	}
	every number in [1.5, -1, 9007199254740992] {
		malformed(replaced("/context/proposal/credit/amounts/USD", number))
	}
}

test_a_missing_value_is_malformed if malformed(removed("/evaluations/0/action/properties/amount_minor"))
