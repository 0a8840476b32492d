// Package proxy tests the configurations in deploy/proxy with the real nginx, HAProxy
// and Caddy between the built programs and their clients.
package proxy

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// These tests wait for most of their time, so many may run at once.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	hubtest.Main(m)
}
