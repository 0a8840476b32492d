package disklog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/logtest"
)

// all makes a test with a fixed sample try everything.
var all = os.Getenv("RSHUB_PROVE") != ""

// A brokenDisk fails operations from an ordinal on, or only the one with that ordinal: those that
// read, or those that write.
type brokenDisk struct {
	reads  bool
	at     int64 // ordinal of the first operation that fails; zero means none
	stays  bool  // all later operations also fail
	count  atomic.Int64
	failed atomic.Bool
	what   atomic.Value // string that describes the first operation that failed

	// While a store is being opened, a failure ends the process immediately: Open would
	// return an error, and Pebble would panic in its own goroutines, which it leaves behind.
	opening atomic.Bool
	end     func(error)

	apart atomic.Bool // present operations are not part of the script
	dead  atomic.Bool // the process has ended, so no operation returns
}

func (b *brokenDisk) MaybeError(op errorfs.Op) error {
	if b.dead.Load() {
		select {}
	}
	if (op.Kind.ReadOrWrite() == errorfs.OpIsRead) != b.reads || b.apart.Load() {
		return nil
	}
	n := b.count.Add(1)
	if b.at == 0 || n < b.at || n > b.at && !b.stays {
		return nil
	}
	if !b.failed.Swap(true) {
		b.what.Store(fmt.Sprint(op.Kind, " ", op.Path))
	}
	err := errors.New("input/output error")
	if b.opening.Load() {
		b.end(err)
		select {}
	}
	return err
}

func (*brokenDisk) String() string { return "broken" }

// hanging is the time after which a process is killed: Pebble does not close a store whose disk has
// failed, but retries forever. A kill at any other moment is a fault, too.
const hanging = time.Second

// TestFaultPoints makes each write, sync, creation, rename and removal of a file fail in turn, and
// then each open and read, from the first opening of a memory to the end of a fixed script. After
// the process has ended or continued, with and without the data that was not synced, everything
// acknowledged exists and is listed, an unknown step is stored completely or not at all, and
// nothing else exists.
func TestFaultPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the script for each fault")
	}
	tune := func(o *pebble.Options) {
		small(o)
		o.CacheSize = 1 << 20
	}
	life := func(base vfs.FS, disk *brokenDisk, fatal func(string, error)) *logtest.ScriptRun {
		l := &logtest.ScriptRun{}
		fs := errorfs.Wrap(base, disk)
		l.Open = func() (changelog.Log, error) {
			disk.opening.Store(true)
			defer disk.opening.Store(false)
			log, err := Open(t.Context(), "a/data", Options{FS: fs, tune: tune, Now: l.Now, Fatal: fatal})
			if err != nil {
				return nil, err // not a nil *Log
			}
			return log, nil
		}
		return l
	}
	var looks []string // state after n steps
	var folds *logtest.ResourceStates
	clean := func(reads bool) (operations int64) {
		never := &brokenDisk{reads: reads}
		l := life(vfs.NewCrashableMem(), never, fatal(t))
		looks, folds = []string{""}, new(logtest.ResourceStates)
		if err := l.Run(t.Context(), func(int) {
			never.apart.Store(true)
			looks = append(looks, l.Dump(t))
			folds.Record(t, l)
			never.apart.Store(false)
		}); err != nil {
			t.Fatal(err)
		}
		operations = never.count.Load()
		l.CheckKeys(t, logtest.Steps())
		ok(t, l.Log.Close())
		return operations
	}

	every := int64(9)
	if all {
		every = 1
	}
	for _, reads := range []bool{false, true} {
		operations, silent := clean(reads), 0
		for at := int64(1); at <= operations; at += every {
			for _, stays := range []bool{false, true} {
				base := vfs.NewCrashableMem()
				disk := &brokenDisk{reads: reads, at: at, stays: stays}
				type end struct {
					lost, kept    *vfs.MemFS // disk without the unsynced data, after a crash of the machine, and with it, after a crash of the process
					before, after int64      // number of acknowledged steps
					err           error
				}
				over := make(chan end, 1)
				var l *logtest.ScriptRun
				finish := func(err error) {
					e := end{before: l.Acked.Load(), err: err}
					e.lost = base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
					e.kept = base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
					disk.dead.Store(true)
					e.after = l.Acked.Load()
					select {
					case over <- e:
					default: // only the first failure counts
					}
				}
				disk.end = finish
				l = life(base, disk, func(msg string, err error) {
					finish(fmt.Errorf("%s: %w", msg, err))
					select {} // like the end of the process: no caller gets an answer
				})
				go func() { finish(l.Run(t.Context(), func(int) {})) }()
				killed := time.AfterFunc(hanging, func() { finish(errors.New("killed, because it hung")) })
				e := <-over
				killed.Stop()
				name := fmt.Sprintf("operation %d, reads %t, stays %t (%v): %v", at, reads, stays, disk.what.Load(), e.err)
				if e.err == nil {
					silent++
				}
				for _, fs := range []*vfs.MemFS{e.lost, e.kept} {
					again := life(fs, new(brokenDisk), fatal(t))
					log, err := again.Open()
					if err != nil {
						t.Fatalf("%s, synced only %t: Open() = %v", name, fs == e.lost, err)
					}
					again.Log = log
					got, steps := again.Dump(t), -1
					if e.before == 0 {
						steps = 0 // at most the creation of the memory was acknowledged
					}
					for n := max(e.before, 1); n <= min(e.after+1, int64(logtest.Steps())) && steps < 0; n++ {
						if got == looks[n] {
							steps = int(n)
						}
					}
					if steps < 0 {
						t.Fatalf("%s, synced only %t: state after %d acknowledged steps =\n%swant\n%s", name, fs == e.lost, e.before, got, looks[e.before])
					}
					again.CheckKeys(t, steps)
					again.CheckInventories(t, folds, int(e.before))
					if err := log.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
		t.Logf("reads %t: %d operations, one in %d failed; the script did not notice %d faults", reads, operations, every, silent)
	}
}
