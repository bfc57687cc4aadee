package remit.boundary_test

test_a_deny_obliges_to_nothing if {
	decided(replaced("/subject/id", "another"))[0].obligations == {
		"hold_seconds": 0,
		"release_by": [],
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

test_an_allow_needs_no_approver_and_reserves_every_limit_that_was_compared if {
	decided([])[0].obligations == {
		"hold_seconds": 0,
		"release_by": [],
		"approvers": [],
		"quorum": 0,
		"quorum_of": {},
		"decide_within": 0,
		"on_expiry": null,
		"execute_within": 86400,
		"volume": [
			money("mandate", "purpose", "ever", 30, 30000),
			money("policy", "purpose", "ever", 500, 500000),
			money("policy", "effect", "day", 1000, 1000000),
			money("per_subject", "subject", "ever", 3, 20000),
		],
		"auto_budget": [
			money("ask_above", "purpose", "ever", 10, 10000),
			money("bounds", "purpose", "ever", 200, 50000),
			money("auto_budget", "effect", "day", 400, 100000),
		],
		"verify": true,
	}
}

money(kind, scope, window, count, amount_minor) := {
	"name": $"{kind}:credit.issue/{scope}/{window}/USD",
	"scope": scope,
	"window": window,
	"count": count,
	"amount_minor": amount_minor,
	"currency": "USD",
}

test_limits_of_what_moves_no_money_have_no_amount if {
	decided([])[1].obligations.volume[0] == {
		"name": "mandate:account.annotate/purpose/ever",
		"scope": "purpose",
		"window": "ever",
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

test_messages_are_held_and_data_says_who_may_let_them_go if {
	must := decided([])[2].obligations
	must.hold_seconds == 5
	must.release_by == ["finance_lead", "support_manager"]
}
