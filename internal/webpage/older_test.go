package webpage

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// down returns the positions from one down to another.
func down(from, to int) (all []int) {
	for n := from; n >= to; n-- {
		all = append(all, n)
	}
	return all
}

// up returns the positions from one up to another.
func up(from, to int) []int {
	all := down(to, from)
	slices.Reverse(all)
	return all
}

// TestShowOlder clicks on "Show older changes". A click adds the next rows that match the filter,
// without a gap, or shows why there are none.
func TestShowOlder(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: apt-get install nodejs")
	}
	const none, further = "There are no older changes", "Programs can read further back"
	type clicks struct {
		Floor   int      `json:"floor"`
		Head    int      `json:"head"`
		Created []int    `json:"created"`
		Large   int      `json:"large"`
		List    []int    `json:"list"`
		Change  []string `json:"change"`
		Clicks  int      `json:"clicks"`
	}
	only := []string{"created"}
	for _, tt := range []struct {
		name  string
		in    clicks
		rows  [][]int  // rows added by each click
		notes []string // substring of the note after each click; empty for none
	}{
		{"no filter", clicks{Head: 500, List: down(500, 401), Change: []string{}},
			[][]int{down(400, 301), down(300, 201)}, []string{"", ""}},
		{"no match in a page", clicks{Head: 5010, Created: append(up(1, 300), up(5001, 5010)...), List: down(5010, 5001), Change: only},
			[][]int{down(300, 201), down(200, 101), down(100, 1), {}}, []string{"", "", "", none}},
		{"rows in several windows", clicks{Head: 9000, Created: []int{100, 3000, 8500, 9000}, List: []int{9000}, Change: only},
			[][]int{{8500}, {3000, 100}, {}}, []string{"", "", none}},
		{"log starts later", clicks{Floor: 4000, Head: 9000, Created: []int{3000, 4001, 9000}, List: []int{9000}, Change: only},
			[][]int{{4001}, {}}, []string{"", none}},
		{"no match", clicks{Head: 9000, Created: []int{9000}, List: []int{9000}, Change: only},
			[][]int{{}}, []string{none}},
		{"limit of the page", clicks{Head: 30000, Created: []int{100, 25000, 30000}, List: []int{30000}, Change: only},
			[][]int{{25000}, {}}, []string{"", further}},
		{"large changes", clicks{Head: 9000, Large: 7, Created: append(up(1000, 1300), 9000), List: []int{9000}, Change: only},
			[][]int{down(1300, 1201), down(1200, 1101)}, []string{"", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.Clicks = len(tt.rows)
			in, err := json.Marshal(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), node, "testdata/older.mjs", "assets/tail.js", string(in)).CombinedOutput()
			if err != nil {
				t.Fatalf("run node: %v: %s", err, out)
			}
			var got struct {
				Rows     [][]int
				Notes    []string
				Requests int
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("read %s: %v", out, err)
			}
			for i, want := range tt.rows {
				if !slices.Equal(got.Rows[i], want) {
					t.Errorf("click %d: got rows %v, want %v", i+1, got.Rows[i], want)
				}
				if note := got.Notes[i]; (note == "") != (tt.notes[i] == "") || !strings.Contains(note, tt.notes[i]) {
					t.Errorf("click %d: got note %q, want %q", i+1, note, tt.notes[i])
				}
			}
			if most := 12 * len(tt.rows); tt.in.Large == 0 && got.Requests > most {
				t.Errorf("%d clicks: got %d requests, want at most %d", len(tt.rows), got.Requests, most)
			}
		})
	}
}
