package remit.boundary_test

# Each cell by the first word that the contract and the policy's own row and column agree on.
expected := {
	"reversible": {"low": ["allow", false, 0], "medium": ["allow", false, 0], "high": ["needs_approval", false, 0]},
	"compensable": {"low": ["allow", false, 0], "medium": ["allow", true, 0], "high": ["needs_approval", true, 0]},
	"irreversible": {"low": ["allow", true, 0], "medium": ["allow", true, 7], "high": ["needs_approval", true, 7]},
}

in_cell(row, column) := decision if {
	decision := decided(array.concat(
		replaced("/evaluations/1/action/properties/reversibility", row),
		replaced("/evaluations/1/action/properties/consequence", column),
	))[1] with data.remit.settings.effects["account.annotate"].hold_seconds as 7
}

test_every_cell_of_the_matrix if {
	every row, columns in expected {
		every column, cell in columns {
			decision := in_cell(row, column)
			decision.verdict == cell[0]
			decision.obligations.verify == cell[1]
			decision.obligations.hold_seconds == cell[2]
		}
	}
}

test_high_consequence_says_so if {
	codes(in_cell("reversible", "high")) == {"matrix_high"}
}

test_policy_can_only_raise_what_a_contract_says if {
	patches := array.concat(
		replaced("/evaluations/2/action/properties/reversibility", "reversible"),
		replaced("/evaluations/2/action/properties/consequence", "low"),
	)
	decided(patches)[2].obligations.hold_seconds == 5
}

test_a_large_amount_is_of_high_consequence if {
	decision := decided([])[0] with data.remit.settings.effects["credit.issue"].high_above.USD as 999
	codes(decision) == {"matrix_high"}
}

test_a_currency_without_threshold_is_of_high_consequence if {
	decision := decided([])[0] with data.remit.settings.effects["credit.issue"].high_above.USD as null
	codes(decision) == {"matrix_high"}
}

test_a_key_that_a_person_rejected_asks_again if {
	asked("rejected_before", replaced("/evaluations/0/resource/properties/rejected_before", true))
}

test_an_effect_under_supervision_always_asks if {
	decision := decided([])[0] with data.remit.settings.effects["credit.issue"].autonomy as "supervised"
	codes(decision) == {"supervised"}
}

test_an_autonomy_that_nobody_knows_asks if {
	decision := decided([])[0] with data.remit.settings.effects["credit.issue"].autonomy as "full"
	codes(decision) == {"supervised"}
}
