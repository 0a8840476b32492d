package clients

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestReceiverSpool checks the file of each receiver. The name of a new file must be durable before
// the response to the first delivery, and a partly written line must not get a response of 2xx.
func TestReceiverSpool(t *testing.T) {
	t.Parallel()
	for language, command := range receivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := &receiver{command: command(t), addr: hubtest.FreePort(t), spool: filepath.Join(dir, "spool"), topic: "http://127.0.0.1/sets/demo/changes", secret: "secret"}
			r.url = "http://" + r.addr + "/changes"

			watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(watch) //nolint:errcheck // opened only for reading
			if _, err := syscall.InotifyAddWatch(watch, dir, syscall.IN_CREATE|syscall.IN_OPEN); err != nil {
				t.Fatal(err)
			}
			whole := r.command
			r.command = append([]string{"sh", "-c", `ulimit -f 4; exec "$@"`, "sh"}, whole...) // 2 or 4 KiB
			r.start(t)
			first := notification(0, 1, "")
			if got := r.post(t, first, sign(r.secret, first)); got != http.StatusNoContent {
				t.Fatalf("first delivery = %d, want 204: %s", got, r.Stderr.String())
			}
			b := make([]byte, 4096)
			n, err := syscall.Read(watch, b)
			if err != nil {
				t.Fatal(err)
			}
			created, synced := false, false // a sync opens the directory
			for b = b[:n]; len(b) > 0; {
				e := (*syscall.InotifyEvent)(unsafe.Pointer(&b[0]))
				created = created || e.Mask&syscall.IN_CREATE != 0
				synced = synced || created && e.Mask&syscall.IN_OPEN != 0 && e.Mask&syscall.IN_ISDIR != 0
				b = b[syscall.SizeofInotifyEvent+e.Len:]
			}
			if !created || !synced {
				t.Errorf("file created: %t, directory opened afterwards: %t, want both", created, synced)
			}

			big := notification(1, 101, "")
			a, err := hubtest.Request(http.MethodPost, r.url, strings.NewReader(big), "X-Hub-Signature: "+sign(r.secret, big))
			if err == nil && a.Status < 300 {
				t.Errorf("delivery that does not fit = %d, want an error", a.Status)
			}
			r.Kill()
			r.command = whole
			r.start(t)
			if got := r.post(t, big, sign(r.secret, big)); got != http.StatusNoContent {
				t.Errorf("delivery after a restart = %d, want 204: %s", got, r.Stderr.String())
			}
			var marks []string
			for _, l := range r.lines(t) {
				marks = append(marks, fmt.Sprint(l.Mark, " ", len(l.Changes)))
			}
			if want := []string{"1 1", "101 100"}; !slices.Equal(marks, want) {
				t.Errorf("got marks and changes %q, want %q", marks, want)
			}
		})
	}
}
