// Package e2e tests the built programs from outside: rshub and rspublish as
// processes, followers over the network, and a real browser. It is a module of
// its own, so that what only these tests need is no dependency of rshub. Tests are
// in packages by what they are about:
//
//	smoke     what every change has to pass: each thing that rshub is for, once
//	publish   what is published, and how
//	follow    WebSockets, event streams, pages, browsers
//	callback  WebSub
//	cluster   several hubs on one Redis and one NATS
//	operate   starting, stopping, backups, tokens, logs, metrics, alerts
//	deploy    the image, the chart and compose, as they run; chart has the chart as it is rendered
//	proxy     the configurations for nginx, HAProxy and Caddy
//	clients   the Python client, the examples, and the commands of the documentation
//	inventory baselines, Resource Lists, and audits
//	source    rspublish sync and watch
//	mirror    rsmirror, and what breaks while it works
//	polled    sources that can only be polled: stale, wrong and moved ones, and hostile ones in a crowd
//	attack    what those who mean harm try, while others use the hub
//	faults    faults at random: in a cluster under load, under callers whose histories are held
//	          against one memory, and between a source and its mirrors
//
// One package runs after the other, for tests that measure time disturb each other:
//
//	go test -count=1 -p 1 ./...                     everything, in some minutes
//	RSHUB_E2E_RACE=1 go test -count=1 -p 1 ./...    with programs built with -race
//	RSHUB_E2E_NO_BROWSER=1 go test -count=1 ./follow    without Chromium
//	RSHUB_E2E_FULL=1 go test -count=1 -timeout 0 ./callback ./faults ./polled    in full size
//	RSHUB_E2E_SEED=n                                with the choices of another run
//	RSHUB_SOAK=2h go test -count=1 -timeout 0 -v -run '^TestSoak$' ./faults
//	                                                random faults for so long; see make soak
//
// Without -count=1 go may show an old result: it does not know that these tests
// build and run what is in the module above.
package e2e
