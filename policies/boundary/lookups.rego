package remit.boundary

# METADATA
# title: The mandate's limit per effect
limits[limit.effect] := limit if some limit in input.context.mandate.limits

# METADATA
# title: The mandate's step that an action names, if it also names that step's effect
step[i] := wanted if {
	some i, action in input.evaluations
	some wanted in input.context.mandate.steps
	wanted.name == action.action.properties.step
	wanted.effect == action.action.name
}

# METADATA
# title: What policy data says about an action's effect
effect[i] := settings if {
	some i, action in input.evaluations
	settings := data.remit.settings.effects[action.action.name]
}

# METADATA
# title: What is completed, in flight or unknown of an effect under this purpose
total(name) := object.get(input.context.totals, name, {"count": 0, "amounts": {}})
