package system.authz_test

import data.system.authz

listed := {"token_sha256": [crypto.sha256("word")]}

decision := ["v1", "data", "remit", "boundary", "decisions"]

cases := {
	"the decision with the token": [true, "POST", decision, "word"],
	"the decision with another token": [false, "POST", decision, "words"],
	"the decision without a token": [false, "POST", decision, null],
	"the decision read": [false, "GET", decision, "word"],
	"the decision replaced": [false, "PUT", decision, "word"],
	"another document": [false, "POST", ["v1", "data", "remit"], "word"],
	"below the decision": [false, "POST", array.concat(decision, ["0"]), "word"],
	"the whole of the data": [false, "GET", ["v1", "data"], "word"],
	"a query of one's own": [false, "POST", ["v1", "query"], "word"],
	"a policy": [false, "PUT", ["v1", "policies", "x"], "word"],
	"the older interface": [false, "POST", ["v0", "data", "remit", "boundary", "decisions"], "word"],
	"the server's health": [true, "GET", ["health"], null],
	"the server's configuration": [false, "GET", ["v1", "config"], "word"],
}

test_who_may_ask_what[name] if {
	some name, [expected, method, path, identity] in cases
	asked := {"method": method, "path": path, "identity": identity}
	authz.allow == expected with input as asked with data.remit_server as listed
}

test_without_a_list_no_token_is_right if {
	asked := {"method": "POST", "path": decision, "identity": "word"}
	not authz.allow with input as asked
}
