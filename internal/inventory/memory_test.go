package inventory_test

import (
	"testing"

	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

func TestMemory(t *testing.T) { storetest.Store(t, memory) }

func TestMemoryInventory(t *testing.T) { storetest.Inventory(t, memory) }

func FuzzHistory(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(100))
	f.Fuzz(func(t *testing.T, seed uint64) { storetest.History(t, memory(t), seed, 40) })
}

func memory(*testing.T) storetest.Env {
	log := storetest.NewMemoryLog()
	return storetest.Env{Store: storetest.Beside(inventory.NewMemory(), log), Log: log}
}
