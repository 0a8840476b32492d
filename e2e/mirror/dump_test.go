package mirror

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// asks returns how many contents the origin was asked for since the last call.
func (o *origin) asks() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.asked {
		n += times
	}
	clear(o.asked)
	return n
}

// TestDumps mirrors a set from its Resource Dump and then from Change Dumps, which the hub has
// made, and proves that. The origin is asked for what no dump has, and for nothing else.
func TestDumps(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	h, o, dir := hubtest.StartHub(t, "RSHUB_CONTENT_PLACE="+place, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", "RSHUB_CHANGELIST_SIZE=20", "RSHUB_DUMP_PACKAGE_COUNT=10"), newOrigin(t), t.TempDir()
	var lines [][]byte
	for i := range 50 {
		lines = append(lines, o.set(fmt.Sprintf("/f%02d", i), fmt.Appendf(nil, "content %d", i), nil))
	}
	publish(t, h, "demo", lines...)
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/demo", []byte(`{"dumps":"on","complete":true}`))
	has := func(document string, packages int) {
		t.Helper()
		hubtest.Until(t, fmt.Sprintf("%s has %d packages", document, packages), func() error {
			a, err := hubtest.Request(http.MethodGet, h.URL+"/sets/demo/"+document, nil)
			if err != nil {
				return err
			}
			if n := strings.Count(string(a.Body), "<url>"); n != packages {
				return fmt.Errorf("it has %d: %s", n, a.Body)
			}
			return nil
		})
	}
	same := func(dir, says string, least, most int) {
		t.Helper()
		_, stderr := rsmirror(t, 0, "-once", "-strip", o.URL, h.Topic("demo"), dir)
		if err := o.same(dir); err != nil {
			t.Error(err)
		}
		rsmirror(t, 0, "audit", dir)
		if n := o.asks(); n < least || n > most || !strings.Contains(stderr, says) {
			t.Errorf("the origin was asked for %d contents, want %d to %d: %s", n, least, most, stderr)
		}
	}
	has("resourcedump.xml", 5)
	o.asks()
	same(dir, "package 5 of 5 of the Resource Dump", 0, 0)

	// Changes 51 to 60 end the list that was open, and 61 to 80 are the next one. The last ten
	// are in no dump yet.
	lines = nil
	for i := range 20 {
		lines = append(lines, o.set(fmt.Sprintf("/f%02d", i), fmt.Appendf(nil, "newer content %d", i), nil))
	}
	for i := range 5 {
		lines = append(lines, o.set(fmt.Sprintf("/f%02d", 40+i), nil, nil))
	}
	for i := range 15 {
		lines = append(lines, o.set(fmt.Sprintf("/new/%d", i), fmt.Appendf(nil, "new content %d", i), nil))
	}
	publish(t, h, "demo", lines...)
	has("changedump.xml", 4)
	o.asks()
	same(dir, "of the Change Dump", 10, 10)

	// A dump that is damaged is no harm. (The baseline is older than the contents, so some of
	// them are asked for twice.)
	err := filepath.WalkDir(place, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".zip") {
			return err
		}
		return os.Truncate(name, 100)
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t.TempDir(), "contents are asked for one by one", 60, 120)
}
