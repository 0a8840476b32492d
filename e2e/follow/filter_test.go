package follow

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/conformance/trial"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestChoose follows by tags and by links in every way, and by callbacks, from before the
// changes and after them.
func TestChoose(t *testing.T) {
	t.Parallel()
	const patch = "http://www.openarchives.org/rs/terms/patch"
	choices := []struct {
		param, value string
		wants        func(tags, rels []string) bool
	}{
		{"tag", "frogs,fish", func(tags, _ []string) bool { return slices.Contains(tags, "frogs") || slices.Contains(tags, "fish") }},
		{"rel", patch + ",via", func(_, rels []string) bool { return slices.Contains(rels, "via") || slices.Contains(rels, patch) }},
	}
	h := hubtest.StartWebSub(t)
	tr := hubtest.TrialOf(t, h)
	tp := tr.Topic()
	var followers [][]*hubtest.Follower
	var callbacks []*trial.Callback
	follow := func() {
		for i, c := range choices {
			if len(followers) == i {
				followers = append(followers, nil)
			}
			for _, way := range hubtest.AllWays {
				f := &hubtest.Follower{Way: way, Set: tp.Set, Hub: h, Cursor: "start", Query: "&" + c.param + "=" + url.QueryEscape(c.value)}
				f.Run(t)
				followers[i] = append(followers[i], f)
			}
		}
	}
	follow()
	for i, c := range choices {
		for _, f := range followers[i] {
			f.Begins(t)
		}
		cb := tr.Callback("")
		v := tr.Subscribed(cb, tp, "rs."+c.param, c.value, "rs.since", "start")
		if got := strings.Split(v.Param("rs."+c.param), ","); len(got) != 2 {
			t.Errorf("rs.%s is told as %q", c.param, got)
		}
		callbacks = append(callbacks, cb)
	}

	publish := func(stdin string, args ...string) {
		t.Helper()
		if code, _, said := hubtest.Run(t, nil, strings.NewReader(stdin), hubtest.Rspublish, append([]string{"-hub", h.URL, "-set", tp.Set}, args...)...); code != 0 {
			t.Fatalf("rspublish ends with %d: %s", code, said)
		}
	}
	loc := func(name string) string { return "https://example.org/" + tp.Set + "/chosen/" + name }
	publish("", "-tag", "fish,birds", "-updated", loc("tag"), "-deleted", loc("deleted"))
	publish("", "-link", "via=urn:x:a", "-link", "up=urn:x:b", "-created", loc("link"))
	publish("", "-tag", "Frogs", "-link", "memento=urn:x:c", "-created", loc("others"))
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"loc":%q,"change":"updated"`, loc(fmt.Sprint(i)))
		if i%3 == 0 {
			lines.WriteString(`,"tags":["humans","frogs"]`)
		}
		if i%5 == 0 {
			fmt.Fprintf(&lines, `,"ln":[{"rel":"up","href":"urn:x:a"},{"rel":%q,"href":"urn:x:b","type":"a/b"}]`, patch)
		}
		lines.WriteString("}\n")
	}
	publish(lines.String(), "-")
	publish("", "-tag", "frogs", "-link", "via=urn:x:a", "-updated", loc("last"))
	follow()

	all := hubtest.Memory(t, h, tp.Set)
	for i, c := range choices {
		var want []trial.Entry
		var locs []string
		for _, e := range all {
			var change struct {
				Loc  string
				Tags []string
				Ln   []struct{ Rel string }
			}
			if err := json.Unmarshal([]byte(e.Text), &change); err != nil {
				t.Fatal(err)
			}
			var rels []string
			for _, l := range change.Ln {
				rels = append(rels, l.Rel)
			}
			if c.wants(change.Tags, rels) {
				want, locs = append(want, e), append(locs, change.Loc)
			}
		}
		for _, f := range followers[i] {
			hubtest.Same(t, "the "+f.Way+" by "+c.param, f.Has(t, len(want)), want)
		}
		tr.Delivered(callbacks[i], "/chosen/last</loc>")
		var got []string
		for _, change := range tr.Taken(callbacks[i], "") {
			got = append(got, change.Loc)
		}
		if !slices.Equal(got, locs) {
			t.Errorf("the callback by %s has %d changes, not %d: %.300q", c.param, len(got), len(locs), got)
		}
	}
}
