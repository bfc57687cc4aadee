package remit.boundary

# METADATA
# title: A mandate reaches no further than each of its grantors' roles may delegate
deny[i] contains {"code": "beyond_role_ceiling", "detail": $"{action.action.name} by {concat(", ", sort(grantor_roles))}"} if {
	some i, action in input.evaluations
	not action.action.properties.step in delegable
}

grantor_roles := {link.role | some link in input.subject.chain; link.part == "grantor"}

delegable contains wanted.name if {
	some wanted in input.context.mandate.steps
	count(grantor_roles) > 0
	every role in grantor_roles {
		within_ceiling(data.remit.settings.roles[role][wanted.effect], wanted, limits[wanted.effect])
	}
}

within_ceiling(ceiling, wanted, limit) if {
	limit.count <= ceiling.count
	wanted.exactly == null
	limit.money == null
}

within_ceiling(ceiling, wanted, limit) if {
	limit.count <= ceiling.count
	currency := wanted.exactly.currency
	wanted.exactly.amount_minor <= ceiling.each[currency]
	limit.money.currency == currency
	limit.money.amount_minor <= ceiling.total[currency]
}
