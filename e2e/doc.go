// Package e2e tests the built programs from outside: rshub, rspublish and rsmirror as
// processes, followers over the network, and a real browser. It is a module of its own, so
// that the dependencies of the tests are not dependencies of rshub. The packages are
// organized by topic:
//
//	smoke     the tests that every change must pass: each feature once
//	publish   what is published, and how
//	follow    WebSockets, event streams, pages, browsers
//	callback  WebSub
//	cluster   several hubs with one Redis and one NATS
//	operate   start, stop, backups, tokens, logs, metrics, alerts
//	deploy    the running image, chart and Compose file; chart has the rendered chart
//	proxy     the configurations for nginx, HAProxy and Caddy
//	clients   the Python client, the examples, and the commands in the documentation
//	inventory baselines, Resource Lists, and audits
//	source    rspublish sync and watch
//	mirror    rsmirror, and failures during its work
//	polled    sources without a hub: stale, invalid, moved and hostile ones, many at a time
//	attack    attacks on a hub while others use it
//	faults    random faults: in a cluster under load, under callers whose histories are
//	          checked for linearizability, and between a source and its mirrors
//
// The packages run one after the other, because tests that measure time disturb each other:
//
//	go test -count=1 -p 1 ./...                     everything, takes minutes
//	RSHUB_E2E_RACE=1 go test -count=1 -p 1 ./...    with programs built with -race
//	RSHUB_E2E_NO_BROWSER=1 go test -count=1 ./follow    without Chromium
//	RSHUB_E2E_FULL=1 go test -count=1 -timeout 0 ./callback ./faults ./polled    in full size
//	RSHUB_E2E_SEED=n                                repeats the random choices of a run
//	RSHUB_SOAK=2h go test -count=1 -timeout 0 -v -run '^TestSoak$' ./faults
//	                                                random faults for two hours; see make soak
//
// Without -count=1, go may report a cached result: it does not know that these tests build
// and run the module above.
package e2e
