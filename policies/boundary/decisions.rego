# METADATA
# scope: package
# title: The control boundary
# description: |
#   Judges each action of a question: deny outranks needs_approval outranks allow.
#   An action that no rule can judge gets no decision, so that the asker misses its id and sends nothing.
#   Without its data it judges nothing at all: half a bundle must not look like a deny.
package remit.boundary

# METADATA
# title: One decision per action, in the order of the question
# entrypoint: true
default decisions := []

decisions := [decision |
	some i, action in input.evaluations
	decision := {
		"id": action.id,
		"verdict": verdict[i],
		"reasons": reasons[i],
		"obligations": obligations[i],
	}
] if {
	is_array(input.evaluations)
	is_object(data.remit.settings)
}

# METADATA
# title: The strictest verdict that a reason supports
verdict[i] := "deny" if count(denials[i]) > 0

verdict[i] := "needs_approval" if {
	count(denials[i]) == 0
	count(asks[i]) > 0
}

verdict[i] := "allow" if {
	count(denials[i]) == 0
	count(asks[i]) == 0
	cell[i].verdict == "allow"
}

# METADATA
# title: Why, for each verdict
reasons[i] := denials[i] if verdict[i] == "deny"

reasons[i] := asks[i] if verdict[i] == "needs_approval"

reasons[i] := [{"code": "matrix_allow", "detail": $"{row[i]}, {column[i]} consequence"}] if verdict[i] == "allow"

# Lists, also where empty: OPA keeps what is defined, and would judge again what is not. Sorted, since the compiled
# form keeps sets in another order than the server.
denials[i] := sort([reason | some reason in deny[i]]) if some i, _ in input.evaluations

asks[i] := sort([reason | some reason in ask[i]]) if some i, _ in input.evaluations
