// Package conntest opens Conns of package internal/redisconn for tests.
//
// Package redistest starts the servers.
package conntest

import (
	"testing"

	"github.com/rshub/rshub/internal/redisconn"
)

// Open returns a Conn to the server at an address. It is closed at the end of the test.
func Open(t testing.TB, address string, o redisconn.Options) *redisconn.Conn {
	t.Helper()
	return open(t, "redis://"+address, o)
}

// OpenCluster is Open for a Cluster with a server at an address.
func OpenCluster(t testing.TB, address string, o redisconn.Options) *redisconn.Conn {
	t.Helper()
	return open(t, "redis://"+address+"?cluster=true", o)
}

func open(t testing.TB, url string, o redisconn.Options) *redisconn.Conn {
	t.Helper()
	c, err := redisconn.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
