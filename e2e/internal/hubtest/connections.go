package hubtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// OpenConnections counts the connections of the hub's that the system knows to
// be open at the hub's end.
func OpenConnections(t testing.TB, h *Hub) (n int) {
	t.Helper()
	_, port, _ := strings.Cut(h.Host, ":")
	p, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", h.Cmd.Process.Pid))
	if err != nil {
		t.Skip("this system does not say which connections are open")
	}
	for line := range strings.Lines(string(table)) {
		const established = "01"
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", p)) && f[3] == established {
			n++
		}
	}
	return n
}
