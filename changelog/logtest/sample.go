package logtest

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"sync"

	"github.com/rshub/rshub/resourcesync"
)

// peps is a path relative to the directory of a log's package, where its tests run.
const peps = "../../../shared/data/peps-changes.jsonl.gz"

// sample has the changes of a real source, if their file exists, else changes of the same
// shape.
var sample = sync.OnceValue(func() []resourcesync.Change {
	if changes := readSample(peps); len(changes) > 0 {
		return changes
	}
	changes := make([]resourcesync.Change, 20_000)
	for i := range changes {
		length := int64(i * 7919 % 100_000)
		changes[i] = resourcesync.Change{
			Loc:    fmt.Sprintf("https://example.org/documents/%d/document-%d.txt", i%100, i),
			Change: resourcesync.Updated,
			Hash:   fmt.Sprintf("md5:%032x", i*2654435761),
			Length: &length,
			Type:   "text/plain",
		}
	}
	return changes
})

// Sample returns n consecutive changes to measure with, beginning at about the given one.
// The changes are shared: do not change them.
func Sample(from, n int) []resourcesync.Change {
	all := sample()
	from %= len(all) - n
	return all[from : from+n]
}

func readSample(path string) (changes []resourcesync.Change) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		c, err := resourcesync.ParseChange(lines.Bytes())
		if err != nil {
			return nil
		}
		changes = append(changes, *c)
	}
	return changes
}
