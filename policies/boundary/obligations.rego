package remit.boundary

# METADATA
# title: What the ledger must see to
obligations[i] := {
	"hold_seconds": hold(i),
	"release_by": release_by(i),
	"approvers": approval[i].approvers,
	"quorum": approval[i].quorum,
	"decide_within": approval[i].decide_within,
	"execute_within": effect[i].execute_within,
	"volume": volume(i),
	"auto_budget": auto_budget(i),
	"verify": cell[i].verify,
} if {
	verdict[i] in {"allow", "needs_approval"}
}

# METADATA
# title: Nothing to see to where nothing may be done
obligations[i] := {
	"hold_seconds": 0,
	"release_by": [],
	"approvers": [],
	"quorum": 0,
	"decide_within": 0,
	"execute_within": 0,
	"volume": [],
	"auto_budget": [],
	"verify": false,
} if {
	verdict[i] == "deny"
}

hold(i) := effect[i].hold_seconds if {
	cell[i].hold == true
} else := 0

release_by(i) := effect[i].release_by if {
	cell[i].hold == true
} else := []

approval[i] := effect[i] if verdict[i] == "needs_approval"

approval[i] := {"approvers": [], "quorum": 0, "decide_within": 0} if verdict[i] == "allow"
