package remit.boundary

# METADATA
# title: Nothing new under a stop or a freeze
# description: The database says which order is in force; neither a mandate nor a prompt can.
deny[i] contains {"code": barred_code(action), "detail": "A standing order is in force; only people lift it."} if {
	some i, action in input.evaluations
	not unbarred(action)
}

unbarred(action) if action.resource.properties.barred == null

default barred_code(_) := "stopped"

barred_code(action) := "frozen" if action.resource.properties.barred == "freeze"
