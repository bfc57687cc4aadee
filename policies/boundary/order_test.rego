package remit.boundary_test

at_required := "/evaluations/1/resource/properties/requires"

test_a_required_step_must_be_completed_or_live if {
	every required in [
		[],
		[{"step": "another", "fact": "COMPLETED", "live": true}],
		[{"step": "credit", "fact": "NOT_SENT", "live": false}],
		[{"step": "credit", "fact": "UNKNOWN", "live": false}],
	] {
		decision := decided(replaced(at_required, required))[1]
		decision.verdict == "deny"
		codes(decision) == {"order_of_steps"}
	}
}

test_a_completed_or_live_requirement_is_enough if {
	every required in [
		[{"step": "credit", "fact": "COMPLETED", "live": false}],
		[{"step": "credit", "fact": "UNKNOWN", "live": true}],
	] {
		decided(replaced(at_required, required))[1].verdict == "allow"
	}
}
