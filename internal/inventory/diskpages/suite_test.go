package diskpages

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

func TestStore(t *testing.T) { storetest.Store(t, openBeside) }

func TestInventory(t *testing.T) { storetest.Inventory(t, openBeside) }

// openBeside opens a store next to a log.
func openBeside(t *testing.T) storetest.Env {
	log, err := disklog.Open(t.Context(), "log", disklog.Options{FS: vfs.NewMem(), Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, "pages", Options{FS: vfs.NewMem()})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return storetest.Env{Store: storetest.Beside(s, log), Log: log}
}
