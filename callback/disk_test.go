package callback

import (
	"context"
	"testing"
	"testing/synctest"
)

// A slow is a Keep that writes only when it is let.
type slow struct {
	*memory
	writing, proceed chan struct{}
}

func (k *slow) Apply(ctx context.Context, writes map[string][]byte, grows bool) error {
	if k.writing != nil {
		k.writing <- struct{}{}
		<-k.proceed
	}
	return k.memory.Apply(ctx, writes, grows)
}

// Claims are renewed while the disk is busy with a commit.
func TestDiskIsSlow(t *testing.T) {
	k := &slow{memory: &memory{kept: map[string][]byte{}}}
	d, err := OpenDisk(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	c := claim(t, d, 1)
	k.writing, k.proceed = make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() { done <- d.Commit(context.Background(), c, Changes{Put: subscriptions(1, 1)}) }()
	<-k.writing
	if held, err := d.Renew(t.Context(), []Claim{c}); err != nil || len(held) != 1 { // hangs if it waits
		t.Errorf("renewed %v (%v)", held, err)
	}
	close(k.proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDiskCorrupt(t *testing.T) {
	k := &memory{kept: map[string][]byte{}}
	d, err := OpenDisk(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	some := subscriptions(1, 3)
	if err := d.Commit(t.Context(), claim(t, d, 1), Changes{Put: some}); err != nil {
		t.Fatal(err)
	}
	bad := some[1].ID()
	k.kept[progressKey(bad)] = []byte("no progress")
	loadsOthers(t, d, 1, bad)
}

// A request that cannot be read holds up no other.
func TestBadRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		c := w.listen("a.example")
		shard := NewID("demo", c.url).Shard()
		if err := w.log.Keep("callback").Apply(t.Context(), map[string][]byte{inboxKey(shard, 1): []byte("no JSON")}, false); err != nil {
			t.Fatal(err)
		}
		w.subscribe(c)
		left, err := w.registry.Inbox(t.Context(), shard, 0, 10)
		if err != nil || len(left) != 1 || left[0].Number != 1 || left[0].Mode != "" {
			t.Errorf("%v are left (%v)", left, err)
		}
	})
}
