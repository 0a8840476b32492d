// Package registrytest is the contract of subscription.Registry as a test suite. Each registry runs
// it in a test of its own.
//
// It covers what a registry must store, list and fence. It does not cover deliveries, which package
// callback tests. To add a registry, read package subscription first.
package registrytest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/claim"
)

// A Backend is a kind of registry.
type Backend struct {
	// New returns a store, which is empty. The backend removes it when the test
	// ends.
	New func(t *testing.T) Store

	// Shared says that several hubs may use one store at the same time. The
	// tests with several hubs need claims that last less than a second.
	Shared bool
}

// A Store is where a registry is kept.
type Store struct {
	Open    func() Hub // opens the registry for one more hub
	Restart func()     // ends the store like a crash, and starts it again; the registries must then be opened again. nil: opening them again is all
}

// A Hub is one hub's registry, with the claims that fence its commits.
type Hub interface {
	subscription.Registry
	claim.Store
}

// Run runs the suite. Every subtest has a store of its own.
func Run(t *testing.T, b Backend) {
	r := record("set", 1)
	filled(t, r.Subscription, "Sealed", "Stale")
	filled(t, r.Progress)
	filled(t, request(&r, 1), "Sealed", "Number")
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"records", recordTests},
		{"inbox", inboxTests},
		{"list", listTests},
		{"fencing", fencingTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if test.shared && !b.Shared {
						t.Skip("needs a store that hubs share")
					}
					s := b.New(t)
					test.run(&hub{T: t, Hub: s.Open(), ctx: t.Context(), store: s})
				})
			}
		})
	}
}

// filled checks that each field of a struct but these has a value, so that the suite sees when a
// registry does not keep one.
func filled(t *testing.T, v any, but ...string) {
	t.Helper()
	x := reflect.ValueOf(v)
	for i := range x.NumField() {
		if name := x.Type().Field(i).Name; x.Field(i).IsZero() != slices.Contains(but, name) {
			t.Errorf("the field %s of %T is %v", name, v, x.Field(i))
		}
	}
}

type test struct {
	name   string
	shared bool // it needs several hubs with one store
	run    func(h *hub)
}

// A Disk is the registry, with its claims, of a hub that shares with no other
// hub.
type Disk struct {
	*subscription.Disk
	*claim.Local
}

// OpenDisk opens a registry and its claims in a Map.
func OpenDisk(t testing.TB, data subscription.Map) Disk {
	t.Helper()
	claims, err := claim.OpenLocal(t.Context(), data, subscription.Shards)
	if err != nil {
		t.Fatal(err)
	}
	d, err := subscription.OpenDisk(t.Context(), data, claims, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Disk{d, claims}
}
