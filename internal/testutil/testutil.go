// Package testutil helps tests: it waits for conditions, and provides repeatable random numbers,
// logs, connections, and measurements of memory. Its packages start servers and simulate networks.
package testutil
