package remit.boundary

# Above 2^53 not every reader of JSON keeps each digit. Rego orders null below every number, so the type comes first.
whole(value) if {
	is_number(value)
	value == floor(value)
	value >= 0
	value <= 9007199254740991
}

# One action's amount; integers beyond 64 bits lose digits in Rego, and sums of these stay far below.
minor(value) if {
	whole(value)
	value <= 1000000000000
}

minor_or_null(null)

minor_or_null(value) if minor(value)

whole_or_null(null)

whole_or_null(value) if whole(value)

text_or_null(null)

text_or_null(value) if is_string(value)

texts(values) if {
	is_array(values)
	every value in values {
		is_string(value)
	}
}

# Minor units with their currency, in an order that both engines keep.
amounts_text(amounts) := concat(", ", sort([text |
	some currency, amount in amounts
	text := $"{amount} {currency}"
]))

money_or_null(null)

money_or_null(value) if {
	minor(value.amount_minor)
	is_string(value.currency)
}
