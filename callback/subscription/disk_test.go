package subscription

import (
	"context"
	"testing"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil"
)

// A slow is a Keep that holds up each write until the test lets it go on.
type slow struct {
	*testutil.Map
	writing, proceed chan struct{}
}

func (k *slow) Apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if k.writing != nil {
		k.writing <- struct{}{}
		<-k.proceed
	}
	return k.Map.Apply(ctx, writes, grows)
}

// Claims are renewed while the disk is busy with a commit.
func TestDiskIsSlow(t *testing.T) {
	k := &slow{Map: &testutil.Map{}}
	d := openDisk(t, k)
	c := claimOn(t, d, 1)
	k.writing, k.proceed = make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() { done <- d.Commit(context.Background(), c, Changes{Put: subscriptions(1, 1)}) }()
	<-k.writing
	if held, err := d.Renew(t.Context(), []claim.Claim{c}); err != nil || len(held) != 1 { // hangs if it waits
		t.Errorf("renewed %v (%v)", held, err)
	}
	close(k.proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDiskCorrupt(t *testing.T) {
	k := &testutil.Map{}
	d := openDisk(t, k)
	some := subscriptions(1, 3)
	if err := d.Commit(t.Context(), claimOn(t, d, 1), Changes{Put: some}); err != nil {
		t.Fatal(err)
	}
	bad := some[1].ID()
	if err := k.Apply(t.Context(), map[string][]byte{progressKey(bad): []byte("no progress")}, false); err != nil {
		t.Fatal(err)
	}
	loadsOthers(t, d, 1, bad)
}
