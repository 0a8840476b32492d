package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// usage is what the third hub uses, which is never ended.
type usage struct{ rss, heap, goroutines, files int }

func (u usage) String() string {
	return fmt.Sprintf("RSS %d MiB, live heap %d KiB, %d goroutines, %d files", u.rss>>20, u.heap>>10, u.goroutines, u.files)
}

// sample returns what the third hub uses, of memory just after its garbage was collected.
func (s *soak) sample() (u usage) {
	ops := s.Hubs[2].Ops
	hubtest.Must(s, http.StatusOK, http.MethodGet, ops+"/debug/pprof/heap?gc=1", nil)
	metrics := string(hubtest.Must(s, http.StatusOK, http.MethodGet, ops+"/metrics", nil).Body)
	for name, v := range map[string]*int{
		"process_resident_memory_bytes": &u.rss, "go_memstats_heap_alloc_bytes": &u.heap, "go_goroutines": &u.goroutines, "process_open_fds": &u.files,
	} {
		var n float64
		_, value, _ := strings.Cut(metrics, "\n"+name+" ")
		if _, err := fmt.Sscan(value, &n); err != nil {
			s.Errorf("hub 2 has no metric %s: %v", name, err)
		}
		*v = int(n)
	}
	return u
}

// grew says when a hub used more of anything after the first third of the samples than ever
// in it, by more than chance explains: any number of the clients may be at this hub, and what
// sets keep in memory grows for a while.
func grew(all []usage, clients int) error {
	var most usage
	first := (len(all) + 2) / 3
	for _, u := range all[:first] {
		most = usage{max(most.rss, u.rss), max(most.heap, u.heap), max(most.goroutines, u.goroutines), max(most.files, u.files)}
	}
	most = usage{most.rss*3/2 + 64<<20, most.heap*3/2 + 8<<20, most.goroutines + 4*clients, most.files + 2*clients}
	for i, u := range all[first:] {
		if u.rss > most.rss || u.heap > most.heap || u.goroutines > most.goroutines || u.files > most.files {
			return fmt.Errorf("checkpoint %d: %v; after the first %d there should not be more than %v", first+i+1, u, first, most)
		}
	}
	return nil
}

// TestGrew has samples of a hub that grows, and of one that does not.
func TestGrew(t *testing.T) {
	for name, more := range map[string]usage{
		"nothing": {}, "memory": {rss: 40 << 20}, "heap": {heap: 4 << 20}, "goroutines": {goroutines: 50}, "files": {files: 20},
	} {
		var all []usage
		for i := range 12 {
			all = append(all, usage{100<<20 + i*more.rss, 5<<20 + i*more.heap, 40 + i*more.goroutines, 30 + i*more.files})
		}
		if err := grew(all, 40); (err != nil) != (name != "nothing") {
			t.Errorf("%s grows: %v", name, err)
		}
	}
}
