package remit.boundary

# METADATA
# title: Only subjects of the frozen cohort
deny[i] contains {"code": "not_in_cohort", "detail": $"{action.resource.id}"} if {
	some i, action in input.evaluations
	not in_cohort(action)
}

# METADATA
# title: Only subjects that the system of record knows
deny[i] contains {"code": "subject_missing", "detail": $"{action.resource.id}"} if {
	some i, action in input.evaluations
	not exists(action)
}

# METADATA
# title: Nobody gets twice what somebody else already gave for the same reason
deny[i] contains {"code": "already_given", "detail": $"{action.resource.id}"} if {
	some i, action in input.evaluations
	not nothing_given(action, i)
}

in_cohort(action) if action.resource.properties.in_cohort == true

exists(action) if action.resource.properties.snapshot.exists == true

# A snapshot may leave `others` out only where no money moves.
nothing_given(action, _) if action.resource.properties.snapshot.others == 0

nothing_given(action, i) if {
	effect[i].money == false
	not "others" in object.keys(action.resource.properties.snapshot)
}
