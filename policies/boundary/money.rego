package remit.boundary

# METADATA
# title: Exactly the amount that the step fixes, and none where no money moves
deny[i] contains {"code": "amount_not_exact", "detail": $"{action.action.properties.amount_minor}"} if {
	some i, action in input.evaluations
	not amount_exact(action.action.properties, i)
}

amount_exact(properties, i) if {
	effect[i].money == true
	properties.amount_minor == step[i].exactly.amount_minor
	properties.amount_minor > 0
	properties.amount_minor <= 1000000000000
}

amount_exact(properties, i) if {
	effect[i].money == false
	properties.amount_minor == null
	step[i].exactly == null
}
