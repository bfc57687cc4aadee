package remit.boundary

# METADATA
# title: What the ledger must see to
obligations[i] := {
	"hold_seconds": hold(i),
	"release_by": release_by(i),
	"approvers": approval[i].approvers,
	"quorum": approval[i].quorum,
	"quorum_of": approval[i].quorum_of,
	"decide_within": approval[i].decide_within,
	"on_expiry": approval[i].on_expiry,
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
	"quorum_of": {},
	"decide_within": 0,
	"on_expiry": null,
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

approval[i] := {"approvers": [], "quorum": 0, "quorum_of": {}, "decide_within": 0, "on_expiry": null} if verdict[i] == "allow"
