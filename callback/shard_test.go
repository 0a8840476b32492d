package callback

import (
	"context"
	"testing"
)

// A worker may get a sub from the ready queue just after its shard came to rest to be handed over. It starts
// nothing, and does not wake the goroutine that hands the shard over again.
func TestWorkOnRestedShard(t *testing.T) {
	e := New(nil, nil, nil, nil, nil, Options{})
	sh := &shard{engine: e, ctx: context.Background(), leaving: true, rested: make(chan struct{})}
	close(sh.rested)
	s := &sub{shard: sh, stage: queued, commands: commandList{{}}}
	s.work()
	if s.stage != idle || sh.owned != 0 || len(s.commands) != 1 {
		t.Errorf("after work: stage %d, %d owned, %d commands; want an idle sub that has its command", s.stage, sh.owned, len(s.commands))
	}
}
