// Package inventory tests what a hub knows of the resources of a set: baselines, Resource
// Lists and audits, with programs that are killed.
package inventory

import (
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The program of the tests is also that of their destinations.
func TestMain(m *testing.M) {
	if os.Getenv(inDirectory) == "" {
		hubtest.Main(m)
	}
	if err := beDestination(); err != nil {
		fmt.Fprintln(os.Stderr, "destination:", err)
		os.Exit(1)
	}
}
