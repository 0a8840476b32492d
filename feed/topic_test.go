package feed

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

// The name of a topic, its URL, its set and its log belong together.
func TestTopics(t *testing.T) {
	const base = Base("https://hub.example.org")
	for _, test := range []struct{ topic, url, set, log string }{
		{"a.set", "https://hub.example.org/sets/a.set/changes", "a.set", "a.set"},
		{FrameworkTopic("a.set"), "https://hub.example.org/sets/a.set/framework", "a.set", "a.set:framework"},
		{AtomTopic("a.set"), "https://hub.example.org/sets/a.set/atom.xml", "a.set", "a.set"},
		{FrameworkTopic("framework"), "https://hub.example.org/sets/framework/framework", "framework", "framework:framework"},
	} {
		if got := base.Topic(test.topic); got != test.url {
			t.Errorf("%s: its URL is %s", test.topic, got)
		}
		if got, ok := base.FindTopic(test.url); got != test.topic || !ok {
			t.Errorf("%s: it is %q %t", test.url, got, ok)
		}
		if set, ok := base.ParseTopic(test.url); ok != (test.topic == test.set) || ok && set != test.set {
			t.Errorf("%s: to publish, it is %q %t", test.url, set, ok)
		}
		if set, log := SetOf(test.topic), LogOf(test.topic); set != test.set || log != test.log {
			t.Errorf("%s: its set is %q, and its log %q", test.topic, set, log)
		}
		if err := CheckLog(test.log); err != nil {
			t.Error(err)
		}
	}
	for _, url := range []string{"", "https://hub.example.org/sets/", "https://hub.example.org/sets//framework", "https://hub.example.org/sets/a:framework/changes",
		"https://hub.example.org/sets/a/framework/", "https://hub.example.org/sets/a/atom", "https://other.example.org/sets/a/framework", "https://hub.example.org/sets/A/framework"} {
		if topic, ok := base.FindTopic(url); ok {
			t.Errorf("%s is the topic %s", url, topic)
		}
	}
	for _, name := range []string{"", ":framework", "a:atom", "a:framework:framework", "a:other", "A:framework"} {
		if CheckLog(name) == nil {
			t.Errorf("%q can name a log", name)
		}
	}
}

// A batch of a framework topic is a framework notification.
func TestFrameworkNotification(t *testing.T) {
	b := NewBatch(FrameworkTopic("a.set"), Cursor{6, noon - 2_500_000}, Cursor{8, noon + 1}, []resourcesync.Change{
		WithCapability(resourcesync.Change{Loc: "https://hub.example.org/sets/a.set/changelist-1-2.xml", Change: resourcesync.Created,
			Links: []resourcesync.Link{{Rel: "index", Href: "https://hub.example.org/sets/a.set/changelist-index.xml"}}}, resourcesync.ChangeList),
		WithCapability(resourcesync.Change{Loc: "https://hub.example.org/sets/a.set/capabilitylist.xml", Change: resourcesync.Updated}, resourcesync.CapabilityList),
	})
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:h="https://github.com/rshub/rshub/terms/">
  <rs:md capability="framework-notification" from="2026-01-02T03:04:02.500000Z" until="2026-01-02T03:04:05.000001Z" h:after="6-1767323042500000" h:cursor="8-1767323045000001"/>
  <url><loc>https://hub.example.org/sets/a.set/changelist-1-2.xml</loc><rs:md capability="changelist" change="created" datetime="2026-01-02T03:04:05.000000Z" h:position="7"/><rs:ln rel="index" href="https://hub.example.org/sets/a.set/changelist-index.xml"/></url>
  <url><loc>https://hub.example.org/sets/a.set/capabilitylist.xml</loc><rs:md capability="capabilitylist" change="updated" datetime="2026-01-02T03:04:05.000001Z" h:position="8"/></url>
</urlset>
`
	if got := string(b.XML()); got != want {
		t.Errorf("XML is\n%s, want\n%s", got, want)
	}
	var shown struct {
		Set     string
		Changes []struct{ Capability, Loc string }
	}
	if err := json.Unmarshal(b.JSON(), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Set != "a.set" || len(shown.Changes) != 2 || shown.Changes[0].Capability != resourcesync.ChangeList || strings.Contains(string(b.JSON()), "{https:") {
		t.Errorf("JSON is %s", b.JSON())
	}
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed: the notification is not held against the XML schemas")
	}
	cmd := exec.Command(xmllint, "--nonet", "--noout", "--schema", "../resourcesync/testdata/xsd/urlset.xsd", "-")
	cmd.Stdin = strings.NewReader(want)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
