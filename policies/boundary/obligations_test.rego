package remit.boundary_test

test_a_deny_obliges_to_nothing if {
	decided(replaced("/subject/id", "another"))[0].obligations == {
		"hold_seconds": 0,
		"approvers": [],
		"quorum": 0,
		"quorum_of": {},
		"decide_within": 0,
		"on_expiry": null,
		"execute_within": 0,
		"volume": [],
		"auto_budget": [],
		"verify": false,
	}
}

test_an_allow_needs_no_approver_and_reserves_both_limits if {
	decided([])[0].obligations == {
		"hold_seconds": 0,
		"approvers": [],
		"quorum": 0,
		"quorum_of": {},
		"decide_within": 0,
		"on_expiry": null,
		"execute_within": 86400,
		"volume": [
			{"name": "mandate:credit.issue", "count": 30, "amount_minor": 30000, "currency": "USD"},
			{"name": "policy:credit.issue", "count": 500, "amount_minor": 500000, "currency": "USD"},
		],
		"auto_budget": [],
		"verify": true,
	}
}

test_limits_of_what_moves_no_money_have_no_amount if {
	decided([])[1].obligations.volume[0] == {
		"name": "mandate:account.annotate",
		"count": 60,
		"amount_minor": null,
		"currency": null,
	}
}

test_an_approval_names_its_roles_and_its_time if {
	must := decided(replaced("/context/proposal/credit/count", 11))[0].obligations
	must.approvers == ["finance_lead"]
	must.quorum == 1
	must.quorum_of == {}
	must.on_expiry == null
	must.decide_within == 86400
}

test_messages_are_held if decided([])[2].obligations.hold_seconds == 5
