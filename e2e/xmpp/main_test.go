// Package xmpp tests what the hub publishes over XMPP, with a Prosody and with a subscriber
// that stands on slixmpp.
package xmpp

import (
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }
