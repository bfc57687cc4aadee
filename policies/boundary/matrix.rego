package remit.boundary

# METADATA
# title: High consequence needs a person
ask[i] contains {"code": "matrix_high", "detail": $"{row[i]}, {column[i]} consequence"} if {
	some i, _ in input.evaluations
	not matrix_allows(i)
}

# METADATA
# title: An effect under supervision needs a person every time
ask[i] contains {"code": "supervised", "detail": $"{action.action.name}"} if {
	some i, action in input.evaluations
	not on_its_own(i)
}

# METADATA
# title: Where a person said no before, only a person says yes
ask[i] contains {"code": "rejected_before", "detail": $"{action.resource.id}"} if {
	some i, action in input.evaluations
	not never_rejected(action)
}

never_rejected(action) if action.resource.properties.rejected_before == false

matrix_allows(i) if cell[i].verdict == "allow"

on_its_own(i) if effect[i].autonomy in {"bounded", "autonomous"}

# METADATA
# title: What the strictest row and column that apply ask for
cell[i] := data.remit.settings.matrix[row[i]][column[i]] if some i, _ in input.evaluations

row[i] := stricter(
	data.remit.settings.rows,
	action.action.properties.reversibility,
	effect[i].at_least.reversibility,
) if {
	some i, action in input.evaluations
}

column[i] := stricter(
	data.remit.settings.columns,
	stricter(data.remit.settings.columns, action.action.properties.consequence, effect[i].at_least.consequence),
	column_by_amount(action.action.properties, i),
) if {
	some i, action in input.evaluations
}

stricter(order, a, b) := order[max([place | some place, name in order; name in {a, b}])]

# A currency without a threshold cannot be compared, so it counts as high.
default column_by_amount(_, _) := "high"

column_by_amount(_, i) := "low" if effect[i].money == false

column_by_amount(properties, i) := "low" if properties.amount_minor <= effect[i].high_above[properties.currency]
