package e2e

import (
	"slices"
	"testing"
)

// websubChecks are what the Recommendation asks of any hub.
var websubChecks = slices.Concat(requestChecks, verifyChecks, unsubscribeChecks, deliverChecks)

// TestWebSub checks the hub against the W3C Recommendation of 23 January 2018.
// Each check's name begins with the section it comes from.
func TestWebSub(t *testing.T) {
	t.Parallel()
	runChecks(t, startSubject(t), websubChecks)
}
