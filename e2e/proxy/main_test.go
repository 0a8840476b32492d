// Package proxy tests the configurations in deploy/proxy with the real nginx, HAProxy and Caddy
// between clients and the built programs.
package proxy

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestMain raises the parallelism, because the tests mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	hubtest.Main(m)
}
