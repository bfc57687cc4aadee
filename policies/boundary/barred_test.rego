package remit.boundary_test

test_nothing_new_under_a_standing_order if {
	denied("stopped", replaced("/evaluations/0/resource/properties/barred", "stop"))
	denied("frozen", replaced("/evaluations/0/resource/properties/barred", "freeze"))
}

test_an_order_over_one_action_leaves_the_others if {
	decision := decided(replaced("/evaluations/0/resource/properties/barred", "freeze"))[1]
	not "frozen" in codes(decision)
}
