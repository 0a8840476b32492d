package logtest

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"sync"

	"github.com/rshub/rshub/resourcesync"
)

// peps is seen from the directory of a log's package.
const peps = "../../../shared/data/peps-changes.jsonl.gz"

// sample are the changes of a real source where its file is there, else changes
// that look alike.
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

// Sample returns n consecutive changes to measure with, from about the given one
// on. They are shared and not to be changed.
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
