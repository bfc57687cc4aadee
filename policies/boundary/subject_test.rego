package remit.boundary_test

at_subject := "/evaluations/0/resource/properties"

test_only_the_cohort if {
	denied("not_in_cohort", replaced(concat("/", [at_subject, "in_cohort"]), false))
}

test_only_subjects_that_exist if {
	denied("subject_missing", replaced(concat("/", [at_subject, "snapshot/exists"]), false))
}

test_nothing_twice_for_the_same_reason if {
	denied("already_given", replaced(concat("/", [at_subject, "snapshot/others"]), 1))
}

test_money_needs_to_know_what_others_gave if {
	denied("already_given", removed(concat("/", [at_subject, "snapshot/others"])))
}

test_no_money_needs_no_such_knowledge if {
	decided(removed("/evaluations/1/resource/properties/snapshot/others"))[1].verdict == "allow"
}
