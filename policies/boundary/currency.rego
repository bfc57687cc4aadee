package remit.boundary

# METADATA
# title: One currency throughout, since unlike currencies are never compared
deny[i] contains {"code": "currency_not_exact", "detail": $"{action.action.properties.currency}"} if {
	some i, action in input.evaluations
	not currency_exact(action.action.properties, i)
}

# METADATA
# title: Nor is another currency proposed or under way beside it, since totals of both could not be compared
deny[i] contains {"code": "currency_not_exact", "detail": "another currency is proposed or under way beside it"} if {
	some i, action in input.evaluations
	effect[i].money == true
	not unmixed(action.action.properties, i)
}

unmixed(properties, i) if {
	only_currency(input.context.proposal[properties.step].amounts, properties.currency)
	only_currency(total(step[i].effect).amounts, properties.currency)
}

currency_exact(properties, i) if {
	effect[i].money == true
	currency := properties.currency
	data.remit.settings.currencies[currency] >= 0
	currency == step[i].exactly.currency
	currency == limits[step[i].effect].money.currency
	some most in effect[i].volume
	most.currency == currency
	ask_currency(currency)
}

currency_exact(properties, i) if {
	effect[i].money == false
	properties.currency == null
}

ask_currency(_) if input.context.mandate.ask_above.money == null

ask_currency(currency) if input.context.mandate.ask_above.money.currency == currency

only_currency(amounts, currency) if object.keys(amounts) - {currency} == set()
