// Package testutil helps tests: it waits for conditions, and provides reproducible random numbers,
// logs, connections and memory measurements.
//
// Its subpackages start servers and simulate networks. Only tests import it.
package testutil
