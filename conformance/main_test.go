package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// TestUsage refuses flags that do not fit together, and says which.
func TestUsage(t *testing.T) {
	hub, topic := "http://127.0.0.1:1/hub", "http://127.0.0.1:1/sets/{}/changes"
	for _, test := range []struct {
		name string
		args []string
		says string
	}{
		{"nothing", nil, "-hub"},
		{"no topic", []string{"-hub", hub}, "-topic"},
		{"a hub without a scheme", []string{"-hub", "hub.example.org", "-topic", topic}, "-hub"},
		{"a flag that is none", []string{"-hub", hub, "-topic", topic, "-fast"}, "-fast"},
		{"an argument", []string{"-hub", hub, "-topic", topic, "more"}, "more"},
		{"a bad pattern", []string{"-hub", hub, "-topic", topic, "-run", "("}, "-run"},
		{"a level that is none", []string{"-hub", hub, "-topic", topic, "-level", "may"}, "-level"},
		{"a pattern of nothing", []string{"-hub", hub, "-topic", topic, "-run", "nonsense"}, "-run"},
		{"another way to publish", []string{"-hub", hub, "-topic", topic, "-publish", "mail"}, "-publish"},
		{"extras of one topic", []string{"-hub", hub, "-topic", "http://127.0.0.1:1/sets/one/changes", "-extras"}, "-extras"},
		{"every address", []string{"-hub", hub, "-topic", topic, "-listen", ":0"}, "-callback"},
		{"callbacks below a path", []string{"-hub", hub, "-topic", topic, "-callback", "http://127.0.0.1:9000/callbacks"}, "-callback"},
		{"a token that is not there", []string{"-hub", hub, "-topic", topic, "-token", "@/nowhere"}, "token"},
		{"a hub that is not there", []string{"-hub", hub, "-topic", topic}, "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(test.args, &stdout, &stderr); code != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), test.says) {
				t.Errorf("it ends with %d, and says\n%s%s", code, &stdout, &stderr)
			}
		})
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-h"}, &stdout, &stderr); code != 0 || !strings.Contains(stderr.String(), "-callback") {
		t.Errorf("-h ends with %d, and says\n%s", code, &stderr)
	}
}

// TestList lists every check once, with where it comes from.
func TestList(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-list", "-json"}, &stdout, &stderr); code != 0 {
		t.Fatalf("it ends with %d: %s", code, &stderr)
	}
	seen := map[string]bool{}
	for text := range strings.Lines(stdout.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if seen[l.Name] {
			t.Errorf("%q is there twice", l.Name)
		}
		seen[l.Name] = true
		if l.Section == "" && l.Standard != rshub || l.Level == "" {
			t.Errorf("it does not say where it comes from: %s", text)
		}
	}
	if len(seen) != len(allChecks) {
		t.Errorf("%d of %d checks are listed", len(seen), len(allChecks))
	}
}

// TestOutput prints how checks came out.
func TestOutput(t *testing.T) {
	checks := []check{
		{mustLevel, "5.1 one", func(*trial.Trial) {}},
		{shouldLevel, "CN 4.2 two", func(t *trial.Trial) { t.Errorf("not %d", 2) }},
		{mustLevel, "7 three", func(t *trial.Trial) { t.Skip("no reason") }},
		{extraLevel, "four", func(*trial.Trial) { panic("out of range") }},
	}
	print := func(checks []check, asJSON bool) (text string, conforms bool) {
		var b bytes.Buffer
		p := &printer{w: &b, json: asJSON}
		tryAll(t.Context(), &trial.Hub{Patience: time.Second}, checks, 1, p.tried)
		p.summary()
		return b.String(), p.conforms()
	}
	text, conforms := print(checks[:3], false)
	if want := `PASS  WS 5.1  MUST    one
FAIL  CN 4.2  SHOULD  two
      not 2
SKIP  WS 7    MUST    three
      no reason

MUST: 1 passed, 0 failed, 1 skipped; SHOULD: 0 passed, 1 failed, 0 skipped
The hub conforms.
`; text != want || !conforms {
		t.Errorf("it says\n%s, not\n%s", text, want)
	}
	text, conforms = print(checks, true)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var l line
	if err := json.Unmarshal([]byte(lines[3]), &l); err != nil || l.Standard != rshub || l.Outcome != failed || !strings.Contains(l.Why[0], "out of range") {
		t.Errorf("the last check is %s", lines[3])
	}
	if want := `{"summary":{"MUST":{"pass":1,"skip":1},"SHOULD":{"fail":1},"extra":{"fail":1}},"conforms":false}`; lines[4] != want || conforms {
		t.Errorf("the summary is %s, not %s", lines[4], want)
	}
}

// TestOneTopic tries a right hub that has one topic, in the way in which any hub
// is tried.
func TestOneTopic(t *testing.T) {
	t.Parallel()
	h := startRshub(t)
	var stdout, stderr bytes.Buffer
	code := run([]string{"-hub", h.URL, "-topic", strings.ReplaceAll(h.Topics, "{}", "one"), "-run", "^5.1.1 the|^8.2|secret of 199|^CN 4|^CN 5|several topics"}, &stdout, &stderr)
	text := stdout.String()
	if code != 0 || strings.Contains(text, "FAIL") || strings.Count(text, "SKIP") != 2 || strings.Count(text, "PASS") < 12 {
		t.Errorf("it ends with %d, and says\n%s%s", code, text, &stderr)
	}
}
