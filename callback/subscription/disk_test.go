package subscription

import (
	"context"
	"testing"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil"
)

// A diskHub is the registry and the claims of a single hub.
type diskHub struct {
	*Disk
	*claim.Local
}

func openDisk(t testing.TB, data Map) diskHub {
	t.Helper()
	claims, err := claim.OpenLocal(t.Context(), data, Shards)
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDisk(t.Context(), data, claims, nil)
	if err != nil {
		t.Fatal(err)
	}
	return diskHub{d, claims}
}

// A blockingMap blocks in Apply until proceed is closed.
type blockingMap struct {
	*testutil.Map
	applying, proceed chan struct{}
}

func (m *blockingMap) Apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if m.applying != nil {
		m.applying <- struct{}{}
		<-m.proceed
	}
	return m.Map.Apply(ctx, writes, grows)
}

// Claims are renewed while the disk is busy with a commit.
func TestRenewDuringCommit(t *testing.T) {
	m := &blockingMap{Map: &testutil.Map{}}
	d := openDisk(t, m)
	c := acquire(t, d, 1)
	m.applying, m.proceed = make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() { done <- d.Commit(context.Background(), c, Changes{Put: recordsIn(1, 1)}) }()
	<-m.applying
	if held, err := d.Renew(t.Context(), []claim.Claim{c}); err != nil || len(held) != 1 { // must not block
		t.Errorf("Renew() = %v, %v, want the claim", held, err)
	}
	close(m.proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDiskCorrupt(t *testing.T) {
	m := &testutil.Map{}
	d := openDisk(t, m)
	testCorrupt(t, d, d, func(id ID) error {
		return m.Apply(t.Context(), map[string][]byte{progressKey(id): []byte("no progress")}, false)
	})
}
