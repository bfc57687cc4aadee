package remit.boundary

# METADATA
# title: Every limit that policy compared is also reserved by the ledger, under a name that stays the same
mandate_volume(i) := {
	"name": concat(":", ["mandate", step[i].effect]),
	"count": limits[step[i].effect].count,
	"amount_minor": object.get(limits[step[i].effect], ["money", "amount_minor"], null),
	"currency": object.get(limits[step[i].effect], ["money", "currency"], null),
}

policy_volume(i) := object.union(effect[i].volume, {"name": concat(":", ["policy", step[i].effect])})
