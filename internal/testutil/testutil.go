// Package testutil helps tests: it waits for conditions, and provides repeatable random numbers,
// logs, connections, and measurements of memory.
//
// The packages below it start servers and simulate networks. Only tests import it.
package testutil
