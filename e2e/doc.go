// Package e2e tests the built programs from outside: rshub and rspublish as
// processes, followers over the network, and a real browser. It is a module of
// its own, so that what only these tests need is no dependency of rshub.
//
//	go test -count=1 .                        everything, in about a minute
//	RSHUB_E2E_RACE=1 go test -count=1 .       with programs built with -race
//	RSHUB_E2E_NO_BROWSER=1 go test -count=1 . without Chromium
//	RSHUB_SOAK=2h go test -count=1 -timeout 0 -v -run '^TestSoak$' .
//	                                          random faults for so long; see make soak
//
// Without -count=1 go may show an old result: it does not know that these tests
// build and run what is in the module above.
package e2e
