# METADATA
# scope: package
# title: Who may ask an OPA server of Remit what
# description: |
#   A decision-only token asks the one question and does nothing else: it reads no policy and no data, and changes none.
#   `data.remit_server.token_sha256` lists the SHA-256 of each token in hexadecimal, so that no file holds a token.
package system.authz

default allow := false

# METADATA
# title: The decision, with a token that is listed
# entrypoint: true
allow if {
	input.method == "POST"
	input.path == ["v1", "data", "remit", "boundary", "decisions"]
	crypto.sha256(input.identity) in data.remit_server.token_sha256
}

# METADATA
# title: Whether the server lives and holds its bundle, without a token
allow if {
	input.method == "GET"
	input.path == ["health"]
}
